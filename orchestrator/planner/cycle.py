"""One decision: first whoever runs on unhealthy hardware, then from the least to the most disruptive action."""

from collections.abc import Callable, Collection, Iterable, Sequence

from orchestrator.planner.actions.allocate import allocate, allocate_released
from orchestrator.planner.actions.consolidate import consolidate_beyond_quota, consolidate_within_quota
from orchestrator.planner.actions.double_claims import evict_double_holders
from orchestrator.planner.actions.preempt import preempt
from orchestrator.planner.actions.reclaim import reclaim_within_fair_share, reclaim_within_quota
from orchestrator.planner.actions.remake import remake_lost_rooms
from orchestrator.planner.actions.reserve import reserve, start_reserved
from orchestrator.planner.actions.stale import evict_stale
from orchestrator.planner.actions.unhealthy import move_off_unhealthy
from orchestrator.planner.cluster_state import ClusterState
from orchestrator.planner.model import Plan, Snapshot
from orchestrator.planner.preemption.nominations import restore_nominations
from orchestrator.planner.reasons.explainer import explain_all
from orchestrator.planner.session import Session

ACTIONS: Sequence[tuple[str, Callable[[Session], None]]] = (
    ("double_claims", evict_double_holders),
    ("nominations", restore_nominations),
    ("nominations", remake_lost_rooms),
    ("unhealthy", move_off_unhealthy),
    ("reserve", reserve),
    ("allocate", allocate),
    # What a quota covers comes first, by moves and evictions: moves for others would be made for nothing before it.
    ("consolidate", consolidate_within_quota),
    ("reclaim", reclaim_within_quota),
    ("allocate", allocate_released),
    ("consolidate", consolidate_beyond_quota),
    ("reclaim", reclaim_within_fair_share),
    ("preempt", preempt),
    ("start_reserved", start_reserved),
    ("stale", evict_stale),
)
ACTION_NAMES = frozenset(name for name, _ in ACTIONS)


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
    session = Session(state)
    for name, act in ACTIONS:
        if name in actions:
            act(session)
    explain_all(session)
    decided = session.plan()
    # What was decided comes back with the next snapshot, as far as it has come true.
    state.ledger.rollback(checkpoint)
    return decided
