"""Pods that were lifted off their nodes and are to be where they were: who is one too many there, by counting.

Whoever lifts everything that may move, and puts other pods down, asks here who of them has to go anywhere else.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from orchestrator.planner.accounting.ledger import Ledger, NodeAccount
from orchestrator.planner.model import Pod, Workload
from orchestrator.planner.preemption.candidates import Piece


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
        self._by_position: dict[int, dict[int, Lifted]] = {}
        self._stay: set[int] = set()
        self._lost: dict[int, tuple[int, tuple[int, ...], int]] = {}
        for item in items:
            self.add(item)

    def add(self, item: Lifted, *, stays: bool = False) -> None:
        """The pod is to be where it was; `stays`: it may not go."""
        account = self._ledger.by_name[item.pod.node or ""]
        index = self._order[id(item)]
        self._by_position.setdefault(account.position, {})[index] = item
        if stays:
            self._stay.add(index)
        else:
            self._stay.discard(index)

    def remove(self, item: Lifted) -> None:
        """The pod goes anywhere else."""
        account = self._ledger.by_name[item.pod.node or ""]
        del self._by_position[account.position][self._order[id(item)]]

    def stays(self, item: Lifted) -> bool:
        """Whether the pod may not go."""
        return self._order[id(item)] in self._stay

    def items(self) -> Iterator[Lifted]:
        """Those that are to be where they were."""
        for homes in self._by_position.values():
            yield from homes.values()

    def on(self, position: int) -> dict[int, tuple[int, ...]]:
        """By device, the indices of the items that are there."""
        residents: dict[int, tuple[int, ...]] = {}
        for index, item in sorted(self._by_position.get(position, {}).items()):
            for device in item.pod.devices:
                residents[device] = (*residents.get(device, ()), index)
        return residents

    def count_lost(self) -> int:
        """How many of the items cannot all be where they were, at least."""
        total = 0
        for position, homes in self._by_position.items():
            account = self._ledger.nodes[position]
            present = tuple(homes)
            version, before, lost = self._lost.get(position, (-1, (), 0))
            if (version, before) != (account.version, present):
                lost = _count_lost(account, [item.pod for item in homes.values()])
                self._lost[position] = (account.version, present, lost)
            total += lost
        return total

    def crowd(self) -> list[Lifted]:
        """Items of which at least one cannot be where it was, who holds least first; empty when all can, by count."""
        for position, homes in self._by_position.items():
            crowd = _crowd(self._ledger.nodes[position], {index: item.pod for index, item in homes.items()})
            if crowd:
                return [homes[index] for index in sorted(crowd, reverse=True)]
        return []


def _crowd(account: NodeAccount, pods: Mapping[int, Pod]) -> Collection[int]:
    """Those of the pods, by index, that ask together for more of something than the node has."""
    on_device: dict[int, list[int]] = {}
    for index, pod in pods.items():
        if not _fits_alone(account, pod):
            return (index,)
        for device in pod.devices:
            on_device.setdefault(device, []).append(index)
    for device, there in on_device.items():
        held_milli = sum(account.share_milli(pods[index].request) for index in there)
        if held_milli > account.free_milli(device, later=True):
            return there
    free = _free_rest(account)
    for resource in range(len(free)):
        amounts = {index: _rest(pod)[resource] for index, pod in pods.items()}
        if sum(amounts.values()) > free[resource]:
            return [index for index, amount in amounts.items() if amount]
    return ()


def _count_lost(account: NodeAccount, pods: Sequence[Pod]) -> int:
    """How many of these pods cannot be where they were on the node, at least."""
    alone = 0
    widest = 1
    on_device: dict[int, list[int]] = {}
    for pod in pods:
        if not _fits_alone(account, pod):
            alone += 1
            continue
        widest = max(widest, len(pod.devices))
        for device in pod.devices:
            on_device.setdefault(device, []).append(account.share_milli(pod.request))
    on_devices = sum(
        _count_largest(shares, sum(shares) - account.free_milli(device, later=True))
        for device, shares in on_device.items()
        if len(shares) > 1
    )
    lost = alone - (-on_devices // widest)
    for amounts, free in zip(zip(*map(_rest, pods), strict=True), _free_rest(account), strict=False):
        lost = max(lost, _count_largest(amounts, sum(amounts) - free))
    return lost


def _fits_alone(account: NodeAccount, pod: Pod) -> bool:
    """Whether the devices on which the pod was have room for it, apart from all who are lifted."""
    share, count = account.share_milli(pod.request), account.node.gpu_count
    return all(device < count and account.free_milli(device, later=True) >= share for device in pod.devices)


def _rest(pod: Pod) -> tuple[int, int, int]:
    """The pod slot, CPU and memory that the pod takes."""
    return 1, pod.request.cpu_milli, pod.request.memory_bytes


def _free_rest(account: NodeAccount) -> tuple[int, int, int]:
    """What is free of them once all releases are through."""
    node = account.node
    return (
        node.pod_slots - account.pods_used + account.pods_releasing,
        node.cpu_milli - account.cpu_used_milli + account.cpu_releasing_milli,
        node.memory_bytes - account.memory_used_bytes + account.memory_releasing_bytes,
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
