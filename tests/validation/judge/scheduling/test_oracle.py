"""The oracle against tables computed by hand, and against properties of every fair division."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from validation.judge.scheduling.oracle import Demand, Project, divide, fair_shares

TR4858 = [Project("a", 4000), Project("b", 2000), Project("c", 2000), Project("d", 8000)]


@pytest.mark.parametrize(
    ("weights", "requested", "expected"),
    [
        ((None, None, None, None), (8, 6, 6, 0), (8, 4, 4, 0)),
        ((None, None, None, None), (8, 6, 6, 8), (4, 2, 2, 8)),
        ((1, 1, 1, 1), (8, 6, 6, 0), (Fraction(20, 3), Fraction(14, 3), Fraction(14, 3), 0)),
        ((0, 0, 0, 0), (8, 6, 6, 0), (4, 2, 2, 0)),
        ((None, None, None, None), (100, 3, 3, 1), (9, 3, 3, 1)),
    ],
)
def test_fair_shares_of_the_four_teams(
    weights: tuple[int | None, ...], requested: tuple[int, ...], expected: tuple[Fraction | int, ...]
) -> None:
    projects = [
        Project(project.name, project.quota_milli, None if weight is None else Fraction(weight))
        for project, weight in zip(TR4858, weights, strict=True)
    ]
    wanted = {project.name: gpus * 1000 for project, gpus in zip(TR4858, requested, strict=True)}
    shares = fair_shares(16_000, projects, wanted)
    assert [share / 1000 for share in shares.values()] == [Fraction(gpus) for gpus in expected]


def test_the_rest_of_eleven_gpus_is_divided_one_to_four() -> None:
    projects = [Project("p", 2000, Fraction(1)), Project("q", 2000, Fraction(4))]
    shares = fair_shares(11_000, projects, {"p": 10_000, "q": 10_000})
    assert shares == {"p": Fraction(3400), "q": Fraction(7600)}


def test_a_limit_caps_the_share_and_the_others_get_the_rest() -> None:
    projects = [Project("p", 2000, limit_milli=3000), Project("q", 2000)]
    assert fair_shares(10_000, projects, {"p": 10_000, "q": 10_000}) == {"p": 3000, "q": 7000}


def test_quotas_beyond_the_capacity_are_refused() -> None:
    with pytest.raises(ValueError, match="quotas exceed the GPUs"):
        fair_shares(10_000, [Project("p", 6000), Project("q", 6000)], {})


def test_interactive_work_claims_the_quota_before_older_train_work() -> None:
    demands = [Demand("p", "train", 2000), Demand("p", "notebook", 1000, preemptible=False, priority=100)]
    division = divide(2500, [Project("p", 2000)], demands)
    assert division.running == {("p", "notebook")}
    assert division.pending == {("p", "train")}


def test_interactive_work_beyond_the_quota_waits_on_an_idle_cluster() -> None:
    division = divide(16_000, [Project("p", 1000)], [Demand("p", "n", 2000, preemptible=False)])
    assert division.pending == {("p", "n")}
    assert division.fair_share["p"] == 0


def test_a_workload_that_does_not_fit_the_quota_is_skipped_for_a_smaller_one() -> None:
    demands = [Demand("p", "a", 1000), Demand("p", "b", 2000), Demand("p", "c", 1000)]
    division = divide(16_000, [Project("p", 2000)], demands)
    assert division.borrowed == {("p", "b")}


def test_a_tenth_and_two_tenths_fit_three_tenths() -> None:
    demands = [Demand("p", "a", 100, preemptible=False), Demand("p", "b", 200, preemptible=False)]
    assert divide(1000, [Project("p", 300)], demands).pending == frozenset()


def test_a_gang_that_does_not_fit_as_a_whole_gets_nothing_and_does_not_hold_up_smaller_work() -> None:
    gang = Demand("p", "gang", 4000, pods=4, min_member=4)
    division = divide(
        16_000,
        [Project("p", 12_000), Project("q", 4000)],
        [Demand("q", "q", 4000), gang, Demand("p", "s", 2000)],
    )
    assert division.pending == {("p", "gang")}
    assert division.allocated_milli == {"p": 2000, "q": 4000}


def test_a_gang_that_is_larger_than_the_cluster_does_not_count_as_asked_for() -> None:
    projects = [Project(name, 0, Fraction(1)) for name in ("p", "q", "r")]
    others = [Demand("p", "s", 1000), *(Demand(name, "many", 1000, pods=12) for name in ("q", "r"))]
    shares = divide(12_000, projects, [*others, Demand("p", "gang", 1000, pods=13, min_member=13)]).fair_share
    assert shares == {"p": 1000, "q": 5500, "r": 5500}
    shares = divide(12_000, projects, [*others, Demand("p", "gang", 1000, pods=13, min_member=12)]).fair_share
    assert shares == {"p": 4000, "q": 4000, "r": 4000}


def test_pods_beyond_the_gang_are_added_one_by_one() -> None:
    elastic = Demand("p", "elastic", 1000, pods=6, min_member=2)
    assert divide(4000, [Project("p", 0)], [elastic]).allocated_milli == {"p": 4000}


projects_and_requests = st.lists(
    st.tuples(st.integers(0, 8), st.integers(0, 5), st.integers(0, 40)), min_size=1, max_size=6
)


def _shares(
    rows: list[tuple[int, int, int]], factor: int = 1
) -> tuple[int, dict[str, Fraction], dict[str, int]]:
    capacity = (sum(quota for quota, _, _ in rows) + 7) * 500 * factor
    projects = [
        Project(str(i), quota * 500 * factor, Fraction(weight)) for i, (quota, weight, _) in enumerate(rows)
    ]
    requested = {str(i): request * 500 * factor for i, (_, _, request) in enumerate(rows)}
    return capacity, fair_shares(capacity, projects, requested), requested


@given(projects_and_requests)
def test_no_share_exceeds_its_request_nor_all_together_the_capacity(rows: list[tuple[int, int, int]]) -> None:
    capacity, shares, requested = _shares(rows)
    assert all(share <= requested[name] for name, share in shares.items())
    assert sum(shares.values()) <= capacity


@given(projects_and_requests)
def test_no_project_gets_less_than_quota_or_request(rows: list[tuple[int, int, int]]) -> None:
    _, shares, requested = _shares(rows)
    for index, (quota, _, _) in enumerate(rows):
        assert shares[str(index)] >= min(quota * 500, requested[str(index)])


@given(projects_and_requests)
def test_shares_conserve_work(rows: list[tuple[int, int, int]]) -> None:
    """P5: GPUs are left over only if each project with a weight has all GPUs that it requested."""
    capacity, shares, requested = _shares(rows)
    if sum(shares.values()) < capacity:
        assert all(shares[str(i)] == requested[str(i)] for i, (_, weight, _) in enumerate(rows) if weight)


@given(projects_and_requests)
def test_the_rest_of_two_hungry_projects_is_in_the_ratio_of_their_weights(
    rows: list[tuple[int, int, int]],
) -> None:
    """P6: above their quotas, projects with unmet requests get GPUs in the ratio of their weights."""
    _, shares, requested = _shares(rows)
    surplus = [
        (shares[str(i)] - min(quota * 500, requested[str(i)])) / weight
        for i, (quota, weight, _) in enumerate(rows)
        if weight and shares[str(i)] < requested[str(i)]
    ]
    assert len(set(surplus)) <= 1


@given(projects_and_requests, st.integers(0, 5))
def test_a_greater_weight_never_takes_away(rows: list[tuple[int, int, int]], index: int) -> None:
    """P9: a greater weight never reduces a project's share."""
    index %= len(rows)
    quota, weight, request = rows[index]
    heavier = [*rows[:index], (quota, weight + 1, request), *rows[index + 1 :]]
    assert _shares(heavier)[1][str(index)] >= _shares(rows)[1][str(index)]


