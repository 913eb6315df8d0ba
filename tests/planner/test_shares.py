"""Fair shares: tables by hand, and what must hold of every division."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.planner.model import UNLIMITED, Project
from orchestrator.planner.quota import ProjectTree
from orchestrator.planner.shares import Claim, divide, fair_shares

CLAIMS = st.lists(
    st.builds(
        Claim,
        name=st.just(""),
        quota=st.sampled_from([0, 500, 1000, 2000, 5000]),
        demand=st.integers(0, 12_000),
        limit=st.sampled_from([None, None, 3000]),
        weight=st.integers(0, 4),
        priority=st.sampled_from([0, 0, 1]),
    ),
    min_size=1,
    max_size=5,
).map(lambda claims: [_named(claim, index) for index, claim in enumerate(claims)])


def _named(claim: Claim, index: int) -> Claim:
    return Claim(f"p{index}", claim.quota, claim.demand, claim.limit, claim.weight, claim.priority, index)


@pytest.mark.parametrize(
    ("total", "claims", "expected"),
    [
        (11_000, [("a", 2000, 10_000, 1), ("b", 2000, 10_000, 4)], {"a": 3000, "b": 8000}),
        (4000, [("a", 3000, 500, 1), ("b", 1000, 9000, 1)], {"a": 500, "b": 3500}),
        (
            13_000,
            [("a", 0, 4500, 1), ("b", 0, 4500, 1), ("c", 0, 4500, 1)],
            {"a": 4500, "b": 4500, "c": 4000},
        ),
    ],
)
def test_shares_by_hand(
    total: int, claims: list[tuple[str, int, int, int]], expected: dict[str, int]
) -> None:
    asked = [
        Claim(name, quota, demand, weight=weight, created_at_us=index)
        for index, (name, quota, demand, weight) in enumerate(claims)
    ]
    assert divide(total, asked) == expected


@given(total=st.integers(0, 30_000), claims=CLAIMS)
def test_nobody_gets_more_than_was_asked_for_and_the_sum_stays_within_the_total(
    total: int, claims: list[Claim]
) -> None:
    shares = divide(total, claims)
    guaranteed = sum(min(claim.quota, claim.wanted) for claim in claims)
    assert all(shares[claim.name] <= claim.wanted for claim in claims)
    assert all(shares[claim.name] >= min(claim.quota, claim.wanted) for claim in claims)
    assert sum(shares.values()) <= max(total, guaranteed)


@given(total=st.integers(0, 30_000), claims=CLAIMS, order=st.randoms(use_true_random=False))
def test_the_order_of_the_claims_does_not_matter(total: int, claims: list[Claim], order: object) -> None:
    shuffled = list(claims)
    order.shuffle(shuffled)  # type: ignore[attr-defined]
    assert divide(total, claims) == divide(total, shuffled)


@given(total=st.integers(0, 30), factor=st.integers(1, 9), claims=CLAIMS)
def test_nothing_is_left_over_while_somebody_with_a_weight_wants_it(
    total: int, factor: int, claims: list[Claim]
) -> None:
    shares = divide(total * factor * 1000, claims)
    left = total * factor * 1000 - sum(shares.values())
    hungry = [claim for claim in claims if claim.weight and shares[claim.name] < claim.wanted]
    assert left <= 0 or not hungry


@given(
    total=st.integers(1, 20),
    factor=st.integers(2, 10),
    weights=st.lists(st.integers(1, 5), min_size=2, max_size=4),
)
def test_shares_grow_with_the_cluster(total: int, factor: int, weights: list[int]) -> None:
    claims = [Claim(f"p{index}", 0, 10**9, weight=weight) for index, weight in enumerate(weights)]
    exact = divide(total * sum(weights) * 1000, claims)
    larger = divide(total * factor * sum(weights) * 1000, claims)
    assert larger == {name: share * factor for name, share in exact.items()}


@given(total=st.integers(1, 40), weights=st.lists(st.integers(1, 5), min_size=2, max_size=4))
def test_a_larger_weight_never_gets_less(total: int, weights: list[int]) -> None:
    def share(first: int) -> int:
        claims = [Claim("p0", 0, 10**9, weight=first)]
        claims += [Claim(f"p{each}", 0, 10**9, weight=weight) for each, weight in enumerate(weights[1:], 1)]
        return divide(total * 1000, claims)["p0"]

    # the device that rounding leaves over may go to somebody else
    assert share(weights[0] + 1) >= share(weights[0]) - 1000


def test_a_department_divides_what_it_got() -> None:
    tree = ProjectTree(
        [
            Project("research", 6000),
            Project("sales", 2000, over_quota_weight=1),
            Project("vision", 4000, parent="research"),
            Project("speech", 2000, parent="research"),
        ]
    )
    asked = {"vision": (9000, 0, 0), "speech": (1000, 0, 0), "sales": (2000, 0, 0)}
    shares = fair_shares(tree, asked, (10_000, 0, 0))
    assert {name: share[0] for name, share in shares.items()} == {
        "research": 8000,
        "sales": 2000,
        "vision": 7000,
        "speech": 1000,
    }


def test_what_nobody_bounds_is_not_divided() -> None:
    tree = ProjectTree([Project("a", 1000), Project("b", 1000, quota_cpu_milli=500)])
    shares = fair_shares(tree, {"a": (0, 900, 7), "b": (0, 900, 7)}, (0, 1000, 7))
    assert shares["a"] == (0, 900, UNLIMITED)
    assert shares["b"] == (0, 500, UNLIMITED)
