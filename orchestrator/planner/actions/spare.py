"""Evictions that proved needless: whoever was to make way and fits beside all that was decided stays where it runs.

A search counts what one claim needs at a time. A later claim, or a victim with which others lose their rooms, may free
more than that, so that somebody who was taken before need not go.
"""

from collections.abc import Callable, Collection, Mapping

from orchestrator.planner.actions.renominate import Renomination
from orchestrator.planner.gangs import Chunk
from orchestrator.planner.model import PodState, Workload
from orchestrator.planner.obstacles import GangEvicted
from orchestrator.planner.preemption.rescheduling import as_it_ran, by_claim, parts_of_victim
from orchestrator.planner.preemption.victims import stay_on_ledger
from orchestrator.planner.reasons.explainer import Explainer
from orchestrator.planner.session import Session


def spare_who_can_stay(session: Session) -> None:
    """Take back the evictions and moves of this decision that no binding or nomination needs, best claims first."""
    _spare_where_capacity_is_left(session)
    victims = _victims_of_others(session)
    renomination = Renomination(session)
    pods = [pod for evicted in victims.values() for pod in evicted]
    if (
        pods
        and renomination.could_help(pods)
        and _spare_best_claims_first(session, victims, renomination.let_stay)
    ):
        _spare_where_capacity_is_left(session)


def _victims_of_others(session: Session) -> dict[str, list[str]]:
    """By workload, ids of the pods that are evicted or moved for other workloads."""
    victims: dict[str, list[str]] = {}
    for eviction in session.seats.evictions.values():
        if eviction.beneficiary != eviction.workload:
            victims.setdefault(eviction.workload, []).append(eviction.pod)
    return victims


def _spare_where_capacity_is_left(session: Session) -> None:
    victims = _victims_of_others(session)
    if not any(_could_stay(session, session.workload(name), pods) for name, pods in victims.items()):
        return  # nearly always
    _spare_best_claims_first(session, victims, lambda workload, chunk: _stay(session, workload, chunk))


def _spare_best_claims_first(
    session: Session, victims: Mapping[str, Collection[str]], let_stay: Callable[[Workload, Chunk], bool]
) -> bool:
    """Let pods that were to make way, by workload, stay where it can be done; tell whether any do."""
    parts = {
        name: parts_of_victim(as_it_ran(session.workload(name), evicted), evicted)
        for name, evicted in victims.items()
    }
    explainer = Explainer(session)
    is_any_spared = False
    for workload, chunk in by_claim(session, parts):
        if let_stay(workload, chunk):
            is_any_spared = True
            current = session.workload(workload.id)
            if isinstance(session.reasons.get(workload.id), GangEvicted) and session.next_chunk(current):
                session.refuse(current, explainer.no_capacity(current, session.next_chunk(current)))
        elif len(chunk) > 1 or not _runs(session.workload(workload.id)):
            parts[workload.id].clear()  # the surplus is of no use without what its gang needs
    return is_any_spared


def _could_stay(session: Session, workload: Workload, evicted: Collection[str]) -> bool:
    """Whether one of the evicted pods could run on where it is, or has another place to give back for that."""
    return any(
        session.seats.of(pod) is not None or session.placer.can_stay(pod)
        for pod in workload.pods
        if pod.id in evicted
    )


def _runs(workload: Workload) -> bool:
    return any(pod.state is PodState.ALLOCATED for pod in workload.pods)


def _stay(session: Session, workload: Workload, chunk: Chunk) -> bool:
    """Spare all of the chunk, or leave everything as it was."""
    ledger = session.ledger
    checkpoint = ledger.checkpoint()
    for pod in chunk:
        if (seat := session.seats.of(pod)) is not None:
            ledger.unplace(workload, [(pod, seat.where)])
    if not stay_on_ledger(session, workload, chunk):
        ledger.rollback(checkpoint)
        return False
    session.spare(workload, chunk)
    return True
