"""Nodes by the number of their idle GPUs, so that a pod looks only at nodes that can take it."""

from bisect import bisect_left, insort
from collections.abc import Iterator, Sequence
from typing import Protocol


class Indexed(Protocol):
    """The properties of a node for the index: its position in the order of names, and its idle devices."""

    position: int
    idle_devices: int


class FreeIndex:
    """For each count of idle devices, the positions of the nodes that have it, in order."""

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
        """Follow a change of the account's idle devices."""
        if account.idle_devices == idle_before:
            return
        bucket = self._buckets[idle_before]
        bucket.pop(bisect_left(bucket, account.position))
        insort(self._bucket(account.idle_devices), account.position)

    def with_at_least(self, idle: int) -> Iterator[int]:
        """Positions of nodes with that many idle devices or more: the fullest nodes first, then by name."""
        for count in range(idle, len(self._buckets)):
            yield from self._buckets[count]
