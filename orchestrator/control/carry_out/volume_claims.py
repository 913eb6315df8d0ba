"""Volumes that are made for the node of their first consumer: the steps between a decision and its binding.

A claim whose storage class waits for the first consumer gets no volume before the scheduler has written a node on it.
So the node is written, and the pod is bound when the claim is:

    claim without volume ──> annotated with the node ──> the provisioner makes the volume ──> claim bound ──> pod bound

In the meantime the pod's GPUs are reserved. If that takes too long, or the provisioner rejects the node, nothing was
bound. The annotation is removed, the pod gets the reason, and it is decided on again later.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from orchestrator.cluster.errors import ClusterError, Forbidden
from orchestrator.cluster.objects import PersistentVolumeClaim, Pod
from orchestrator.cluster.reflector import Change
from orchestrator.cluster.resources import CLAIMS
from orchestrator.cluster.transport import MERGE_PATCH, Transport
from orchestrator.errors import MusterError
from orchestrator.labels import matches_requirement
from orchestrator.names import SELECTED_NODE_ANNOTATION
from orchestrator.observe.volumes import WAITS_FOR_CONSUMER, Key, StorageObject, Volumes, claims_of

logger = logging.getLogger(__name__)

CLAIM_SECONDS: Final = 120.0
"""Time for a provisioner to answer. The reserved GPUs are idle during that time."""
MISSING_SECONDS: Final = 5.0
"""Maximum time without a PVC, or without the right to write it.

Both are created at about the same time as the pod, or its project.
"""
POLL_SECONDS: Final = 1.0
"""How often it is looked again although nothing was seen to change: a request may have failed."""
NO_PROVISIONER: Final = "kubernetes.io/no-provisioner"


class ClaimNotReady(MusterError):
    """A claim of the pod has no volume that its node can use; the message says which and why."""


@dataclass(frozen=True, slots=True)
class _Requested:
    """The pod for which a node was written on a claim. `before` is the claim's version before our write."""

    pod: str
    node: str
    before: str = ""


