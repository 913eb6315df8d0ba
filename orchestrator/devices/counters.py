"""Counters that devices of a pool share: the amounts that are free, and that a search takes."""

from collections.abc import Mapping

from orchestrator.devices.ledger import DeviceLedger
from orchestrator.devices.model import Device
from orchestrator.devices.pools import Candidate, Pool

CounterName = tuple[str, str]
"""The names of a counter set and of one of its counters."""


class CounterBook:
    """The free counters of each pool during one search. A device with several shares takes its counters once."""

    def __init__(self, ledger: DeviceLedger) -> None:
        self._ledger = ledger
        self._free: dict[Pool, dict[CounterName, int]] = {}

    def has_capacity(self, candidate: Candidate) -> bool:
        """Return whether the pool has enough of its counters left for the device."""
        free = self._of_pool(candidate.pool)
        return all(nano <= free.get(name, 0) for name, nano in _consumed_by(candidate.device).items())

    def charge(self, candidate: Candidate, times: int = 1) -> None:
        """Subtract the device's amounts from the free counters; if `times` is -1, add them."""
        free = self._of_pool(candidate.pool)
        for name, nano in _consumed_by(candidate.device).items():
            free[name] = free.get(name, 0) - nano * times

    def _of_pool(self, pool: Pool) -> dict[CounterName, int]:
        free = self._free.get(pool)
        if free is None:
            free = self._free[pool] = dict(pool.counters)
            for device in (*(candidate.device for candidate in pool.candidates), *pool.others):
                if device.counters and self._ledger.is_occupied((*pool.pool_id, device.name)):
                    for name, nano in _consumed_by(device).items():
                        free[name] = free.get(name, 0) - nano
        return free


def _consumed_by(device: Device) -> Mapping[CounterName, int]:
    amounts: dict[CounterName, int] = {}
    for listed in device.counters:
        for name, nano in listed.counters:
            key = (listed.name, name)
            amounts[key] = amounts.get(key, 0) + nano
    return amounts
