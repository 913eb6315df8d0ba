"""One decision: whoever runs on unhealthy hardware, then tier by tier what is free and what can be made free."""

from collections.abc import Callable, Collection, Iterable, Sequence

from orchestrator.planner.actions.allocate import (
    allocate_surplus,
    allocate_within_fair_share,
    allocate_within_quota,
)
from orchestrator.planner.actions.consolidate import consolidate
from orchestrator.planner.actions.consolidate_or_reclaim import (
    consolidate_or_reclaim_within_fair_share,
    consolidate_or_reclaim_within_quota,
)
from orchestrator.planner.actions.double_claims import evict_double_holders
from orchestrator.planner.actions.preempt import preempt
from orchestrator.planner.actions.remake import remake_lost_nominations
from orchestrator.planner.actions.reserve import reserve, start_reserved
from orchestrator.planner.actions.spare import spare_who_can_stay
from orchestrator.planner.actions.stale import evict_hopeless_stale, evict_stale
from orchestrator.planner.actions.unhealthy import move_off_unhealthy
from orchestrator.planner.cluster_state import ClusterState
from orchestrator.planner.model import Plan, Snapshot
from orchestrator.planner.preemption.nominations import restore_nominations, start_in_free_places
from orchestrator.planner.reasons.explainer import explain_all
from orchestrator.planner.reasons.sentences import pending_reason
from orchestrator.planner.session import Session

ACTIONS: Sequence[tuple[tuple[str, ...], Callable[[Session], None]]] = (
    (("double_claims",), evict_double_holders),
    (("nominations",), restore_nominations),
    (("stale",), evict_hopeless_stale),
    (("nominations",), remake_lost_nominations),
    (("unhealthy",), move_off_unhealthy),
    (("reserve",), reserve),
    (("allocate",), allocate_within_quota),
    # The better founded a claim is the earlier room is made for it: it would take what others got before it.
    (("consolidate", "reclaim"), consolidate_or_reclaim_within_quota),
    (("allocate",), allocate_within_fair_share),
    (("consolidate", "reclaim"), consolidate_or_reclaim_within_fair_share),
    (("allocate",), allocate_surplus),
    (("consolidate",), consolidate),
    (("preempt",), preempt),
    (("start_reserved",), start_reserved),
    (("consolidate", "reclaim", "preempt"), spare_who_can_stay),
    (("nominations",), start_in_free_places),
    (("stale",), evict_stale),
)
"""The steps in their order; those with two names do what the decision is not kept from."""

ACTION_NAMES = frozenset(name for names, _ in ACTIONS for name in names)


def plan(snapshot: Snapshot, actions: Iterable[str] = ACTION_NAMES) -> Plan:
    """Who is bound where, who is evicted for whom, and why the rest waits. Same input, same plan.

    `actions` restricts the decision to some of its steps, in the order of `ACTIONS`.
    """
    return _decide(ClusterState(snapshot), frozenset(actions))


class Planner:
    """`plan` for a row of snapshots: the same answers, at a cost that follows what changed between them.

    Workloads, nodes and projects that did not change should be the same objects in the next snapshot.
    """

    def __init__(self) -> None:
        self._state: ClusterState | None = None

    def plan(self, snapshot: Snapshot) -> Plan:
        """As the function `plan`."""
        state, self._state = self._state, None
        if state is None or not state.follows(snapshot):
            state = ClusterState(snapshot)
        decided = _decide(state, ACTION_NAMES)
        # a cluster state that a failure left half-done is never used again
        self._state = state
        return decided


def _decide(state: ClusterState, actions: Collection[str]) -> Plan:
    """One decision; the state ends as it was."""
    checkpoint = state.ledger.checkpoint()
    session = Session(state, actions)
    for names, act in ACTIONS:
        if not session.actions.isdisjoint(names):
            act(session)
    explain_all(session)
    decided = session.plan(pending_reason)
    # What was decided comes back with the next snapshot, as far as it has come true.
    state.ledger.rollback(checkpoint)
    return decided
