"""The options of all nodes for pods with one request, in order of harm.

An option is a set of pods to evict on one node.

If each search examined each node, the cost of a decision would be nodes times workloads. So the options are stored in
groups with equal harm, equal losing projects and equal freed GPUs. Each group is a heap, least entitled option first.

A search compares the groups of the least harm only. It skips the groups in which a project may not lose pods now, and
takes the first option of the best group. Between searches, it computes the options again only for nodes that have
changed.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush

from orchestrator.planner.accounting.ledger import NodeAccount
from orchestrator.planner.model import Request
from orchestrator.planner.preemption.candidates import Candidate, Candidates
from orchestrator.planner.preemption.node_options import Harm, Option, includes_all, minimal_options
from orchestrator.planner.preemption.whole_devices import whole_device_options
from orchestrator.planner.session import Session

_Rank = tuple[tuple[object, ...], ...]
_Entry = tuple[_Rank, int, int, Option]
"""The sort key of the option (least entitled first), the position of its node, the version of the node, the option."""
_Losers = tuple[tuple[str, ...], tuple[int, ...]]
_WORK_OF_NODE = 12
_WORK_OF_SET = 9
_WORK_OF_OPTION = 3


class NodeRanking:
    """The options on these nodes for one request. `may_go` returns whether a candidate may be evicted.

    `harm` returns the harm of an option. If `moves` is set, pods may also be migrated. `blockers` returns the pods of a
    node that each option on this node must include, or None if one of these pods cannot be evicted.
    """

    def __init__(
        self,
        session: Session,
        candidates: Candidates,
        request: Request,
        positions: Sequence[int],
        may_go: Callable[[Candidate], bool],
        *,
        harm: Callable[[Option], Harm],
        moves: bool,
        blockers: Callable[[int], Collection[str] | None] | None = None,
    ) -> None:
        self._session = session
        self._ledger = session.ledger
        self._candidates = candidates
        self._request = request
        self._may_go = may_go
        self._harm = harm
        self._moves = moves
        self._blockers = blockers
        self._options: dict[int, list[Option]] = {}
        self._stamps: dict[int, int] = {}
        # The options of a group evict pods of the same projects. Each search may protect other projects, so
        # one check of a group can skip thousands of options.
        self._groups: dict[Harm, dict[_Losers, list[_Entry]]] = {}
        self._cursor = len(self._ledger.changes)
        for position in positions:
            self._count(position)

    def refresh(self) -> None:
        """Compute the options again for the nodes that changed since the last call."""
        changes = self._ledger.changes
        if self._cursor == len(changes):
            return
        for position in dict.fromkeys(changes[self._cursor :]):
            if position in self._stamps and self._stamps[position] != self._ledger.nodes[position].version:
                self._count(position)
        self._cursor = len(changes)

    def options(self) -> Iterator[tuple[int, Option]]:
        """Yield all options, each with the position of its node."""
        for position, options in self._options.items():
            for option in options:
                yield position, option

    def in_order(
        self,
        closed: Callable[[str, int], bool],
        order: Callable[[Candidate], tuple[object, ...]],
        scope: Collection[int] | None,
    ) -> Iterator[tuple[int, Option]]:
        """Yield the options with node positions, least harm first, without those of `closed` projects or outside
        `scope`.

        Options of equal harm are sorted by `order`. The ranking stays valid while the caller tries options, if it rolls
        them back.
        """
        session = self._session
        for harm in sorted(self._groups):
            groups = self._groups[harm]
            walk = _Walk(groups, order, scope)
            for losers in list(groups):
                if not any(map(closed, *losers)):
                    self._push_head(walk, losers)
            session.work.spend(len(groups))
            try:
                while walk.heads:
                    _, position, losers = heappop(walk.heads)
                    entry = heappop(groups[losers])
                    walk.passed.setdefault(losers, []).append(entry)
                    session.work.spend(3)
                    yield position, entry[3]
                    self._push_head(walk, losers)
            finally:
                # The caller stops at the first option that works. All options that were yielded return to the
                # ranking.
                for losers, entries in walk.passed.items():
                    for entry in entries:
                        heappush(groups[losers], entry)

    def _push_head(self, walk: "_Walk", losers: _Losers) -> None:
        """Add the first valid option of the group to the heads. Remove outdated options before it."""
        heap = walk.groups[losers]
        while heap:
            _, position, stamp, option = heap[0]
            if self._stamps[position] != stamp:
                heappop(heap)
                continue
            if walk.scope is not None and position not in walk.scope:
                walk.passed.setdefault(losers, []).append(heappop(heap))
                continue
            # The stored rank is valid inside a group, because all its options evict pods of the same
            # projects. To compare groups, compute the rank again: allocations of projects have changed since
            # it was stored.
            rank = tuple(sorted(map(walk.order, option.candidates), reverse=True))
            heappush(walk.heads, (rank, position, losers))
            return
        if losers not in walk.passed:
            del walk.groups[losers]

    def _count(self, position: int) -> None:
        account, evicted = self._ledger.nodes[position], self._ledger.evicted
        self._stamps[position] = stamp = account.version
        may_go = self._may_go
        candidates = [
            candidate
            for candidate in self._candidates.on(position, moves=self._moves)
            if not (evicted and candidate.is_evicted(evicted)) and may_go(candidate)
        ]
        options, work = self._minimal_options(account, candidates) if candidates else ([], _WORK_OF_NODE)
        self._session.work.spend(work)
        if len(options) == 1:  # for example, on a node with pods of one kind
            self._options[position] = options
            self._enter(options[0], _rank(options[0].candidates), position, stamp)
            return
        best: dict[tuple[Harm, _Losers], tuple[_Rank, Option]] = {}
        for option in options:
            rank = _rank(option.candidates)
            key = (self._harm(option), (option.projects, option.freed_milli))
            known = best.get(key)
            if known is None or rank < known[0]:
                best[key] = (rank, option)
        self._options[position] = [option for _, option in best.values()]
        for rank, option in best.values():
            self._enter(option, rank, position, stamp)

    def _enter(self, option: Option, rank: _Rank, position: int, stamp: int) -> None:
        groups = self._groups.setdefault(self._harm(option), {})
        heappush(
            groups.setdefault((option.projects, option.freed_milli), []), (rank, position, stamp, option)
        )

    def _minimal_options(
        self, account: NodeAccount, candidates: Sequence[Candidate]
    ) -> tuple[list[Option], int]:
        """Return the options on one node, and the cost of the search in units of work."""
        blockers = () if self._blockers is None else self._blockers(account.position)
        if blockers is None:
            return [], _WORK_OF_NODE
        if blockers:
            options, looked = minimal_options(
                account, self._request, candidates, lambda chosen: includes_all(chosen, blockers)
            )
            return options, _WORK_OF_NODE + _WORK_OF_SET * looked
        whole_devices = whole_device_options(account, self._request, candidates)
        if whole_devices is not None:
            options, work = whole_devices
            return options, _WORK_OF_NODE + work + _WORK_OF_OPTION * len(options)
        options, looked = minimal_options(account, self._request, candidates)
        return options, _WORK_OF_NODE + _WORK_OF_SET * looked


@dataclass(slots=True)
class _Walk:
    """The state of one search in the groups of equal harm.

    `heads` has the best option of each group. `passed` has the options that the search took out of their groups.
    """

    groups: dict[_Losers, list[_Entry]]
    order: Callable[[Candidate], tuple[object, ...]]
    scope: Collection[int] | None
    heads: list[tuple[_Rank, int, _Losers]] = field(default_factory=list)
    passed: dict[_Losers, list[_Entry]] = field(default_factory=dict)


def _rank(candidates: Sequence[Candidate]) -> _Rank:
    if len(candidates) == 1:
        return (candidates[0].order,)
    return tuple(sorted([candidate.order for candidate in candidates], reverse=True))
