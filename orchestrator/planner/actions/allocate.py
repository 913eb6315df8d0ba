"""Give what is free, best founded requests first, project by project in the order of turns, disturbing nobody."""

from collections.abc import Iterable

from orchestrator.planner.accounting.tiers import EntitlementTier, tier, tier_with_model
from orchestrator.planner.actions.evicting import Hopeless, better_claims, waiting_for
from orchestrator.planner.gangs import chunk_amounts, shape_of
from orchestrator.planner.model import CAPACITY_REASONS, Waiting, Workload
from orchestrator.planner.ordering import workload_order
from orchestrator.planner.placements import Placed
from orchestrator.planner.preemption.arrangement import (
    arrange,
    carry_out_arrangement,
    place_beside,
    started_workloads,
)
from orchestrator.planner.preemption.nominations import start_nominated_elsewhere
from orchestrator.planner.reasons.explainer import Explainer
from orchestrator.planner.seats import SeatState
from orchestrator.planner.session import Session
from orchestrator.planner.settings import Allowance


def allocate_within_quota(session: Session) -> None:
    """Place every pending workload that a quota covers and that fits; remember for the others why they do not."""
    _allocate(session, EntitlementTier.GUARANTEED)


def allocate_within_fair_share(session: Session) -> None:
    """Place what else fits that fair shares cover, once claims within quotas had their turn to make room."""
    with session.work.within(Allowance(None)):  # it is as cheap as it was before room was made
        _allocate(session, EntitlementTier.FAIR)


def allocate_surplus(session: Session) -> None:
    """Place what else fits, once whoever has a claim had a turn to make room: it would be in their way.

    Inside a project nobody is overtaken by younger work that was started in any of these rounds.
    """
    with session.work.within(Allowance(None)):
        _prefer_older(session, _allocate(session, EntitlementTier.SURPLUS))


def _allocate(session: Session, level: EntitlementTier) -> Explainer:
    """Place what fits of a tier, and of those before it; the explainer of who does not.

    What is free only shrinks in the turns, so a shape that found no place is not tried again.
    """
    hopeless = Hopeless()
    explainer = Explainer(session)
    rearranger = Rearranger(session)
    pending = session.pending()
    # Where room has come free it need not wait for a release; but at its tier, as its claim is no better, and after
    # more urgent work of its project, also of a later tier: that would take the place from it, when its own room
    # is somebody else's.
    ahead, behind = _by_queue(session.waiting_nominees(), pending)
    _start_elsewhere(session, ahead, level)
    turns = session.turns(pending)
    waiting: list[Workload] = []
    stuck: list[Workload] = []
    while (workload := turns.pop()) is not None:
        grown = None
        if session.tier(workload, session.next_chunk(workload)) <= level:
            grown = _start(session, workload, hopeless, explainer, level)
        if grown is None:
            waiting.append(workload)
        elif not grown:
            stuck.append(workload)
        turns.settle(workload.project, workload if grown and session.next_chunk(workload) else None)
    _start_elsewhere(session, _by_queue(behind, waiting)[0], level)
    for workload in stuck:
        rearranger.start(workload)
    return explainer


def _by_queue(
    nominees: Iterable[Workload], waiting: Iterable[Workload]
) -> tuple[list[Workload], list[Workload]]:
    """Those who come first in the queues of their projects, and those behind somebody who waits."""
    ahead: list[Workload] = []
    behind: list[Workload] = []
    first: dict[str, tuple[int, int, str, str]] = {}
    for nominee in nominees:
        if not first:
            for workload in waiting:
                order = workload_order(workload)
                first[workload.project] = min(order, first.get(workload.project, order))
        order = workload_order(nominee)
        (behind if first.get(nominee.project, order) < order else ahead).append(nominee)
    return ahead, behind


def _start_elsewhere(session: Session, nominees: Iterable[Workload], level: EntitlementTier) -> None:
    """Start nominees of this tier where room is free."""
    for nominee in nominees:
        if _tier_without_nomination(session, nominee) <= level:
            start_nominated_elsewhere(session, nominee)


def _prefer_older(session: Session, explainer: Explainer) -> None:
    """Inside a project nobody is overtaken by younger or less urgent work that was started in this decision.

    Standing puts a small request before a larger one of the same project; where only one of them fits, the queue
    decides. What the older one would only borrow is not taken from others for it that have a better claim to it.
    """
    hopeless = Hopeless()
    waiting = sorted(waiting_for(session, (*CAPACITY_REASONS, Waiting.PROJECT_LIMIT)), key=workload_order)
    last = {
        project: max(workload_order(workload) for workload in granted)
        for project in {workload.project for workload in waiting}
        if (granted := _started_now(session, project))
    }
    for workload in waiting:
        if workload.project not in last or workload_order(workload) > last[workload.project]:
            continue
        later = [
            younger
            for younger in _started_now(session, workload.project)
            if workload_order(younger) > workload_order(workload)
        ]
        chunk = session.next_chunk(workload)
        if (
            not later
            or session.queues.is_whole(workload)
            or hopeless.includes(session, workload, chunk, workload.project)
        ):
            continue
        checkpoint = session.ledger.checkpoint()
        for younger in later:
            session.lift(younger)
        violation_found = session.violation(workload, chunk)
        placing = None
        if violation_found is None and not better_claims(session, workload, chunk, later):
            placing = place_beside(session, workload, chunk, started_workloads(session), only_now=True)
        if placing is None:
            session.ledger.rollback(checkpoint)
            hopeless.add(session, workload, chunk, workload.project)
            continue
        placed, elsewhere = placing
        carry_out_arrangement(session, elsewhere)
        session.grant(workload, placed)
        # What still fits beside the older workload does not have to wait for it.
        for younger in sorted(later, key=workload_order):
            while session.next_chunk(younger) and _start(session, younger, Hopeless(), explainer):
                pass


