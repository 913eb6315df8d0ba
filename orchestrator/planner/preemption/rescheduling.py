"""Other nodes and devices for victims: the best entitled is placed first, as it could take them from the others."""

from collections import deque
from collections.abc import Collection, Iterator, Mapping

from orchestrator.planner.accounting.quota_checks import violation
from orchestrator.planner.accounting.tiers import EntitlementTier
from orchestrator.planner.gangs import Chunk, chunk_amounts, held_parts
from orchestrator.planner.model import PodState, Workload
from orchestrator.planner.ordering import TurnOrder
from orchestrator.planner.placements import Placed
from orchestrator.planner.preemption.victim_selection import Losses
from orchestrator.planner.session import Session


def move_elsewhere(session: Session, losses: Losses) -> dict[str, Placed]:
    """Places on the ledger for victims that fit somewhere else, by workload; the best founded claims first.

    Whose claim is worse would lose the place to the others again.
    """
    names = dict.fromkeys(victim.workload.id for victim, _ in losses)
    evicted = {pod.id for victim, _ in losses for pod in victim.pods}
    victims: dict[str, Workload] = {}
    parts: dict[str, deque[Chunk]] = {}
    # a pod that has another place by now needs none
    lost = {
        pod.id
        for name in names
        for pod in session.workload(name).pods
        if pod.id in evicted and session.seats.of(pod) is None
    }
    for name in names:
        victim = victims[name] = session.workload(name)
        if len(victim.pods) == 1:  # nearly always
            parts[name] = deque((victim.pods,) if victim.pods[0].id in lost else ())
        else:
            victims[name] = as_it_ran(victim, lost)
            parts[name] = parts_of_victim(victims[name], lost)
    moved: dict[str, Placed] = {}
    for workload, chunk in by_claim(session, parts):
        placed = None
        if violation(session.ledger, workload, chunk_amounts(chunk)) is None:
            placed = session.place_all(workload, chunk)
        if placed is not None:
            moved.setdefault(workload.id, []).extend(placed)
        elif len(chunk) > 1 or not _goes_on(victims[workload.id], lost):
            parts[workload.id].clear()  # the surplus is of no use without what its gang needs
    return moved


def as_it_ran(workload: Workload, lost: Collection[str]) -> Workload:
    """Return the workload as it was before it lost these pods."""
    pods = (pod.in_state(PodState.ALLOCATED) if pod.id in lost else pod for pod in workload.pods)
    return workload.with_pods(tuple(pods))


def parts_of_victim(workload: Workload, evicted: Collection[str]) -> deque[Chunk]:
    """What was evicted of the workload, in the chunks in which it may go on elsewhere."""
    core, surplus = held_parts(workload)
    pods = [(pod,) for pod in (*core, *surplus) if pod.id in evicted]
    if _goes_on(workload, evicted):
        return deque(pods)
    return deque([core, *((pod,) for pod in surplus)] if core else pods)


def _goes_on(workload: Workload, evicted: Collection[str]) -> bool:
    """Whether pods of the workload stay where they are."""
    return any(pod.state is PodState.ALLOCATED and pod.id not in evicted for pod in workload.pods)


def by_claim(session: Session, parts: Mapping[str, deque[Chunk]]) -> Iterator[tuple[Workload, Chunk]]:
    """The next part of the workload whose claim is best founded, as the ledger stands by then."""
    waiting = [session.workload(name) for name, chunks in parts.items() if chunks]
    if len(waiting) == 1:  # nearly always
        chunks = parts[waiting[0].id]
        while chunks:
            yield waiting[0], chunks.popleft()
        return
    for level in EntitlementTier:
        turns = TurnOrder(
            session.ledger, session.shares, waiting, lambda workload: parts[workload.id][0], lambda _: 0
        )
        waiting = []
        while (workload := turns.pop()) is not None:
            chunks = parts[workload.id]
            if session.tier(workload, chunks[0]) > level:
                waiting.append(workload)
                turns.settle(workload.project)
                continue
            yield workload, chunks.popleft()
            turns.settle(workload.project, workload if chunks else None)
