"""The differences between two states of a cluster: started, evicted and pending workloads, and projects. Pure.

Amounts of GPUs are those that quotas count, as in the planner's sentences: `GpuSizes.counted_milli`.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from orchestrator.planner.accounting.gpu_models import GpuSizes
from orchestrator.planner.model import Eviction, Plan, PodState, Snapshot, Workload
from orchestrator.simulation.run import Run, settle


@dataclass(frozen=True, slots=True)
class Place:
    """A pod and its placement: a node, and indices of GPUs on it."""

    pod: str
    node: str
    devices: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Started:
    """A workload with pods that did not run before, or that ran on other nodes or devices."""

    project: str
    name: str
    gpu_milli: int
    places: tuple[Place, ...]


@dataclass(frozen=True, slots=True)
class Evicted:
    """A workload that lost pods to the beneficiary, by a rule.

    `runs_again`: afterwards, at least as many of its pods run as before its evictions.
    """

    project: str
    name: str
    gpu_milli: int
    pods: int
    beneficiary: str
    beneficiary_project: str
    rule: str
    message: str
    runs_again: bool


@dataclass(frozen=True, slots=True)
class Waits:
    """A workload with pending pods, and the reason. `is_new`: it had no pending pods before."""

    project: str
    name: str
    gpu_milli: int
    pods: int
    code: str
    message: str
    is_new: bool


@dataclass(frozen=True, slots=True)
class ProjectChange:
    """A project's `gpu_milli` before and after. A quota of None means unlimited. A `quota_before` of None can also
    mean that there was no such project.
    """

    project: str
    quota_before: int | None
    quota_after: int | None
    held_before: int
    held_after: int
    share_before: int
    share_after: int


@dataclass(frozen=True, slots=True)
class Outcome:
    """The changes of a run, and its number of decisions. `is_stable`: a further decision would change nothing."""

    decisions: int
    is_stable: bool
    started: tuple[Started, ...]
    evicted: tuple[Evicted, ...]
    waiting: tuple[Waits, ...]
    projects: tuple[ProjectChange, ...]


def outcome(before: Snapshot, before_plan: Plan, run: Run) -> Outcome:
    """Return the differences between `before` and the end of the run.

    `before_plan` is the plan for `before` and supplies its fair shares. New and deleted workloads count too.
    """
    known = {workload.id: workload for workload in before.workloads}
    return Outcome(
        decisions=len(run.steps),
        is_stable=run.is_stable,
        started=tuple(_started(known, run.after)),
        evicted=tuple(_evicted(run)),
        waiting=tuple(_waiting(known, run)),
        projects=tuple(_project_changes(before, before_plan, run)),
    )


def compare(snapshot: Snapshot, change: Callable[[Snapshot], Snapshot]) -> tuple[Outcome, int]:
    """Compare the settled snapshot with and without a change. Also return the decisions needed without the change.

    Raises the errors of `change`.
    """
    baseline = settle(snapshot)
    changed = change(baseline.after)
    return outcome(baseline.after, baseline.last, settle(changed)), len(baseline.steps)


def held_gpu_milli(snapshot: Snapshot) -> dict[str, int]:
    """Return the `gpu_milli` of running pods by project, as quotas count them. A parent includes its children."""
    parents = {project.name: project.parent for project in snapshot.projects}
    sizes = GpuSizes.of(snapshot.nodes)
    held = dict.fromkeys(parents, 0)
    for workload in snapshot.workloads:
        amount = sum(
            sizes.counted_milli(pod.request) for pod in workload.pods if pod.state is PodState.ALLOCATED
        )
        counted: set[str] = set()
        project: str | None = workload.project
        while project is not None and project in held and project not in counted:
            held[project] += amount
            counted.add(project)
            project = parents[project]
    return held


def places(workload: Workload) -> dict[str, Place]:
    """Return the placements of a workload's running pods, by pod id."""
    return {
        pod.id: Place(pod.name, pod.node or "", pod.devices)
        for pod in workload.pods
        if pod.state is PodState.ALLOCATED
    }


