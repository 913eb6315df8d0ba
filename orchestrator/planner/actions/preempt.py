"""Preemption in a project: a workload of higher priority takes GPUs of preemptible workloads of lower priority."""

from collections.abc import Collection, Iterable, Mapping, Sequence

from orchestrator.planner.accounting.coverage import Victim
from orchestrator.planner.accounting.quota import preempt_min_runtime
from orchestrator.planner.accounting.quota_checks import keeps_limits, quota_violation
from orchestrator.planner.accounting.tiers import EntitlementTier
from orchestrator.planner.actions.evicting import (
    Hopeless,
    better_claims,
    carry_out,
    may_evict_now,
    nominate_victims,
    waiting_for,
)
from orchestrator.planner.gangs import Chunk, chunk_amounts
from orchestrator.planner.model import CAPACITY_REASONS, Amounts, Waiting, Workload
from orchestrator.planner.obstacles import Overtaken
from orchestrator.planner.ordering import workload_order
from orchestrator.planner.placements import Placement
from orchestrator.planner.preemption.arrangement import ArrangedSearches
from orchestrator.planner.preemption.candidates import Candidate, Candidates
from orchestrator.planner.preemption.node_options import Harm, Option
from orchestrator.planner.preemption.nominations import place_at
from orchestrator.planner.preemption.rescheduling import move_elsewhere
from orchestrator.planner.preemption.search import Outcome, preempt_for
from orchestrator.planner.preemption.victim_selection import Losses, Order, VictimSelector
from orchestrator.planner.preemption.victims import EvictionReason, is_protected, needed_pods
from orchestrator.planner.seats import SeatState
from orchestrator.planner.session import Session


class PriorityPolicy:
    """Inside a project, every candidate of lower priority may be evicted. The project must be within its limits
    afterwards.
    """

    moves = False

    def __init__(self, session: Session) -> None:
        self._session = session

    def start(self, workload: Workload, chunk: Chunk) -> None:
        """Do nothing: this policy has no state."""

    def key(self, workload: Workload) -> tuple[object, ...]:
        """Return the project and the priority of the preemptor."""
        return ("preempt", workload.project, workload.priority)

    def may_go(self, workload: Workload, candidate: Candidate) -> bool:
        """Return whether the candidate is of the same project and lower priority, and has run for the minimum
        runtime.
        """
        victim = candidate.workload
        if candidate.is_move:
            return False
        if victim.project != workload.project or victim.priority >= workload.priority:
            return False
        seconds = self._session.tree.nearest(workload.project, preempt_min_runtime)
        return not (candidate.is_core and is_protected(victim, seconds, self._session.snapshot.now_us))

    def is_closed(
        self, workload: Workload, requested: Amounts, project: str, *, frees_gpus: bool = True
    ) -> bool:
        """Return whether `project` is another project: only pods of the preemptor's project are evicted by priority."""
        del requested, frees_gpus
        return project != workload.project

    def harm(self, option: Option) -> Harm:
        """Return the harm, with the highest priority among the victims counted first."""
        return option.harm(option.urgency)

    def order(self, workload: Workload) -> Order:
        """Return the sort key of `victim_order`."""
        del workload
        return lambda candidate: (not candidate.is_harmless, candidate.order)

    def falls_below_quota(self, workload: Workload, candidates: Sequence[Candidate]) -> bool:
        """Return false: the project gets the GPUs that it loses."""
        del workload, candidates
        return False

    def is_borrowed(self, workload: Workload, victim: Victim) -> bool:
        """Return true: no quota protects a pod from its own project."""
        del workload, victim
        return True

    def eviction_reason(
        self, workload: Workload, requested: Amounts, victim: Victim
    ) -> EvictionReason | None:
        """Return the rule `priority`."""
        del requested
        ours, theirs = workload.priority, victim.workload.priority
        return EvictionReason("priority", f"priority {ours} goes before {theirs} inside {workload.project}")

    def tolerates(self, session: Session, losses: Losses) -> bool:
        """Return whether the decision stays within its maximum number of evictions with these victims."""
        return session.limits.may_evict(victim.pods for victim, _ in losses)

    def accepts(self, session: Session, workload: Workload, losses: Losses) -> bool:
        """Return whether the maximum number of evictions and the limits of the project are kept."""
        return session.limits.may_evict(victim.pods for victim, _ in losses) and keeps_limits(
            session.ledger, workload
        )


