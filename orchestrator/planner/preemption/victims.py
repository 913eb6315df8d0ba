"""Victims: why they may be evicted, who of a project has least to lose, and what their owners read."""

from collections.abc import Iterable
from dataclasses import dataclass

from orchestrator.planner.accounting.coverage import Victim
from orchestrator.planner.model import Eviction, PodState, Workload
from orchestrator.planner.reasons.formatting import amounts_text

_SECOND_US = 1_000_000


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
        and now_us < workload.started_at_us + min_runtime_seconds * _SECOND_US
    )


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
