"""Searches victims by the rules of an eviction policy: evicts and places on the ledger until a whole chunk fits.

The search changes only the ledger. The caller adds the result to the plan, or rolls it back.
"""

from collections.abc import Callable, Collection, Sequence
from itertools import islice

from orchestrator.planner.accounting.amounts import minus
from orchestrator.planner.accounting.coverage import Victim
from orchestrator.planner.accounting.quota_checks import limiting
from orchestrator.planner.gangs import Chunk, chunk_amounts, has_topology
from orchestrator.planner.model import Amounts, Pod, Workload
from orchestrator.planner.placement.chunks import candidate_domains, largest_first
from orchestrator.planner.placements import Placed, Placement
from orchestrator.planner.preemption.arrangement import (
    ArrangedSearches,
    Arrangement,
    Placing,
    arrange_again,
    place_beside,
)
from orchestrator.planner.preemption.candidates import Candidate
from orchestrator.planner.preemption.node_options import NO_HARM, Harm, option_of
from orchestrator.planner.preemption.victim_selection import (
    Losses,
    VictimSelector,
    evict_allowed,
)
from orchestrator.planner.preemption.victims import keep_on_ledger
from orchestrator.planner.seats import SeatState
from orchestrator.planner.session import Session

Outcome = tuple[Losses, Placed, Arrangement]
"""The victims with their rules, the placement of the chunk, and new placements of started workloads."""

_MAX_PRUNED = 24
_MAX_VICTIMS_OF_TREE = 200
_MAX_ARRANGED = 32
_TRIED_EACH = 8
"""Placing a tree of sub-groups is expensive.

Up to this number of victims, a placement is tried after each victim. Beyond it, a placement is tried only after each
further batch of this number.
"""
_WORK_OF_TREE = 10_000
_MAX_OPTIONS = 24
_MAX_DOMAINS = 8
_WORK_OF_CLAIM = 200
_WORK_OF_POD = 250


def preempt_for(
    session: Session,
    workload: Workload,
    chunk: Chunk,
    selector: VictimSelector,
    started: Sequence[Workload] = (),
) -> Outcome | None:
    """Evict and place on the ledger until the whole chunk fits. Return None, with no change, if it does not fit.

    If evictions alone are not enough, the workloads in `started`, which this decision started, get other placements.
    """
    session.limits.forget()
    selector.policy.start(workload, chunk)
    outcome = _attempt(session, workload, chunk, selector, started)
    if outcome is None:
        session.limits.note(workload)
        if started:
            session.once(ArrangedSearches).note_failure()
    return outcome


def _attempt(
    session: Session, workload: Workload, chunk: Chunk, selector: VictimSelector, started: Sequence[Workload]
) -> Outcome | None:
    checkpoint, nominees = session.ledger.checkpoint(), session.steady_nominees()
    session.work.spend(_WORK_OF_CLAIM + _WORK_OF_POD * len(chunk))

    def place() -> Placing | None:
        return place_beside(session, workload, chunk, started, only_now=False)

    relief = _relieve_limits(session, workload, chunk, selector)
    outcome = None if relief is None else _search(session, workload, chunk, selector, place)
    if outcome is None and relief is not None and started:
        with session.work.within(session.once(ArrangedSearches).allowance):
            outcome = _search_one_by_one(session, workload, chunk, selector, place, most=_MAX_ARRANGED)
    if relief and outcome is not None:
        outcome = ([*relief, *outcome[0]], *outcome[1:])
    if outcome is None or not _is_acceptable(session, workload, selector, outcome, nominees):
        session.ledger.rollback(checkpoint)
        return None
    if 1 < len(outcome[0]) <= _MAX_PRUNED and (len(chunk) > 1 or relief or started):
        outcome = _prune(
            session,
            workload,
            chunk,
            selector,
            place=place,
            outcome=outcome,
            checkpoint=checkpoint,
            nominees=nominees,
        )
        if _ends_nominations_needlessly(session, outcome[0]):
            session.ledger.rollback(checkpoint)
            return None
    return outcome


def _is_acceptable(
    session: Session,
    workload: Workload,
    selector: VictimSelector,
    outcome: Outcome,
    nominees: Sequence[tuple[Pod, int]],
) -> bool:
    """Return whether the policy accepts the outcome on the ledger and all constraints between pods are met."""
    losses, placed, elsewhere = outcome
    # A victim must not take the affinity from earlier pods of the workload, which this decision starts.
    started = [] if elsewhere else session.seats.placed(workload, SeatState.NEW)
    return (
        selector.policy.accepts(session, workload, losses)
        and session.meets_constraints([*started, *placed])
        and session.keeps_nominees(nominees)
    )


