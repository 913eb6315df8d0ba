"""Provisions volumes with `WaitForFirstConsumer` between a decision and the binding.

If the StorageClass of a PVC waits for the first consumer, the PVC gets its volume only after a node is written on it.
So the operator writes the node, and binds the pod after the PVC is bound:

    PVC without volume ──> annotated with the node ──> the provisioner makes the volume ──> PVC bound ──> pod bound

In the meantime the pod's GPUs are reserved. If this takes too long, or the provisioner rejects the node, the operator
does not bind the pod. It removes the annotation and writes the reason on the pod, and a later decision tries again.
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
"""Maximum time for a provisioner to answer. The reserved GPUs are idle during this time."""
MISSING_SECONDS: Final = 5.0
"""Maximum wait for a PVC that does not exist yet, or for the right to write it.

A PVC can be created shortly after its pod, and the right shortly after its project.
"""
POLL_SECONDS: Final = 1.0
"""Interval of further attempts without a change on the watch, because a request may have failed."""
NO_PROVISIONER: Final = "kubernetes.io/no-provisioner"


class ClaimNotReady(MusterError):
    """A PVC or another resource of the pod is not ready on the node; the message names it and the reason."""


@dataclass(frozen=True, slots=True)
class _Requested:
    """The pod for which a node was written on a PVC. `before` is the PVC's version before this write."""

    pod: str
    node: str
    before: str = ""


class Claims:
    """Prepares the PVCs of pods for a node. `volumes` has the cached storage objects; `labels_of` returns a node's
    labels.
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
        """Wake all waiting bindings if a storage object has changed."""
        if isinstance(change.object, StorageObject):
            self._changed.set()
            self._changed = asyncio.Event()

    async def ready(self, pod: Pod, node: str, is_wanted: Callable[[], bool]) -> None:
        """Wait until every PVC of the pod has a volume that the node can use, or until the binding is canceled.

        Raises ClaimNotReady if that is impossible or takes too long, after it has removed the selected node from the
        PVCs.
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
        """Do the next step for one PVC. Return the reason why the pod must wait; "" if it need not wait."""
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
        """Remove the node that was written for this pod from the PVCs, so that the next decision can choose another."""
        for key in keys:
            waiting, claim = self._requested.get(key), self._volumes.claim(key)
            if waiting is None or waiting.pod != uid or claim is None or claim.status.phase == "Bound":
                continue
            if claim.metadata.annotations.get(SELECTED_NODE_ANNOTATION) == waiting.node and self._is_leader():
                await self._annotate(key, claim, None)

    async def _annotate(self, key: Key, claim: PersistentVolumeClaim, node: str | None) -> bool:
        """Write the node on the PVC, if its version is the known one. Return false if another attempt is needed."""
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
