"""What a quota covers is evicted for another project only if it has a promised place, or enough is left."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from orchestrator.planner.model import PodState
from tests.world.coverage import Coverage
from tests.world.facts import SECOND_US, add, order_in_project, pending, total
from tests.world.step import Step, Violation

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from orchestrator.planner.model import Amounts, Eviction, Pod, Snapshot, Workload

MADE_WAY = "of the same project is more urgent and takes its GPUs"


def covered_work(step: Step) -> Iterator[Violation]:
    """What a quota covers is evicted for another project only if it has a promised place, or enough is left.

    A project that holds its whole quota without the victim lost nothing that the quota promises: least harm may well
    take a small job that fits rather than a large one that the order of filling calls borrowed.
    """
    if not step.plan.evictions:
        return
    covered = Coverage(step.before, step.tree, step.plan.shares_gpu_milli)
    models = {bounds.model for project in step.before.projects for bounds in project.gpu_models}
    # a gang goes as a whole for a claim on the model of one of its pods
    by_model = {
        (eviction.workload, eviction.beneficiary)
        for eviction in step.plan.evictions
        if (node := step.nodes.get(step.pods[eviction.pod].node or "")) is not None
        and node.gpu_model in models
    }
    lost: dict[tuple[str, str], list[Eviction]] = {}
    for eviction in step.plan.evictions:
        victim, winner = step.workloads[eviction.workload], step.workloads.get(eviction.beneficiary)
        if winner is None:
            yield Violation(
                "evictions", f"{eviction.pod} is evicted for {eviction.beneficiary}, which is not there"
            )
            continue
        if _is_given_up(step.before, victim):
            continue
        is_moved = eviction.pod in step.nominated
        ours, theirs = step.tree.sides(winner.project, victim.project)
        if is_moved or ours is None or theirs is None or (victim.id, winner.id) in by_model:
            continue
        if covered.protects(victim, step.pods[eviction.pod], theirs):
            lost.setdefault((victim.id, theirs), []).append(eviction)
    for (name, theirs), evictions in lost.items():
        # pods of the same kind are interchangeable: what counts is how many are left
        workload = step.workloads[name]
        running = [pod for pod in workload.pods if pod.state is PodState.ALLOCATED]
        safe = sum(covered.protects(workload, pod, theirs) for pod in running)
        gone = sum(pod.id in step.evicted and pod.id not in step.nominated for pod in running)
        alike = len({(pod.request, pod.sub_group) for pod in running}) == 1
        if not alike or len(running) - gone < safe:
            if _keeps_quota(step, theirs, total(step.pods[eviction.pod] for eviction in evictions)):
                continue
            if not _is_covered_with_gains(step, workload, evictions, theirs):
                continue
            pods = ", ".join(eviction.pod for eviction in evictions)
            facts = f"{pods} evicted for {evictions[0].beneficiary}, the quota of {theirs} covers it"
            yield Violation("covered", facts)


def _is_given_up(before: Snapshot, workload: Workload) -> bool:
    """Whether the gang lost a member so long ago that what is left of it goes, unless it becomes whole."""
    grace = workload.stale_grace_seconds
    grace = before.settings.stale_grace_seconds if grace is None else grace
    since_us = workload.stale_since_us
    return bool(since_us) and grace >= 0 and before.now_us - since_us >= grace * SECOND_US


def _is_covered_with_gains(
    step: Step, workload: Workload, evictions: Sequence[Eviction], theirs: str
) -> bool:
    """Whether the victims are covered too once the rest of the decision has come true.

    What a sibling gets within its quota is covered by that of the department before what others of it run. What urgent
    work took inside a project does not count: others took while the project was as it had been.
    """
    lost = {eviction.pod for eviction in evictions}
    inside = [eviction for eviction in step.plan.evictions if eviction.rule == "priority"]
    urgent = {eviction.beneficiary for eviction in inside}
    gone = step.evicted - lost - step.nominated.keys() - {eviction.pod for eviction in inside}
    entries = (*step.plan.bindings, *step.plan.nominations)
    places = {entry.pod: entry for entry in entries if entry.workload not in urgent}

    def then(pod: Pod) -> Pod:
        if pod.id in gone:
            return replace(pod, state=PodState.RELEASING)
        if pod.state is PodState.PENDING and pod.id in places:
            return replace(pod, nominated_node=places[pod.id].node)
        return pod

    workloads = tuple(replace(one, pods=tuple(map(then, one.pods))) for one in step.before.workloads)
    covered = Coverage(replace(step.before, workloads=workloads), step.tree, step.plan.shares_gpu_milli)
    return any(covered.protects(workload, step.pods[pod], theirs) for pod in lost)


def _keeps_quota(step: Step, name: str, lost: Amounts) -> bool:
    """Whether the project or department still holds all of its quota of what it lost: it lost the wrong work at worst.

    Unbounded GPUs are all promised, unbounded CPU and memory are promised to nobody.

    What its more urgent work took from it counts as held, and what that work got for it does not: others took while it
    was as it had been, and what a project loses by preemption it gets.
    """
    inside = [
        eviction
        for eviction in step.plan.evictions
        if eviction.rule == "priority"
        and name in step.tree.lineage.get(step.workloads[eviction.workload].project, ())
    ]
    urgent = {eviction.beneficiary for eviction in inside}
    preempted = {eviction.pod for eviction in inside}
    promised = {
        pod
        for pod, entry in step.nominated.items()
        if name in step.tree.lineage.get(step.workloads[entry.workload].project, ())
        and entry.workload not in urgent
    }
    held = add(step.held_after[name], total(step.pods[pod] for pod in promised | preempted))
    # What was started and made way again in the same decision is not in the plan, but what it made way for is.
    at_last = add(step.held_after[name], step.promised(name))
    before = add(step.held_after[name], _made_way(step, name))
    return all(
        max(held[resource], at_last[resource], before[resource]) >= quota
        if quota is not None
        else resource > 0
        for resource, quota in enumerate(step.tree.quota(name))
        if lost[resource]
    )


def _made_way(step: Step, name: str) -> Amounts:
    """What of the project's, or of the projects below it, made way for more urgent work of its own, by its reason.

    Of a gang what it needs counts, of other work a pod; less what that urgent work was bound to for it.
    """
    nominated = {entry.workload for entry in step.nominated.values()}
    bound = {entry.workload for entry in step.plan.bindings}
    made_way: list[Pod] = []
    takers: set[str] = set()
    for workload in step.before.workloads:
        reason = step.plan.pending.get(workload.id)
        if name not in step.tree.lineage.get(workload.project, ()) or reason is None:
            continue
        more_urgent = {
            other
            for other in nominated | bound
            if step.workloads[other].project == workload.project
            and order_in_project(step.workloads[other]) < order_in_project(workload)
        }
        if reason.message.endswith(MADE_WAY) and more_urgent:
            made_way += pending(workload)[: max(1, workload.min_member)]
            takers |= set() if more_urgent & nominated else more_urgent
    started = [step.pods[entry.pod] for entry in step.plan.bindings if entry.workload in takers]
    gpu, cpu, memory = total(started)
    return add(total(made_way), (-gpu, -cpu, -memory))
