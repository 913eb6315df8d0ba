"""Simple clusters, for each of which the right decision is known: fill, reclaim, gangs, shared GPUs, nothing to do."""

from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Final

from musterbench.clusters import Cluster, Mix, request_of
from orchestrator.planner.model import Plan, PodState, Project, Request, Snapshot
from orchestrator.planner.settings import Settings

_TEAMS: Final = ("team-0", "team-1", "team-2", "team-3")
_CPU_MILLI: Final = 1_000
_FIFTH: Final = Request(gpu_portion_milli=200, cpu_milli=_CPU_MILLI, memory_bytes=1 << 30)
_PODS_OF_SHARED_NODE: Final = 35
_GANG_PODS: Final = 512
_GANG_NODES: Final = 10

Build = Callable[[int, int], Snapshot]


def _first(nodes: int, gpus: int) -> Snapshot:
    """Every GPU runs a job of one GPU; no job is pending."""
    return _snapshot(_full(nodes, gpus, _TEAMS))


def _shared(nodes: int, gpus: int) -> Snapshot:
    """Each node runs 35 pods of a fifth of a GPU; no job is pending."""
    cluster = _empty(nodes, gpus)
    for node in range(nodes):
        for slot in range(min(_PODS_OF_SHARED_NODE, gpus * 5)):
            cluster.run(_TEAMS[(node + slot) % len(_TEAMS)], node, _FIFTH, device=slot // 5)
    return _snapshot(cluster)


def _fill(tenths: int) -> Build:
    """An empty cluster, and jobs of one GPU for this many tenths of its GPUs."""

    def build(nodes: int, gpus: int) -> Snapshot:
        cluster = _empty(nodes, gpus)
        for number in range(cluster.capacity * tenths // 10):
            cluster.wait(_TEAMS[number % len(_TEAMS)], request_of(1, _CPU_MILLI))
        return _snapshot(cluster)

    return build


def _gang(nodes: int, gpus: int) -> Snapshot:
    """An empty cluster, and a pending gang of 512 pods of one GPU, or of one pod for each GPU if there are fewer."""
    cluster = _empty(nodes, gpus)
    cluster.wait(_TEAMS[0], request_of(1, _CPU_MILLI), pods=min(_GANG_PODS, cluster.capacity))
    return _snapshot(cluster)


def _reclaim(sizes: Callable[[int, int], tuple[int, int, int]]) -> Build:
    """Team 0 has borrowed every GPU from team 1, whose jobs are pending.

    `sizes` returns the number of these jobs, the pods of each, and the GPUs of each pod.
    """

    def build(nodes: int, gpus: int) -> Snapshot:
        cluster = _full(nodes, gpus, _TEAMS[:1])
        jobs, pods, size = sizes(nodes, gpus)
        for _ in range(jobs):
            cluster.wait(_TEAMS[1], request_of(size, _CPU_MILLI), pods=pods)
        return _snapshot(cluster, {_TEAMS[0]: 0, _TEAMS[1]: cluster.capacity})

    return build


def _hopeless(nodes: int, gpus: int) -> Snapshot:
    """A gang of ten whole nodes, in a cluster full of jobs that must not be evicted."""
    cluster = _full(nodes, gpus, _TEAMS)
    cluster.wait(_TEAMS[1], request_of(gpus, _CPU_MILLI), pods=_GANG_NODES)
    return _snapshot(cluster)


def _empty(nodes: int, gpus: int) -> Cluster:
    return Cluster(Random("simple"), nodes, gpus)  # noqa: S311 - the same snapshot each time


def _full(nodes: int, gpus: int, owners: Sequence[str]) -> Cluster:
    """Let a job of one GPU run on every GPU. Each owner has the same number of consecutive GPUs."""
    cluster = _empty(nodes, gpus)
    for node in range(nodes):
        for device in range(gpus):
            owner = owners[(node * gpus + device) * len(owners) // cluster.capacity]
            cluster.run(owner, node, request_of(1, _CPU_MILLI), device=device)
    return cluster


def _snapshot(cluster: Cluster, quotas: Mapping[str, int] | None = None) -> Snapshot:
    """Return the snapshot with these quotas, by default equal ones. No bound on the work makes the counts certain."""
    quotas = quotas or dict.fromkeys(_TEAMS, cluster.capacity // len(_TEAMS))
    projects = [
        Project(name, quota_gpu_milli=quota * 1000, over_quota_weight=max(quota, 1) * 1000)
        for name, quota in quotas.items()
    ]
    return cluster.snapshot(projects, Settings(max_work=None))


def _does_nothing(decision: Plan, _: Snapshot) -> str | None:
    return _differs(decision, bindings=0, evictions=0)


def _binds(decision: Plan, snapshot: Snapshot) -> str | None:
    gpus = sum(node.gpu_count for node in snapshot.nodes)
    return _differs(decision, bindings=min(_requested(snapshot), gpus), evictions=0)


def _evicts(decision: Plan, snapshot: Snapshot) -> str | None:
    return _differs(decision, bindings=0, evictions=_requested(snapshot))


def _says_why(decision: Plan, snapshot: Snapshot) -> str | None:
    unexplained = (
        None if snapshot.workloads[-1].id in decision.pending else "no reason why the gang is pending"
    )
    return _does_nothing(decision, snapshot) or unexplained


def _requested(snapshot: Snapshot) -> int:
    """GPUs of all pending pods."""
    pods = (pod for workload in snapshot.workloads for pod in workload.pods)
    return sum(pod.request.gpu_count for pod in pods if pod.state is PodState.PENDING)


def _differs(decision: Plan, *, bindings: int, evictions: int) -> str | None:
    counts = (len(decision.bindings), len(decision.evictions))
    if counts == (bindings, evictions):
        return None
    return f"{counts[0]} bindings and {counts[1]} evictions, expected {bindings} and {evictions}"


_RECLAIMS: Final[Mapping[str, tuple[str, Callable[[int, int], tuple[int, int, int]]]]] = {
    "one": ("reclaim one GPU", lambda _nodes, _gpus: (1, 1, 1)),
    "half": ("reclaim half of the nodes", lambda nodes, gpus: (1, max(1, nodes // 2), gpus)),
    "whole": ("reclaim all nodes for one gang", lambda nodes, gpus: (1, nodes, gpus)),
    "singles": ("reclaim every GPU for single jobs", lambda nodes, gpus: (nodes * gpus, 1, 1)),
    "tens": ("reclaim for gangs of ten", lambda nodes, gpus: (max(1, nodes // 10), 10, gpus)),
}
SIMPLE: Final[Mapping[str, Mix]] = {
    mix.name: mix
    for mix in (
        Mix("first", "every GPU in use, no pending job", _first, _does_nothing),
        Mix("shared", "35 pods of a fifth of a GPU on each node, no pending job", _shared, _does_nothing),
        Mix("fill", "fill an empty cluster with jobs of one GPU", _fill(10), _binds),
        Mix("fill-and-more", "the same with a tenth more, which stay pending", _fill(11), _binds),
        Mix("gang", "one gang of 512 pods", _gang, _binds),
        *(Mix(name, text, _reclaim(sizes), _evicts) for name, (text, sizes) in _RECLAIMS.items()),
        Mix("hopeless", "say why a gang of ten nodes cannot run", _hopeless, _says_why),
    )
}
