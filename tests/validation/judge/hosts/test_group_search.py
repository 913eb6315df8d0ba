"""Group tests find sick hosts, slow links and sick pairs, with at most the number of tests stated at the start."""

import math
from collections.abc import Callable
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.validation import second_judge_groups
from tests.validation.group_faults import Faults, bits, drawn, searched
from validation.judge.check_verdict import Judgement
from validation.judge.hosts.group_findings import GroupTest, judge_groups
from validation.judge.hosts.group_search import Outcome, faults_at_most, max_tests
from validation.judge.verdict import Verdict

Group = tuple[int, ...]


def dice(seed: object) -> Random:
    return Random(str(seed))  # noqa: S311 - faults that can be drawn again


def judged(hosts: int, tests: list[GroupTest]) -> list[Judgement]:
    """Return the verdicts other than PASS; both judges must agree."""
    names = [f"h{number}" for number in range(hosts)]
    found = [one for one in judge_groups(names, tests) if one.verdict != Verdict.PASS]
    second = second_judge_groups.of_tests(names, [(set(t.hosts), str(t.outcome)) for t in tests])
    assert ({one.verdict for one in found} or {Verdict.PASS}) == set(second), (found, second)
    return found


def named(judgements: list[Judgement]) -> set[str]:
    """Return the subjects of the findings."""
    return {
        f"{words} {'slow' if 'slows' in one.reason else 'sick'}"
        for one in judgements
        if one.verdict == Verdict.FAIL
        for words in [one.reason.partition(" joins no")[0].partition(" slows every")[0]]
    }


def expected(faults: Faults) -> set[str]:
    pairs = {f"h{low} with h{high} sick" for low, high in map(sorted, faults.pairs)}
    return pairs | {f"h{host} sick" for host in faults.sick} | {f"h{host} slow" for host in faults.slow}


@pytest.mark.parametrize("others", [Outcome.FAILS, Outcome.WORKS])
def test_a_host_that_fails_alone_is_named_by_both_judges(others: Outcome) -> None:
    alone = GroupTest(frozenset({"h0"}), Outcome.FAILS, "exit code 1")
    found = judged(3, [alone, GroupTest(frozenset({"h0", "h1", "h2"}), others)])
    verdicts = {one.verdict for one in found}
    assert verdicts == (
        {Verdict.INCONCLUSIVE} if others == Outcome.WORKS else {Verdict.FAIL, Verdict.INCONCLUSIVE}
    )
    assert judged(3, [alone])[0].reason.startswith("one of h0, or the network")


@pytest.mark.parametrize("hosts", [2, 3, 16, 232, 1024])
def test_hosts_without_a_fault_need_one_test(hosts: int) -> None:
    tests = searched(hosts, Faults().outcome)
    assert [len(test.hosts) for test in tests] == [hosts]
    assert judged(hosts, tests) == []


@pytest.mark.parametrize(
    ("hosts", "bound", "pairs"), [(16, 65, 120), (232, 189, 26_796), (1024, 221, 523_776)]
)
def test_the_bound_is_far_below_the_number_of_pairs(hosts: int, bound: int, pairs: int) -> None:
    assert (max_tests(hosts), math.comb(hosts, 2)) == (bound, pairs)


@pytest.mark.parametrize("kinds", [(8, 0, 0), (0, 0, 8), (3, 2, 3)])
def test_eight_faults_among_1024_hosts_need_1_3_times_the_bits_of_the_hypotheses(
    kinds: tuple[int, int, int],
) -> None:
    faults = drawn(dice(str(kinds)), 1024, *kinds)
    tests = searched(1024, faults.outcome)
    assert named(judged(1024, tests)) == expected(faults)
    assert len(tests) <= 1.3 * bits(1024, sum(kinds))


@settings(max_examples=60)
@given(st.data())
def test_all_faults_are_found_within_the_bound(data: st.DataObject) -> None:
    hosts = data.draw(st.integers(4, 70))
    left = data.draw(st.integers(0, faults_at_most(hosts)))
    sick = data.draw(st.integers(0, left))
    slow = data.draw(st.integers(0, left - sick))
    faults = drawn(dice(data.draw(st.integers())), hosts, sick, slow, left - sick - slow)
    tests = searched(hosts, faults.outcome)
    assert len(tests) <= max_tests(hosts)
    found = judged(hosts, tests)
    assert named(found) == expected(faults)
    assert {one.verdict for one in found} <= {Verdict.FAIL}