def _ends_nominations_needlessly(session: Session, losses: Losses) -> bool:
    """Return whether the victims include nominated pods, and at least one victim could keep its placement."""
    evicted = [victim for victim, _ in losses if not victim.is_move]
    if not any(session.seats.is_nominated(pod) for victim in evicted for pod in victim.pods):
        return False
    checkpoint = session.ledger.checkpoint()
    can_keep_running = any(keep_on_ledger(session, victim.workload, victim.pods) for victim in evicted)
    session.ledger.rollback(checkpoint)
    return can_keep_running


def _relieve_limits(
    session: Session, workload: Workload, chunk: Chunk, selector: VictimSelector
) -> Losses | None:
    """If a limit is full, evict the least harmful candidates that count for it, until the chunk is within the limit."""
    requested = chunk_amounts(chunk)
    losses: Losses = []
    while (full := limiting(session.ledger, workload, requested)) is not None:
        name, resource = full
        held, limit = session.ledger.allocated[name][resource], session.tree.limit[name][resource]
        over = held + requested[resource] - limit

        def harm(candidate: Candidate, over: int = over, resource: int = resource) -> tuple[int, ...]:
            amount = sum(pod.request.amounts[resource] for pod in candidate.pods)
            is_enough = amount >= over
            excess = amount - over if is_enough else -amount
            protected, *others = selector.policy.harm(option_of((candidate,), excess))
            return (
                selector.policy.falls_below_quota(workload, [candidate]),
                protected,
                not is_enough,
                *others,
            )

        candidates = [
            candidate
            for candidate in selector.in_order(workload)
            # migrated pods still count for the limit
            if not candidate.is_move and name in session.tree.lineage[candidate.project]
        ]
        attempts = (
            selector.evict(workload, requested, [candidate]) for candidate in sorted(candidates, key=harm)
        )
        relief = next((relief for relief in attempts if relief is not None), None)
        if relief is None:
            return None
        losses += relief
    return losses


def _search(
    session: Session,
    workload: Workload,
    chunk: Chunk,
    selector: VictimSelector,
    place: Callable[[], Placing | None],
) -> Outcome | None:
    if workload.groups is not None and has_topology(workload.groups):
        return _search_one_by_one(session, workload, chunk, selector, place)
    if workload.topology is None:
        return _search_pods(session, workload, chunk, selector, None)
    for domain in _domains(session, workload, chunk, selector):
        outcome = _search_pods(session, workload, chunk, selector, domain)
        if outcome is not None:
            return outcome
    return None


def _domains(
    session: Session, workload: Workload, chunk: Chunk, selector: VictimSelector
) -> list[Collection[int] | None]:
    """Return the domains in which the whole gang can run, domains with the least harmful evictions first."""
    rule = workload.topology
    if rule is None:
        return [None]
    domains = candidate_domains(session.ledger, rule, workload)
    largest = max(chunk, key=lambda pod: pod.request.gpu_milli)
    requested = chunk_amounts(chunk)
    harms = selector.harm_by_node(workload, largest, requested)
    nodes = session.ledger.nodes
    ranked: list[tuple[int, list[int], Collection[int]]] = []
    for domain in domains:
        session.work.spend(len(domain))
        costs: list[Harm] = []
        for position in domain:
            fitting = session.placer.count_on(nodes[position], workload, largest)
            costs += [NO_HARM] * min(fitting, len(chunk))
            if fitting < len(chunk) and position in harms:
                costs.append(harms[position])
        if costs:
            used = sorted(costs)[: len(chunk)]
            ranked.append((len(chunk) - len(used), [sum(part) for part in zip(*used, strict=True)], domain))
    # The order is an estimate from the largest pod alone, because a search in every domain would cost domains
    # times pods.
    ranked.sort(key=lambda entry: entry[:2])
    chosen: list[Collection[int] | None] = [entry[2] for entry in ranked[:_MAX_DOMAINS]]
    return chosen if rule.required is not None else [*chosen, None]


def _search_pods(
    session: Session,
    workload: Workload,
    chunk: Chunk,
    selector: VictimSelector,
    scope: Collection[int] | None,
) -> Outcome | None:
    """Place the chunk pod by pod, on free GPUs if possible, otherwise after the least harmful evictions of one node.

    Return None, with no change, if a pod does not fit.
    """
    checkpoint = session.ledger.checkpoint()
    losses: Losses = []
    placed: Placed = []
    missing = chunk_amounts(chunk)
    # Every pod takes free GPUs first, so that no victim is evicted for a pod that fits anyway.
    for pod in largest_first(chunk):
        placement = session.placer.find(workload, pod, scope)
        if placement is None:
            eviction = _evict_for(
                session, workload, pod, missing, selector=selector, losses=losses, scope=scope
            )
            if eviction is None:
                session.ledger.rollback(checkpoint)
                return None
            losses, placement = eviction
        session.ledger.place(workload, pod, placement)
        placed.append((pod, placement))
        missing = minus(missing, pod.request.amounts)
    return losses, placed, []


