"""Inside one project, more urgent work takes the place of less urgent work that can be taken back."""

from collections.abc import Collection, Iterable, Sequence

from orchestrator.planner.accounting.coverage import Victim
from orchestrator.planner.accounting.quota import preempt_min_runtime
from orchestrator.planner.accounting.quota_checks import keeps_limits, quota_violation
from orchestrator.planner.accounting.tiers import EntitlementTier
from orchestrator.planner.actions.evicting import (
    Hopeless,
    better_claims,
    carry_out,
    may_evict_now,
    promise_places,
    waiting_for,
)
from orchestrator.planner.gangs import Chunk, chunk_amounts
from orchestrator.planner.model import CAPACITY_REASONS, Amounts, Waiting, Workload
from orchestrator.planner.obstacles import Overtaken
from orchestrator.planner.ordering import workload_order
from orchestrator.planner.placements import Placement
from orchestrator.planner.preemption.arrangement import ArrangedSearches
from orchestrator.planner.preemption.candidates import Candidates, Piece
from orchestrator.planner.preemption.node_options import Harm, Option
from orchestrator.planner.preemption.rescheduling import move_elsewhere
from orchestrator.planner.preemption.search import Outcome, preempt_for
from orchestrator.planner.preemption.victim_selection import Losses, Order, VictimSelector
from orchestrator.planner.preemption.victims import EvictionReason, is_protected, needed_pods
from orchestrator.planner.seats import SeatState
from orchestrator.planner.session import Session


class PriorityPolicy:
    """Inside the project every piece of lower priority may go; the project's limits hold afterwards."""

    moves = False

    def __init__(self, session: Session) -> None:
        self._session = session

    def start(self, workload: Workload, chunk: Chunk) -> None:
        """Nothing to prepare."""

    def key(self, workload: Workload) -> tuple[object, ...]:
        """The project, and below which priority."""
        return ("preempt", workload.project, workload.priority)

    def may_go(self, workload: Workload, piece: Piece) -> bool:
        """Whether the piece is of lower priority in the same project, and has run for as long as that asks for."""
        victim = piece.workload
        if piece.is_move:
            return False
        if victim.project != workload.project or victim.priority >= workload.priority:
            return False
        seconds = self._session.tree.nearest(workload.project, preempt_min_runtime)
        return not (piece.is_core and is_protected(victim, seconds, self._session.snapshot.now_us))

    def is_closed(
        self, workload: Workload, requested: Amounts, project: str, *, frees_gpus: bool = True
    ) -> bool:
        """Other projects lose nothing by priority."""
        del requested, frees_gpus
        return project != workload.project

    def harm(self, option: Option) -> Harm:
        """The most urgent are spared before all else."""
        return option.harm(option.urgency)

    def order(self, workload: Workload) -> Order:
        """As `victim_order` says."""
        del workload
        return lambda piece: (not piece.is_harmless, piece.order)

    def falls_below_quota(self, workload: Workload, pieces: Sequence[Piece]) -> bool:
        """Never: what the project loses, it gets."""
        del workload, pieces
        return False

    def is_borrowed(self, workload: Workload, victim: Victim) -> bool:
        """No quota protects a pod from its own project."""
        del workload, victim
        return True

    def eviction_reason(
        self, workload: Workload, requested: Amounts, victim: Victim
    ) -> EvictionReason | None:
        """The rule of priority."""
        del requested
        ours, theirs = workload.priority, victim.workload.priority
        return EvictionReason("priority", f"priority {ours} goes before {theirs} inside {workload.project}")

    def tolerates(self, session: Session, losses: Losses) -> bool:
        """Whether the cap on evictions is kept so far."""
        return session.limits.may_evict(victim.pods for victim, _ in losses)

    def accepts(self, session: Session, workload: Workload, losses: Losses) -> bool:
        """Whether the cap on evictions and the limits hold."""
        return session.limits.may_evict(victim.pods for victim, _ in losses) and keeps_limits(
            session.ledger, workload
        )


def preempt(session: Session) -> None:
    """For every workload that lacks room or stands at its project's limit, in the order of turns."""
    waiting = may_evict_now(session, waiting_for(session, (*CAPACITY_REASONS, Waiting.PROJECT_LIMIT)))
    if not waiting:
        return
    lowest = _lowest_priorities(session, {workload.project for workload in waiting})
    urgent = [
        workload
        for workload in waiting
        if lowest.get(workload.project, workload.priority) < workload.priority
    ]
    if not urgent:
        return
    selector = VictimSelector(session, session.once(Candidates), PriorityPolicy(session))
    hopeless = Hopeless()
    session.work.allow(20)
    for turns in session.turns_left_over_first(urgent):
        while (workload := session.next_turn(turns)) is not None:
            started = preempt_lower_for(session, workload, selector, hopeless)
            turns.settle(workload.project, workload if started and session.next_chunk(workload) else None)