class Claims:
    """Prepares the PVCs of pods for a node. `volumes` is the known state, `labels_of` returns the labels of a node by
    name.
    """

    def __init__(
        self,
        transport: Transport,
        volumes: Volumes,
        labels_of: Callable[[str], Mapping[str, str]],
        *,
        is_leader: Callable[[], bool],
        claim_seconds: float = CLAIM_SECONDS,
        missing_seconds: float = MISSING_SECONDS,
        poll_seconds: float = POLL_SECONDS,
    ) -> None:
        self._transport = transport
        self._volumes = volumes
        self._labels_of = labels_of
        self._is_leader = is_leader
        self._claim_seconds = claim_seconds
        self._missing_seconds = missing_seconds
        self._poll_seconds = poll_seconds
        self._changed = asyncio.Event()
        self._requested: dict[Key, _Requested] = {}
        self._forbidden: dict[Key, str] = {}

    def see(self, change: Change[Any]) -> None:
        """Look again at once when storage has changed."""
        if isinstance(change.object, StorageObject):
            self._changed.set()
            self._changed = asyncio.Event()

    async def ready(self, pod: Pod, node: str, is_wanted: Callable[[], bool]) -> None:
        """Return when every PVC of the pod has a volume that the node can use, or the binding was cancelled.

        Raises ClaimNotReady if that is impossible or takes too long; the attempt then leaves nothing.
        """
        keys, uid = claims_of(pod), pod.metadata.uid
        loop = asyncio.get_running_loop()
        started = loop.time()
        try:
            while is_wanted():
                changed = self._changed
                waits = [why for key in keys if (why := await self._step(key, node, uid))]
                if not waits:
                    return
                self._lose_patience(keys, waits[0], loop.time() - started)
                await _wait(changed, self._poll_seconds)
        except ClaimNotReady:
            await self._take_back(keys, uid)
            raise
        finally:
            for key in keys:
                self._forbidden.pop(key, None)
                if key in self._requested and self._requested[key].pod == uid:
                    del self._requested[key]

    async def _step(self, key: Key, node: str, uid: str) -> str:
        """Do the next step for one PVC; return the reason of a wait, "" if there is none."""
        claim = self._volumes.claim(key)
        name = key[1]
        if claim is None:
            return f"the claim {name} is not there"
        if claim.metadata.deletion_timestamp is not None or claim.status.phase == "Lost":
            lost = "has lost its volume" if claim.status.phase == "Lost" else "is being deleted"
            raise ClaimNotReady(f"the claim {name} {lost}")
        if claim.status.phase == "Bound":
            return self._bound(key, claim, node)
        storage_class = self._volumes.storage_class(claim)
        if (
            storage_class is None
            or storage_class.volume_binding_mode != WAITS_FOR_CONSUMER
            or claim.spec.volume_name
        ):
            return ""
        if storage_class.provisioner == NO_PROVISIONER:
            raise ClaimNotReady(
                f"the claim {name} has no volume, and class {storage_class.metadata.name} creates none: "
                "name a volume in its spec.volumeName"
            )
        return await self._select(key, claim, node, uid)

    def _bound(self, key: Key, claim: PersistentVolumeClaim, node: str) -> str:
        if self._volumes.volume(claim) is None:
            return f"the volume {claim.spec.volume_name} of the claim {key[1]} is not there"
        terms = self._volumes.claim_terms(key)
        labels = self._labels_of(node) if terms else {}
        if terms and not any(
            all(matches_requirement(labels, requirement) for requirement in term) for term in terms
        ):
            raise ClaimNotReady(f"the volume of the claim {key[1]} cannot be reached from {node}")
        return ""

    async def _select(self, key: Key, claim: PersistentVolumeClaim, node: str, uid: str) -> str:
        waits = f"the claim {key[1]} has no volume on {node}"
        selected = claim.metadata.annotations.get(SELECTED_NODE_ANNOTATION, "")
        waiting = self._requested.get(key)
        if waiting is not None and waiting.pod != uid:
            return f"the claim {key[1]} gets its volume for another pod, on {waiting.node}"
        if selected == node:
            self._requested.setdefault(key, _Requested(uid, node))
        elif waiting is None and self._is_leader():
            self._requested[key] = _Requested(uid, node, claim.metadata.resource_version)
            if not await self._annotate(key, claim, node):
                del self._requested[key]
        elif waiting is not None and claim.metadata.resource_version != waiting.before:
            raise ClaimNotReady(
                f"{waits}: its provisioner has given the node back, see the events of the claim"
            )
        return waits

    async def _take_back(self, keys: list[Key], uid: str) -> None:
        """The selected node of the pod is removed, so that the next decision is free."""
        for key in keys:
            waiting, claim = self._requested.get(key), self._volumes.claim(key)
            if waiting is None or waiting.pod != uid or claim is None or claim.status.phase == "Bound":
                continue
            if claim.metadata.annotations.get(SELECTED_NODE_ANNOTATION) == waiting.node and self._is_leader():
                await self._annotate(key, claim, None)

    async def _annotate(self, key: Key, claim: PersistentVolumeClaim, node: str | None) -> bool:
        """Write the node on the claim as it is known; False when that has to be tried again."""
        metadata = {
            "uid": claim.metadata.uid,
            "resourceVersion": claim.metadata.resource_version,
            "annotations": {SELECTED_NODE_ANNOTATION: node},
        }
        try:
            await self._transport.patch(CLAIMS.path(*key), {"metadata": metadata}, content_type=MERGE_PATCH)
        except ClusterError as error:
            if isinstance(error, Forbidden):
                self._forbidden[key] = str(error)
            logger.info("claim %s/%s: to be given a node later: %s", *key, error)
            return False
        self._forbidden.pop(key, None)
        return True

    def _lose_patience(self, keys: list[Key], why: str, waited_seconds: float) -> None:
        if waited_seconds >= self._missing_seconds:
            for key in keys:
                if self._volumes.claim(key) is None:
                    raise ClaimNotReady(f"there is no claim {key[1]} in {key[0]}")
                if key in self._forbidden:
                    raise ClaimNotReady(f"the claim {key[1]} cannot be given a node: {self._forbidden[key]}")
        if waited_seconds >= self._claim_seconds:
            raise ClaimNotReady(f"{why} after {self._claim_seconds:.0f} s")


async def _wait(changed: asyncio.Event, seconds: float) -> None:
    try:
        async with asyncio.timeout(seconds):
            await changed.wait()
    except TimeoutError:
        return
