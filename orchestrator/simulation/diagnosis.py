"""Diagnoses a pending workload: the planner's reason, the usage of its projects, the holders of GPUs, and remedies.

Every remedy is tried on a copy of the snapshot, and is listed only if all pods of the workload then run.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Final

from orchestrator.errors import UsageError
from orchestrator.planner import plan
from orchestrator.planner.accounting.amounts import amount_text
from orchestrator.planner.accounting.gpu_models import GpuSizes
from orchestrator.planner.accounting.ledger import capacity_gpu_milli
from orchestrator.planner.model import (
    DEVICE_MILLI,
    Binding,
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
"""Maximum number of smaller requests that are tried as a remedy."""
MAX_DELETIONS: Final = 8
"""Maximum number of jobs of the project of which the deletion is tried singly."""
MAX_SHOWN_DELETIONS: Final = 3
"""Maximum number of jobs of which each alone is a remedy."""


@dataclass(frozen=True, slots=True)
class ProjectUsage:
    """The quota, limit, used GPUs and fair share of the project or of an ancestor, in `gpu_milli`; None: unlimited."""

    name: str
    quota: int | None
    limit: int | None
    held: int
    share: int


@dataclass(frozen=True, slots=True)
class Holder:
    """A workload that holds GPUs: the amount in `gpu_milli`, and their `nodes`.

    `started_at_us` is microseconds since the epoch.
    """

    project: str
    name: str
    gpu_milli: int
    nodes: tuple[str, ...]
    preemptible: bool
    started_at_us: int


@dataclass(frozen=True, slots=True)
class Remedy:
    """A change after which the workload would run, and the workloads that would be evicted for it (`project/name`)."""

    subject: str
    evicts: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """The answer of `muster explain` for one workload.

    - `gpu_milli`, `pods`: amount and number of the pending pods. `places` are the nodes of the running pods.
    - `starts`, `evicts`: its pods that the next decision would start, and the evictions for it.
    - `endangered`: the reason why it stays on unhealthy hardware, or "".
    - `code`, `message`: the planner's reason, empty without a pending pod.
    - `lineage`: its project and the ancestors of the project, nearest first.

    `free_gpu_milli`, `lineage` and `holders` are the state before the next decision. The planner's reason has the
    figures after it. That decision starts `starts_others` and evicts pods of `evicts_from` (`project/name`).
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
    lineage: tuple[ProjectUsage, ...]
    holders: tuple[Holder, ...]
    free_gpu_milli: int
    free_after_gpu_milli: int
    total_gpu_milli: int
    starts_others: tuple[str, ...]
    evicts_from: tuple[str, ...]
    remedies: tuple[Remedy, ...]


def diagnose(snapshot: Snapshot, workload: Workload) -> Diagnosis:
    """Plan on the snapshot and return the diagnosis of the workload."""
    decision = plan(snapshot)
    waiting = [pod for pod in workload.pods if pod.state is PodState.PENDING]
    names = {pod.id: pod.name for pod in workload.pods}
    starts = tuple(
        Place(names[binding.pod], binding.node, binding.devices)
        for binding in decision.bindings
        if binding.workload == workload.id
    )
    evicts = tuple(eviction for eviction in decision.evictions if eviction.beneficiary == workload.id)
    reason = decision.pending.get(workload.id)
    stuck = len(starts) < len(waiting) and not evicts
    return Diagnosis(
        project=workload.project,
        name=workload.name,
        gpu_milli=_counted_milli(snapshot, waiting),
        pods=len(waiting),
        endangered=decision.endangered.get(workload.id, ""),
        code=reason.code.value if reason else "",
        message=reason.message if reason else "",
        places=tuple(places(workload).values()),
        starts=starts,
        evicts=evicts,
        lineage=tuple(_lineage(snapshot, decision, workload.project)),
        holders=tuple(holders_of(snapshot)),
        free_gpu_milli=_free_milli(snapshot, ()),
        free_after_gpu_milli=_free_milli(snapshot, decision.bindings),
        total_gpu_milli=capacity_gpu_milli(snapshot.nodes),
        starts_others=_names(snapshot, {binding.workload for binding in decision.bindings} - {workload.id}),
        evicts_from=_names(snapshot, {eviction.workload for eviction in decision.evictions}),
        remedies=tuple(_remedies(snapshot, workload)) if stuck else (),
    )


def holders_of(snapshot: Snapshot) -> list[Holder]:
    """Return the workloads with GPUs, also of terminating pods, sorted by project and then by descending amount."""
    sizes = GpuSizes.of(snapshot.nodes)
    holders = []
    for workload in snapshot.workloads:
        held = _held_milli(workload, sizes)
        gpu_milli = sum(held.values())
        if gpu_milli:
            nodes = sorted(node for node, amount in held.items() if node and amount)
            holders.append(
                Holder(
                    workload.project,
                    workload.name,
                    gpu_milli,
                    tuple(nodes),
                    workload.preemptible,
                    workload.started_at_us,
                )
            )
    return sorted(holders, key=lambda holder: (holder.project, -holder.gpu_milli, holder.name))


