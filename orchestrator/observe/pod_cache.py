"""The pods of all namespaces, as if all started requests of the operator had succeeded.

    watch ──────────────────> note ──┐
    executor ──> bind, evict, nominate ──> a pod as it will be ──> Reader
    a refused request ──────> forget ┘                       confirm: the watch shows it

A binding, eviction or nomination is assumed from its start by the executor until the API server refuses it or the watch
shows it.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final

import msgspec

from orchestrator.cluster.objects import Pod
from orchestrator.cluster.reflector import Change
from orchestrator.names import (
    ADMITTED_ANNOTATION,
    GPU_DEVICES_ANNOTATION,
)
from orchestrator.observe.gpu_shares import without_shares
from orchestrator.observe.grace_periods import MAX_GRACE_SECONDS, grace_seconds, terminates
from orchestrator.observe.nominations import with_nomination
from orchestrator.observe.request import devices_text
from orchestrator.planner.placements import Placement

_NOT_YET: Final = "9999-12-31T23:59:59Z"
"""The deletion timestamp of a pod whose eviction the watch has not shown. So no pod counts as its successor yet."""


class PodCache:
    """The pods by uid. `tell` is called with each changed pod and whether it exists.

    `bindings`, `evictions` and `nominations` are the assumptions by pod uid. A nomination of None means that it was
    removed.
    """

    def __init__(
        self,
        tell: Callable[[Pod, bool], None] = lambda _pod, _is_there: None,
        *,
        max_checkpoint_grace_seconds: int = MAX_GRACE_SECONDS,
    ) -> None:
        self._tell = tell
        self._max_checkpoint_grace_seconds = max_checkpoint_grace_seconds
        self._pods: dict[str, Pod] = {}
        self._shown: dict[str, Pod] = {}
        """The pods with an assumption, in the state that the watch shows."""
        self._bindings: dict[str, Placement] = {}
        self._evictions: dict[str, None] = {}
        self._nominations: dict[str, Placement | None] = {}
        self._inherited: Mapping[str, Placement] = {}
        self._successors: Mapping[str, Pod] = {}
        self._changed: dict[str, None] = {}
        self.bindings: Mapping[str, Placement] = MappingProxyType(self._bindings)
        self.evictions = self._evictions.keys()
        self.nominations: Mapping[str, Placement | None] = MappingProxyType(self._nominations)

    def note(self, change: Change[Pod]) -> None:
        """Apply a change that the watch shows."""
        pod, uid = change.object, change.object.metadata.uid
        if change.type == "deleted":
            self._pods.pop(uid, None)
            self._shown.pop(uid, None)
            self._tell(pod, False)
            return
        if uid in self._shown or self._is_assumed(uid):
            self._shown[uid] = pod
            pod = self._as_it_will_be(pod)
        self._put(pod)

    def bind(self, uid: str, placement: Placement) -> None:
        """Assume that the pod is bound to a node and its devices."""
        self._bindings[uid] = placement
        self._mark(uid)

    def evict(self, uid: str) -> None:
        """Assume that the API server has accepted the pod's eviction."""
        self._evictions[uid] = None
        self._mark(uid)

    def nominate(self, uid: str, placement: Placement | None) -> None:
        """Assume that the nomination is written on the pod, or is removed from it (None)."""
        self._nominations[uid] = placement
        self._mark(uid)

    def expect(self, successors: Mapping[str, Pod], inherited: Mapping[str, Placement]) -> None:
        """Replace the stand-ins for pods that controllers will create, and the inherited nominations, both by uid.

        A nomination that the executor has started has precedence over an inherited one.
        """
        for uid in self._successors.keys() - successors.keys():
            self.note(Change("deleted", self._successors[uid]))
        for uid, pod in successors.items():
            if self._successors.get(uid) is not pod:
                self.note(Change("added", pod))
        for uid in self._inherited.keys() | inherited.keys():
            self._mark(uid)
        self._successors, self._inherited = dict(successors), dict(inherited)

    def forget_binding(self, uid: str) -> None:
        """End the assumption that the pod is bound."""
        self._bindings.pop(uid, None)
        self._mark(uid)

    def forget_eviction(self, uid: str) -> None:
        """End the assumption that the pod is evicted."""
        self._evictions.pop(uid, None)
        self._mark(uid)

    def forget_nomination(self, uid: str) -> None:
        """End the assumption about the nomination of the pod."""
        self._nominations.pop(uid, None)
        self._mark(uid)

    def confirm(self, pods: Mapping[str, Pod]) -> None:
        """End the assumed bindings and evictions that the watch shows, and the assumptions about deleted pods.

        `pods` are the pods that the watch shows, by uid.
        """
        for uid in list(self._bindings):
            pod = pods.get(uid)
            if pod is None or pod.spec.node_name or pod.metadata.deletion_timestamp is not None:
                self.forget_binding(uid)
        for uid in list(self._evictions):
            pod = pods.get(uid)
            if pod is None or terminates(pod, self._max_checkpoint_grace_seconds):
                self.forget_eviction(uid)

    def settle(self) -> None:
        """Call `tell` for the pods whose assumptions changed since the last call."""
        for uid in self._changed:
            shown = self._shown.get(uid)
            if shown is not None:
                self._put(self._as_it_will_be(shown))
                if not self._is_assumed(uid):
                    del self._shown[uid]
        self._changed.clear()

    def _mark(self, uid: str) -> None:
        """Mark the pod for the next `settle`. The watch shows the result of most requests before the next decision."""
        if uid in self._pods:
            self._shown.setdefault(uid, self._pods[uid])
            self._changed[uid] = None

    def _put(self, pod: Pod) -> None:
        if self._pods.get(pod.metadata.uid) is not pod:
            self._pods[pod.metadata.uid] = pod
            self._tell(pod, True)

    def _is_assumed(self, uid: str) -> bool:
        return any(
            uid in known for known in (self._bindings, self._evictions, self._nominations, self._inherited)
        )

    def _as_it_will_be(self, pod: Pod) -> Pod:
        uid = pod.metadata.uid
        if uid in self._bindings and not pod.spec.node_name:
            pod = bound(pod, self._bindings[uid])
        if uid in self._evictions and pod.spec.node_name:
            pod = evicted(pod, self._max_checkpoint_grace_seconds)
        if uid in self._nominations:
            pod = with_nomination(pod, self._nominations[uid])
        elif uid in self._inherited:
            pod = with_nomination(pod, self._inherited[uid])
        return pod


