"""What the planner is timed on: snapshots, and what a right decision about each of them looks like.

The sizes follow the nodes: at 500 nodes of 8 GPUs they are the cases that other schedulers publish figures for.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from orchestrator.planner.model import Node, Plan, Pod, PodState, Project, Request, Snapshot, Workload
from orchestrator.planner.settings import Settings

CPUS_MILLI = 256_000
MEMORY_BYTES = 2 << 40
TEAMS = 4
GANG_PODS = 10
PODS_PER_LARGE_NODE = 35
_FIRST_US = 1_700_000_000_000_000


@dataclass(frozen=True, slots=True)
class Case:
    """One snapshot to decide on. `wrong` tells in a line what is wrong with the decision, or None.

    `jobs` counts the workloads of the snapshot, running and waiting. Where `keeps_state` the planner has decided
    on the same cluster before, as in every cycle of the operator but its first.
    """

    name: str
    snapshot: Snapshot
    wrong: Callable[[Plan], str | None]
    keeps_state: bool = False

    @property
    def jobs(self) -> int:
        """Workloads, running and waiting."""
        return len(self.snapshot.workloads)


Builder = Callable[[int, int], Case]


def first(nodes: int, gpus: int) -> Case:
    """Every GPU taken by a job of one, nobody waits; what a new leader sees."""
    snapshot = _snapshot(nodes, gpus, _fair_shares(nodes * gpus), _running(nodes, gpus))
    return Case("first decision, nobody waits", snapshot, _expect(bindings=0, evictions=0))


def quiet(nodes: int, gpus: int) -> Case:
    """The same once more, when nothing has happened since."""
    return replace(first(nodes, gpus), name="quiet cycle", keeps_state=True)


def first_shared(nodes: int, gpus: int) -> Case:
    """35 pods on each node, a fifth of a GPU each, nobody waits."""
    workloads = [
        _workload(
            f"shared-{node:05d}-{slot:02d}",
            f"team-{(node + slot) % TEAMS}",
            [_pod(f"shared-{node:05d}-{slot:02d}", portion_milli=200, node=node, devices=(slot // 5,))],
        )
        for node in range(nodes)
        for slot in range(min(PODS_PER_LARGE_NODE, gpus * 5))
    ]
    snapshot = _snapshot(nodes, gpus, _fair_shares(nodes * gpus), workloads)
    return Case("first decision, shared GPUs", snapshot, _expect(bindings=0, evictions=0))


def quiet_shared(nodes: int, gpus: int) -> Case:
    """The same once more, when nothing has happened since."""
    return replace(first_shared(nodes, gpus), name="quiet cycle, shared GPUs", keeps_state=True)


def fill(nodes: int, gpus: int) -> Case:
    """An empty cluster and as many jobs of one GPU as it has GPUs."""
    return _fill("fill with single GPUs", nodes, gpus, nodes * gpus)


def fill_and_more(nodes: int, gpus: int) -> Case:
    """The same with a tenth more, which has to wait."""
    return _fill("fill with single GPUs, a tenth waits", nodes, gpus, nodes * gpus * 11 // 10)


def gang(nodes: int, gpus: int) -> Case:
    """An empty cluster and one gang of 512 pods (at most one to a GPU)."""
    size = min(512, nodes * gpus)
    snapshot = _snapshot(nodes, gpus, _fair_shares(nodes * gpus), [_gang("gang", "team-0", size, 1)])
    return Case("one gang of 512", snapshot, _expect(bindings=size, evictions=0))


def reclaim_one(nodes: int, gpus: int) -> Case:
    """One GPU for a team within its quota, from a cluster that another team has filled."""
    waiting = [_workload("claim", "team-1", [_pod("claim")])]
    return _reclaim("reclaim one GPU", nodes, gpus, waiting, victims=1)


def reclaim_gang(part: float) -> Builder:
    """One gang of whole nodes, as many as that part of the cluster."""

    def build(nodes: int, gpus: int) -> Case:
        size = max(1, int(nodes * part))
        waiting = [_gang("claim", "team-1", size, gpus)]
        return _reclaim(f"reclaim {part:.0%} of the nodes for one gang", nodes, gpus, waiting, size * gpus)

    return build


def reclaim_singles(nodes: int, gpus: int) -> Case:
    """Every GPU of the cluster, for as many jobs of one."""
    waiting = [
        _workload(f"claim-{number:05d}", "team-1", [_pod(f"claim-{number:05d}")], age=number)
        for number in range(nodes * gpus)
    ]
    return _reclaim("reclaim every GPU for single jobs", nodes, gpus, waiting, nodes * gpus)


def reclaim_gangs(nodes: int, gpus: int) -> Case:
    """Every node, for gangs of ten pods of a whole node each."""
    count = max(1, nodes // GANG_PODS)
    waiting = [_gang(f"claim-{number:03d}", "team-1", GANG_PODS, gpus, age=number) for number in range(count)]
    return _reclaim("reclaim for gangs of ten", nodes, gpus, waiting, count * GANG_PODS * gpus)


def consolidate(nodes: int, gpus: int) -> Case:
    """Gangs of ten whole nodes, when small jobs on every node leave no node free but together fit on a few."""
    gangs = max(1, nodes * 41 // 500)
    small = max(1, nodes - GANG_PODS * gangs) * gpus
    scattered = [
        _workload(
            f"small-{number:05d}",
            "team-0",
            [_pod(f"small-{number:05d}", node=number % nodes, devices=(number // nodes,))],
            age=number,
        )
        for number in range(small)
    ]
    waiting = [_gang(f"gang-{number:03d}", "team-1", GANG_PODS, gpus, age=number) for number in range(gangs)]
    quotas = {"team-0": small, "team-1": nodes * gpus - small}
    snapshot = _snapshot(nodes, gpus, quotas, scattered + waiting)

    def wrong(decision: Plan) -> str | None:
        return None if decision.evictions else "nothing is moved"

    return Case("consolidate for gangs of ten", snapshot, wrong)


def unschedulable(nodes: int, gpus: int) -> Case:
    """A gang of ten whole nodes, in a cluster full of work that may not be taken."""
    running = _running(nodes, gpus)
    waiting = [_gang("hopeless", "team-1", GANG_PODS, gpus)]
    snapshot = _snapshot(nodes, gpus, _fair_shares(nodes * gpus), running + waiting)

    def wrong(decision: Plan) -> str | None:
        unwanted = _expect(bindings=0, evictions=0)(decision)
        return unwanted or (None if "hopeless" in decision.pending else "it is not said why the gang waits")

    return Case("a gang of ten nodes is hopeless", snapshot, wrong)


CASES: Sequence[Builder] = (
    first,
    quiet,
    fill,
    fill_and_more,
    gang,
    reclaim_one,
    reclaim_gang(0.5),
    reclaim_gang(1.0),
    reclaim_singles,
    reclaim_gangs,
    consolidate,
    unschedulable,
)
GROWTH: Sequence[Builder] = (first, fill, reclaim_one, reclaim_gang(0.5), unschedulable)
LARGE: Sequence[Builder] = (first_shared, quiet_shared)


def _fill(name: str, nodes: int, gpus: int, jobs: int) -> Case:
    workloads = [
        _workload(f"job-{number:05d}", f"team-{number % TEAMS}", [_pod(f"job-{number:05d}")], age=number)
        for number in range(jobs)
    ]
    snapshot = _snapshot(nodes, gpus, _fair_shares(nodes * gpus), workloads)
    return Case(name, snapshot, _expect(bindings=min(jobs, nodes * gpus), evictions=0))


def _reclaim(name: str, nodes: int, gpus: int, waiting: list[Workload], victims: int) -> Case:
    """Team 0 has borrowed the whole cluster, which is team 1's by quota."""
    running = _running(nodes, gpus, teams=1)
    snapshot = _snapshot(nodes, gpus, {"team-0": 0, "team-1": nodes * gpus}, running + waiting)
    return Case(name, snapshot, _expect(bindings=0, evictions=victims))


