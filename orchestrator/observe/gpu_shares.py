"""The GPU fractions of pods on reserved GPUs of nodes with a device plugin.

The plugin chooses the GPU of a reservation pod. The agent of the node learns this GPU from the kubelet. The binding of
a pod writes its fractions and their reservations on it. Pure.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from orchestrator.cluster.gpu_nodes import GpuNode, GpuState
from orchestrator.cluster.objects import FINISHED, Pod
from orchestrator.names import (
    GPU_DEVICES_ANNOTATION,
    GPU_RESERVATIONS_ANNOTATION,
    GPU_UUIDS_ANNOTATION,
    SYSTEM_NAMESPACE,
)
from orchestrator.observe.request import devices_of, devices_text, is_admitted

_WRITTEN: Final = (GPU_UUIDS_ANNOTATION, GPU_RESERVATIONS_ANNOTATION)


@dataclass(frozen=True, slots=True)
class Share:
    """A pod's fraction of one GPU: the uid of the reservation pod, and index and UUID of the GPU."""

    reservation: str
    index: int
    uuid: str


def shares_of(pod: Pod) -> tuple[Share, ...]:
    """Return the reserved fractions of a bound pod; empty if it has ended, or if muster did not write them."""
    annotations = pod.metadata.annotations
    if not annotations.get(GPU_RESERVATIONS_ANNOTATION) or not pod.spec.node_name:
        return ()
    if pod.status.phase in FINISHED or not is_admitted(pod):
        return ()
    uids = annotations[GPU_RESERVATIONS_ANNOTATION].split(",")
    uuids = annotations.get(GPU_UUIDS_ANNOTATION, "").split(",")
    devices = devices_of(pod)
    if not len(uids) == len(uuids) == len(devices):
        return ()
    return tuple(map(Share, uids, devices, uuids))


def share_annotations(shares: Iterable[Share]) -> dict[str, str]:
    """Return the annotations of a pod with these fractions."""
    in_order = sorted(shares, key=lambda share: share.index)
    return {
        GPU_DEVICES_ANNOTATION: devices_text(share.index for share in in_order),
        GPU_UUIDS_ANNOTATION: ",".join(share.uuid for share in in_order),
        GPU_RESERVATIONS_ANNOTATION: ",".join(share.reservation for share in in_order),
    }


def without_shares(pod: Pod) -> dict[str, str]:
    """Return the annotations for a pod without reservations: empty values, which replace those of its template."""
    return {key: "" for key in _WRITTEN if pod.metadata.annotations.get(key)}


def gpu_of_reservation(node: GpuNode | None, name: str) -> GpuState | None:
    """Return the GPU that the kubelet gave to this reservation pod; None before an agent has reported it."""
    for state in () if node is None else node.spec.gpus:
        if state.uuid and any(
            (holder.namespace, holder.pod) == (SYSTEM_NAMESPACE, name) for holder in state.holders
        ):
            return state
    return None


def free_instead(node: GpuNode | None, expected: Mapping[int, tuple[str, str]]) -> dict[int, int]:
    """Return a replacement, an idle GPU, for each GPU that the kubelet unexpectedly gave to another pod.

    `expected` has, by index of the GPU, the namespace and name of each pod that muster bound and no report shows yet.
    """
    states = () if node is None else node.spec.gpus
    holders = {state.index: {(holder.namespace, holder.pod) for holder in state.holders} for state in states}
    taken = [index for index, pod in sorted(expected.items()) if holders.get(index, set()) - {pod}]
    idle = [state.index for state in states if not state.holders and not state.failure]
    return dict(zip(taken, (index for index in idle if index not in expected), strict=False))
