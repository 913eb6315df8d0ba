"""Short functions to build snapshots, and the smallest cluster that carries out a plan."""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from orchestrator.planner import Planner, plan
from orchestrator.planner.model import (
    Constraints,
    Node,
    Plan,
    Pod,
    PodState,
    Project,
    Request,
    Snapshot,
    Workload,
)
from orchestrator.simulation.apply_plan import after_decision, moment_after

ANYWHERE = Constraints()


def node(name: str, gpus: int = 8, **changes: object) -> Node:
    base = Node(name=name, gpu_count=gpus, cpu_milli=80_000, memory_bytes=512 << 30)
    return replace(base, **changes)  # type: ignore[arg-type]


def project(name: str, quota_gpu_milli: int, **changes: object) -> Project:
    base = Project(name=name, quota_gpu_milli=quota_gpu_milli, over_quota_weight=quota_gpu_milli)
    return replace(base, **changes)  # type: ignore[arg-type]


def request(gpu_milli: int) -> Request:
    if gpu_milli < 1000:
        return Request(gpu_portion_milli=gpu_milli)
    assert gpu_milli % 1000 == 0
    return Request(gpu_count=gpu_milli // 1000)


def workload(
    name: str,
    project: str,
    gpu_milli: int,
    *,
    age: int = 0,
    interactive: bool = False,
    preemptible: bool | None = None,
    pods: int = 1,
    gang: bool = False,
    priority: int | None = None,
    minimum: int | None = None,
    constraints: Constraints = ANYWHERE,
) -> Workload:
    return Workload(
        id=name,
        name=name,
        project=project,
        priority=(100 if interactive else 50) if priority is None else priority,
        preemptible=not interactive if preemptible is None else preemptible,
        created_at_us=age,
        pods=tuple(
            Pod(
                id=f"{name}-{index}",
                name=f"{name}-{index}",
                request=request(gpu_milli),
                constraints=constraints,
            )
            for index in range(pods)
        ),
        min_member=(pods if gang else 1) if minimum is None else minimum,
        interactive=interactive,
    )


class Cluster:
    """Nodes, projects and workloads between decisions. `settle` carries out plans until one changes nothing."""

    def __init__(self, nodes: Iterable[Node], projects: Iterable[Project]) -> None:
        self.nodes = tuple(nodes)
        self.projects = {each.name: each for each in projects}
        self.workloads: dict[str, Workload] = {}
        self.before = self.snapshot()
        self.evicted: list[str] = []
        self.evicted_pods: list[str] = []
        self.moving: set[str] = set()
        self._planner = Planner()

    def submit(self, new: Workload) -> None:
        self.workloads[new.id] = replace(new, created_at_us=moment_after(self.snapshot()))

    def snapshot(self) -> Snapshot:
        return Snapshot(self.nodes, tuple(self.projects.values()), tuple(self.workloads.values()))

    def step(self) -> Plan:
        snapshot = self.before = self.snapshot()
        decision = plan(snapshot)
        assert self._planner.plan(snapshot) == decision, (
            "books that were kept and new ones decide differently"
        )
        self.evicted += sorted({eviction.workload for eviction in decision.evictions})
        names = {pod.id: pod.name for each in snapshot.workloads for pod in each.pods}
        self.evicted_pods += sorted(names[eviction.pod] for eviction in decision.evictions)
        moved = ("consolidation", "unhealthy")
        self.moving |= {each.workload for each in decision.evictions if each.rule in moved}
        self.workloads = {each.id: each for each in after_decision(snapshot, decision).workloads}
        return decision

    def settle(self, max_steps: int = 50) -> Plan:
        for _ in range(max_steps):
            decision = self.step()
            if not decision.bindings and not decision.evictions:
                return decision
        raise AssertionError("the plan never came to rest")

    def held(self) -> Mapping[str, int]:
        held = dict.fromkeys(self.projects, 0)
        for each in self.workloads.values():
            for pod in each.pods:
                if pod.state is PodState.ALLOCATED:
                    held[each.project] += pod.request.gpu_milli
        return held

    def waiting(self) -> set[str]:
        return {
            key
            for key, each in self.workloads.items()
            if any(pod.state is PodState.PENDING for pod in each.pods)
        }

    def devices_of(self, name: str) -> set[tuple[str | None, int]]:
        return {(pod.node, device) for pod in self.workloads[name].pods for device in pod.devices}