def preempt(session: Session) -> None:
    """Preempt for every workload that waits for capacity or is at the limit of its project, in priority order."""
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
    # New candidates include the pods that earlier steps of this decision nominated.
    selector = VictimSelector(session, Candidates(session), PriorityPolicy(session))
    hopeless = Hopeless()
    session.work.allow(20)
    for queue in session.queues_left_over_first(urgent):
        while (workload := session.next_workload(queue)) is not None:
            started = preempt_lower_for(session, workload, selector, hopeless)
            queue.settle(workload.project, workload if started and session.next_chunk(workload) else None)


def _lowest_priorities(session: Session, projects: Collection[str]) -> dict[str, int]:
    """Return, by project, the lowest priority of its preemptible workloads that run or start in this decision."""
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
    """Evict less urgent pods of the project so that the next chunk fits. If that is impossible, change nothing."""
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
    before = {pod.id: where for other in granted for pod, where in session.seats.placed(other, SeatState.NEW)}
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
    # Place pods again in this order: nominations of earlier decisions, then the victims (they were running),
    # then the workloads that only this decision started. So no workload loses its GPUs to a less entitled
    # one.
    nominees = [other for other in granted if other.id in session.restored]
    _start_again(session, nominees, before)
    nominate_victims(session, workload, losses, move_elsewhere(session, losses))
    _start_again(session, [other for other in granted if other.id not in session.restored], before)
    return True


def _has_passed_on_its_place(session: Session, nominee: Workload) -> bool:
    """Return whether the nominee starts elsewhere and another workload got its nominated GPUs.

    The other workload can be less entitled to these GPUs than the preemptor. So the nominee starts, and from the next
    decision on it can be evicted like any running workload.
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
    """Return whether pending workloads of other projects, or the victims, are more entitled to the GPUs.

    If the preemptor is beyond the fair share of its project, a victim can be more entitled than the preemptor. If such
    a victim fits nowhere else, it would reclaim GPUs from other projects, and these would reclaim GPUs from the
    preemptor.
    """
    losses, placed, elsewhere = outcome
    chunk = tuple(pod for pod, _ in placed)
    checkpoint = session.ledger.checkpoint()
    moved = move_elsewhere(session, losses)
    session.ledger.rollback(checkpoint)
    session.ledger.unplace(workload, placed)
    entitled = any(
        victim.workload.id not in moved
        and session.tier(victim.workload, needed_pods(victim)) is not EntitlementTier.OVER_SHARE
        for victim, _ in losses
    )
    due = entitled and session.tier(workload, chunk) is EntitlementTier.OVER_SHARE
    off_ledger = list(suspended)
    for other, where in elsewhere:
        if other.project == workload.project:
            session.ledger.unplace(other, where)
            off_ledger.append(other)
    due = due or bool(suspended and better_claims(session, workload, chunk, off_ledger))
    session.ledger.rollback(checkpoint)
    return due


def _start_again(session: Session, workloads: Iterable[Workload], before: Mapping[str, Placement]) -> None:
    """Start the suspended workloads that still fit beside the preemptor again, in queue order.

    A workload keeps its placements `before` (by pod id) if it can, because other pods can be nominated beside them.
    """
    for workload in sorted(workloads, key=workload_order):
        while chunk := session.next_chunk(workload):
            placed = place_at(session, workload, chunk, before)
            if placed is None and not session.violation(workload, chunk):
                placed = session.place_all(workload, chunk)
            if placed is None:
                break
            session.grant(workload, placed)
