"""The allocated devices and the consumed amounts of shared devices, with an undo log for trials."""

from collections.abc import Callable, Collection, Hashable, Mapping
from typing import TypeVar

from orchestrator.devices.model import Allocation, DeviceId, DeviceResult, PoolId

K = TypeVar("K", bound=Hashable)

_NOTHING: Mapping[str, int] = {}


class DeviceLedger:
    """The devices that the claims hold together. Devices with admin access do not count.

    `loosened` lists, in order, the pools in which a device was released or an allocation was undone.
    """

    def __init__(self) -> None:
        self._exclusive: dict[DeviceId, int] = {}
        self._shares: dict[DeviceId, dict[str, int]] = {}
        self._consumed: dict[DeviceId, dict[str, int]] = {}
        self._undo: list[Callable[[], None]] = []
        self.loosened: list[PoolId] = []

    def is_held(self, device_id: DeviceId) -> bool:
        """Return whether a claim holds the whole device."""
        return device_id in self._exclusive

    @property
    def has_doubles(self) -> bool:
        """Return whether two claims hold the same whole device.

        This happens only if two schedulers allocate it at the same time.
        """
        return any(count > 1 for count in self._exclusive.values())

    def is_shared(self, device_id: DeviceId) -> bool:
        """Return whether a claim holds a share of the device."""
        return device_id in self._shares

    def is_occupied(self, device_id: DeviceId) -> bool:
        """Return whether a claim holds the device or a share of it."""
        return device_id in self._exclusive or device_id in self._shares

    def has_share(self, device_id: DeviceId, share_id: str) -> bool:
        """Return whether a claim holds the share with this id."""
        return share_id in self._shares.get(device_id, _NOTHING)

    @property
    def parted(self) -> Collection[DeviceId]:
        """The devices with shares."""
        return self._consumed.keys()

    def consumed(self, device_id: DeviceId) -> Mapping[str, int]:
        """Return the consumed amounts of a shared device by capacity, in billionths."""
        return self._consumed.get(device_id, _NOTHING)

    def checkpoint(self) -> int:
        """Return a mark for `rollback`."""
        return len(self._undo)

    def rollback(self, mark: int) -> None:
        """Undo everything since the mark."""
        while len(self._undo) > mark:
            self._undo.pop()()

    def forget_undo(self) -> None:
        """Clear the undo log: the changes so far can no longer be undone."""
        self._undo.clear()

    def take(self, allocation: Allocation) -> None:
        """Add the devices of an allocation."""
        for result in allocation.results:
            self._count(result, 1)

    def release(self, allocation: Allocation) -> None:
        """Remove the devices of an allocation that was added."""
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
