"""A decision evicts pods within a quota for another project only if it nominates them elsewhere."""

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
    """Yield evictions, for other projects, of pods that were within a quota before the decision, and are not nominated.

    The rest of the project and the pods that the decision starts do not matter.
    """
    if not step.plan.evictions:
        return
    covered = Coverage(step.before, step.tree, step.plan.shares_gpu_milli)
    models = {bounds.model for project in step.before.projects for bounds in project.gpu_models}
    # a reclaim for a quota of a GPU model evicts the whole gang
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
        # equal pods are interchangeable: the number of remaining pods counts
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
    """Return whether the gang lost a member longer ago than its grace period."""
    grace = workload.stale_grace_seconds
    grace = before.settings.stale_grace_seconds if grace is None else grace
    since_us = workload.stale_since_us
    return bool(since_us) and grace >= 0 and before.now_us - since_us >= grace * SECOND_US
