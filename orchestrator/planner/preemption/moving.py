"""Room made by moving: whoever is moved has a place elsewhere, so nobody loses. Alone, or together with evictions.

What a quota covers is never evicted for another project, but it may be moved to a promised place: a guaranteed quota is
had whenever evictions of borrowed work and such moves together make the room.
"""

from collections.abc import Sequence

from orchestrator.planner.accounting.coverage import Victim
from orchestrator.planner.gangs import Chunk, chunk_amounts
from orchestrator.planner.model import Amounts, Workload
from orchestrator.planner.placements import Placed
from orchestrator.planner.preemption.candidates import Piece
from orchestrator.planner.preemption.reclaim_policy import ReclaimPolicy
from orchestrator.planner.preemption.rescheduling import move_elsewhere
from orchestrator.planner.preemption.victim_selection import Losses, Order
from orchestrator.planner.preemption.victims import EvictionReason
from orchestrator.planner.session import Session

MOVE_RULE = "consolidation"
_WORK_OF_MOVE = 100
_MAX_MOVES = 16


class MovePolicy:
    """Any pod that can be taken back may be moved; with `reclaim`, what that lets go may be evicted beside it.

    `cap` bounds the pods that are moved for one workload. `moved` are the places of the last accepted outcome.
    """

    spares_covered = False
    moves = True

    def __init__(self, cap: int | None, reclaim: ReclaimPolicy | None = None) -> None:
        self._cap = cap
        self._reclaim = reclaim
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

    def note_ineffective(self, workload: Workload, losses: Losses) -> None:
        """As for reclaim, for what is evicted."""
        if self._reclaim is not None:
            evicted = [(victim, reason) for victim, reason in losses if not victim.is_move]
            self._reclaim.note_ineffective(workload, evicted)

    def spare_robbed(self) -> bool:
        """As for reclaim."""
        return self._reclaim is not None and self._reclaim.spare_robbed()

    def may_go(self, workload: Workload, piece: Piece) -> bool:
        """Whether the piece is of other work, and may be moved, or evicted by the rules of reclaim."""
        if piece.is_move:
            return piece.workload.id != workload.id and not self._is_evictable(workload, piece)
        return self._is_evictable(workload, piece)

    def _is_evictable(self, workload: Workload, piece: Piece) -> bool:
        reclaim = self._reclaim
        return (
            reclaim is not None
            and reclaim.may_go(workload, piece)
            and not reclaim.is_closed(workload, self._requested, piece.project)
            and (not reclaim.falls_below_quota(workload, [piece]) or reclaim.is_borrowed(workload, piece))
        )

    def is_closed(self, workload: Workload, requested: Amounts, project: str) -> bool:
        """Moves are open to all."""
        del workload, requested, project
        return False

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

    def is_borrowed(self, workload: Workload, piece: Piece) -> bool:
        """Whether the piece is moved, or no quota covers it."""
        return piece.is_move or (self._reclaim is not None and self._reclaim.is_borrowed(workload, piece))

    def eviction_reason(
        self, workload: Workload, requested: Amounts, victim: Victim
    ) -> EvictionReason | None:
        """The rule of consolidation for a move, else that of reclaim."""
        if victim.is_move:
            return EvictionReason(MOVE_RULE, f"moved to another place so that {workload.name} fits")
        return None if self._reclaim is None else self._reclaim.eviction_reason(workload, requested, victim)

    def tolerates(self, session: Session, losses: Losses) -> bool:
        """Whether those who are moved so far all have a place."""
        if not session.may_evict(victim.pods for victim, _ in losses):
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
        return (self._cap is None or moves <= self._cap) and session.may_evict(
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