def _started_now(session: Session, project: str) -> list[Workload]:
    """What the project was given in this decision, but for what was its own since an earlier one."""
    return [workload for workload in session.started(project) if workload.id not in session.restored]


def _start(
    session: Session,
    workload: Workload,
    hopeless: Hopeless,
    explainer: Explainer,
    level: EntitlementTier = EntitlementTier.SURPLUS,
) -> bool | None:
    """Place the next chunk, or remember why not; None when only GPU models would do that others come before it for."""
    chunk = session.next_chunk(workload)
    violation_found = session.violation(workload, chunk)
    if violation_found is not None:
        session.refuse(workload, violation_found)
        return False
    checkpoint = session.ledger.checkpoint()
    placed = None
    if not hopeless.includes(session, workload, chunk, workload.project):
        placed = session.place_all(workload, chunk)
        if placed is None:
            hopeless.add(session, workload, chunk, workload.project)
    if placed is None:
        session.refuse(workload, explainer.no_capacity(workload, chunk))
        return False
    if _tier_as_placed(session, workload, placed) > level:
        session.ledger.rollback(checkpoint)
        return None
    session.grant(workload, placed)
    return True


def _tier_without_nomination(session: Session, workload: Workload) -> EntitlementTier:
    """How well founded the nominated pods' claim is, which is on the ledger already."""
    checkpoint = session.ledger.checkpoint()
    nominated = session.seats.placed(workload, SeatState.NOMINATED)
    session.ledger.unplace(workload, nominated)
    tier = session.tier(workload, tuple(pod for pod, _ in nominated))
    session.ledger.rollback(checkpoint)
    return tier


def _tier_as_placed(session: Session, workload: Workload, placed: Placed) -> EntitlementTier:
    """How well founded what is on the ledger is by each GPU model on which it really is."""
    ledger, tree = session.ledger, session.tree
    chunk = tuple(pod for pod, _ in placed)
    if not tree.promised_models or session.models.bound(workload, chunk) is not None:
        return EntitlementTier.GUARANTEED  # judged before it was placed
    on: dict[str, int] = {}
    checkpoint = ledger.checkpoint()
    ledger.unplace(workload, placed)
    for pod, where in placed:
        model = ledger.by_name[where.node].model
        on[model] = on.get(model, 0) + pod.request.gpu_milli
    total = tier(ledger, session.shares, workload, chunk_amounts(chunk))
    tiers = [
        tier_with_model(
            ledger,
            session.models.shares,
            total,
            lineage=tree.lineage[workload.project],
            gpu_milli=amount,
            model=model,
        )
        for model, amount in on.items()
    ]
    ledger.rollback(checkpoint)
    return max(tiers)


_FAILURES = 16


class Rearranger:
    """Tries other arrangements of what is started; after 16 kinds of requests that none helped, no more are tried."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._hopeless: set[tuple[object, ...]] = set()

    def start(self, workload: Workload) -> bool:
        """Start the workload's next chunk beside all that is started, if some arrangement has room for them."""
        session = self._session
        chunk = session.next_chunk(workload)
        if not session.waits_for(workload, CAPACITY_REASONS) or len(self._hopeless) >= _FAILURES:
            return False
        started = started_workloads(session)
        if not started:
            return False
        tier = session.reservations.key(workload, chunk)
        beside = session.shape_beside_others(chunk)
        shape = (workload.project, tier, *beside, *shape_of(workload, chunk))
        requested = chunk_amounts(chunk)
        if shape in self._hopeless or not requested[0] or session.violation(workload, chunk) is not None:
            return False
        placing = None
        if self._could_fit(requested[0]):
            placing = arrange(session, workload, chunk, started, only_now=True)
        if placing is None:
            self._hopeless.add(shape)
            return False
        placed, elsewhere = placing
        carry_out_arrangement(session, elsewhere)
        session.grant(workload, placed)
        return True

    def _could_fit(self, gpu_milli: int) -> bool:
        nodes = self._session.ledger.nodes
        return sum(account.later_milli for account in nodes if account.node.schedulable) >= gpu_milli
