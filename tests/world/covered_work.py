"""A decision evicts pods within a quota for another project only if it nominates them elsewhere."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orchestrator.planner.model import DEVICE_MILLI, PodState
from tests.world.coverage import Coverage
from tests.world.facts import SECOND_US, add, total, within
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
        if _holds_cpus_of_gpus(step, victim, winner, ours, theirs):
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


def _holds_cpus_of_gpus(step: Step, victim: Workload, winner: Workload, ours: str, theirs: str) -> bool:
    """Return whether the victim may be evicted for the CPUs and memory of GPUs (docs/decisions/cpus-of-gpu-nodes.md).

    It has no GPUs and no quota of CPUs or memory, and the winner asks for GPUs within its quota, with at most their
    part of a node.
    """
    lineage = step.tree.lineage[victim.project]
    quotas = [step.tree.quota(name) for name in lineage[: lineage.index(theirs) + 1]]
    claim = step.chunk_bound_or_nominated(winner.id)
    gpu_milli, cpu_milli, memory_bytes = claim
    if total(victim.pods)[0] or not gpu_milli or any(each[1:] != (None, None) for each in quotas):
        return False
    nodes = [step.nodes[pod.node] for pod in victim.pods if pod.id in step.evicted and pod.node in step.nodes]
    return within(add(step.held_before[ours], claim), step.tree.quota(ours), claim) and any(
        cpu_milli * node.gpu_count * DEVICE_MILLI <= node.cpu_milli * gpu_milli
        and memory_bytes * node.gpu_count * DEVICE_MILLI <= node.memory_bytes * gpu_milli
        for node in nodes
    )


def _is_given_up(before: Snapshot, workload: Workload) -> bool:
    """Return whether the gang lost a member longer ago than its grace period."""
    grace = workload.stale_grace_seconds
    grace = before.settings.stale_grace_seconds if grace is None else grace
    since_us = workload.stale_since_us
    return bool(since_us) and grace >= 0 and before.now_us - since_us >= grace * SECOND_US
