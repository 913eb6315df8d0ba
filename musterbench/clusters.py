"""Clusters under construction: nodes in racks, running jobs and pending jobs."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Final

from orchestrator.planner.model import (
    Constraints,
    Node,
    Plan,
    Pod,
    PodState,
    Project,
    Request,
    Snapshot,
    TopologyRule,
    Workload,
)
from orchestrator.planner.settings import Settings

HOSTNAME_LABEL: Final = "kubernetes.io/hostname"
BLOCK_LABEL: Final = "topology.example.com/block"
RACK_LABEL: Final = "topology.example.com/rack"
NODES_OF_RACK: Final = 8
RACKS_OF_BLOCK: Final = 8
SHORT_CPU_MILLI: Final = 96_000
"""Twelve CPUs for each of eight GPUs: jobs that request more use up the CPUs first."""
CPU_MILLI_OF_GPU: Final = (2_000, 4_000, 8_000, 12_000)
SIZES: Final = (1, 1, 1, 2, 2, 4, 8)

_NOW_US: Final = 1_700_000_000_000_000
_HOUR_US: Final = 3_600_000_000
_MEMORY_BYTES: Final = 2 << 40
_ROOMY_CPU_MILLI: Final = 256_000
_ANYWHERE: Final = Constraints()
_DEFAULTS: Final = Settings()


@dataclass(frozen=True, slots=True)
class Mix:
    """One kind of cluster: `build` returns its snapshot for a number of nodes and of GPUs of each node.

    `wrong` returns the fault of a decision on the snapshot in one line, or None.
    """

    name: str
    title: str
    build: Callable[[int, int], Snapshot]
    wrong: Callable[[Plan, Snapshot], str | None]


@dataclass(slots=True)
class Cluster:
    """A cluster under construction. Running pods are packed on a node from its first free GPU on."""

    random: Random
    node_count: int
    gpus: int
    cpu_milli: int = _ROOMY_CPU_MILLI
    workloads: list[Workload] = field(default_factory=list)
    used_gpus: list[int] = field(default_factory=list)
    used_cpu_milli: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.used_gpus = [0] * self.node_count
        self.used_cpu_milli = [0] * self.node_count

    @property
    def capacity(self) -> int:
        """GPUs of all nodes."""
        return self.node_count * self.gpus

    def fill(
        self,
        owners: Sequence[str],
        *,
        sizes: Sequence[int] = SIZES,
        cpu_milli_of_gpu: Sequence[int] = CPU_MILLI_OF_GPU,
        priorities: Sequence[int] = (50,),
        idle_gpus: int = 0,
    ) -> None:
        """Add running jobs of these projects to each node, until `idle_gpus` GPUs or too few CPUs are free."""
        for node in range(self.node_count):
            while (free := self.gpus - self.used_gpus[node] - idle_gpus) > 0:
                gpus = min(self.random.choice(sizes), free)
                cpu_milli = gpus * self.random.choice(cpu_milli_of_gpu)
                if cpu_milli > self.cpu_milli - self.used_cpu_milli[node]:
                    break
                request = request_of(gpus, cpu_milli)
                self.run(self.random.choice(owners), node, request, priority=self.random.choice(priorities))

    def run(
        self, project: str, node: int, request: Request, *, priority: int = 50, device: int | None = None
    ) -> None:
        """Add a job that has run on the node for 2 to 10 hours: on the first free GPUs, or on `device` if given."""
        name = f"running-{len(self.workloads):06d}"
        start = self.used_gpus[node]
        devices = (device,) if device is not None else tuple(range(start, start + request.gpu_count))
        self.used_gpus[node] += request.gpu_count
        self.used_cpu_milli[node] += request.cpu_milli
        pod = Pod(name, name, request, state=PodState.ALLOCATED, node=node_name(node), devices=devices)
        started_us = _NOW_US - 2 * _HOUR_US - self.random.randrange(8 * _HOUR_US)
        self.workloads.append(
            Workload(name, name, project, priority, True, started_us, (pod,), started_at_us=started_us)
        )

    def wait(
        self,
        project: str,
        request: Request,
        *,
        pods: int = 1,
        priority: int = 50,
        constraints: Constraints = _ANYWHERE,
        topology: TopologyRule | None = None,
    ) -> None:
        """Add a pending job, or a gang with this number of pods, created within the last hour."""
        name = f"waiting-{len(self.workloads):06d}"
        members = tuple(
            Pod(f"{name}-{number}", f"{name}-{number}", request, constraints=constraints)
            for number in range(pods)
        )
        created_us = _NOW_US - self.random.randrange(_HOUR_US)
        self.workloads.append(
            Workload(
                name, name, project, priority, True, created_us, members, min_member=pods, topology=topology
            )
        )

    def snapshot(self, projects: Sequence[Project], settings: Settings = _DEFAULTS) -> Snapshot:
        """Return the snapshot of the cluster with these projects."""
        return Snapshot(
            nodes=tuple(self._node(number) for number in range(self.node_count)),
            projects=tuple(projects),
            workloads=tuple(self.workloads),
            now_us=_NOW_US,
            settings=settings,
        )

    def _node(self, number: int) -> Node:
        rack = number // NODES_OF_RACK
        labels = {
            HOSTNAME_LABEL: node_name(number),
            "nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB",
            BLOCK_LABEL: f"block-{rack // RACKS_OF_BLOCK:03d}",
            RACK_LABEL: f"rack-{rack:04d}",
        }
        return Node(node_name(number), self.gpus, self.cpu_milli, _MEMORY_BYTES, labels=labels)


def request_of(gpus: int, cpu_milli: int) -> Request:
    """Return a request with 64 GiB of memory for each GPU."""
    return Request(gpu_count=gpus, cpu_milli=cpu_milli, memory_bytes=gpus * 64 << 30)


def node_name(number: int) -> str:
    """Return the name of a node by its number."""
    return f"node-{number:05d}"