def _held_milli(workload: Workload, sizes: GpuSizes) -> dict[str | None, int]:
    """Return the `gpu_milli` that the workload holds, also by terminating pods, by node."""
    held: dict[str | None, int] = {}
    for pod in workload.pods:
        if pod.state is not PodState.PENDING:
            held[pod.node] = held.get(pod.node, 0) + sizes.held_milli(pod.request, pod.node)
    return held


def _lineage(snapshot: Snapshot, decision: Plan, project: str) -> Iterator[ProjectUsage]:
    held = held_gpu_milli(snapshot)
    for ancestor in _ancestors(snapshot, project):
        yield ProjectUsage(
            ancestor.name,
            ancestor.quota_gpu_milli,
            ancestor.limit_gpu_milli,
            held[ancestor.name],
            decision.shares_gpu_milli.get(ancestor.name, 0),
        )


def _ancestors(snapshot: Snapshot, project_name: str) -> list[Project]:
    """Return the project and its ancestors, nearest first. In a cycle of parents, each project is listed once."""
    by_name = {project.name: project for project in snapshot.projects}
    ancestors: list[Project] = []
    name: str | None = project_name
    while name is not None and name in by_name and by_name[name] not in ancestors:
        ancestors.append(by_name[name])
        name = by_name[name].parent
    return ancestors


def _remedies(snapshot: Snapshot, workload: Workload) -> Iterator[Remedy]:
    yield from _higher_quota(snapshot, workload)
    yield from _higher_limit(snapshot, workload)
    if not workload.preemptible:
        yield from _try_remedy(
            snapshot,
            replace(workload, preemptible=True),
            "as a preemptible job, which others may take GPUs from",
        )
    yield from _smaller_requests(snapshot, workload)
    yield from _deletions(snapshot, workload)


def _higher_quota(snapshot: Snapshot, workload: Workload) -> Iterator[Remedy]:
    project = next((candidate for candidate in snapshot.projects if candidate.name == workload.project), None)
    if project is None or project.quota_gpu_milli is None:
        return
    held = held_gpu_milli(snapshot)[project.name]
    needed_gpu_milli = held + _counted_milli(
        snapshot, (pod for pod in workload.pods if pod.state is PodState.PENDING)
    )
    if needed_gpu_milli <= project.quota_gpu_milli:
        return
    try:
        changed = set_quota(snapshot, project.name, needed_gpu_milli)
    except UsageError:
        return  # the quotas would exceed the installed GPUs
    yield from _try_remedy(
        changed, workload, f"with a quota of {amount_text(needed_gpu_milli, 0)} for {project.name}"
    )


def _higher_limit(snapshot: Snapshot, workload: Workload) -> Iterator[Remedy]:
    """Try a higher GPU limit of the project and of each ancestor whose limit the whole workload would exceed."""
    held = held_gpu_milli(snapshot)
    waiting_gpu_milli = _counted_milli(
        snapshot, (pod for pod in workload.pods if pod.state is PodState.PENDING)
    )
    for project in _ancestors(snapshot, workload.project):
        needed_gpu_milli = held[project.name] + waiting_gpu_milli
        if project.limit_gpu_milli is None or needed_gpu_milli <= project.limit_gpu_milli:
            continue
        raised = replace(project, limit_gpu_milli=needed_gpu_milli)
        projects = tuple(raised if sibling.name == project.name else sibling for sibling in snapshot.projects)
        subject = f"with a limit of {amount_text(needed_gpu_milli, 0)} for {project.name}"
        yield from _try_remedy(replace(snapshot, projects=projects), workload, subject)


def _smaller_requests(snapshot: Snapshot, workload: Workload) -> Iterator[Remedy]:
    gpu_counts = {pod.request.gpu_count for pod in workload.pods if pod.state is PodState.PENDING}
    if len(gpu_counts) != 1:
        return
    largest = next(iter(gpu_counts))
    for count in range(largest - 1, max(0, largest - 1 - MAX_SMALLER_REQUESTS), -1):
        remedies = list(
            _try_remedy(
                snapshot,
                _with_gpu_count(workload, count),
                f"if it asked for {amount_text(count * DEVICE_MILLI, 0)}"
                f"{' in each pod' if len(workload.pods) > 1 else ''}",
            )
        )
        if remedies:
            yield from remedies
            return


