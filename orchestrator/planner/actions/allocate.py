"""Start workloads on free GPUs, without evictions: most entitled tier first, then in queue order."""

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
    """Place every pending workload that is within quota and fits. Store the reasons of those that do not fit."""
    _allocate(session, EntitlementTier.GUARANTEED)


def allocate_within_fair_share(session: Session) -> None:
    """Place the workloads within their fair share that fit, after evictions and migrations for the workloads within
    quota.
    """
    with session.work.within(
        Allowance(None)
    ):  # This step is cheap, so it has no bound on its work, unlike the steps with evictions.
        _allocate(session, EntitlementTier.FAIR)


def allocate_over_fair_share(session: Session) -> None:
    """Place all other workloads that fit, after the evictions and migrations for the entitled workloads.

    Then an older workload of a project can replace younger workloads that this decision started (`_prefer_older`).
    """
    with session.work.within(Allowance(None)):
        _prefer_older(session, _allocate(session, EntitlementTier.OVER_SHARE))


def _allocate(session: Session, level: EntitlementTier) -> Explainer:
    """Place the workloads of this tier and of more entitled tiers that fit. Return the explainer that gave the others
    their reasons.

    Free capacity only shrinks during this step, so a shape that did not fit is not tried again.
    """
    hopeless = Hopeless()
    explainer = Explainer(session)
    rearranger = Rearranger(session)
    pending = session.pending()
    # A nominated workload starts immediately if other GPUs became free. It starts in its tier, because a
    # nomination does not make it more entitled. It also starts after the more urgent pending workloads of its
    # project. Example: without this order, the nominee takes the last free GPU from them, although they
    # cannot use its nominated GPU.
    ahead, behind = _by_queue(session.waiting_nominees(), pending)
    _start_elsewhere(session, ahead, level)
    queue = session.priority_queue(pending)
    waiting: list[Workload] = []
    stuck: list[Workload] = []
    while (workload := queue.pop()) is not None:
        grown = None
        if session.tier(workload, session.next_chunk(workload)) <= level:
            grown = _start(session, workload, hopeless, explainer, level)
        if grown is None:
            waiting.append(workload)
        elif not grown:
            stuck.append(workload)
        queue.settle(workload.project, workload if grown and session.next_chunk(workload) else None)
    _start_elsewhere(session, _by_queue(behind, waiting)[0], level)
    for workload in stuck:
        rearranger.start(workload)
    return explainer


def _by_queue(
    nominees: Iterable[Workload], waiting: Iterable[Workload]
) -> tuple[list[Workload], list[Workload]]:
    """Return the nominees that are ahead of all waiting workloads of their project, and the other nominees."""
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
    """Start the nominees of this tier on GPUs that are free now."""
    for nominee in nominees:
        if _tier_without_nomination(session, nominee) <= level:
            start_nominated_elsewhere(session, nominee)


def _prefer_older(session: Session, explainer: Explainer) -> None:
    """Replace workloads that this decision started by workloads of the same project that are before them in the queue.

    Serving by tiers can start a small request before an older, larger request of the same project. If only one of them
    fits, the queue order decides. Exception: the older workload would borrow GPUs to which another project is more
    entitled.

    Example: 4 GPUs are free. A job of 1 GPU within quota started before an older job of 4 GPUs, which would borrow.
    No other project wants the GPUs, so the older job starts and the younger one is pending.
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
        # Younger workloads that still fit beside the older one start again.
        for younger in sorted(later, key=workload_order):
            while session.next_chunk(younger) and _start(session, younger, Hopeless(), explainer):
                pass


def _started_now(session: Session, project: str) -> list[Workload]:
    """Return the workloads of the project that this decision started, except those with an earlier nomination."""
    return [workload for workload in session.started(project) if workload.id not in session.restored]


def _start(
    session: Session,
    workload: Workload,
    hopeless: Hopeless,
    explainer: Explainer,
    level: EntitlementTier = EntitlementTier.OVER_SHARE,
) -> bool | None:
    """Place the next chunk, or store why it does not fit. Return whether it is placed.

    Return None, with no change, if the chunk fits only on GPU models for which its tier is worse than `level`. The
    chunk is tried again in a later tier.
    """
    chunk = session.next_chunk(workload)
    violation_found = session.violation(workload, chunk)
    if violation_found is not None:
        session.refuse(workload, violation_found)
        return False
    checkpoint, nominees = session.ledger.checkpoint(), session.steady_nominees()
    placed = None
    if not hopeless.includes(session, workload, chunk, workload.project):
        placed = session.place_all(workload, chunk)
        if placed is None:
            hopeless.add(session, workload, chunk, workload.project)
        elif not session.keeps_nominees(nominees):
            # it would start now, and the victims of the nominated workload would have been evicted for nothing
            session.ledger.rollback(checkpoint)
            placed = None
    if placed is None:
        session.refuse(workload, explainer.no_capacity(workload, chunk))
        return False
    if _tier_as_placed(session, workload, placed) > level:
        session.ledger.rollback(checkpoint)
        return None
    session.grant(workload, placed)
    return True


def _tier_without_nomination(session: Session, workload: Workload) -> EntitlementTier:
    """Return the entitlement tier of the nominated pods, without the use by these pods themselves."""
    checkpoint = session.ledger.checkpoint()
    nominated = session.seats.placed(workload, SeatState.NOMINATED)
    session.ledger.unplace(workload, nominated)
    tier = session.tier(workload, tuple(pod for pod, _ in nominated))
    session.ledger.rollback(checkpoint)
    return tier


def _tier_as_placed(session: Session, workload: Workload, placed: Placed) -> EntitlementTier:
    """Return the worst tier of the placed pods, by the GPU models of the nodes on which they are placed."""
    ledger, tree = session.ledger, session.tree
    chunk = tuple(pod for pod, _ in placed)
    if not tree.models_with_quota or session.models.bound(workload, chunk) is not None:
        # The caller has checked the tier for the only GPU model on which the chunk can run.
        return EntitlementTier.GUARANTEED
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
    """Finds other placements for the workloads that this decision started, so that one more workload fits.

    After 16 failed searches, it searches no more in this decision.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._hopeless: set[tuple[object, ...]] = set()

    def start(self, workload: Workload) -> bool:
        """Start the next chunk of the workload if it fits with other placements of the started workloads."""
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
