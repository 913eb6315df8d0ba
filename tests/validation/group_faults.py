"""Faults of hosts and links as data, and the outcomes of group tests that follow from them."""

import math
from collections.abc import Callable, Iterator
from random import Random
from typing import NamedTuple

from validation.judge.hosts.group_findings import GroupTest
from validation.judge.hosts.group_search import Outcome, search


class Faults(NamedTuple):
    """Hosts that fail in every group, hosts with a slow link, and pairs of hosts that do not reach each other."""

    sick: frozenset[int] = frozenset()
    slow: frozenset[int] = frozenset()
    pairs: frozenset[frozenset[int]] = frozenset()

    def outcome(self, group: tuple[int, ...]) -> Outcome:
        """Return the outcome of a test of the group."""
        members = frozenset(group)
        if members & self.sick or any(pair <= members for pair in self.pairs):
            return Outcome.FAILS
        return Outcome.SLOW if members & self.slow else Outcome.WORKS


def drawn(random: Random, hosts: int, sick: int, slow: int, pairs: int) -> Faults:
    """Draw these numbers of faults; no host has two."""
    every = iter(random.sample(range(hosts), sick + slow + 2 * pairs))

    def some(number: int) -> frozenset[int]:
        return frozenset(next(every) for _ in range(number))

    return Faults(some(sick), some(slow), frozenset(some(2) for _ in range(pairs)))


def bits(hosts: int, faults: int) -> float:
    """Return log2 of the number of hypotheses with at most `faults` faults, each of a host, a slow link or a pair."""
    things = 2 * hosts + math.comb(hosts, 2)
    return math.log2(sum(math.comb(things, number) for number in range(faults + 1)))


def searched(hosts: int, outcome: Callable[[tuple[int, ...]], Outcome]) -> list[GroupTest]:
    """Return the tests of a search on hosts named `h0`, `h1` and so on."""
    return list(_searched(hosts, outcome))


def _searched(hosts: int, outcome: Callable[[tuple[int, ...]], Outcome]) -> Iterator[GroupTest]:
    plan = search(hosts)
    group = next(plan, None)
    while group is not None:
        ended = outcome(group)
        yield GroupTest(frozenset(f"h{host}" for host in group), ended, "text")
        try:
            group = plan.send(ended)
        except StopIteration:
            group = None
