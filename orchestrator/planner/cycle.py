"""One decision: first whoever runs on unhealthy hardware, then from the least to the most disruptive action."""

from collections.abc import Callable, Collection, Iterable, Mapping

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
from orchestrator.planner.proof import Bar, in_vain

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
    return _decide(Books(snapshot), frozenset(actions))


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
        decided = _decide(books, ACTIONS)
        # books that a failure left half-done are never used again
        self._books = books
        return decided


def _decide(books: Books, actions: Collection[str]) -> Plan:
    """Decide, and decide anew while somebody would be evicted in vain, with a last bar that leaves nobody such.

    It ends with that one in any case: an eviction in vain is the lesser evil. The books end as they were.
    """
    bar = Bar()
    while True:
        decided, guaranteed = _attempt(books, actions, bar)
        failed = in_vain(books, decided, guaranteed, lambda each: _attempt(each, ACTIONS, Bar())[0])
        if not failed or bar.is_final:
            return decided
        bar = bar.raised(books.workloads[name] for name in failed)


def _attempt(books: Books, actions: Collection[str], bar: Bar) -> tuple[Plan, Collection[str]]:
    """One decision, and for whom it evicts others by right of a quota; the books end as they were."""
    checkpoint = books.ledger.checkpoint()
    decision = Decision(books, bar)
    for name, act in ACTIONS.items():
        if name in actions:
            act(decision)
    explain_the_rest(decision)
    decided = decision.plan()
    books.ledger.rollback(checkpoint)
    return decided, decision.guaranteed