def binding_annotations(pod: Pod, devices: tuple[int, ...]) -> dict[str, str]:
    """Return the annotations that every binding writes, which replace annotations of the pod's template."""
    return {
        **without_shares(pod),
        GPU_DEVICES_ANNOTATION: devices_text(devices),
        ADMITTED_ANNOTATION: pod.metadata.uid,
    }


def bound(pod: Pod, placement: Placement) -> Pod:
    """Return the pod with the changes that the binding makes."""
    annotations = {**pod.metadata.annotations, **binding_annotations(pod, placement.devices)}
    metadata: dict[str, Any] = {"annotations": annotations}
    return msgspec.structs.replace(
        pod,
        metadata=msgspec.structs.replace(pod.metadata, **metadata),
        spec=msgspec.structs.replace(pod.spec, node_name=placement.node),
    )


def evicted(pod: Pod, max_checkpoint_grace_seconds: int = MAX_GRACE_SECONDS) -> Pod:
    """Return the bound pod with the changes that the eviction makes."""
    if terminates(pod, max_checkpoint_grace_seconds):
        return pod
    metadata: dict[str, Any] = {
        "deletion_timestamp": _NOT_YET,
        "deletion_grace_period_seconds": grace_seconds(pod, max_checkpoint_grace_seconds),
    }
    return msgspec.structs.replace(pod, metadata=msgspec.structs.replace(pod.metadata, **metadata))
