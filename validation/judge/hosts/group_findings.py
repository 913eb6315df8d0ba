"""Derives the faulty hosts and pairs from the outcomes of tests of groups.

The tests need not come from `group_search`.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from hostfacts.repairs import Repair, needs
from validation.judge.check_verdict import Judgement
from validation.judge.hosts.group_search import Outcome, bits, max_tests
from validation.judge.hosts.host_facts import NAMED
from validation.judge.verdict import Verdict


class GroupTest(NamedTuple):
    """A test of a group of hosts; `text` is the reason why it failed, or the measured figure."""

    hosts: frozenset[str]
    outcome: Outcome
    text: str = ""


def judge_groups(hosts: Sequence[str], tests: Sequence[GroupTest]) -> list[Judgement]:
    """Judge whether all hosts work with each other.

    A host is sick if it works in no group, and two groups that share only this host fail. The other hosts of each of
    these groups must work with each other. A pair is sick if the group of these two hosts fails, and each of them works
    in another group.
    """
    if len(hosts) < 2:
        works = any(test.outcome == Outcome.WORKS for test in tests)
        return [Judgement(Verdict.PASS if works else Verdict.INCONCLUSIVE, "one host joins no other")]
    shown = _Shown(hosts, tests)
    sick, pairs = list(shown.sick_hosts()), list(shown.sick_pairs())
    judgements = [Judgement(Verdict.FAIL, finding) for _, finding in [*sick, *pairs]]
    named = [mask for mask, _ in [*sick, *pairs]]
    unexplained = [
        (mask, test) for mask, test in shown.failed if not any(mask & fault == fault for fault in named)
    ]
    judgements += _judge_rest(shown, unexplained)
    unclear = [test for _, test in shown.tests if test.outcome == Outcome.UNCLEAR]
    if unclear:
        reason = f"{len(unclear)} tests of groups are unclear: {unclear[0].text}"
        judgements.append(Judgement(Verdict.INCONCLUSIVE, reason))
    ill = sum(mask for mask, _ in sick)
    apart = [mask for mask, _ in pairs]
    missing = [mask for mask in shown.never_joined() if not mask & ill and mask not in apart]
    if missing:
        pair = " with ".join(shown.names(missing[0]))
        judgements.append(
            Judgement(Verdict.INCONCLUSIVE, f"{len(missing)} pairs were not seen to work: {pair}")
        )
    if len(tests) > max_tests(len(hosts)):
        reason = f"{len(tests)} tests, more than the {max_tests(len(hosts))} that were stated"
        judgements.append(Judgement(Verdict.ERROR, reason))
    return judgements or [Judgement(Verdict.PASS, f"{len(tests)} of at most {max_tests(len(hosts))} tests")]


class _Shown:
    """The outcomes of tests. Sets of hosts are masks: the host with index i in `hosts` is bit i."""

    def __init__(self, hosts: Sequence[str], tests: Sequence[GroupTest]) -> None:
        self.hosts = hosts
        masks = {name: 1 << index for index, name in enumerate(hosts)}
        self.tests = [(sum(masks.get(name, 0) for name in test.hosts), test) for test in tests]
        self.failed = [
            (mask, test) for mask, test in self.tests if test.outcome in {Outcome.FAILS, Outcome.SLOW}
        ]
        self.joined = [0] * len(hosts)
        for mask, test in self.tests:
            if test.outcome == Outcome.WORKS:
                for index in bits(mask):
                    self.joined[index] |= mask

    def names(self, mask: int) -> list[str]:
        """Return the names of the hosts of a set."""
        return [self.hosts[index] for index in bits(mask)]

    def works(self, mask: int) -> bool:
        """Return whether each pair of these hosts works in some group; a single host must work in some group."""
        return all(self.joined[index] & mask == mask for index in bits(mask))

    def sick_hosts(self) -> Iterator[tuple[int, str]]:
        """Yield each sick host as a set, and the finding."""
        for index, name in enumerate(self.hosts):
            if self.joined[index]:
                continue
            mine = [(mask & ~(1 << index), test) for mask, test in self.failed if mask >> index & 1]
            alone = [(others, test) for others, test in mine if others and self.works(others)]
            two = next(((a, b) for n, a in enumerate(alone) for b in alone[:n] if not a[0] & b[0]), None)
            if two is not None:
                yield 1 << index, _finding(name, [test for _, test in two])

    def sick_pairs(self) -> Iterator[tuple[int, str]]:
        """Yield each sick pair as a set, and the finding."""
        found = set[int]()
        for mask, test in self.failed:
            fails = mask.bit_count() == 2 and not self.works(mask)
            if fails and mask not in found and all(self.joined[index] for index in bits(mask)):
                found.add(mask)
                yield mask, _finding(" with ".join(self.names(mask)), [test])

    def never_joined(self) -> Iterator[int]:
        """Yield each pair that works in no group as a set."""
        every = (1 << len(self.hosts)) - 1
        for index, joined in enumerate(self.joined):
            for other in bits(every & ~joined & ~((1 << index + 1) - 1)):
                yield 1 << index | 1 << other


def _judge_rest(shown: _Shown, unexplained: Sequence[tuple[int, GroupTest]]) -> list[Judgement]:
    """Judge the failed groups that contain no known sick host or pair."""
    judgements = []
    open_groups = [(mask, test) for mask, test in unexplained if not shown.works(mask)]
    if open_groups:
        mask, test = min(open_groups, key=lambda group: group[0].bit_count())
        names = shown.names(mask)
        more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
        reason = f"one of {', '.join(names[:NAMED])}{more}, or the network between them: {test.text}"
        judgements.append(Judgement(Verdict.FAIL, needs(reason, Repair.NETWORK)))
    if len(open_groups) < len(unexplained):
        test = next(test for mask, test in unexplained if shown.works(mask))
        reason = f"a group failed ({test.text}), and every pair of it works in another"
        judgements.append(Judgement(Verdict.INCONCLUSIVE, reason))
    return judgements


def _finding(subject: str, tests: Sequence[GroupTest]) -> str:
    worst = next((test for test in tests if test.outcome == Outcome.FAILS), tests[0])
    if worst.outcome == Outcome.FAILS:
        return needs(f"{subject} joins no group of hosts: {worst.text}", Repair.NETWORK)
    return needs(f"{subject} slows every group of hosts: {worst.text}", Repair.RESEAT)
