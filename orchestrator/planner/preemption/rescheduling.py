"""Other nodes and devices for victims, and preemption by such moves, alone or together with evictions.

The best entitled victim is placed first, as it could take its placement from the others. A pod within quota is never
evicted for another project, but it may be moved to a nominated placement: a guaranteed quota is had whenever evictions
of borrowed pods and such moves together free the capacity.
"""

from collections import deque
from collections.abc import Collection, Iterator, Mapping, Sequence

from orchestrator.planner.accounting.coverage import Victim
from orchestrator.planner.accounting.quota_checks import violation
from orchestrator.planner.accounting.tiers import EntitlementTier
from orchestrator.planner.gangs import Chunk, chunk_amounts, held_parts
from orchestrator.planner.model import Amounts, PodState, Workload
from orchestrator.planner.ordering import TurnOrder
from orchestrator.planner.placements import Placed
from orchestrator.planner.preemption.candidates import Piece
from orchestrator.planner.preemption.node_options import Harm, Option
from orchestrator.planner.preemption.reclaim_policy import ReclaimPolicy
from orchestrator.planner.preemption.victim_selection import Losses, Order
from orchestrator.planner.preemption.victims import EvictionReason
from orchestrator.planner.session import Session

MOVE_RULE = "consolidation"
_WORK_OF_MOVE = 100
_MAX_MOVES = 16


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


class MovePolicy:
    """Any pod that can be taken back may be moved; with `reclaim`, what that lets go may be evicted beside it.

    `cap` bounds the pods that are moved for one workload. With `among`, only these pods (ids) are evicted. `moved` are
    the places of the last accepted outcome.
    """

    moves = True

    def __init__(
        self, cap: int | None, reclaim: ReclaimPolicy | None = None, among: Collection[str] | None = None
    ) -> None:
        self._cap = cap
        self._reclaim = reclaim
        self._among = among
        self.max_moves = _MAX_MOVES if cap is None else min(cap, _MAX_MOVES)
        self._requested: Amounts = (0, 0, 0)
        self.moved: dict[str, Placed] = {}

    def key(self, workload: Workload) -> tuple[object, ...]:
        """Whose own pods stay; with evictions what may go changes with every claim."""
        return (
            "move",
            workload.id,
            () if self._reclaim is None else (id(self), *self._reclaim.key(workload)),
        )

    def start(self, workload: Workload, chunk: Chunk) -> None:
        """As for reclaim."""
        self._requested = chunk_amounts(chunk)
        if self._reclaim is not None:
            self._reclaim.start(workload, chunk)

    def may_go(self, workload: Workload, piece: Piece) -> bool:
        """Whether the piece is of other work, and may be moved, or evicted by the rules of reclaim."""
        if piece.is_move:
            return piece.workload.id != workload.id and not self._is_evictable(workload, piece)
        return self._is_evictable(workload, piece)

    def _is_evictable(self, workload: Workload, piece: Piece) -> bool:
        reclaim = self._reclaim
        return (
            reclaim is not None
            and (self._among is None or all(pod.id in self._among for pod in piece.pods))
            and reclaim.may_go(workload, piece)
            and not reclaim.is_closed(
                workload, self._requested, piece.project, frees_gpus=piece.gpu_milli > 0
            )
            and reclaim.is_borrowed(workload, piece)
        )

    def is_closed(
        self, workload: Workload, requested: Amounts, project: str, *, frees_gpus: bool = True
    ) -> bool:
        """Moves are open to all."""
        del workload, requested, project, frees_gpus
        return False

    def harm(self, option: Option) -> Harm:
        """A move is less than an eviction."""
        return option.harm(sum(piece.pod_count for piece in option.pieces if not piece.is_move))

    def order(self, workload: Workload) -> Order:
        """Evictions of borrowed work first, then moves, as `victim_order` says."""
        del workload
        return lambda piece: (not piece.is_harmless, piece.is_move, piece.order)

    def falls_below_quota(self, workload: Workload, pieces: Sequence[Piece]) -> bool:
        """As for reclaim, for what is evicted."""
        evicted = [piece for piece in pieces if not piece.is_move]
        return (
            bool(evicted) and self._reclaim is not None and self._reclaim.falls_below_quota(workload, evicted)
        )

    def is_borrowed(self, workload: Workload, victim: Victim) -> bool:
        """Whether the victim is moved, or no quota covers it."""
        return victim.is_move or (self._reclaim is not None and self._reclaim.is_borrowed(workload, victim))

    def eviction_reason(
        self, workload: Workload, requested: Amounts, victim: Victim
    ) -> EvictionReason | None:
        """The rule of consolidation for a move, else that of reclaim."""
        if victim.is_move:
            return EvictionReason(MOVE_RULE, f"migrated so that {workload.name} fits")
        return None if self._reclaim is None else self._reclaim.eviction_reason(workload, requested, victim)

    def tolerates(self, session: Session, losses: Losses) -> bool:
        """Whether those who are moved so far all have a place."""
        if not session.limits.may_evict(victim.pods for victim, _ in losses):
            return False
        checkpoint = session.ledger.checkpoint()
        # Checked pod by pod: once all of a gang is placed it is too late to try another node.
        fits = self._place_moved(session, losses) is not None
        session.ledger.rollback(checkpoint)
        return fits

    def accepts(self, session: Session, workload: Workload, losses: Losses) -> bool:
        """Whether all who are moved are placed again, on the ledger, and are not too many."""
        if not self._is_within_caps(session, losses):
            return False
        moved = self._place_moved(session, losses)
        if moved is None or not self._accepts_evictions(session, workload, losses):
            return False
        self.moved = moved
        return True

    def accepts_places(
        self, session: Session, workload: Workload, losses: Losses, moved: dict[str, Placed]
    ) -> bool:
        """`accepts` for moves to these places, which are put on the ledger."""
        if not self._is_within_caps(session, losses):
            return False
        for name, placed in moved.items():
            for pod, where in placed:
                session.ledger.place(session.workload(name), pod, where)
        self.moved = moved
        return self._accepts_evictions(session, workload, losses)

    def _is_within_caps(self, session: Session, losses: Losses) -> bool:
        moves = sum(victim.is_move for victim, _ in losses)
        return (self._cap is None or moves <= self._cap) and session.limits.may_evict(
            victim.pods for victim, _ in losses
        )

    def _accepts_evictions(self, session: Session, workload: Workload, losses: Losses) -> bool:
        """Whether reclaim accepts what is evicted, with all who are moved in their new places."""
        evicted = [(victim, reason) for victim, reason in losses if not victim.is_move]
        return not evicted or self._reclaim is None or self._reclaim.accepts(session, workload, evicted)

    @staticmethod
    def _place_moved(session: Session, losses: Losses) -> dict[str, Placed] | None:
        moves = [(victim, reason) for victim, reason in losses if victim.is_move]
        session.work.spend(_WORK_OF_MOVE * len(moves))
        moved = move_elsewhere(session, moves)
        complete = sum(map(len, moved.values())) == sum(len(victim.pods) for victim, _ in moves)
        return moved if complete else None
