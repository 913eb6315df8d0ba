"""The rules of reclaim for given amounts, the order of victims, and the messages for the owners of victims.

A project can reclaim for a workload if the project stays within its fair share with this workload. At the level where
the two lineages diverge, one of two rules must apply to each victim:

- `fair-share`: the victim's side has more than its fair share, or its quota if that is more
- `quota`: the preemptor's side stays within its quota, and the victim's side is above its own quota
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from orchestrator.planner.accounting.amounts import (
    Figures,
    amounts_text,
    exceeds_somewhere,
    exceeds_where_requested,
    plus,
)
from orchestrator.planner.accounting.coverage import Victim
from orchestrator.planner.accounting.quota_checks import violation
from orchestrator.planner.gangs import Chunk, chunk_amounts, held_parts
from orchestrator.planner.model import SECOND_US, Amounts, Eviction, Pod, PodState, Workload
from orchestrator.planner.session import Session


@dataclass(frozen=True, slots=True)
class EvictionReason:
    """The rule by which a victim's pods may be evicted, and a sentence with the amounts."""

    rule: str
    message: str


VictimKey = tuple[int, bool, int, int, int, str, str]

_LOST_IN_CLASS_0_GPU_NS = 600 * 1_000_000_000
"""Ten GPU-minutes. A smaller loss is class 0."""


def victim_order(victim: Victim, lost_gpu_ns: int) -> VictimKey:
    """Return the sort key of a victim in its project. The lowest priority comes first, then elastic pods, the least
    lost time, and the youngest workload.

    A workload keeps its age when it restarts, so that the same workload is not evicted repeatedly.
    """
    workload = victim.workload
    return (
        workload.priority,
        victim.is_core,
        class_of_lost_time(lost_gpu_ns),
        -workload.created_at_us,
        -workload.started_at_us,
        workload.name,
        workload.id,
    )


def gpu_ns_since_start(victim: Victim, now_us: int) -> int:
    """Return the GPU time since the start of the victim's workload; 0 for elastic pods."""
    started_at_us = victim.workload.started_at_us
    if not victim.is_core or not 0 < started_at_us < now_us:
        return 0
    # unit: thousandths of a GPU times microseconds = GPU nanoseconds
    return (now_us - started_at_us) * sum(
        pod.request.gpu_milli
        for pod in victim.pods
        if pod.state is PodState.ALLOCATED and not pod.never_started
    )


def class_of_lost_time(gpu_ns: int) -> int:
    """Return 0 below 10 GPU-minutes, 1 below 40, 2 below 160, and so on.

    Example: `class_of_lost_time(30 * 60 * 1_000_000_000)` returns `1`.
    """
    return ((gpu_ns // _LOST_IN_CLASS_0_GPU_NS).bit_length() + 1) // 2


def is_protected(workload: Workload, min_runtime_seconds: int, now_us: int) -> bool:
    """Return whether the workload has not run for its minimum runtime yet."""
    return (
        bool(now_us and min_runtime_seconds)
        and now_us < workload.started_at_us + min_runtime_seconds * SECOND_US
    )


def needed_pods(victim: Victim) -> Chunk:
    """Return the pods that the workload needs to run, if the victim is the whole workload; otherwise all pods of the
    victim.
    """
    if not victim.is_core or victim.is_move or len(victim.pods) == 1:
        return victim.pods
    needed, _ = held_parts(victim.workload)
    return needed


def keep_on_ledger(session: Session, workload: Workload, pods: Collection[Pod]) -> bool:
    """Undo the eviction of these pods on the ledger if they fit beside all nominations, else change nothing.

    Return whether they fit.
    """
    ledger = session.ledger
    checkpoint, nominees = ledger.checkpoint(), session.steady_nominees()
    fits = violation(ledger, workload, chunk_amounts(pods)) is None
    for pod in pods:
        fits = fits and session.placer.can_keep_running(pod)
        if not fits:
            ledger.rollback(checkpoint)
            return False
        ledger.unevict(workload, pod)
    if not session.keeps_nominees(nominees):
        ledger.rollback(checkpoint)
        return False
    return True


def evictions_for(beneficiary: Workload, losses: Iterable[tuple[Victim, EvictionReason]]) -> list[Eviction]:
    """Return the evictions of the plan, one for each running pod, with a message for the pod's owner."""
    return [
        Eviction(
            pod=pod.id,
            workload=victim.workload.id,
            beneficiary=beneficiary.id,
            rule=reason.rule,
            message=(
                f"{amounts_text(pod.request.amounts)} reclaimed for {beneficiary.name} of {beneficiary.project} "
                f"by the rule of {reason.rule}: {reason.message}"
            ),
        )
        for victim, reason in losses
        for pod in victim.pods
        if pod.state is PodState.ALLOCATED
    ]


def restores_quota(reclaimer: Figures, requested: Amounts, victim: Figures, held: Amounts) -> bool:
    """Return whether the rule `quota` applies. `held` are the amounts of the victim's side before the eviction."""
    leaves_quota = exceeds_where_requested(plus(reclaimer.held, requested), reclaimer.quota, requested)
    return not leaves_quota and exceeds_somewhere(held, victim.quota)


def is_better_served(
    taker: Figures, held: Amounts, loser: Figures, remaining: Amounts, involved: Iterable[int]
) -> bool:
    """Return whether `taker`, with the use `held`, is beyond its fair share and at least as well served as `loser`.

    `remaining` are the amounts that `loser` keeps. Only the `involved` resources count.
    """
    for resource in involved:
        share, sibling = taker.share[resource], loser.share[resource]
        if sibling <= 0:
            continue
        above = held[resource] > share
        if above and held[resource] * sibling >= remaining[resource] * share:
            return True
    return False


def divergence_point(ours: Sequence[str], theirs: Sequence[str]) -> tuple[str | None, str | None]:
    """Return the first pair of different ancestors from the top: the level at which two projects compete.

    Example: `divergence_point(["a", "dep", "org"], ["b", "dep", "org"])` returns `('a', 'b')`.
    """
    for our_side, their_side in zip(reversed(ours), reversed(theirs), strict=False):
        if our_side != their_side:
            return our_side, their_side
    return None, None