def _lowest_priorities(session: Session, projects: Collection[str]) -> dict[str, int]:
    """By project, the lowest priority of what could give way: preemptible work that runs or was just started."""
    lowest: dict[str, int] = {}
    started = (workload for project in sorted(projects) for workload in session.started(project))
    for workload in (*(workload for workload in session.running() if workload.preemptible), *started):
        if workload.project in projects:
            lowest[workload.project] = min(workload.priority, lowest.get(workload.project, workload.priority))
    return lowest


def preempt_lower_for(
    session: Session,
    workload: Workload,
    selector: VictimSelector,
    hopeless: Hopeless,
) -> bool:
    """Evict less urgent work of the project for the next chunk; or leave everything as it was."""
    chunk = session.next_chunk(workload)
    requested = chunk_amounts(chunk)
    if (
        not chunk
        or quota_violation(session.ledger, workload, requested)
        or session.reservations.limit(workload, chunk)
    ):
        return False
    owner = (workload.project, workload.priority)
    if hopeless.includes(session, workload, chunk, owner):
        return False
    granted = [
        other
        for other in session.started(workload.project)
        if other.priority < workload.priority and not _has_passed_on_its_place(session, other)
    ]
    checkpoint = session.ledger.checkpoint()
    for other in granted:
        session.lift(other)
    started = session.once(ArrangedSearches).started(chunk)
    outcome = preempt_for(session, workload, chunk, selector, started)
    if outcome is None or _is_due_to_others(session, workload, outcome, granted):
        session.ledger.rollback(checkpoint)
        hopeless.add(session, workload, chunk, owner)
        return False
    for other in granted:
        session.refuse(other, Overtaken(workload.name))
    losses = outcome[0]
    carry_out(session, workload, *outcome)
    # Whose room was its own since an earlier decision comes first, then the victims, who ran, then what was started
    # only now: nobody loses a promised room to those who come after it.
    nominees = [other for other in granted if other.id in session.restored]
    _start_again(session, nominees)
    promise_places(session, workload, losses, move_elsewhere(session, losses))
    _start_again(session, [other for other in granted if other.id not in session.restored])
    return True


def _has_passed_on_its_place(session: Session, nominee: Workload) -> bool:
    """Whether it starts elsewhere and others were given the room that it had been promised.

    Those may have no better claim to it: it starts, and may be evicted like all that runs from the next decision on.
    """
    if nominee.id not in session.restored:
        return False
    return any(
        pod.nominated_node is not None
        and (where.node, where.devices) != (pod.nominated_node, pod.nominated_devices)
        and session.placer.keep(nominee, pod, Placement(pod.nominated_node, pod.nominated_devices)) is None
        for pod, where in session.seats.placed(nominee, SeatState.NEW)
    )


def _is_due_to_others(
    session: Session, workload: Workload, outcome: Outcome, suspended: Sequence[Workload]
) -> bool:
    """Whether others have a better claim: projects, to what less urgent work of this one gives back, or the victims.

    A victim may be entitled to what it needs to run where the workload, with which the project holds more than its fair
    share, is not. Unless it fits elsewhere it would reclaim the room of others, and these the workload's.
    """
    losses, placed, elsewhere = outcome
    chunk = tuple(pod for pod, _ in placed)
    checkpoint = session.ledger.checkpoint()
    moved = move_elsewhere(session, losses)
    session.ledger.rollback(checkpoint)
    session.ledger.unplace(workload, placed)
    entitled = any(
        victim.workload.id not in moved
        and session.tier(victim.workload, needed_pods(victim)) is not EntitlementTier.SURPLUS
        for victim, _ in losses
    )
    due = entitled and session.tier(workload, chunk) is EntitlementTier.SURPLUS
    off_ledger = list(suspended)
    for other, where in elsewhere:
        if other.project == workload.project:
            session.ledger.unplace(other, where)
            off_ledger.append(other)
    due = due or bool(suspended and better_claims(session, workload, chunk, off_ledger))
    session.ledger.rollback(checkpoint)
    return due


def _start_again(session: Session, workloads: Iterable[Workload]) -> None:
    """Give back, in the order of the queue, what still fits beside the more urgent work."""
    for workload in sorted(workloads, key=workload_order):
        while chunk := session.next_chunk(workload):
            placed = None if session.violation(workload, chunk) else session.place_all(workload, chunk)
            if placed is None:
                break
            session.grant(workload, placed)
