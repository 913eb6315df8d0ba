"""The GpuNode, muster's own kind: an agent's report about the GPUs of its node; see `objects`."""

from __future__ import annotations

from orchestrator.cluster import resources
from orchestrator.cluster.wire import Object, Timestamp, Wire, without_null


class GpuHolder(Wire, frozen=True):
    """A container to which the kubelet gave the GPU."""

    namespace: str
    pod: str
    container: str = ""


class GpuUser(Wire, frozen=True):
    """A pod whose processes use memory of the GPU, and their number. `pod_uid` is "" for processes outside of pods."""

    pod_uid: str = ""
    container_id: str = ""
    memory_mib: int = 0
    processes: int = 1


class GpuState(Wire, frozen=True):
    """One GPU.

    `failure` is the reason why the GPU must not be used, or "". If the GPU has a holder and is idle, `idle_since` is
    the start of the idle time.
    """

    index: int
    uuid: str = ""
    model: str = ""
    bus_id: str = ""
    memory_mib: int = 0
    memory_used_mib: int | None = None
    utilization_percent: int | None = None
    failure: str = ""
    idle_since: Timestamp = ""
    holders: list[GpuHolder] = []
    users: list[GpuUser] = []

    def __post_init__(self) -> None:
        without_null(self, "idle_since")


class GpuNodeSpec(Wire, frozen=True):
    """The observations at `observed_at`. `problem` is the reason why there are no observations, "" if the driver
    answers.
    """

    observed_at: Timestamp = ""
    boot_id: str = ""
    driver_version: str = ""
    problem: str = ""
    gpus: list[GpuState] = []

    def __post_init__(self) -> None:
        without_null(self, "observed_at")


class GpuNode(Object, frozen=True):
    """The GPUs of the node with the name of this object."""

    resource = resources.GPU_NODES

    spec: GpuNodeSpec = GpuNodeSpec()


def given_gpus(node: GpuNode) -> dict[tuple[str, str], tuple[int, ...]]:
    """Return the indices of the GPUs that the kubelet gave each pod, by namespace and name of the pod."""
    given: dict[tuple[str, str], list[int]] = {}
    for state in sorted(node.spec.gpus, key=lambda state: state.index):
        for holder in dict.fromkeys((holder.namespace, holder.pod) for holder in state.holders):
            given.setdefault(holder, []).append(state.index)
    return {holder: tuple(indices) for holder, indices in given.items()}
