"""Why a workload waits: what the planner says, where its project stands, who holds the GPUs, and what would help.

What would help is not guessed: each remedy is tried on a copy of the snapshot, and named if the workload then runs.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Final

from orchestrator.errors import UsageError
from orchestrator.planner import plan
from orchestrator.planner.accounting.ledger import capacity_gpu_milli
from orchestrator.planner.accounting.quota import amount_text
from orchestrator.planner.model import (
    DEVICE_MILLI,
    Eviction,
    Plan,
    Pod,
    PodState,
    Project,
    Snapshot,
    Workload,
)
from orchestrator.simulation.change import set_quota
from orchestrator.simulation.outcome import Place, held_gpu_milli, places
from orchestrator.simulation.run import settle

MAX_SMALLER_REQUESTS: Final = 8
"""How many smaller requests are tried at most."""


@dataclass(frozen=True, slots=True)
class ProjectStanding:
    """One project of the lineage, nearest first; amounts in `gpu_milli`, None: unlimited."""

    name: str
    quota: int | None
    limit: int | None
    held: int
    share: int


@dataclass(frozen=True, slots=True)
class Holder:
    """A workload that holds GPUs. `started_at_us` is microseconds since the epoch."""

    project: str
    name: str
    gpu_milli: int
    nodes: tuple[str, ...]
    preemptible: bool
    started_at_us: int


@dataclass(frozen=True, slots=True)
class Remedy:
    """A change after which the workload would run, and whom that would cost their GPUs (`project/name`)."""

    what: str
    evicts: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Explanation:
    """All that is to say about one workload.

    `gpu_milli` and `pods` count what waits; `places` is where the rest runs, `starts` what this very decision would
    start, and `evicts` whom it would evict for it. `endangered` says why it stays on unhealthy hardware, if it does.
    `code` and `message` are empty when nothing of it waits.
    """

    project: str
    name: str
    gpu_milli: int
    pods: int
    endangered: str
    code: str
    message: str
    places: tuple[Place, ...]
    starts: tuple[Place, ...]
    evicts: tuple[Eviction, ...]
    lineage: tuple[ProjectStanding, ...]
    holders: tuple[Holder, ...]
    free_gpu_milli: int
    total_gpu_milli: int
    remedies: tuple[Remedy, ...]


def explain(snapshot: Snapshot, workload: Workload) -> Explanation:
    """Decide on the snapshot and say what that means for one of its workloads."""
    decision = plan(snapshot)
    waiting = [pod for pod in workload.pods if pod.state is PodState.PENDING]
    names = {pod.id: pod.name for pod in workload.pods}
    starts = tuple(
        Place(names[each.pod], each.node, each.devices)
        for each in decision.bindings
        if each.workload == workload.id
    )
    evicts = tuple(each for each in decision.evictions if each.beneficiary == workload.id)
    reason = decision.pending.get(workload.id)
    holders = tuple(holders_of(snapshot))
    total = capacity_gpu_milli(snapshot.nodes)
    stuck = len(starts) < len(waiting) and not evicts
    return Explanation(
        project=workload.project,
        name=workload.name,
        gpu_milli=_asked(waiting),
        pods=len(waiting),
        endangered=decision.endangered.get(workload.id, ""),
        code=reason.code.value if reason else "",
        message=reason.message if reason else "",
        places=tuple(places(workload).values()),
        starts=starts,
        evicts=evicts,
        lineage=tuple(_lineage(snapshot, decision, workload.project)),
        holders=holders,
        free_gpu_milli=max(0, total - sum(each.gpu_milli for each in holders)),
        total_gpu_milli=total,
        remedies=tuple(_remedies(snapshot, workload)) if stuck else (),
    )


def holders_of(snapshot: Snapshot) -> list[Holder]:
    """The workloads that hold GPUs, those that are being evicted included: by project, the largest first."""
    found = []
    for workload in snapshot.workloads:
        held = [pod for pod in workload.pods if pod.state is not PodState.PENDING and pod.request.gpu_milli]
        if held:
            nodes = sorted({pod.node for pod in held if pod.node})
            found.append(
                Holder(
                    workload.project,
                    workload.name,
                    _asked(held),
                    tuple(nodes),
                    workload.preemptible,
                    workload.started_at_us,
                )
            )
    return sorted(found, key=lambda each: (each.project, -each.gpu_milli, each.name))


def _lineage(snapshot: Snapshot, decision: Plan, project: str) -> Iterator[ProjectStanding]:
    held = held_gpu_milli(snapshot)
    for each in _ancestors(snapshot, project):
        yield ProjectStanding(
            each.name,
            each.quota_gpu_milli,
            each.limit_gpu_milli,
            held[each.name],
            decision.shares_gpu_milli.get(each.name, 0),
        )


def _ancestors(snapshot: Snapshot, project: str) -> list[Project]:
    known = {each.name: each for each in snapshot.projects}
    found: list[Project] = []
    name: str | None = project
    while name is not None and name in known and known[name] not in found:
        found.append(known[name])
        name = known[name].parent
    return found


def _remedies(snapshot: Snapshot, workload: Workload) -> Iterator[Remedy]:
    yield from _higher_quota(snapshot, workload)
    yield from _higher_limit(snapshot, workload)
    if not workload.preemptible:
        yield from _tried(
            snapshot,
            replace(workload, preemptible=True),
            "as a preemptible job, which others may take GPUs from",
        )
    yield from _smaller(snapshot, workload)


def _higher_quota(snapshot: Snapshot, workload: Workload) -> Iterator[Remedy]:
    project = next((each for each in snapshot.projects if each.name == workload.project), None)
    if project is None or project.quota_gpu_milli is None:
        return
    held = held_gpu_milli(snapshot)[project.name]
    wanted = held + _asked(pod for pod in workload.pods if pod.state is PodState.PENDING)
    if wanted <= project.quota_gpu_milli:
        return
    try:
        changed = set_quota(snapshot, project.name, wanted)
    except UsageError:
        return  # the cluster has no GPUs left to promise
    yield from _tried(changed, workload, f"with a quota of {amount_text(wanted, 0)} for {project.name}")


def _higher_limit(snapshot: Snapshot, workload: Workload) -> Iterator[Remedy]:
    """For each limit on GPUs, of the project or a department, that the whole workload would pass."""
    held = held_gpu_milli(snapshot)
    asked = _asked(pod for pod in workload.pods if pod.state is PodState.PENDING)
    for project in _ancestors(snapshot, workload.project):
        wanted = held[project.name] + asked
        if project.limit_gpu_milli is None or wanted <= project.limit_gpu_milli:
            continue
        raised = replace(project, limit_gpu_milli=wanted)
        projects = tuple(raised if each.name == project.name else each for each in snapshot.projects)
        what = f"with a limit of {amount_text(wanted, 0)} for {project.name}"
        yield from _tried(replace(snapshot, projects=projects), workload, what)


def _smaller(snapshot: Snapshot, workload: Workload) -> Iterator[Remedy]:
    asked = {pod.request.gpu_count for pod in workload.pods if pod.state is PodState.PENDING}
    if len(asked) != 1:
        return
    most = next(iter(asked))
    for count in range(most - 1, max(0, most - 1 - MAX_SMALLER_REQUESTS), -1):
        found = list(
            _tried(
                snapshot,
                _asking(workload, count),
                f"if it asked for {amount_text(count * DEVICE_MILLI, 0)}"
                f"{' in each pod' if len(workload.pods) > 1 else ''}",
            )
        )
        if found:
            yield from found
            return


def _asking(workload: Workload, gpu_count: int) -> Workload:
    pods = tuple(
        replace(pod, request=replace(pod.request, gpu_count=gpu_count))
        if pod.state is PodState.PENDING
        else pod
        for pod in workload.pods
    )
    return replace(workload, pods=pods)


def _tried(snapshot: Snapshot, workload: Workload, what: str) -> Iterator[Remedy]:
    """The remedy, if the workload runs in whole once the cluster with it has come to rest."""
    workloads = tuple(workload if each.id == workload.id else each for each in snapshot.workloads)
    run = settle(replace(snapshot, workloads=workloads), most_decisions=10)
    after = next(each for each in run.after.workloads if each.id == workload.id)
    if any(pod.state is PodState.PENDING for pod in after.pods):
        return
    names = {each.id: f"{each.project}/{each.name}" for each in run.before.workloads}
    evicted = {
        names[each.workload]
        for step in run.steps
        for each in step.evictions
        if each.beneficiary == workload.id
    }
    yield Remedy(what, tuple(sorted(evicted)))


def _asked(pods: Iterable[Pod]) -> int:
    return sum(pod.request.gpu_milli for pod in pods)
