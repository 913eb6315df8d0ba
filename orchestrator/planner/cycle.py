"""One decision: the order of its steps, from pods on unhealthy hardware to evictions for each entitlement tier.

The plan is the difference between the snapshot and the placements (seats) at the end of the decision.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from orchestrator.planner.accounting.ledger import Ledger
from orchestrator.planner.actions.allocate import (
    allocate_over_fair_share,
    allocate_within_fair_share,
    allocate_within_quota,
)
from orchestrator.planner.actions.consolidate import consolidate
from orchestrator.planner.actions.needless import cancel_needless_evictions
from orchestrator.planner.actions.preempt import preempt
from orchestrator.planner.actions.reclaim import (
    consolidate_or_reclaim_within_fair_share,
    consolidate_or_reclaim_within_quota,
)
from orchestrator.planner.actions.remake import remake_lost_nominations
from orchestrator.planner.actions.reserve import reserve, start_reserved
from orchestrator.planner.actions.unhealthy import (
    evict_double_holders,
    evict_hopeless_stale,
    evict_stale,
    move_off_unhealthy,
)
from orchestrator.planner.actions.unstarted import evict_unstarted
from orchestrator.planner.actions.withdraw import withdraw_broken
from orchestrator.planner.cluster_state import ClusterState
from orchestrator.planner.model import Binding, PendingReason, Plan, PodState, Snapshot, Workload
from orchestrator.planner.obstacles import ClaimsOvertaken, Nominated
from orchestrator.planner.preemption.nominations import restore_nominations, start_on_free_devices
from orchestrator.planner.reasons.explainer import explain_all
from orchestrator.planner.reasons.sentences import pending_reason
from orchestrator.planner.seats import SeatState
from orchestrator.planner.session import Session

ACTIONS: Sequence[tuple[tuple[str, ...], Callable[[Session], None]]] = (
    (("double_claims",), evict_double_holders),
    (("unstarted",), evict_unstarted),
    (("nominations",), restore_nominations),
    (("stale",), evict_hopeless_stale),
    (("nominations",), remake_lost_nominations),
    (("unhealthy",), move_off_unhealthy),
    (("reserve",), reserve),
    (("allocate",), allocate_within_quota),
    # Pods are evicted for more entitled workloads before less entitled workloads start. Otherwise the
    # decision would start workloads and evict them again.
    (("consolidate", "reclaim"), consolidate_or_reclaim_within_quota),
    (("allocate",), allocate_within_fair_share),
    (("consolidate", "reclaim"), consolidate_or_reclaim_within_fair_share),
    (("allocate",), allocate_over_fair_share),
    (("consolidate",), consolidate),
    (("preempt",), preempt),
    (("start_reserved",), start_reserved),
    (("consolidate", "reclaim", "preempt"), cancel_needless_evictions),
    (("nominations",), start_on_free_devices),
    (("stale",), evict_stale),
    (("nominations",), withdraw_broken),
)
"""The steps in their order. A step with two names runs if one of the names is allowed."""

ACTION_NAMES = frozenset(name for names, _ in ACTIONS for name in names)


def plan(snapshot: Snapshot, actions: Iterable[str] = ACTION_NAMES) -> Plan:
    """Return the bindings, evictions, nominations and pending reasons for a snapshot. The same input gives the same
    plan.

    `actions` restricts the decision to some of its steps, in the order of `ACTIONS`.
    """
    return _decide(ClusterState(snapshot), frozenset(actions))


class Planner:
    """Plans on a sequence of snapshots.

    The plans equal those of `plan`, but the cost depends on the changes in between.

    Workloads, nodes and projects that did not change should be the same objects in the next snapshot.
    """

    def __init__(self) -> None:
        self._state: ClusterState | None = None

    def plan(self, snapshot: Snapshot) -> Plan:
        """Return the same plan as the function `plan`."""
        state, self._state = self._state, None
        if state is None or not state.follows(snapshot):
            state = ClusterState(snapshot)
        decided = _decide(state, ACTION_NAMES)
        # store the state only now: after an error it could be inconsistent
        self._state = state
        return decided


def _decide(state: ClusterState, actions: Collection[str]) -> Plan:
    """Return the plan of one decision. The cluster state is unchanged afterwards."""
    checkpoint = state.ledger.checkpoint()
    session = Session(state, actions)
    for names, act in ACTIONS:
        if not session.actions.isdisjoint(names):
            act(session)
    explain_all(session)
    decided = _difference(session)
    # Roll back. The next snapshot shows which parts of the plan were carried out.
    state.ledger.rollback(checkpoint)
    return decided


def _difference(session: Session) -> Plan:
    """Return the plan: the seats, evictions and reasons that the decision added to the snapshot."""
    bindings = placed = {seat.pod.id: seat.binding for seat in session.seats.new()}
    if session.snapshot.dynamic.slices or session.snapshot.dynamic.claims:
        bindings = _grant_claims(session.ledger, placed, session.workload)
        for lost in placed.keys() - bindings.keys():
            name = placed[lost].workload
            session.reasons[name] = ClaimsOvertaken()
            session.left_over[name] = None
    return Plan(
        bindings=tuple(bindings.values()),
        evictions=tuple(session.seats.evictions.values()),
        shares_gpu_milli={name: share[0] for name, share in session.shares.items()},
        allocated_gpu_milli=session.ledger.allocated_gpu_milli,
        pending={name: _pending_reason(session, name) for name in sorted(session.reasons)},
        nominations=tuple(seat.binding for seat in session.seats.nominated()),
        left_over=tuple(sorted(filter(session.is_left_over, session.left_over))),
        endangered={name: session.endangered[name] for name in sorted(session.endangered)},
        deallocations=_claims_to_deallocate(session.ledger, map(session.workload, session.reasons), bindings),
        avoided=session.failures.avoided,
    )


def _pending_reason(session: Session, name: str) -> PendingReason:
    """Return the reason of the workload in words, with the amounts at the end of the decision."""
    reason = session.reasons[name]
    if isinstance(reason, Nominated) and reason.charged is not None:
        workload = session.workload(name)
        states = (SeatState.NOMINATED, SeatState.KEPT)
        placed = [entry for state in states for entry in session.seats.placed(workload, state)]
        reason = replace(reason, charged=session.still_charged(workload, placed) or reason.charged)
    return pending_reason(reason, session.limits.hindrances.get(name), session.is_left_over(name))


def _grant_claims(
    ledger: Ledger, bindings: Mapping[str, Binding], workload_of: Callable[[str], Workload]
) -> dict[str, Binding]:
    """Return the bindings by pod id, with the devices that the ResourceClaims of each pod get.

    If one pod of a workload lacks its devices because another pod of this decision has them, all bindings of the
    workload are omitted.
    """
    names = dict.fromkeys(binding.workload for binding in bindings.values())
    pods = {pod.id: pod for name in names for pod in workload_of(name).pods if pod.id in bindings}
    complete: dict[str, Binding] = {}
    short: set[str] = set()
    for name, binding in bindings.items():
        node, pod = ledger.by_name[binding.node].node, pods[name]
        if not ledger.claims.concern(node, pod):
            complete[name] = binding
            continue
        granted = ledger.claims.granted(node, pod)
        if granted is None:
            short.add(binding.workload)
        else:
            grants, devices = granted
            if not node.published_gpus:
                devices = binding.devices  # claims have GPU indices only on nodes that publish their GPUs
            complete[name] = replace(binding, devices=devices, grants=grants)
    return {name: binding for name, binding in complete.items() if binding.workload not in short}


def _claims_to_deallocate(
    ledger: Ledger, waiting: Iterable[Workload], bindings: Mapping[str, Binding]
) -> tuple[str, ...]:
    """Return the keys of ResourceClaims that have devices but are used only by pending pods.

    After the claims are deallocated, these pods can start on another node.
    """
    pods = [
        pod
        for workload in waiting
        for pod in workload.pods
        if pod.claims and pod.state is PodState.PENDING and pod.id not in bindings
    ]
    return tuple(sorted(ledger.claims.allocated_only_to(pods))) if pods else ()