def _expect(*, bindings: int, evictions: int) -> Callable[[Plan], str | None]:
    def wrong(decision: Plan) -> str | None:
        counts = (len(decision.bindings), len(decision.evictions))
        if counts == (bindings, evictions):
            return None
        return f"{counts[0]} bindings and {counts[1]} evictions, expected {bindings} and {evictions}"

    return wrong


def _fair_shares(gpus: int) -> dict[str, int]:
    return {f"team-{number}": gpus // TEAMS for number in range(TEAMS)}


def _running(nodes: int, gpus: int, teams: int = TEAMS) -> list[Workload]:
    return [
        _workload(
            f"running-{node:05d}-{device}",
            f"team-{(node * gpus + device) * teams // (nodes * gpus)}",
            [_pod(f"running-{node:05d}-{device}", node=node, devices=(device,))],
            age=node * gpus + device,
        )
        for node in range(nodes)
        for device in range(gpus)
    ]


def _snapshot(nodes: int, gpus: int, quotas: dict[str, int], workloads: list[Workload]) -> Snapshot:
    return Snapshot(
        nodes=tuple(_nodes(nodes, gpus)),
        projects=tuple(
            Project(name=name, quota_gpu_milli=quota * 1000, over_quota_weight=max(quota, 1) * 1000)
            for name, quota in quotas.items()
        ),
        workloads=tuple(workloads),
        settings=Settings(max_work=None),  # what is expected is decided whole
    )


def _nodes(count: int, gpus: int) -> Iterator[Node]:
    for number in range(count):
        name = f"node-{number:05d}"
        yield Node(
            name=name,
            gpu_count=gpus,
            cpu_milli=CPUS_MILLI,
            memory_bytes=MEMORY_BYTES,
            labels={"kubernetes.io/hostname": name, "nvidia.com/gpu.product": "A100"},
        )


def _gang(name: str, project: str, pods: int, gpus: int, age: int = 0) -> Workload:
    members = [_pod(f"{name}-{number:04d}", gpus=gpus) for number in range(pods)]
    return _workload(name, project, members, age=age, min_member=pods)


def _workload(name: str, project: str, pods: list[Pod], *, age: int = 0, min_member: int = 1) -> Workload:
    runs = any(pod.state is PodState.ALLOCATED for pod in pods)
    created = _FIRST_US + (0 if runs else 3_600_000_000) + age * 1_000_000
    return Workload(
        id=name,
        name=name,
        project=project,
        priority=50,
        preemptible=True,
        created_at_us=created,
        pods=tuple(pods),
        min_member=min_member,
        started_at_us=created if runs else 0,
    )


def _pod(
    name: str,
    *,
    gpus: int = 1,
    portion_milli: int = 0,
    node: int | None = None,
    devices: tuple[int, ...] = (),
) -> Pod:
    request = Request(
        gpu_count=0 if portion_milli else gpus,
        gpu_portion_milli=portion_milli,
        cpu_milli=1000,
        memory_bytes=1 << 30,
    )
    state = PodState.PENDING if node is None else PodState.ALLOCATED
    place = None if node is None else f"node-{node:05d}"
    return Pod(id=name, name=name, request=request, state=state, node=place, devices=devices)