def _started(known: Mapping[str, Workload], after: Snapshot) -> Iterable[Started]:
    sizes = GpuSizes.of(after.nodes)
    for workload in _ordered(after):
        # compare placements and not ids: a successor on the same devices has another id
        old = set(places(known[workload.id]).values()) if workload.id in known else set()
        new = {pod: place for pod, place in places(workload).items() if place not in old}
        if new:
            amount = sum(sizes.counted_milli(pod.request) for pod in workload.pods if pod.id in new)
            yield Started(workload.project, workload.name, amount, tuple(new.values()))


def _evicted(run: Run) -> Iterable[Evicted]:
    first_workloads = {workload.id: workload for workload in run.before.workloads}
    last_workloads = {workload.id: workload for workload in run.after.workloads}
    sizes = GpuSizes.of(run.before.nodes)
    by_case: dict[tuple[str, str, str], list[Eviction]] = {}
    requests: dict[str, int] = {}
    ran: dict[str, int] = {}
    for snapshot, decision in zip(run.snapshots, run.steps, strict=True):
        if not decision.evictions:
            continue
        losers = {eviction.workload for eviction in decision.evictions}
        for workload in snapshot.workloads:
            if workload.id in losers:
                ran[workload.id] = max(ran.get(workload.id, 0), len(places(workload)))
                requests |= {pod.id: sizes.counted_milli(pod.request) for pod in workload.pods}
        for eviction in decision.evictions:
            case = (eviction.workload, eviction.beneficiary, eviction.rule)
            by_case.setdefault(case, []).append(eviction)
    for (loser_id, winner_id, rule), evictions in by_case.items():
        loser, winner = first_workloads[loser_id], first_workloads.get(winner_id)
        now = last_workloads.get(loser_id)
        yield Evicted(
            project=loser.project,
            name=loser.name,
            gpu_milli=sum(requests[eviction.pod] for eviction in evictions),
            pods=len(evictions),
            beneficiary=winner.name if winner else "",
            beneficiary_project=winner.project if winner else "",
            rule=rule,
            message=evictions[0].message,
            runs_again=now is not None and len(places(now)) >= ran[loser_id],
        )


def _waiting(known: Mapping[str, Workload], run: Run) -> Iterable[Waits]:
    sizes = GpuSizes.of(run.after.nodes)
    for workload in _ordered(run.after):
        pods = [pod for pod in workload.pods if pod.state is PodState.PENDING]
        if not pods:
            continue
        reason = run.last.pending.get(workload.id)
        old = known.get(workload.id)
        waited = old is not None and any(pod.state is PodState.PENDING for pod in old.pods)
        yield Waits(
            project=workload.project,
            name=workload.name,
            gpu_milli=sum(sizes.counted_milli(pod.request) for pod in pods),
            pods=len(pods),
            code=reason.code.value if reason else "",
            message=reason.message if reason else "",
            is_new=not waited,
        )


def _project_changes(before: Snapshot, before_plan: Plan, run: Run) -> Iterable[ProjectChange]:
    old = {project.name: project for project in before.projects}
    held_before, held_after = held_gpu_milli(before), held_gpu_milli(run.after)
    for project in sorted(run.after.projects, key=lambda project: project.name):
        name = project.name
        yield ProjectChange(
            project=name,
            quota_before=old[name].quota_gpu_milli if name in old else None,
            quota_after=project.quota_gpu_milli,
            held_before=held_before.get(name, 0),
            held_after=held_after[name],
            share_before=before_plan.shares_gpu_milli.get(name, 0),
            share_after=run.last.shares_gpu_milli.get(name, 0),
        )


def _ordered(snapshot: Snapshot) -> list[Workload]:
    return sorted(
        snapshot.workloads, key=lambda workload: (workload.project, workload.created_at_us, workload.name)
    )