def _evict_for(
    session: Session,
    workload: Workload,
    pod: Pod,
    requested: Amounts,
    *,
    selector: VictimSelector,
    losses: Losses,
    scope: Collection[int] | None,
) -> tuple[Losses, Placement] | None:
    """Evict the least harmful victims that the policy tolerates. Return all victims so far and the pod's placement."""
    for account, option in islice(selector.options(workload, pod, requested, scope), _MAX_OPTIONS):
        current = option
        for _ in range(2):
            checkpoint = session.ledger.checkpoint()
            session.work.spend(20)
            evicted = selector.evict(workload, requested, current.candidates)
            if evicted is not None:
                place = session.placer.fits_on(account, workload, pod)
                placement = None if place is None else Placement(account.node.name, place, waits=True)
                if placement is not None:
                    mark = session.ledger.checkpoint()
                    session.ledger.place(workload, pod, placement)
                    tolerated = selector.policy.tolerates(session, [*losses, *evicted])
                    session.ledger.rollback(mark)
                    if tolerated:
                        return [*losses, *evicted], placement
                session.ledger.rollback(checkpoint)
                break
            session.ledger.rollback(checkpoint)
            # The ranking checks each candidate alone. Example: a side is over its share by 1 GPU and has two
            # candidates of 1 GPU. Each may be evicted, but not both. On such nodes `retry` checks whole sets,
            # which costs much more.
            other = selector.retry(account, workload, pod, requested)
            if other is None:
                break
            current = other
    return None


def _search_one_by_one(
    session: Session,
    workload: Workload,
    chunk: Chunk,
    selector: VictimSelector,
    place: Callable[[], Placing | None],
    *,
    most: int | None = None,
) -> Outcome | None:
    """Evict one candidate after the other, least entitled first, until `place` finds a placement for the chunk.

    Candidates without which a project falls below its quota come last. `most` bounds the number of candidates.
    """
    requested = chunk_amounts(chunk)
    losses: Losses = []
    if (placing := place()) is not None:
        return losses, *placing
    for may_fall in (False, True):
        for candidate in islice(selector.in_order(workload), most):
            if not may_fall and selector.policy.falls_below_quota(workload, [candidate]):
                continue
            evicted = selector.evict(workload, requested, [candidate])
            if evicted is None:
                continue
            losses += evicted
            if len(losses) <= _TRIED_EACH or len(losses) % _TRIED_EACH == 0:
                session.work.spend(_WORK_OF_TREE if workload.groups is not None else 0)
                if (placing := place()) is not None:
                    return losses, *placing
            if len(losses) >= _MAX_VICTIMS_OF_TREE:
                return None
    return None


def _prune(
    session: Session,
    workload: Workload,
    chunk: Chunk,
    selector: VictimSelector,
    *,
    place: Callable[[], Placing | None],
    outcome: Outcome,
    checkpoint: int,
    nominees: Sequence[tuple[Pod, int]],
) -> Outcome:
    """Return the outcome without the victims that it does not need."""
    requested = chunk_amounts(chunk)
    victims = [victim for victim, _ in outcome[0]]

    def attempt(fewer: Sequence[Victim]) -> Outcome | None:
        session.ledger.rollback(checkpoint)
        session.work.spend(20 * len(fewer))
        losses = evict_allowed(session, fewer, selector.policy, workload, requested)
        placing = None if losses is None else place()
        if losses is None or placing is None:
            return None
        outcome = (losses, *placing)
        return outcome if _is_acceptable(session, workload, selector, outcome, nominees) else None

    best = outcome
    for victim in reversed(list(victims)):
        fewer = [other for other in victims if other is not victim]
        if fewer and (smaller := attempt(fewer)) is not None:
            victims, best = fewer, smaller
    again = attempt(victims)
    if again is not None:
        return again
    session.ledger.rollback(checkpoint)
    put_again(session, workload, selector, best)
    return best


def put_again(session: Session, workload: Workload, selector: VictimSelector, outcome: Outcome) -> None:
    """Put an outcome on the ledger again after a rollback."""
    losses, placed, elsewhere = outcome
    requested = chunk_amounts(tuple(pod for pod, _ in placed))
    evict_allowed(session, [victim for victim, _ in losses], selector.policy, workload, requested)
    arrange_again(session, elsewhere)
    for pod, placement in placed:
        session.ledger.place(workload, pod, placement)
    selector.policy.accepts(session, workload, losses)