def _deletions(snapshot: Snapshot, workload: Workload) -> Iterator[Remedy]:
    """Try to delete jobs of the same project that hold GPUs: each alone, or else several that are all needed.

    Example: a job needs 4 GPUs, and jobs of its project hold 2, 2 and 1. The two jobs with 2 GPUs are the remedy.
    """
    sizes = GpuSizes.of(snapshot.nodes)
    held = {
        other.id: sum(_held_milli(other, sizes).values())
        for other in snapshot.workloads
        if other.project == workload.project and other.id != workload.id
    }
    # the least important and youngest first
    own = sorted(
        (other for other in snapshot.workloads if held.get(other.id)),
        key=lambda other: (other.priority, -other.created_at_us, other.id),
    )
    if not own or not _without(snapshot, workload, own):
        return
    singly = (remedy for other in own[:MAX_DELETIONS] for remedy in _without(snapshot, workload, [other]))
    alone = list(islice(singly, MAX_SHOWN_DELETIONS))
    if alone:
        yield from alone
        return
    needed = own[: _fewest(lambda count: bool(_without(snapshot, workload, own[:count])), len(own))]
    superfluous = sorted(needed, key=lambda other: (held[other.id], -other.priority, other.created_at_us))
    for other in superfluous[:MAX_DELETIONS]:
        fewer = [each for each in needed if each is not other]
        if _without(snapshot, workload, fewer):
            needed = fewer
    yield from _without(snapshot, workload, needed)


def _fewest(is_enough: Callable[[int], bool], largest: int) -> int:
    """Return the smallest number that is enough; `largest` is enough, and 1 is not."""
    low, high = 1, 2
    while high < largest and not is_enough(high):
        low, high = high, high * 2
    high = min(high, largest)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if is_enough(middle) else (middle, high)
    return high


def _without(snapshot: Snapshot, workload: Workload, deleted: Sequence[Workload]) -> list[Remedy]:
    """Return the deletion of these workloads as a remedy, if it is one."""
    ids = {other.id for other in deleted}
    rest = tuple(other for other in snapshot.workloads if other.id not in ids)
    *first, last = (other.name for other in deleted)
    names, was = (f"{', '.join(first)} and {last}", "were") if first else (last, "was")
    return list(
        _try_remedy(
            replace(snapshot, workloads=rest), workload, f"if {names} of {workload.project} {was} deleted"
        )
    )


def _with_gpu_count(workload: Workload, gpu_count: int) -> Workload:
    pods = tuple(
        replace(pod, request=replace(pod.request, gpu_count=gpu_count))
        if pod.state is PodState.PENDING
        else pod
        for pod in workload.pods
    )
    return replace(workload, pods=pods)


def _try_remedy(snapshot: Snapshot, workload: Workload, subject: str) -> Iterator[Remedy]:
    """Yield the remedy if no pod of the workload is pending after at most 10 decisions."""
    workloads = tuple(workload if other.id == workload.id else other for other in snapshot.workloads)
    run = settle(replace(snapshot, workloads=workloads), max_decisions=10)
    after = next(candidate for candidate in run.after.workloads if candidate.id == workload.id)
    if any(pod.state is PodState.PENDING for pod in after.pods):
        return
    names = {other.id: f"{other.project}/{other.name}" for other in run.before.workloads}
    evicted = {
        names[eviction.workload]
        for step in run.steps
        for eviction in step.evictions
        if eviction.beneficiary == workload.id
    }
    yield Remedy(subject, tuple(sorted(evicted)))


def _counted_milli(snapshot: Snapshot, pods: Iterable[Pod]) -> int:
    """Return the amount of the pods as quotas count it, in `gpu_milli`."""
    sizes = GpuSizes.of(snapshot.nodes)
    return sum(sizes.counted_milli(pod.request) for pod in pods)


def _free_milli(snapshot: Snapshot, bindings: Iterable[Binding]) -> int:
    """Return the free `gpu_milli` of the cluster after these bindings. Terminating pods still hold their GPUs."""
    sizes = GpuSizes.of(snapshot.nodes)
    nodes = {binding.pod: binding.node for binding in bindings}
    held_milli = dict.fromkeys((node.name for node in snapshot.nodes), 0)
    for workload in snapshot.workloads:
        for pod in workload.pods:
            node = nodes.get(pod.id, pod.node)
            if node in held_milli:
                held_milli[node] += sizes.held_milli(pod.request, node)
    return sum(max(0, capacity_gpu_milli([node]) - held_milli[node.name]) for node in snapshot.nodes)


def _names(snapshot: Snapshot, workloads: set[str]) -> tuple[str, ...]:
    """Return the workloads with these ids as `project/name`."""
    return tuple(f"{other.project}/{other.name}" for other in snapshot.workloads if other.id in workloads)
