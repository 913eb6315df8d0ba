"""Converts tiny worlds for the planner, carries out its plans until nothing changes, and reports forbidden results."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from orchestrator.planner import plan
from orchestrator.planner.model import Node, Pod, PodState, Project, Request, Snapshot, Workload
from orchestrator.simulation.apply_plan import after_decision, moment_after
from tests.specification.entitlement import Entitlement
from tests.specification.tiny import NO_LIMIT, Job, Place, Places, World

if TYPE_CHECKING:
    from collections.abc import Callable

    from orchestrator.planner.model import Plan

    Decider = Callable[[Snapshot], Plan]

MAX_DECISIONS = 20


@dataclass(frozen=True)
class Rest:
    """The state in which the planner comes to rest, the number of decisions with evictions, and the faults."""

    snapshot: Snapshot
    moves: int
    faults: tuple[str, ...]

    @property
    def places(self) -> Places:
        return tuple(place_of(workload) for workload in self.snapshot.workloads)


def snapshot_of(world: World) -> Snapshot:
    """Return the world as a snapshot for the planner."""
    projects = tuple(
        Project(
            name=f"team-{index}",
            quota_gpu_milli=team.quota * 1000,
            limit_gpu_milli=None if team.limit == NO_LIMIT else team.limit * 1000,
            over_quota_weight=team.weight,
            priority=team.priority,
            parent=None if team.parent is None else f"team-{team.parent}",
            created_at_us=index + 1,
        )
        for index, team in enumerate(world.teams)
    )
    nodes = tuple(Node(f"node-{index}", gpus, 80_000, 1 << 40) for index, gpus in enumerate(world.nodes))
    used = [0] * len(world.nodes)
    workloads = tuple(workload_of(job, index, used) for index, job in enumerate(world.jobs))
    return Snapshot(nodes, projects, workloads)


def workload_of(job: Job, index: int, used: list[int]) -> Workload:
    """Return the job as a workload, on devices that are not used yet."""
    pods = []
    for number in range(job.pods):
        pod = Pod(f"job-{index}-{number}", f"job-{index}-{number}", Request(gpu_count=job.gpus))
        if job.place is not None:
            node = job.place[number]
            devices = tuple(range(used[node], used[node] + job.gpus))
            used[node] += job.gpus
            pod = pod.placed(PodState.ALLOCATED, f"node-{node}", devices)
        pods.append(pod)
    return Workload(
        id=f"job-{index}",
        name=f"job-{index}",
        project=f"team-{job.team}",
        priority=job.priority,
        preemptible=not job.firm,
        created_at_us=index + 1,
        pods=tuple(pods),
        min_member=job.pods,
        started_at_us=0 if job.place is None else index + 1,
    )


def place_of(workload: Workload) -> Place:
    running = [pod.node for pod in workload.pods if pod.state is PodState.ALLOCATED]
    return tuple(sorted(int((name or "").removeprefix("node-")) for name in running)) or None


def submitted(snapshot: Snapshot, job: Job) -> Snapshot:
    """Return the cluster with one more job, the youngest."""
    new = replace(
        workload_of(replace(job, place=None), 1 + max(map(_index, snapshot.workloads), default=-1), []),
        created_at_us=moment_after(snapshot),
    )
    return replace(snapshot, workloads=(*snapshot.workloads, new))


def ended(snapshot: Snapshot, name: str) -> Snapshot:
    return replace(snapshot, workloads=tuple(each for each in snapshot.workloads if each.id != name))


def settle(world: World, snapshot: Snapshot, *, decider: Decider = plan) -> Rest:
    """Carry out plans until one changes nothing. Evicted pods end immediately, and their controllers replace them."""
    claims_world = replace(world, jobs=())
    seen: set[tuple[object, ...]] = set()
    faults: list[str] = []
    moves = 0
    for _ in range(MAX_DECISIONS):
        decision = decider(snapshot)
        if not decision.bindings and not decision.evictions:
            faults += [f"{each.id} runs in parts" for each in snapshot.workloads if is_in_parts(each)]
            return Rest(snapshot, moves, tuple(faults))
        faults += lost_within_quota(claims_world, snapshot, decision)
        moves += bool(decision.evictions)
        snapshot = after_decision(snapshot, decision)
        state = tuple((each.id, place_of(each), _promised(each)) for each in snapshot.workloads)
        if state in seen:
            return Rest(snapshot, moves, (*faults, "a state returns"))
        seen.add(state)
    return Rest(snapshot, moves, (*faults, "no rest"))


def is_in_parts(workload: Workload) -> bool:
    running = sum(pod.state is PodState.ALLOCATED for pod in workload.pods)
    return 0 < running < workload.min_member


def lost_within_quota(world: World, before: Snapshot, decision: Plan) -> list[str]:
    """Return the jobs within quota that are evicted for another team, if their team then holds less than its quota."""
    jobs = tuple(_job_of(each) for each in before.workloads)
    claims = Entitlement(replace(world, jobs=jobs))
    indices = {each.id: index for index, each in enumerate(before.workloads)}
    promised = {each.pod for each in (*decision.bindings, *decision.nominations)}
    evicted = {each.pod for each in decision.evictions}
    keeps = [
        sum(pod.id in promised or (place_of(each) is not None and pod.id not in evicted) for pod in each.pods)
        for each in before.workloads
    ]
    faults = []
    for each in decision.evictions:
        job, team = indices[each.workload], jobs[indices[each.workload]].team
        remaining = sum(
            count * other.gpus for count, other in zip(keeps, jobs, strict=True) if other.team == team
        )
        is_theirs = jobs[indices[each.beneficiary]].team != team and each.pod not in promised
        covered = claims.covered(team, tuple(each.place for each in jobs))
        if is_theirs and remaining < world.teams[team].quota and job in covered:
            faults.append(f"{each.workload} is evicted within the quota of its team")
    return faults


def _job_of(workload: Workload) -> Job:
    pod = workload.pods[0]
    return Job(
        int(workload.project.removeprefix("team-")),
        pod.request.gpu_count,
        len(workload.pods),
        workload.priority,
        not workload.preemptible,
        place_of(workload),
    )


def _promised(workload: Workload) -> tuple[str, ...]:
    return tuple(sorted(pod.nominated_node or "" for pod in workload.pods))


def _index(workload: Workload) -> int:
    return int(workload.id.removeprefix("job-"))
