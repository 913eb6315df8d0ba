"""Which devices are held, and how much of the shared ones: with an undo log, so that a what-if is a rollback away."""

from collections.abc import Callable, Collection, Hashable, Mapping
from typing import TypeVar

from orchestrator.devices.model import Allocation, DeviceId, DeviceResult, PoolId

K = TypeVar("K", bound=Hashable)

_NOTHING: Mapping[str, int] = {}


class DeviceLedger:
    """The allocation of all claims together. Devices of results with admin access do not count.

    `loosened` are the pools, in order, of which a device was released or a grant undone.
    """

    def __init__(self) -> None:
        self._exclusive: dict[DeviceId, int] = {}
        self._shares: dict[DeviceId, dict[str, int]] = {}
        self._consumed: dict[DeviceId, dict[str, int]] = {}
        self._undo: list[Callable[[], None]] = []
        self.loosened: list[PoolId] = []

    def is_held(self, device_id: DeviceId) -> bool:
        """Whether one claim has the whole device."""
        return device_id in self._exclusive

    @property
    def has_doubles(self) -> bool:
        """Return whether a device is held twice. Only two schedulers together cause that."""
        return any(count > 1 for count in self._exclusive.values())

    def is_shared(self, device_id: DeviceId) -> bool:
        """Whether a claim has a share of the device."""
        return device_id in self._shares

    def is_occupied(self, device_id: DeviceId) -> bool:
        """Whether a claim has the device or a share of it."""
        return device_id in self._exclusive or device_id in self._shares

    def has_share(self, device_id: DeviceId, share_id: str) -> bool:
        """Whether the part of that name is taken."""
        return share_id in self._shares.get(device_id, _NOTHING)

    @property
    def parted(self) -> Collection[DeviceId]:
        """The devices with shares."""
        return self._consumed.keys()

    def consumed(self, device_id: DeviceId) -> Mapping[str, int]:
        """The taken amounts of the capacities of a shared device, in billionths."""
        return self._consumed.get(device_id, _NOTHING)

    def checkpoint(self) -> int:
        """Return a mark that `rollback` goes back to."""
        return len(self._undo)

    def rollback(self, mark: int) -> None:
        """Undo everything since the mark."""
        while len(self._undo) > mark:
            self._undo.pop()()

    def forget_undo(self) -> None:
        """Make the changes so far final."""
        self._undo.clear()

    def take(self, allocation: Allocation) -> None:
        """Count the devices of an allocation as held."""
        for result in allocation.results:
            self._count(result, 1)

    def release(self, allocation: Allocation) -> None:
        """Count the devices of an allocation that was taken as free."""
        for result in allocation.results:
            self._count(result, -1)

    def _count(self, result: DeviceResult, times: int) -> None:
        if result.admin_access:
            return
        self._apply(result, times)
        self._undo.append(lambda: self._apply(result, -times))

    def _apply(self, result: DeviceResult, times: int) -> None:
        device_id = result.device_id
        if times < 0:
            self.loosened.append(device_id[:2])
        if not result.share_id:
            _add(self._exclusive, device_id, times)
            return
        shares = self._shares.setdefault(device_id, {})
        _add(shares, result.share_id, times)
        consumed = self._consumed.setdefault(device_id, {})
        for name, nano in result.consumed:
            _add(consumed, name, nano * times)
        if not shares:
            del self._shares[device_id]
        if not consumed:
            del self._consumed[device_id]


def _add(counts: dict[K, int], key: K, number: int) -> None:
    total = counts.get(key, 0) + number
    if total:
        counts[key] = total
    else:
        counts.pop(key, None)
