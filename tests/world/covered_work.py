"""What a quota covered when the decision began is evicted for another project only if it has a promised place."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orchestrator.planner.model import PodState
from tests.world.coverage import Coverage
from tests.world.facts import SECOND_US
from tests.world.step import Step, Violation

if TYPE_CHECKING:
    from collections.abc import Iterator

    from orchestrator.planner.model import Eviction, Snapshot, Workload


def covered_work(step: Step) -> Iterator[Violation]:
    """What a quota covered when the decision began is evicted for another project only if it has a promised place.

    It does not matter what the project holds without the victim, nor what the decision starts.
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
            pods = ", ".join(eviction.pod for eviction in evictions)
            facts = f"{pods} evicted for {evictions[0].beneficiary}, the quota of {theirs} covers it"
            yield Violation("covered", facts)


def _is_given_up(before: Snapshot, workload: Workload) -> bool:
    """Whether the gang lost a member so long ago that what is left of it goes, unless it becomes whole."""
    grace = workload.stale_grace_seconds
    grace = before.settings.stale_grace_seconds if grace is None else grace
    since_us = workload.stale_since_us
    return bool(since_us) and grace >= 0 and before.now_us - since_us >= grace * SECOND_US