@given(projects_and_requests, st.integers(2, 9))
def test_shares_scale_with_the_cluster(rows: list[tuple[int, int, int]], factor: int) -> None:
    """P10: with k times the GPUs and requests, shares are k times as large."""
    assert _shares(rows, factor)[1] == {name: share * factor for name, share in _shares(rows)[1].items()}


@given(projects_and_requests, st.randoms(use_true_random=False))
def test_shares_do_not_depend_on_the_order_of_the_projects(
    rows: list[tuple[int, int, int]], random: object
) -> None:
    """P7: the order of the projects does not change the shares."""
    capacity, shares, requested = _shares(rows)
    projects = [Project(str(i), quota * 500, Fraction(weight)) for i, (quota, weight, _) in enumerate(rows)]
    random.shuffle(projects)  # type: ignore[attr-defined]
    assert fair_shares(capacity, projects, requested) == shares


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(1, 4), st.booleans()), max_size=12))
def test_a_division_never_exceeds_the_capacity_and_leaves_nothing_that_fits(
    rows: list[tuple[int, int, bool]],
) -> None:
    projects = [Project("0", 4000), Project("1", 2000), Project("2", 2000)]
    demands = [
        Demand(str(project), f"w{number}", gpus * 500, preemptible=preemptible)
        for number, (project, gpus, preemptible) in enumerate(rows)
    ]
    division = divide(9000, projects, demands)
    free = 9000 - sum(division.allocated_milli.values())
    assert free >= 0
    waiting = [demand for demand in demands if (demand.project, demand.name) in division.pending]
    assert all(demand.gpu_milli > free for demand in waiting if demand.preemptible)
