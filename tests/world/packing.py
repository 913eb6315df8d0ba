"""Whether pods fit on nodes in any way: an exhaustive search, for small clusters."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING

from orchestrator.planner.model import DEVICE_MILLI
from tests.world.facts import device_count, part_milli

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from orchestrator.planner.model import Request
    from tests.world.capacity import NodeCapacity

MAX_STATES = 20_000


@dataclass(frozen=True)
class Item:
    """A pod to place, and the names of the nodes that admit it."""

    request: Request
    nodes: frozenset[str]


Scalars = tuple[tuple[str, int], ...]
State = tuple[tuple[int, ...], int, int, int, Scalars]
"""The state of one node: free parts of its devices in order, CPU, memory, slots, scalars."""


def fits(items: Sequence[Item], capacities: Sequence[NodeCapacity]) -> bool | None:
    """Return whether all items fit on the free capacities; None if `MAX_STATES` states do not answer it."""
    ordered = sorted(
        items,
        key=lambda item: (
            -item.request.gpu_count,
            -item.request.shared_devices * item.request.is_shared,
            -item.request.gpu_portion_milli,
            -item.request.gpu_memory_mib,
            -item.request.cpu_milli,
            sorted(item.nodes),
        ),
    )
    states = tuple(_state(capacity) for capacity in capacities)
    return _Search(ordered, capacities).run(states)


def _state(capacity: NodeCapacity) -> State:
    free = sorted((max(0, amount) for amount in capacity.free_milli), reverse=True)
    lost = capacity.node.lost_gpus
    idle = [amount for amount in free if amount == DEVICE_MILLI]
    parts = [amount for amount in free if 0 < amount < DEVICE_MILLI]
    usable = (*idle[: max(0, len(idle) - lost)], *parts)
    scalars = tuple(sorted(capacity.scalars.items()))
    return usable, capacity.cpu_milli, capacity.memory_bytes, capacity.pod_slots, scalars


class _Search:
    def __init__(self, items: Sequence[Item], capacities: Sequence[NodeCapacity]) -> None:
        self._items = items
        self._capacities = capacities
        self._known: set[tuple[int, tuple[State, ...]]] = set()

    def run(self, states: tuple[State, ...]) -> bool | None:
        try:
            return self._place(0, states)
        except _TooMany:
            return None

    def _place(self, index: int, states: tuple[State, ...]) -> bool:
        if index == len(self._items):
            return True
        key = (index, states)
        if key in self._known:
            return False
        if len(self._known) >= MAX_STATES:
            raise _TooMany
        self._known.add(key)
        item = self._items[index]
        for position, capacity in enumerate(self._capacities):
            if capacity.node.name not in item.nodes:
                continue
            for state in _placements(item.request, part_milli(capacity.node, item.request), states[position]):
                if self._place(index + 1, (*states[:position], state, *states[position + 1 :])):
                    return True
        return False


class _TooMany(Exception):
    """The search has seen more than `MAX_STATES` states."""


def _placements(request: Request, part: int, state: State) -> Iterator[State]:
    free, cpu, memory, slots, scalars = state
    cpu, memory, slots = cpu - request.cpu_milli, memory - request.memory_bytes, slots - 1
    if request.scalars:
        left = dict(scalars)
        for name, amount in request.scalars:
            left[name] = left.get(name, 0) - amount
            if left[name] < 0:
                return
        scalars = tuple(sorted(left.items()))
    if cpu < 0 or memory < 0 or slots < 0:
        return
    count = device_count(request)
    if not count:
        yield free, cpu, memory, slots, scalars
        return
    if not request.is_shared:
        if sum(amount == DEVICE_MILLI for amount in free) >= count:
            yield free[count:], cpu, memory, slots, scalars
        return
    usable = [at for at, amount in enumerate(free) if amount >= part]
    tried: set[tuple[int, ...]] = set()
    for chosen in combinations(reversed(usable), count):
        rest = [amount - part if at in chosen else amount for at, amount in enumerate(free)]
        after = tuple(sorted((amount for amount in rest if amount), reverse=True))
        if after not in tried:
            tried.add(after)
            yield after, cpu, memory, slots, scalars
