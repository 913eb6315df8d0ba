"""Plans tests of groups of hosts, to find sick hosts, slow links, and pairs of hosts without a connection.

A test of a group connects each host of the group with each other host. The test passes only if no host of the group is
sick and no pair of its hosts has a fault. Hosts are numbered from 0.
"""

import math
from collections.abc import Generator, Iterator, Sequence
from enum import StrEnum
from functools import lru_cache
from itertools import combinations
from typing import Final

MAX_FAULTS: Final = 8
"""Maximum number of faults for which `max_tests` lets a search finish."""
REPEATS: Final = 2
"""Maximum number of tests that a search repeats because of an unclear outcome."""
_FEW: Final = 3
"""Up to this number of hosts every pair is tested."""


class Outcome(StrEnum):
    """How a test of a group ended. UNCLEAR: the test has no result, for example because a host was not reached."""

    WORKS = "works"
    SLOW = "slow"
    FAILS = "fails"
    UNCLEAR = "unclear"


Group = tuple[int, ...]
Search = Generator[Group, Outcome, None]
"""Yields the next group to test, and takes the outcome. A search ends after at most `max_tests(hosts)` groups."""


def faults_at_most(hosts: int) -> int:
    """Return the largest number of faults that a search always finds within `max_tests`.

    It is a quarter of the number of hosts, at least 1 and at most MAX_FAULTS.
    """
    return min(MAX_FAULTS, max(1, hosts // 4))


@lru_cache(maxsize=16)
def max_tests(hosts: int) -> int:
    """Return the largest number of tests of a search.

    Example: `max_tests(232)` returns 189. Without a fault the search makes one test.
    """
    if hosts < 2:
        return 0
    if hosts <= _FEW:
        return 1 + (math.comb(hosts, 2) if hosts > 2 else 0) + REPEATS
    limit, halvings = faults_at_most(hosts), math.ceil(math.log2(hosts))
    # A fault is found while hosts are examined, or late, among the pairs that no test has joined yet.
    examined = max(_among_unknown(hosts, limit - late) + late * (1 + halvings) for late in range(limit))
    return 1 + examined + limit * (halvings + 2) + 4 * limit + REPEATS


def search(hosts: int) -> Search:
    """Find the faults of hosts by tests of groups. If there is no fault, one test is enough."""
    if hosts < 2:
        return
    state = _State(hosts)
    try:
        yield from state.run()
    except _Ended:
        return


class _Ended(Exception):
    """The search has no test left, or two outcomes contradict each other."""


class _State:
    """The results of the tests so far.

    All `clean` hosts work with each other. `partial` hosts work, but not with every host.
    """

    def __init__(self, hosts: int) -> None:
        self.hosts = hosts
        self.left = max_tests(hosts)
        self.repeats = REPEATS
        self.found = 0
        self.clean: list[int] = []
        self.partial: list[int] = []
        self.later: list[int] = []
        self.joined = [1 << host for host in range(hosts)]
        self.apart = [0] * hosts

    def run(self) -> Search:
        """Test all hosts in one group; if that fails, test ever smaller groups."""
        every = list(range(self.hosts))
        if (yield from self.works(every)):
            return
        if self.hosts <= _FEW:
            for pair in combinations(every, 2) if self.hosts > 2 else ():
                yield from self.works(pair)
            return
        yield from self.examine(every)
        if len(self.clean) < 2:
            return
        for host in self.later:
            if (yield from self.works([*self.clean, host])):
                self.clean.append(host)
            else:
                yield from self.name(host, self.clean)
        yield from self.join()

    def works(self, group: Sequence[int]) -> Generator[Group, Outcome, bool]:
        """Test a group and return whether it works. If the outcome is unclear, repeat the test. Raises _Ended."""
        while True:
            if not self.left:
                raise _Ended
            self.left -= 1
            outcome = yield tuple(sorted(group))
            if outcome != Outcome.UNCLEAR:
                break
            if not self.repeats:
                raise _Ended
            self.repeats -= 1
        if outcome == Outcome.WORKS:
            mask = sum(1 << host for host in group)
            for host in group:
                self.joined[host] |= mask
        return outcome == Outcome.WORKS

    def examine(self, queue: list[int]) -> Search:
        """Test the hosts of the queue together with the clean hosts, in portions. If a portion works, its hosts are
        clean too. If it fails, name its first faulty host.
        """
        fails = True  # the test of all hosts has failed
        while queue:
            size = _portion(self.hosts, len(queue), self.found, fails)
            if not self.clean:
                size = max(size, 2)
                if len(queue) < 2:
                    self.later += queue
                    return
            if not (fails and size == len(queue)) and (yield from self.works([*self.clean, *queue[:size]])):
                self.clean += queue[:size]
                queue = queue[size:]
                continue
            end = yield from self.first(self.clean, queue[:size])
            fails = False
            if not self.clean and end == 2:  # one of the two hosts, or their pair
                self.later += queue[:2]
                self.found += 1
            else:
                self.clean += queue[: end - 1]
                yield from self.name(queue[end - 1], self.clean)
            queue = queue[end:]

    def first(self, clean: Sequence[int], hosts: Sequence[int]) -> Generator[Group, Outcome, int]:
        """Return the smallest n for which the first n of these hosts do not work together with the clean ones."""
        low, high = 0 if clean else 1, len(hosts)
        while high - low > 1:
            middle = (low + high) // 2
            if (yield from self.works([*clean, *hosts[:middle]])):
                low = middle
            else:
                high = middle
        return high

    def name(self, host: int, clean: Sequence[int]) -> Search:
        """Find the fault of a host that does not work with the clean ones.

        If the host works with neither half of the clean hosts, the host itself is sick. Otherwise there is one clean
        host that it does not reach.
        """
        self.found += 1
        half = len(clean) // 2
        if (yield from self.works([*clean[:half], host])):
            partners = clean[half:]
        elif (yield from self.works([*clean[half:], host])):
            partners = clean[:half]
        else:
            return
        while len(partners) > 1:
            half = len(partners) // 2
            works = yield from self.works([*partners[:half], host])
            partners = partners[half:] if works else partners[:half]
        if (yield from self.works([partners[0], host])):
            raise _Ended
        self.part(host, partners[0])

    def part(self, host: int, other: int) -> None:
        """Note that two hosts do not reach each other. Raises _Ended if they worked together in a test."""
        if self.joined[host] >> other & 1:
            raise _Ended
        self.apart[host] |= 1 << other
        self.apart[other] |= 1 << host
        if host not in self.partial:
            self.partial.append(host)
            if host in self.clean:
                self.clean.remove(host)

    def join(self) -> Search:
        """Test each partial host with every host that no working group has joined with it yet."""
        for host in self.partial:  # the list grows during the loop
            while missing := list(bits(self.missing(host))):
                group, barred = [host], self.apart[host]
                for other in [*missing, *self.partial, *self.clean]:
                    if other not in group and not barred >> other & 1:
                        group.append(other)
                        barred |= self.apart[other]
                if (yield from self.works(group)):
                    continue
                end = yield from self.first((), group)
                if end == 2:
                    self.found += 1
                    self.part(group[0], group[1])
                else:
                    before = self.found
                    yield from self.name(group[end - 1], group[: end - 1])
                    if not self.apart[group[end - 1]] or self.found == before:
                        raise _Ended

    def missing(self, host: int) -> int:
        """Return the mask of the working hosts that no test has joined with `host`."""
        working = sum(1 << other for other in [*self.clean, *self.partial])
        return working & ~self.joined[host] & ~self.apart[host]


def bits(mask: int) -> Iterator[int]:
    """Yield the indices of the hosts of a set, whose mask has bit i for host i."""
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low


@lru_cache(maxsize=1 << 16)
def _portion(hosts: int, unknown: int, found: int, fails: bool) -> int:
    """Return the number of unknown hosts that a test adds, so that the probability of success is about one half.

    The calculation assumes that each further fault is half as likely. `fails`: at least one of the unknown hosts has a
    fault.
    """
    least = int(fails)
    most = max(least, faults_at_most(hosts) - found)
    weights = [
        math.comb(unknown, faults) / math.comb(hosts, found + faults) / 2**faults
        for faults in range(least, min(most, unknown, hosts - found) + 1)
    ] or [1.0]
    low, high = 1, unknown
    while low < high:
        size = (low + high + 1) // 2
        rest = 1 - size / unknown
        works = sum(weight * rest ** (least + index) for index, weight in enumerate(weights))
        low, high = (size, high) if 2 * works >= sum(weights) else (low, size - 1)
    return low


def _among_unknown(hosts: int, faults: int) -> int:
    """Return the largest number of tests that `examine` makes for these faults, without the tests of `name`."""
    after = [0] * (hosts + 1)  # the number of tests after the next fault, by the number of unknown hosts
    for found in range(faults, -1, -1):
        here, largest = [0] * (hosts + 1), [0] * (hosts + 1)
        for fails in (False, True) if found == 0 else (False,):
            here = [0] * (hosts + 1)
            for unknown in range(1, hosts + 1):
                size = _portion(hosts, unknown, found, fails)
                known = fails and size == unknown
                here[unknown] = 0 if known else 1 + here[unknown - size]
                if found < faults:
                    cost = (0 if known else 1) + math.ceil(math.log2(size))
                    here[unknown] = max(here[unknown], cost + after[unknown - 1])
                largest[unknown] = max(largest[unknown - 1], here[unknown])
        after = largest
    return after[hosts]
