"""Pods that were lifted off their nodes and are to be where they were: who is one too many there, by counting.

Whoever lifts everything that may move, and puts other pods down, asks here who of them has to go anywhere else.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from orchestrator.planner.accounting.ledger import Ledger, NodeAccount
from orchestrator.planner.model import DEVICE_MILLI, Pod, Request, Workload
from orchestrator.planner.preemption.candidates import Piece

Rest = tuple[int, ...]
"""Pod slots, CPU in milli, memory in bytes, and of the scalars that the lifted pods request, by name."""

Free = tuple[Rest, tuple[int, ...]]
"""The free amounts of a node once all releases are through: beside its devices, and of each device."""


@dataclass(frozen=True, slots=True)
class Lifted:
    """A pod to put down; `piece` is the move that it is lifted by, None for a pod of the chunk."""

    workload: Workload
    pod: Pod
    piece: Piece | None


class Homes:
    """Which of the lifted pods are to stay on which devices, by the position of the node."""

    def __init__(self, items: Sequence[Lifted], ledger: Ledger) -> None:
        self._ledger = ledger
        self._order = {id(item): index for index, item in enumerate(items)}
        self._by_position: dict[int, dict[int, _Home]] = {}
        self._present: dict[int, int] = {}
        self._stay = 0
        self._free: dict[int, tuple[int, Free]] = {}
        # A search comes to the same node with as much free and the same pods again and again, by other ways.
        self._lost: dict[tuple[int, int, Free], int] = {}
        self._last_lost: dict[int, tuple[int, int, int]] = {}
        self._states: dict[tuple[object, ...], object] = {}
        kinds: dict[object, int] = {}
        self._kinds = [kinds.setdefault(_kind(item), len(kinds)) for item in items]
        self._names = scalar_names(items)
        for item in items:
            self.add(item)

    def add(self, item: Lifted, *, stays: bool = False) -> None:
        """The pod is to be where it was; `stays`: it may not go."""
        account = self._ledger.by_name[item.pod.node or ""]
        index = self._order[id(item)]
        self._by_position.setdefault(account.position, {})[index] = _Home(item, account, self._names)
        self._present[account.position] = self._present.get(account.position, 0) | 1 << index
        self._stay = self._stay | 1 << index if stays else self._stay & ~(1 << index)

    def remove(self, item: Lifted) -> None:
        """The pod goes anywhere else."""
        account = self._ledger.by_name[item.pod.node or ""]
        index = self._order[id(item)]
        del self._by_position[account.position][index]
        self._present[account.position] &= ~(1 << index)

    def stays(self, item: Lifted) -> bool:
        """Whether the pod may not go."""
        return bool(self._stay >> self._order[id(item)] & 1)

    def kind(self, index: int) -> tuple[int, bool]:
        """What two pods of a node have in common that could change places there."""
        return self._kinds[index], bool(self._stay >> index & 1)

    def kind_of_place(self, item: Lifted) -> tuple[object, ...]:
        """What two pods of a node have in common of which either can go as well as the other."""
        account = self._ledger.by_name[item.pod.node or ""]
        residents = self.on(account.position)
        places = [
            (account.free_milli(device, later=True), *sorted(map(self.kind, residents[device])))
            for device in item.pod.devices
        ]
        return (account.position, self._kinds[self._order[id(item)]], *sorted(places))

    def kind_waiting(self, item: Lifted) -> int:
        """What two pods to be put down have in common that need the same, -1 for those of the chunk."""
        return self._kinds[self._order[id(item)]] if item.piece is not None else -1

    def at(self, position: int) -> tuple[object, ...]:
        """What is free of the node, who is to be there and who of them may not go."""
        present = self._present.get(position, 0)
        return position, present, self._stay & present, self.free_on(position)

    def state(self, position: int) -> object:
        """What is left of the node, device by device, and who is to be there: the same for devices that are alike."""
        key = self.at(position)
        state = self._states.get(key)
        if state is None:
            homes = self._by_position.get(position, {})
            residents = self.on(position)
            free_rest, free_of_devices = self.free_on(position)
            devices = []
            for device, free_milli in enumerate(free_of_devices):
                there = residents.get(device, ())
                # what several devices hold together keeps its name, so that they are not taken for others
                names = [index if len(homes[index].devices) > 1 else -1 for index in there]
                devices.append((free_milli, *sorted(zip(map(self.kind, there), names, strict=True))))
            state = (free_rest, tuple(sorted(map(self.kind, homes))), tuple(sorted(devices)))
            self._states[key] = state
        return state

    def free_on(self, position: int) -> Free:
        """What is free of the node once all releases are through."""
        account = self._ledger.nodes[position]
        known = self._free.get(position)
        if known is None or known[0] != account.version:
            known = self._free[position] = (
                account.version,
                (free_rest_of(account, self._names), tuple(free_milli_of_devices(account))),
            )
        return known[1]

    def items(self) -> Iterator[Lifted]:
        """Those that are to be where they were."""
        for homes in self._by_position.values():
            yield from (home.item for home in homes.values())

    def on(self, position: int) -> dict[int, tuple[int, ...]]:
        """By device, the indices of the items that are there."""
        residents: dict[int, tuple[int, ...]] = {}
        homes = self._by_position.get(position, {})
        for index in sorted(homes):
            for device in homes[index].devices:
                residents[device] = (*residents.get(device, ()), index)
        return residents

    def count_lost(self) -> int:
        """How many of the items cannot all be where they were, at least."""
        total = 0
        for position, present in self._present.items():
            version = self._ledger.nodes[position].version
            last = self._last_lost.get(position)
            if last is None or last[0] != version or last[1] != present:
                key = (position, present, self.free_on(position))
                lost = self._lost.get(key)
                if lost is None:
                    lost = self._lost[key] = _count_lost(key[2], self._by_position[position].values())
                last = self._last_lost[position] = (version, present, lost)
            total += last[2]
        return total

    def crowd(self) -> list[Lifted]:
        """Items of which at least one cannot be where it was, who holds least first; empty when all can, by count."""
        for position, homes in self._by_position.items():
            crowd = _crowd(self._ledger.nodes[position], homes, self._names)
            if crowd:
                return [homes[index].item for index in sorted(crowd, reverse=True)]
        return []


class _Home:
    """The amounts that a pod takes on its node: a share of each of its devices, and `rest`."""

    __slots__ = ("devices", "item", "rest", "share_milli")

    def __init__(self, item: Lifted, account: NodeAccount, names: Sequence[str]) -> None:
        request = item.pod.request
        self.item = item
        self.devices = item.pod.devices
        self.share_milli = account.share_milli(request)
        self.rest = rest_of(request, names)


def _kind(item: Lifted) -> tuple[object, ...]:
    pod = item.pod
    return item.workload.id, pod.node, pod.request, pod.constraints, pod.max_runtime_seconds, len(pod.devices)


def _crowd(account: NodeAccount, homes: Mapping[int, _Home], names: Sequence[str]) -> Collection[int]:
    """Those of the pods, by index, that ask together for more of something than the node has."""
    free_milli = free_milli_of_devices(account)
    on_device: dict[int, list[int]] = {}
    for index, home in homes.items():
        for device in home.devices:
            if device >= len(free_milli) or free_milli[device] < home.share_milli:
                return (index,)
            on_device.setdefault(device, []).append(index)
    for device, there in on_device.items():
        if sum([homes[index].share_milli for index in there]) > free_milli[device]:
            return there
    for resource, free in enumerate(free_rest_of(account, names)):
        if sum([home.rest[resource] for home in homes.values()]) > free:
            return [index for index, home in homes.items() if home.rest[resource]]
    return ()


def _count_lost(free: Free, homes: Collection[_Home]) -> int:
    """How many of these pods cannot be where they were on the node, at least."""
    if not homes:
        return 0
    free_rest, free_milli = free
    alone = 0
    widest = 1
    on_device: dict[int, list[int]] = {}
    for home in homes:
        share_milli, devices = home.share_milli, home.devices
        for device in devices:
            if device >= len(free_milli) or free_milli[device] < share_milli:
                alone += 1
                break
        else:
            widest = max(widest, len(devices))
            for device in devices:
                on_device.setdefault(device, []).append(share_milli)
    over = 0
    for device, shares in on_device.items():
        if len(shares) > 1 and (missing := sum(shares) - free_milli[device]) > 0:
            over += _count_largest(shares, missing)
    lost = alone - (-over // widest)
    for resource, amount in enumerate(free_rest):
        amounts = [home.rest[resource] for home in homes]
        if (missing := sum(amounts) - amount) > 0:
            lost = max(lost, _count_largest(amounts, missing))
    return lost


def free_milli_of_devices(account: NodeAccount) -> list[int]:
    """What is free of each device once all releases are through."""
    pairs = zip(account.used_milli, account.releasing_milli, strict=True)
    return [max(0, DEVICE_MILLI - used + releasing) for used, releasing in pairs]


def scalar_names(items: Iterable[Lifted]) -> tuple[str, ...]:
    """The scalars that the pods request, by name."""
    return tuple(sorted({name for item in items for name, _ in item.pod.request.scalars}))


def rest_of(request: Request, names: Sequence[str]) -> Rest:
    """The amounts that a pod takes beside devices; `names` are those of `scalar_names`."""
    rest = (1, request.cpu_milli, request.memory_bytes)
    if not names:
        return rest
    scalars = dict(request.scalars)
    return (*rest, *(scalars.get(name, 0) for name in names))


def free_rest_of(account: NodeAccount, names: Sequence[str]) -> Rest:
    """The free amounts beside devices once all releases are through; `names` are those of `scalar_names`."""
    node = account.node
    # A node that has lost a resource keeps its pods, and takes others that do not request it.
    scalars = [max(0, account.free_scalar(name, later=True)) for name in names]
    return (
        node.pod_slots - account.pods_used + account.pods_releasing,
        node.cpu_milli - account.cpu_used_milli + account.cpu_releasing_milli,
        node.memory_bytes - account.memory_used_bytes + account.memory_releasing_bytes,
        *scalars,
    )


def _count_largest(amounts: Iterable[int], missing: int) -> int:
    """How many of the amounts make up for what is missing, the largest first."""
    count = 0
    for amount in sorted(amounts, reverse=True):
        if missing <= 0:
            break
        missing -= amount
        count += 1
    return count