@settings(max_examples=80)
@given(
    st.integers(0, 40),
    st.frozensets(st.integers(0, 39), max_size=40),
    st.frozensets(st.integers(0, 39), max_size=40),
    st.frozensets(st.frozensets(st.integers(0, 39), min_size=2, max_size=2), max_size=30),
    st.lists(st.sampled_from([None, None, None, *Outcome]), max_size=60),
)
def test_any_number_of_faults_and_any_noise_keeps_the_bound_and_never_passes(
    hosts: int,
    sick: frozenset[int],
    slow: frozenset[int],
    pairs: frozenset[frozenset[int]],
    noise: list[Outcome | None],
) -> None:
    faults = Faults(sick, slow, pairs)
    random = iter(noise)

    def outcome(group: Group) -> Outcome:
        return next(random, None) or faults.outcome(group)

    tests = searched(hosts, outcome)
    assert len(tests) <= max_tests(hosts)
    found = judged(hosts, tests)
    if hosts < 2 or any(test.outcome != Outcome.WORKS for test in tests):
        assert found
    assert Verdict.ERROR not in {one.verdict for one in found}


SICK: dict[str, tuple[int, Callable[[Group], Outcome], set[Verdict], str]] = {
    "all hosts": (16, lambda _: Outcome.FAILS, {Verdict.FAIL, Verdict.INCONCLUSIVE}, "one of h"),
    "two hosts": (2, lambda _: Outcome.FAILS, {Verdict.FAIL, Verdict.INCONCLUSIVE}, "one of h0, h1"),
    "one host": (1, lambda _: Outcome.WORKS, {Verdict.INCONCLUSIVE}, "one host joins no other"),
    "nothing answers": (
        16,
        lambda _: Outcome.UNCLEAR,
        {Verdict.INCONCLUSIVE},
        "3 tests of groups are unclear",
    ),
    "only all together": (
        16,
        lambda group: Outcome.FAILS if len(group) == 16 else Outcome.WORKS,
        {Verdict.INCONCLUSIVE},
        "every pair of it works in another",
    ),
}


@pytest.mark.parametrize("name", SICK)
def test_faults_without_a_name_are_reported(name: str) -> None:
    hosts, outcome, verdicts, reason = SICK[name]
    found = judged(hosts, searched(hosts, outcome))
    assert {one.verdict for one in found} == verdicts
    assert any(reason in one.reason for one in found), found


def test_groups_of_no_search_are_judged_by_their_outcomes() -> None:
    def test(hosts: str, outcome: Outcome) -> GroupTest:
        return GroupTest(frozenset(f"h{host}" for host in hosts), outcome, "text")

    overlapping = [test("012", Outcome.FAILS), test("12", Outcome.WORKS), test("13", Outcome.WORKS)]
    overlapping += [test("23", Outcome.WORKS), test("03", Outcome.FAILS)]
    assert named(judged(4, overlapping)) == {"h0 sick"}
    assert named(judged(4, [*overlapping[:3], test("23", Outcome.FAILS), test("03", Outcome.WORKS)])) >= {
        "h2 with h3 sick"
    }
    for few in ([test("012", Outcome.WORKS), test("23", Outcome.WORKS)], [test("0123", Outcome.UNCLEAR)]):
        assert {one.verdict for one in judged(4, few)} == {Verdict.INCONCLUSIVE}
    unclear = [test("0123", Outcome.UNCLEAR), test("0123", Outcome.WORKS)]
    assert {one.verdict for one in judged(4, unclear)} == {Verdict.INCONCLUSIVE}
    ours = [test("0123", Outcome.WORKS)] * (max_tests(4) + 1)
    assert [one.verdict for one in judge_groups(["h0", "h1", "h2", "h3"], ours)] == [Verdict.ERROR]
