"""The pods that the repacking search has lifted (removed from their nodes), and a test for those that cannot return to
their original placement.

The search removes all candidates from the ledger and places other pods. This module then finds the candidates that must
migrate.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from orchestrator.planner.accounting.ledger import Ledger, NodeAccount
from orchestrator.planner.model import DEVICE_MILLI, Pod, Request, Workload
from orchestrator.planner.preemption.candidates import Candidate

Rest = tuple[int, ...]
"""Pod slots, CPU (milli), memory (bytes), and the other resources that the lifted pods request, by name."""

Free = tuple[Rest, tuple[int, ...]]
"""The free amounts of a node after terminating pods have ended: CPU, memory and other resources, and each device."""


@dataclass(frozen=True, slots=True)
class Lifted:
    """A pod to place. `candidate` is the candidate of the pod, None for a pod of the preemptor."""

    workload: Workload
    pod: Pod
    candidate: Candidate | None


class Homes:
    """The pods that should return to their original placement, by the position of their node."""

    def __init__(self, items: Sequence[Lifted], ledger: Ledger) -> None:
        self._ledger = ledger
        self._order = {id(item): index for index, item in enumerate(items)}
        self._by_position: dict[int, dict[int, _Home]] = {}
        self._present: dict[int, int] = {}
        self._pinned = 0
        self._free: dict[int, tuple[int, Free]] = {}
        # A cache by node, pods and free amounts, because a search reaches the same state of a node many
        # times.
        self._lost: dict[tuple[int, int, Free], int] = {}
        self._last_lost: dict[int, tuple[int, int, int]] = {}
        self._states: dict[tuple[object, ...], object] = {}
        kinds: dict[object, int] = {}
        self._kinds = [kinds.setdefault(_kind(item), len(kinds)) for item in items]
        self._names = scalar_names(items)
        for item in items:
            self.add(item)

    def add(self, item: Lifted, *, pinned: bool = False) -> None:
        """Add a pod that should return to its original placement. If `pinned`, the search may not migrate it."""
        account = self._ledger.by_name[item.pod.node or ""]
        index = self._order[id(item)]
        self._by_position.setdefault(account.position, {})[index] = _Home(item, account, self._names)
        self._present[account.position] = self._present.get(account.position, 0) | 1 << index
        self._pinned = self._pinned | 1 << index if pinned else self._pinned & ~(1 << index)

    def remove(self, item: Lifted) -> None:
        """Remove a pod, which the search migrates."""
        account = self._ledger.by_name[item.pod.node or ""]
        index = self._order[id(item)]
        del self._by_position[account.position][index]
        self._present[account.position] &= ~(1 << index)

    def pinned(self, item: Lifted) -> bool:
        """Return whether the search may not migrate the pod."""
        return bool(self._pinned >> self._order[id(item)] & 1)

    def kind(self, index: int) -> tuple[int, bool]:
        """Return a key of the pod (index): pods of a node with equal keys could exchange their placements."""
        return self._kinds[index], bool(self._pinned >> index & 1)

    def kind_of_place(self, item: Lifted) -> tuple[object, ...]:
        """Return a key of the pod. If two pods have equal keys, it does not matter which of them migrates."""
        account = self._ledger.by_name[item.pod.node or ""]
        residents = self.on(account.position)
        device_states = [
            (account.free_milli(device, later=True), *sorted(map(self.kind, residents[device])))
            for device in item.pod.devices
        ]
        return (account.position, self._kinds[self._order[id(item)]], *sorted(device_states))

    def kind_waiting(self, item: Lifted) -> int:
        """Return a key of the amounts that a migrated pod needs; -1 for pods of the preemptor."""
        return self._kinds[self._order[id(item)]] if item.candidate is not None else -1

    def at(self, position: int) -> tuple[object, ...]:
        """Return the exact state of the node: free amounts, pods that should return, and pods that may not migrate."""
        present = self._present.get(position, 0)
        return position, present, self._pinned & present, self.free_on(position)

    def state(self, position: int) -> object:
        """Return the state of the node in a form that does not change if equal devices are exchanged."""
        key = self.at(position)
        state = self._states.get(key)
        if state is None:
            homes = self._by_position.get(position, {})
            residents = self.on(position)
            free_rest, free_of_devices = self.free_on(position)
            devices = []
            for device, free_milli in enumerate(free_of_devices):
                there = residents.get(device, ())
                # a pod with several devices keeps its index, because its devices cannot be exchanged one by
                # one
                names = [index if len(homes[index].devices) > 1 else -1 for index in there]
                devices.append((free_milli, *sorted(zip(map(self.kind, there), names, strict=True))))
            state = (free_rest, tuple(sorted(map(self.kind, homes))), tuple(sorted(devices)))
            self._states[key] = state
        return state

    def free_on(self, position: int) -> Free:
        """Return the free amounts of the node after all terminating pods have ended."""
        account = self._ledger.nodes[position]
        known = self._free.get(position)
        if known is None or known[0] != account.version:
            known = self._free[position] = (
                account.version,
                (free_rest_of(account, self._names), tuple(free_milli_of_devices(account))),
            )
        return known[1]

    def items(self) -> Iterator[Lifted]:
        """Yield the pods that should return to their original placement."""
        for homes in self._by_position.values():
            yield from (home.item for home in homes.values())

    def on(self, position: int) -> dict[int, tuple[int, ...]]:
        """Return the pods (indices) by the device to which they should return."""
        residents: dict[int, tuple[int, ...]] = {}
        homes = self._by_position.get(position, {})
        for index in sorted(homes):
            for device in homes[index].devices:
                residents[device] = (*residents.get(device, ()), index)
        return residents

    def count_lost(self) -> int:
        """Return a lower bound of the number of pods, on all nodes, that cannot return to their nodes."""
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
        """Return the pods of one node that cannot all return, smallest first.

        Empty if each node has enough for its pods together.
        """
        for position, homes in self._by_position.items():
            crowd = _crowd(self._ledger.nodes[position], homes, self._names)
            if crowd:
                return [homes[index].item for index in sorted(crowd, reverse=True)]
        return []


class _Home:
    """The amounts that a pod uses on its node: `share_milli` of each of its devices, and `rest`."""

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
    """Return the indices of pods that together request more of a device or resource than the node has."""
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
    """Return a lower bound of the number of these pods that cannot return to the node."""
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
    """Return the free amount of each device after all terminating pods have ended, in thousandths."""
    pairs = zip(account.used_milli, account.releasing_milli, strict=True)
    return [max(0, DEVICE_MILLI - used + releasing) for used, releasing in pairs]


def scalar_names(items: Iterable[Lifted]) -> tuple[str, ...]:
    """Return the sorted names of the other resources that the pods request."""
    return tuple(sorted({name for item in items for name, _ in item.pod.request.scalars}))


def rest_of(request: Request, names: Sequence[str]) -> Rest:
    """Return the amounts other than devices that a pod uses. `names` is the result of `scalar_names`."""
    rest = (1, request.cpu_milli, request.memory_bytes)
    if not names:
        return rest
    scalars = dict(request.scalars)
    return (*rest, *(scalars.get(name, 0) for name in names))


def free_rest_of(account: NodeAccount, names: Sequence[str]) -> Rest:
    """Return the node's free amounts other than devices after terminating pods have ended. `names` is as in
    `rest_of`.
    """
    node = account.node
    # If a node lost a resource, its free amount is negative. It then counts as 0, so that pods which do not
    # request it still fit.
    scalars = [max(0, account.free_scalar(name, later=True)) for name in names]
    return (
        node.pod_slots - account.pods_used + account.pods_releasing,
        node.cpu_milli - account.cpu_used_milli + account.cpu_releasing_milli,
        node.memory_bytes - account.memory_used_bytes + account.memory_releasing_bytes,
        *scalars,
    )


def _count_largest(amounts: Iterable[int], missing: int) -> int:
    """Return how many of the largest amounts are needed for a sum of at least `missing`."""
    count = 0
    for amount in sorted(amounts, reverse=True):
        if missing <= 0:
            break
        missing -= amount
        count += 1
    return count
