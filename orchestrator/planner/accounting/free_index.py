"""Nodes by the number of their idle GPUs, so that a search visits only nodes with enough idle GPUs."""

from bisect import bisect_left, insort
from collections.abc import Iterator, Sequence
from typing import Protocol


class Indexed(Protocol):
    """The properties that the index needs of a node: its position by name, and its number of idle devices."""

    position: int
    idle_devices: int


class FreeIndex:
    """For each number of idle devices, the sorted positions of the nodes with exactly this number."""

    def __init__(self, accounts: Sequence[Indexed]) -> None:
        self._accounts = accounts
        most = max((account.idle_devices for account in accounts), default=0)
        self._buckets: list[list[int]] = [[] for _ in range(most + 1)]
        for account in accounts:
            self._bucket(account.idle_devices).append(account.position)

    def _bucket(self, idle: int) -> list[int]:
        while idle >= len(self._buckets):
            self._buckets.append([])
        return self._buckets[idle]

    def move(self, account: Indexed, idle_before: int) -> None:
        """Update the index after a change of the account's idle devices."""
        if account.idle_devices == idle_before:
            return
        bucket = self._buckets[idle_before]
        bucket.pop(bisect_left(bucket, account.position))
        insort(self._bucket(account.idle_devices), account.position)

    def with_at_least(self, idle: int) -> Iterator[int]:
        """Yield the positions of nodes with at least `idle` idle devices: the fullest nodes first, then by name."""
        for count in range(idle, len(self._buckets)):
            yield from self._buckets[count]
