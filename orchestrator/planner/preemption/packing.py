"""Searches any placement of pods on a few nodes, by amounts alone.

Large pods are placed first, because small pods fill the rest most easily. Each pod is first tried on its original
placement. States with equal free amounts are tried once.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, islice

from orchestrator.planner.accounting.ledger import NodeAccount
from orchestrator.planner.model import DEVICE_MILLI
from orchestrator.planner.preemption.homes import (
    Lifted,
    Rest,
    free_milli_of_devices,
    free_rest_of,
    rest_of,
    scalar_names,
)

MAX_STATES = 5_000
_MAX_COMBINATIONS = 70

Slot = tuple[int, tuple[int, ...]]
"""The index of a space (node) in the list, and the indices of its devices."""


@dataclass(frozen=True, slots=True)
class Space:
    """The free amounts of a node: of each device, and `rest`.

    `homes` has the number of pods that were on each device before the search.
    """

    free_milli: tuple[int, ...]
    rest: Rest
    homes: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Parcel:
    """A pod to place. `share_milli` has, for each space, the share of each of `count` devices; None: not on this node.

    `is_shared`: other pods may use the rest of its devices. `home` is the original placement of the pod.
    """

    count: int
    share_milli: tuple[int | None, ...]
    is_shared: bool
    rest: Rest
    home: Slot | None

    @property
    def size(self) -> tuple[int, ...]:
        """The size as a sort key: whole devices, then number and size of fractions, then CPU and memory."""
        whole = 0 if self.is_shared else self.count
        share_milli = max((share for share in self.share_milli if share is not None), default=0)
        return (whole, self.count, share_milli, *self.rest[1:])


def spaces_of(items: Sequence[Lifted], nodes: Sequence[NodeAccount]) -> list[Space]:
    """Return the free amounts of the nodes after terminating pods have ended. The items are off the ledger."""
    spaces = []
    names = scalar_names(items)
    for account in nodes:
        homes = [0] * account.node.gpu_count
        for item in items:
            if item.candidate is not None and item.pod.node == account.node.name:
                for device in item.pod.devices:
                    homes[device] += 1
        free_milli = free_milli_of_devices(account)
        idle = [device for device, milli in enumerate(free_milli) if milli == DEVICE_MILLI]
        # The indices of lost GPUs are unknown. Devices with running pods are not lost, so the lost GPUs are
        # assumed to be among the others.
        for device in sorted(idle, key=lambda device: (homes[device], -device))[: account.lost]:
            free_milli[device] = 0
        spaces.append(Space(tuple(free_milli), free_rest_of(account, names), tuple(homes)))
    return spaces


def parcels_of(
    items: Sequence[Lifted],
    nodes: Sequence[NodeAccount],
    may_be_on: Callable[[Lifted, NodeAccount], bool],
) -> list[Parcel]:
    """Return the items as parcels, in the same order. `may_be_on` returns whether a node admits an item."""
    position = {account.node.name: index for index, account in enumerate(nodes)}
    parcels = []
    names = scalar_names(items)
    for item in items:
        request = item.pod.request
        home = None
        if item.candidate is not None and item.pod.node in position:
            home = (position[item.pod.node], tuple(item.pod.devices))
        shares = tuple(
            account.share_milli(request) if may_be_on(item, account) else None for account in nodes
        )
        count = request.shared_devices if request.is_shared else request.gpu_count
        parcels.append(Parcel(count, shares, request.is_shared, rest_of(request, names), home))
    return parcels


class _TooManyStates(Exception):
    """Raised when the search has tried its maximum number of states."""


class Packing:
    """A search for the placements of all parcels. `state_count` is the number of failed states."""

    def __init__(self, parcels: Sequence[Parcel], spaces: Sequence[Space]) -> None:
        self._order = sorted(range(len(parcels)), key=lambda index: parcels[index].size, reverse=True)
        self._parcels = parcels
        self._spaces = spaces
        self._slots: dict[int, Slot] = {}
        self._failed: set[object] = set()

    @property
    def state_count(self) -> int:
        """The number of states from which no solution was found."""
        return len(self._failed)

    def find(self) -> list[Slot] | None:
        """Return a placement for each parcel, in the same order; None if none was found within MAX_STATES states."""
        if not self._is_enough_in_all():
            return None
        try:
            fits = self._put_down(0, list(self._spaces))
        except _TooManyStates:
            return None
        if not fits:
            return None
        self._return_home()
        return [self._slots[index] for index in range(len(self._parcels))]

    def _is_enough_in_all(self) -> bool:
        needed = map(sum, zip(*(parcel.rest for parcel in self._parcels), strict=True))
        return all(
            sum(space.rest[resource] for space in self._spaces) >= amount
            for resource, amount in enumerate(needed)
        )

    def _put_down(self, depth: int, spaces: list[Space]) -> bool:
        if depth == len(self._order):
            return True
        state = (depth, *((tuple(sorted(space.free_milli)), space.rest) for space in spaces))
        if state in self._failed:
            return False
        if len(self._failed) >= MAX_STATES:
            raise _TooManyStates
        index = self._order[depth]
        parcel = self._parcels[index]
        for position, devices in _slots(parcel, spaces):
            before = spaces[position]
            spaces[position] = _less(before, parcel, devices, parcel.share_milli[position] or 0)
            self._slots[index] = (position, devices)
            if self._put_down(depth + 1, spaces):
                return True
            spaces[position] = before
        self._failed.add(state)
        return False

    def _return_home(self) -> None:
        """If two equal parcels can exchange placements so that one gets its original placement, exchange them."""
        holders: dict[object, dict[Slot, int]] = {}
        for index, parcel in enumerate(self._parcels):
            slot = self._slots[index]
            alike = (parcel.count, parcel.share_milli, parcel.is_shared, parcel.rest)
            holders.setdefault(alike, {}).setdefault(slot, index)
        for index, parcel in enumerate(self._parcels):
            alike = (parcel.count, parcel.share_milli, parcel.is_shared, parcel.rest)
            home, slots = parcel.home, holders[alike]
            other = None if home is None or self._slots[index] == home else slots.get(home)
            if home is None or other is None or self._parcels[other].home == home:
                continue
            mine = self._slots[index]
            self._slots[index], self._slots[other] = home, mine
            slots[home] = index
            if slots.get(mine) == index:
                slots[mine] = other


def _slots(parcel: Parcel, spaces: Sequence[Space]) -> Iterator[Slot]:
    """Yield placements of the parcel: the original placement, then other devices. Devices that fewer pods used before
    the search come first.

    Of placements that leave equal free amounts, only one is yielded.
    """
    home = parcel.home
    if home is not None and _is_free(spaces[home[0]], parcel, home):
        yield home
    slots: list[tuple[int, Slot]] = []
    for position, space in enumerate(spaces):
        share_milli = parcel.share_milli[position]
        if share_milli is None or not _has_rest(space, parcel):
            continue
        slots += [
            (sum([space.homes[device] for device in devices]), (position, devices))
            for devices in _device_sets(space, parcel, share_milli)
            if (position, devices) != home
        ]
    yield from (slot for _, slot in sorted(slots))


def _has_rest(space: Space, parcel: Parcel) -> bool:
    return all(free >= amount for free, amount in zip(space.rest, parcel.rest, strict=True))


def _is_free(space: Space, parcel: Parcel, slot: Slot) -> bool:
    share_milli = parcel.share_milli[slot[0]]
    if share_milli is None or not _has_rest(space, parcel):
        return False
    needed = share_milli if parcel.is_shared else DEVICE_MILLI
    return all(device < len(space.free_milli) and space.free_milli[device] >= needed for device in slot[1])


def _device_sets(space: Space, parcel: Parcel, share_milli: int) -> Iterator[tuple[int, ...]]:
    """Yield sets of devices that differ in their free amounts. Devices that fewer pods used before the search come
    first.
    """
    if not parcel.count:
        yield ()
        return
    needed = share_milli if parcel.is_shared else DEVICE_MILLI
    usable = [device for device, free in enumerate(space.free_milli) if free >= needed]
    usable.sort(key=lambda device: (space.homes[device], device))
    if not parcel.is_shared:
        if len(usable) >= parcel.count:
            yield tuple(sorted(usable[: parcel.count]))
        return
    kinds: set[tuple[int, ...]] = set()
    for chosen in islice(combinations(usable, parcel.count), _MAX_COMBINATIONS):
        kind = tuple(sorted(space.free_milli[device] for device in chosen))
        if kind not in kinds:
            kinds.add(kind)
            yield tuple(sorted(chosen))


def _less(space: Space, parcel: Parcel, devices: Sequence[int], share_milli: int) -> Space:
    free_milli = list(space.free_milli)
    for device in devices:
        free_milli[device] -= share_milli if parcel.is_shared else DEVICE_MILLI
    rest = tuple([free - used for free, used in zip(space.rest, parcel.rest, strict=True)])
    return Space(tuple(free_milli), rest, space.homes)
