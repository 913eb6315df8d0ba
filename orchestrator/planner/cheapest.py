"""Nodes by what making room on them costs at least, kept current between one pod of a gang and the next.

Estimating every node for every pod would make a large gang cost nodes times pods. Only nodes on which something changed
since are estimated again. A cost names victims by the side that loses them, and sides change places while victims are
taken; so nodes are kept apart by the sides that have work there: inside such a group the order of the nodes stays, and
the groups are compared as the sides stand.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from heapq import heappop, heappush

from orchestrator.planner.ledger import Ledger

Sides = tuple[str, ...]
LocalCost = tuple[int, list[tuple[int, int]]]
"""How many pods go, and each victim as (place of its side in `Sides`, place in the order of that side)."""


class CheapestNodes:
    """The nodes for one kind of pod. `estimate` gives a node's cost for its sides in order, None when nothing helps."""

    def __init__(
        self,
        ledger: Ledger,
        sides_on: Mapping[int, Sides],
        estimate: Callable[[int, Sides], LocalCost | None],
    ) -> None:
        self._ledger = ledger
        self._sides_on = sides_on
        self._estimate = estimate
        self._groups: dict[Sides, list[tuple[LocalCost, int, int]]] = {}
        self._current: dict[int, tuple[Sides, int]] = {}
        self._stale: set[int] = set(sides_on)
        self._seen = len(ledger.changes)

    def in_order(self, ranks: Mapping[str, int]) -> Iterator[int]:
        """Positions of nodes, the cheapest first, by what they cost when this was called."""
        changes = self._ledger.changes
        self._stale.update(each for each in changes[self._seen :] if each in self._sides_on)
        self._seen = len(changes)
        for sides, heap in self._groups.items():
            if len(sides) > 1 and not _ascends(ranks[each] for each in sides):
                self._stale.update(position for _, position, _ in heap)
        for position in self._stale:
            self._enter(position, ranks)
        self._stale.clear()
        while (best := self._best(ranks)) is not None:
            _, position, _ = heappop(self._groups[best])
            self._stale.add(position)
            yield position

    def _enter(self, position: int, ranks: Mapping[str, int]) -> None:
        sides = self._sides_on[position]
        if len(sides) > 1:
            sides = tuple(sorted(sides, key=ranks.__getitem__))
        stamp = self._current.get(position, ((), 0))[1] + 1
        self._current[position] = (sides, stamp)
        cost = self._estimate(position, sides)
        if cost is not None:
            heappush(self._groups.setdefault(sides, []), (cost, position, stamp))

    def _best(self, ranks: Mapping[str, int]) -> Sides | None:
        """The group with the cheapest node; what is out of date is dropped on the way."""
        best: tuple[tuple[int, list[tuple[int, int]], int], Sides] | None = None
        for sides, heap in self._groups.items():
            while heap and self._current[heap[0][1]] != (sides, heap[0][2]):
                heappop(heap)
            if not heap:
                continue
            (pods, victims), position, _ = heap[0]
            key = (pods, [(ranks[sides[side]], index) for side, index in victims], position)
            if best is None or key < best[0]:
                best = (key, sides)
        return None if best is None else best[1]


def _ascends(values: Iterable[int]) -> bool:
    known = list(values)
    return known == sorted(known)
