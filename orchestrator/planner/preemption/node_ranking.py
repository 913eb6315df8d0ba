"""The options of all nodes for pods of one shape, in order of harm, kept current between one claim and the next.

Looking at every node for every claim would make decisions cost nodes times claims. Options are kept in groups of equal
harm and equal losers, each a heap by who has least to lose; a claim compares the groups of the least harm only, leaves
out those whose losers may not lose anything now, and takes the first option of the best. Only nodes on which something
changed since are counted again.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush

from orchestrator.planner.model import Request
from orchestrator.planner.preemption.candidates import Candidates, Piece
from orchestrator.planner.preemption.node_options import Option, minimal_options
from orchestrator.planner.session import Session

_Rank = tuple[tuple[object, ...], ...]
_Entry = tuple[_Rank, int, int, int]
"""Who has least to lose, position of the node, index of its option, stamp of the count that the option is from."""
_Harm = tuple[int, int, int]
_Losers = tuple[tuple[str, ...], tuple[int, ...]]
_WORK_OF_SET = 6
_WORK_OF_NODE = 35


class NodeRanking:
    """The options on these nodes for one request; `may_go` says which pieces are candidates.

    `spare_covered`: whether taking what a quota covers is harm.
    """

    def __init__(
        self,
        session: Session,
        candidates: Candidates,
        request: Request,
        positions: Sequence[int],
        may_go: Callable[[Piece], bool],
        *,
        spare_covered: bool,
    ) -> None:
        self._session = session
        self._ledger = session.ledger
        self._candidates = candidates
        self._request = request
        self._may_go = may_go
        self._spare_covered = spare_covered
        self._options: dict[int, list[Option]] = {}
        self._stamps: dict[int, int] = {}
        # Whether a project may lose anything changes with every claim, but is the same for all that it would lose:
        # grouped by losers, thousands of options are passed over in one step.
        self._groups: dict[_Harm, dict[_Losers, list[_Entry]]] = {}
        self._cursor = len(self._ledger.changes)
        for position in positions:
            self._count(position)

    def refresh(self) -> None:
        """Count the nodes again that changed since the last call."""
        changes = self._ledger.changes
        if self._cursor == len(changes):
            return
        for position in dict.fromkeys(changes[self._cursor :]):
            if position in self._stamps and self._stamps[position] != self._ledger.nodes[position].version:
                self._count(position)
        self._cursor = len(changes)

    def options(self) -> Iterator[tuple[int, Option]]:
        """All options, with the position of their node."""
        for position, options in self._options.items():
            for option in options:
                yield position, option

    def in_order(
        self,
        closed: Callable[[str], bool],
        order: Callable[[Piece], tuple[object, ...]],
        scope: Collection[int] | None,
    ) -> Iterator[tuple[int, Option]]:
        """Options whose losers are not `closed`, on nodes of `scope` if given, least harm first.

        Among equals the losers that `order` puts first; what was counted stays valid while the caller tries.
        """
        session = self._session
        for harm in sorted(self._groups):
            groups = self._groups[harm]
            walk = _Walk(groups, order, scope)
            for losers in list(groups):
                if not any(map(closed, losers[0])):
                    self._push_head(walk, losers)
            session.spend(len(groups))
            try:
                while walk.heads:
                    _, position, losers = heappop(walk.heads)
                    entry = heappop(groups[losers])
                    walk.passed.setdefault(losers, []).append(entry)
                    session.spend(3)
                    yield position, self._options[position][entry[2]]
                    self._push_head(walk, losers)
            finally:
                # The caller stops at the first option that works; what it only looked at stays for the next claim.
                for losers, entries in walk.passed.items():
                    for entry in entries:
                        heappush(groups[losers], entry)

    def _push_head(self, walk: "_Walk", losers: _Losers) -> None:
        """Put the first current option of the group among the heads; drops what is out of date."""
        heap = walk.groups[losers]
        while heap:
            _, position, index, stamp = heap[0]
            if self._stamps[position] != stamp:
                heappop(heap)
                continue
            if walk.scope is not None and position not in walk.scope:
                walk.passed.setdefault(losers, []).append(heappop(heap))
                continue
            pieces = self._options[position][index].pieces
            # Inside a group the sides are equal; groups are compared anew, as what each side holds has changed.
            rank = tuple(sorted(map(walk.order, pieces), reverse=True))
            heappush(walk.heads, (rank, position, losers))
            return
        if losers not in walk.passed:
            del walk.groups[losers]

    def _count(self, position: int) -> None:
        account, evicted = self._ledger.nodes[position], self._ledger.evicted
        self._stamps[position] = account.version
        pieces = [
            piece
            for piece in self._candidates.by_node.get(position, ())
            if not piece.is_gone(evicted) and self._may_go(piece)
        ]
        options, looked = minimal_options(account, self._request, pieces) if pieces else ([], 1)
        self._session.spend(_WORK_OF_SET * looked + _WORK_OF_NODE)
        best: dict[tuple[_Harm, _Losers], int] = {}
        for index, option in enumerate(options):
            key = (option.harm(spare_covered=self._spare_covered), (option.projects, option.freed_milli))
            if key not in best or _rank(option) < _rank(options[best[key]]):
                best[key] = index
        self._options[position] = options
        for (harm, losers), index in best.items():
            entry = (_rank(options[index]), position, index, account.version)
            heappush(self._groups.setdefault(harm, {}).setdefault(losers, []), entry)


@dataclass(slots=True)
class _Walk:
    """One claim's way through the groups of equal harm: the first option of each, and what was taken out so far."""

    groups: dict[_Losers, list[_Entry]]
    order: Callable[[Piece], tuple[object, ...]]
    scope: Collection[int] | None
    heads: list[tuple[_Rank, int, _Losers]] = field(default_factory=list)
    passed: dict[_Losers, list[_Entry]] = field(default_factory=dict)


def _rank(option: Option) -> _Rank:
    return tuple(sorted((piece.order for piece in option.pieces), reverse=True))
