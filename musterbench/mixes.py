"""Nine busy clusters with hard decisions: jobs of many shapes, projects that reclaim borrowed GPUs.

In each of them nearly every GPU is in use, and more jobs are pending than fit. The number of jobs grows with the nodes.
The numbers of projects, of job sizes and of nodes per rack are constant. The same name and size give the same snapshot.
"""

from collections.abc import Mapping
from random import Random
from typing import Final

from musterbench.clusters import (
    BLOCK_LABEL,
    CPU_MILLI_OF_GPU,
    HOSTNAME_LABEL,
    RACK_LABEL,
    SHORT_CPU_MILLI,
    SIZES,
    Cluster,
    Mix,
    node_name,
    request_of,
)
from orchestrator.labels import LabelRequirement
from orchestrator.planner.model import Constraints, Plan, Project, Request, Snapshot, TopologyRule
from orchestrator.planner.settings import Settings

_PRIORITIES: Final = (25, 50, 75, 100)


def _departments(nodes: int, gpus: int, *, every_cpu_differs: bool) -> Snapshot:
    """Forty projects in eight departments. A third of the projects hold most GPUs, and all projects request more."""
    cluster = Cluster(Random("departments"), nodes, gpus)  # noqa: S311 - the same snapshot each time
    projects = _projects(cluster.capacity, 40, departments=8)
    names = [project.name for project in projects if project.parent]
    cluster.fill([*names[::3] * 3, *names])
    for _ in range(4 * nodes):
        size = cluster.random.choice(SIZES)
        if every_cpu_differs:
            cpu_milli = size * 1_000 + cluster.random.randrange(size * 12_000)
        else:
            cpu_milli = size * cluster.random.choice(CPU_MILLI_OF_GPU)
        cluster.wait(cluster.random.choice(names), request_of(size, cpu_milli))
    return cluster.snapshot(projects)


def _four_cpu_sizes(nodes: int, gpus: int) -> Snapshot:
    return _departments(nodes, gpus, every_cpu_differs=False)


def _every_cpu_differs(nodes: int, gpus: int) -> Snapshot:
    return _departments(nodes, gpus, every_cpu_differs=True)


def _priorities(nodes: int, gpus: int) -> Snapshot:
    """Ten projects at their entitlement; jobs of higher priority of the same projects are pending."""
    cluster = Cluster(Random("priorities"), nodes, gpus, SHORT_CPU_MILLI)  # noqa: S311
    projects = _projects(cluster.capacity, 10)
    names = [project.name for project in projects]
    cluster.fill(
        names, sizes=(1, 1, 2, 4), cpu_milli_of_gpu=(10_000, 14_000, 18_000), priorities=_PRIORITIES[:3]
    )
    for _ in range(2 * nodes):
        size = cluster.random.choice((1, 2, 4))
        request = request_of(size, size * cluster.random.choice((12_000, 16_000, 20_000, 24_000)))
        cluster.wait(cluster.random.choice(names), request, priority=cluster.random.choice(_PRIORITIES))
    return cluster.snapshot(projects)


def _claims(nodes: int, gpus: int) -> Snapshot:
    """Ten projects. Five of them have borrowed much. All request more, with jobs that need many CPUs."""
    cluster = Cluster(Random("claims"), nodes, gpus, SHORT_CPU_MILLI)  # noqa: S311
    projects = _projects(cluster.capacity, 10)
    names = [project.name for project in projects]
    cluster.fill([*names[:5] * 4, *names[5:]], sizes=(1, 1, 2, 4), cpu_milli_of_gpu=(10_000, 14_000, 18_000))
    for _ in range(4 * nodes):
        size = cluster.random.choice((1, 2, 4, 8))
        request = request_of(size, size * cluster.random.choice((10_000, 11_000, 12_000)))
        cluster.wait(cluster.random.choice(names), request)
    return cluster.snapshot(projects)


