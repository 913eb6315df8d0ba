"""Making room is proved before anybody is evicted: the next decisions are made on paper, on the same books.

Once the victims are gone they wait again with their old age, and others wait as well: whoever the room was made for may
not be the one who gets it. So the plan is carried out on paper and decided upon twice more. What was promised must then
be bound, and must not be taken away again.
"""

from collections.abc import Callable, Collection, Iterable

from orchestrator.planner.aftermath import obey, without_releasing
from orchestrator.planner.books import Books
from orchestrator.planner.gangs import start_chunks
from orchestrator.planner.model import Plan, Snapshot, Workload

MOST_ATTEMPTS = 6

Kind = tuple[object, ...]
Deciding = Callable[[Books], Plan]

MOVES = ("consolidation", "unhealthy")
"""Rules by which nobody may lose: whoever is evicted has a promised place."""


def kind_of(workload: Workload) -> Kind:
    """What decides, among the workloads of a project, whether one finds room; alike ones fail alike."""
    chunks = start_chunks(workload)
    return (
        workload.project,
        workload.priority,
        workload.preemptible,
        workload.interactive,
        workload.topology,
        workload.groups,
        tuple((pod.request, pod.constraints, pod.sub_group) for pod in (chunks[0] if chunks else ())),
    )


class Bar:
    """Whom nobody may be evicted for, because it would be in vain.

    After six attempts room is made by right of a quota only, which is never in vain.
    """

    def __init__(self, kinds: Collection[Kind] = (), attempts: int = 0) -> None:
        self._kinds = frozenset(kinds)
        self._attempts = attempts

    def raised(self, failed: Iterable[Workload]) -> "Bar":
        """For one attempt more, with the kinds of these workloads."""
        return Bar(self._kinds.union(map(kind_of, failed)), self._attempts + 1)

    @property
    def is_final(self) -> bool:
        """Whether nothing but a quota counts any more."""
        return self._attempts >= MOST_ATTEMPTS

    def holds_back(self, workload: Workload) -> bool:
        """Whether the workload is of a kind for which nobody may be evicted."""
        return bool(self._kinds) and kind_of(workload) in self._kinds


def in_vain(books: Books, plan: Plan, exempt: Collection[str], decide: Deciding) -> list[str]:
    """For whom, of those that the plan evicts others for, it would do so in vain; the books end as they were.

    `exempt` are workloads within their quota: whoever gets the room instead of them is within a quota too.
    """
    promised = {name: pods for name, pods in _promised(plan).items() if name not in exempt}
    if not promised:
        return []
    snapshot = books.snapshot
    before = without_releasing(snapshot, stuck_too=False) if books.ledger.releasing_nodes else snapshot
    after = obey(before, plan)
    nearest = _decide_on(books, after, decide)
    bound = {each.pod for each in nearest.bindings}
    failed = [name for name, pods in promised.items() if not bound.issuperset(pods)]
    if not failed:
        later = _decide_on(books, obey(after, nearest), decide)
        lost = {each.pod for each in later.evictions if each.rule not in MOVES}
        failed = [name for name, pods in promised.items() if not lost.isdisjoint(pods)]
    books.follows(snapshot)
    return failed


def _decide_on(books: Books, snapshot: Snapshot, decide: Deciding) -> Plan:
    books.follows(snapshot)
    return decide(books)


def _promised(plan: Plan) -> dict[str, set[str]]:
    """By whom somebody is evicted for, the pods to which the plan promises a place for that reason."""
    causes: dict[str, set[str]] = {}
    for eviction in plan.evictions:
        causes.setdefault(eviction.beneficiary, {eviction.beneficiary})
        if eviction.rule in MOVES:
            causes[eviction.beneficiary].add(eviction.workload)
    pods: dict[str, set[str]] = {}
    for each in plan.promises:
        pods.setdefault(each.workload, set()).add(each.pod)
    found = {
        name: {pod for each in workloads for pod in pods.get(each, ())} for name, workloads in causes.items()
    }
    return {name: pods for name, pods in found.items() if pods}
