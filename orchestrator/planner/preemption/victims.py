"""Victims: why they may be evicted, who of a project has least to lose, and what their owners read."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from orchestrator.planner.accounting.amounts import amounts_text
from orchestrator.planner.accounting.coverage import Victim
from orchestrator.planner.accounting.quota_checks import violation
from orchestrator.planner.gangs import Chunk, chunk_amounts, held_parts
from orchestrator.planner.model import SECOND_US, Eviction, Pod, PodState, Workload
from orchestrator.planner.session import Session


@dataclass(frozen=True, slots=True)
class EvictionReason:
    """By which rule a victim's pods may be taken, with the figures that make it so."""

    rule: str
    message: str


VictimKey = tuple[int, bool, int, int, str, str]


def victim_order(workload: Workload, is_core: bool) -> VictimKey:
    """Sort key of victims of one project: lowest priority, surplus before what a gang needs, youngest."""
    return (
        workload.priority,
        is_core,
        -workload.started_at_us,
        -workload.created_at_us,
        workload.name,
        workload.id,
    )


def is_protected(workload: Workload, min_runtime_seconds: int, now_us: int) -> bool:
    """Whether the workload started too short a time ago to be given up as a whole."""
    return (
        bool(now_us and min_runtime_seconds)
        and now_us < workload.started_at_us + min_runtime_seconds * SECOND_US
    )


def needed_pods(victim: Victim) -> Chunk:
    """Of a victim that is all of its workload, the pods without which that does not run; else its pods."""
    if not victim.is_core or victim.is_move or len(victim.pods) == 1:
        return victim.pods
    needed, _ = held_parts(victim.workload)
    return needed


def stay_on_ledger(session: Session, workload: Workload, pods: Collection[Pod]) -> bool:
    """Let pods that leave run on where they are, if they fit beside all that was promised; else nothing changes."""
    ledger = session.ledger
    checkpoint = ledger.checkpoint()
    fits = violation(ledger, workload, chunk_amounts(pods)) is None
    for pod in pods:
        fits = fits and session.placer.can_stay(pod)
        if not fits:
            ledger.rollback(checkpoint)
            return False
        ledger.spare(workload, pod)
    return True


def evictions_for(beneficiary: Workload, losses: Iterable[tuple[Victim, EvictionReason]]) -> list[Eviction]:
    """The plan's evictions, one for each pod, with the sentence that the pod's owner will read."""
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
