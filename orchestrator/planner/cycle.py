"""One decision: first whoever runs on unhealthy hardware, then from the least to the most disruptive action."""

from collections.abc import Callable, Iterable, Mapping

from orchestrator.planner.actions.allocate import allocate
from orchestrator.planner.actions.consolidate import consolidate
from orchestrator.planner.actions.preempt import preempt
from orchestrator.planner.actions.reclaim import reclaim
from orchestrator.planner.actions.reserve import reserve, start_reserved
from orchestrator.planner.actions.stale import evict_stale
from orchestrator.planner.actions.unhealthy import move_off_unhealthy
from orchestrator.planner.books import Books
from orchestrator.planner.decision import Decision
from orchestrator.planner.explain import explain_the_rest
from orchestrator.planner.model import Plan, Snapshot

ACTIONS: Mapping[str, Callable[[Decision], None]] = {
    "unhealthy": move_off_unhealthy,
    "reserve": reserve,
    "allocate": allocate,
    "consolidate": consolidate,
    "reclaim": reclaim,
    "preempt": preempt,
    "start_reserved": start_reserved,
    "stale": evict_stale,
}


def plan(snapshot: Snapshot, actions: Iterable[str] = tuple(ACTIONS)) -> Plan:
    """Who is bound where, who is evicted for whom, and why the rest waits. Same input, same plan.

    `actions` restricts the decision to some of its steps, in the order of `ACTIONS`.
    """
    return _decide(Books(snapshot), actions)


class Planner:
    """`plan` for a row of snapshots: the same answers, at a cost that follows what changed between them.

    Workloads, nodes and projects that did not change should be the same objects in the next snapshot.
    """

    def __init__(self) -> None:
        self._books: Books | None = None

    def plan(self, snapshot: Snapshot) -> Plan:
        """As the function `plan`."""
        books, self._books = self._books, None
        if books is None or not books.follows(snapshot):
            books = Books(snapshot)
        checkpoint = books.ledger.checkpoint()
        decision = _decide(books, ACTIONS)
        books.ledger.rollback(checkpoint)
        # books that a failure left half-done are never used again
        self._books = books
        return decision


def _decide(books: Books, actions: Iterable[str]) -> Plan:
    chosen = frozenset(actions)
    decision = Decision(books)
    for name, act in ACTIONS.items():
        if name in chosen:
            act(decision)
    explain_the_rest(decision)
    return decision.plan()