def _racks(nodes: int, gpus: int) -> Snapshot:
    """Gangs of whole nodes, each within one rack, reclaim GPUs that other projects borrow."""
    cluster = Cluster(Random("racks"), nodes, gpus)  # noqa: S311
    projects = _projects(cluster.capacity, 8)
    names = [project.name for project in projects]
    cluster.fill([*names[:4] * 9, *names[4:]])
    levels = (BLOCK_LABEL, RACK_LABEL)
    rule = TopologyRule(levels, required=RACK_LABEL)
    for _ in range(max(1, nodes // 4)):
        size = cluster.random.choice((2, 3, 4))
        request = request_of(gpus, gpus * cluster.random.choice(CPU_MILLI_OF_GPU))
        cluster.wait(cluster.random.choice(names[4:]), request, pods=min(size, nodes), topology=rule)
    return cluster.snapshot(projects, Settings(topology_levels=levels))


def _parts(nodes: int, gpus: int) -> Snapshot:
    """Half of the GPUs have one fraction of 0.6, the others two of 0.5. Jobs of 0.5 are pending."""
    cluster = Cluster(Random("parts"), nodes, gpus)  # noqa: S311
    projects = _projects(cluster.capacity, 10)
    names = [project.name for project in projects]
    owners = [*names[:5] * 9, *names[5:]]
    for node in range(nodes):
        for device in range(gpus):
            for portion_milli in cluster.random.choice(((600,), (500, 500))):
                request = Request(gpu_portion_milli=portion_milli, cpu_milli=4_000, memory_bytes=16 << 30)
                cluster.run(cluster.random.choice(owners), node, request, device=device)
    for _ in range(4 * nodes):
        request = Request(
            gpu_portion_milli=500,
            cpu_milli=cluster.random.choice(CPU_MILLI_OF_GPU[:3]),
            memory_bytes=16 << 30,
        )
        cluster.wait(cluster.random.choice(names), request)
    return cluster.snapshot(projects)


def _affinities(nodes: int, gpus: int) -> Snapshot:
    """Each pending job may run on three nodes only, and no two jobs have the same three."""
    cluster = Cluster(Random("affinities"), nodes, gpus)  # noqa: S311
    projects = _projects(cluster.capacity, 20)
    names = [project.name for project in projects]
    cluster.fill([*names[:10] * 9, *names[10:]])
    for number in range(nodes):
        size = cluster.random.choice((1, 2, 4))
        hosts = {number, *(cluster.random.randrange(nodes) for _ in range(2))}
        requirement = LabelRequirement(HOSTNAME_LABEL, "In", tuple(node_name(host) for host in sorted(hosts)))
        request = request_of(size, size * cluster.random.choice(CPU_MILLI_OF_GPU))
        constraints = Constraints(node_terms=((requirement,),))
        cluster.wait(cluster.random.choice(names), request, constraints=constraints)
    return cluster.snapshot(projects)


def _many_projects(nodes: int, gpus: int) -> Snapshot:
    """Two hundred projects. A quarter of them have borrowed nearly all GPUs, and the others reclaim their quotas."""
    cluster = Cluster(Random("many projects"), nodes, gpus)  # noqa: S311
    projects = _projects(cluster.capacity, 200)
    names = [project.name for project in projects]
    cluster.fill([*names[:50] * 9, *names[50:]])
    for _ in range(2 * nodes):
        size = cluster.random.choice((1, 1, 2, 4))
        cluster.wait(cluster.random.choice(names[50:]), request_of(size, size * 4_000))
    return cluster.snapshot(projects)


def _scattered(nodes: int, gpus: int) -> Snapshot:
    """One GPU is idle on each node. Jobs of four and eight GPUs are pending, within their entitlement."""
    cluster = Cluster(Random("scattered"), nodes, gpus)  # noqa: S311
    projects = _projects(cluster.capacity, 10)
    names = [project.name for project in projects]
    cluster.fill(names, sizes=(1, 1, 1, 2), cpu_milli_of_gpu=(4_000,), idle_gpus=1)
    for number in range(max(1, nodes // 4)):
        size = min(gpus, (4, 8)[number % 2])
        cluster.wait(cluster.random.choice(names), request_of(size, size * 4_000))
    return cluster.snapshot(projects)


def _projects(gpus: int, count: int, departments: int = 0) -> list[Project]:
    """Projects whose quotas are the GPUs of the cluster, in parts of one, two and three; departments come first."""
    parts = [1 + number % 3 for number in range(count)]
    quotas = [gpus * 1000 * part // sum(parts) // 1000 * 1000 for part in parts]
    parents = [f"department-{number % departments}" if departments else None for number in range(count)]
    projects = [
        Project(
            f"project-{number:03d}", quotas[number], over_quota_weight=parts[number], parent=parents[number]
        )
        for number in range(count)
    ]
    totals: dict[str, int] = {}
    for parent, quota in zip(parents, quotas, strict=True):
        if parent:
            totals[parent] = totals.get(parent, 0) + quota
    return [*(Project(name, quota) for name, quota in totals.items()), *projects]


def _evicts(decision: Plan, _: Snapshot) -> str | None:
    return None if decision.evictions else "no pod is evicted"


def _decides(decision: Plan, _: Snapshot) -> str | None:
    return None if decision.evictions or decision.bindings else "nothing is decided"


MIXES: Final[Mapping[str, Mix]] = {
    mix.name: mix
    for mix in (
        Mix(
            "departments",
            "40 projects in 8 departments, 4 waiting jobs a node, 4 sizes of CPU request",
            _four_cpu_sizes,
            _evicts,
        ),
        Mix("cpu-requests", "the same, every CPU request different", _every_cpu_differs, _evicts),
        Mix("priorities", "priorities inside a project, CPU short", _priorities, _evicts),
        Mix("claims", "reclaim within quota, CPU short", _claims, _evicts),
        Mix("racks", "gangs bound to racks that reclaim", _racks, _evicts),
        Mix("parts", "jobs of 0.5 facing gaps of 0.4", _parts, _evicts),
        Mix("affinities", "an affinity of its own for each job", _affinities, _evicts),
        Mix("projects", "200 projects that reclaim", _many_projects, _evicts),
        Mix("consolidation", "consolidation", _scattered, _decides),
    )
}
