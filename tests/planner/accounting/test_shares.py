"""Fair shares: tables computed by hand, and properties of every division."""

from collections.abc import Sequence
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.planner.accounting.quota import ProjectTree
from orchestrator.planner.accounting.shares import Claim, divide, divide_over_quota, fair_shares
from orchestrator.planner.model import UNLIMITED, GpuModelBounds, Project

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


ODD_CLAIMS = st.lists(
    st.builds(
        Claim,
        name=st.just(""),
        quota=st.sampled_from([0, 0, 0, 250, 1000, 1500, 3000, UNLIMITED]),
        demand=st.one_of(st.integers(0, 9000), st.integers(0, 9).map(lambda devices: devices * 1000)),
        limit=st.sampled_from([None, None, 0, 1500, 3000]),
        weight=st.sampled_from([0, 1, 1, 2, 3, 7]),
        priority=st.sampled_from([0, 0, 1, 2]),
    ),
    min_size=1,
    max_size=7,
).map(lambda claims: [_named(claim, index) for index, claim in enumerate(claims)])


def _named(claim: Claim, index: int) -> Claim:
    return Claim(f"p{index}", claim.quota, claim.demand, claim.limit, claim.weight, claim.priority, index)


def rising_level(total: int, claims: Sequence[Claim]) -> dict[str, Fraction]:
    """Return the exact shares by a level that rises from event to event: the definition, before any rounding."""
    share = {
        claim.name: Fraction(min(claim.wanted, total if claim.quota == UNLIMITED else claim.quota))
        for claim in claims
    }
    water = max(Fraction(0), total - sum(share.values()))
    for priority in sorted({claim.priority for claim in claims}, reverse=True):
        start, level = dict(share), Fraction(0)
        while True:
            open_claims = [
                claim
                for claim in claims
                if claim.priority == priority and claim.weight and share[claim.name] < claim.wanted
            ]
            if not open_claims or not water:
                break
            inflow = Fraction(sum(claim.weight for claim in open_claims))
            events = [(claim.wanted - start[claim.name]) / Fraction(claim.weight) for claim in open_claims]
            rise = min(water / inflow, min(events) - level)
            level += rise
            water -= rise * inflow
            for claim in open_claims:
                share[claim.name] = start[claim.name] + level * claim.weight
    return share


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
    requested = [
        Claim(name, quota, demand, weight=weight, created_at_us=index)
        for index, (name, quota, demand, weight) in enumerate(claims)
    ]
    assert divide(total, requested) == expected


THREE_TO_ONE = [("a", 0, 3, 3, 0), ("b", 0, 99, 3, 0), ("c", 0, 99, 1, 0)]


@pytest.mark.parametrize(
    ("total", "claims", "expected"),
    [
        # (name, quota, demand, weight, priority), in GPUs, the oldest first
        (3, [("a", 0, 9, 1, 1), ("b", 0, 9, 1, 1), ("low", 0, 9, 1, 0)], [2, 1, 0]),
        (2, [("a", 0, 9, 1, 1), ("b", 0, 9, 1, 1), ("c", 0, 9, 1, 1), ("low", 0, 9, 9, 0)], [1, 1, 0, 0]),
        (5, [("a", 0, 1.5, 1, 1), ("b", 0, 9, 0, 1), ("low", 0, 9, 1, 0)], [1.5, 0, 3.5]),
        (4, [("a", 1, 9, 1, 1), ("low", 1, 9, 1, 0)], [3, 1]),
        (19, THREE_TO_ONE, [3, 12, 4]),
        (19, THREE_TO_ONE[::-1], [4, 12, 3]),
        # 10 / 3 each: the remaining device goes to the oldest; for 5.25 : 1.75 it goes to the larger
        # remainder
        (10, [("a", 0, 99, 1, 0), ("b", 0, 99, 1, 0), ("c", 0, 99, 1, 0)], [4, 3, 3]),
        (7, [("a", 0, 99, 3, 0), ("b", 0, 99, 1, 0)], [5, 2]),
        # 17 at 4:3:3 are 6.8, 5.1 and 5.1
        (17, [("c", 0, 99, 3, 0), ("b", 0, 99, 3, 0), ("a", 0, 99, 4, 0)], [5, 5, 7]),
        # two devices remain; the two larger remainders (2.857, 5.714, 11.428) get one each
        (20, [("a", 0, 99, 4, 0), ("b", 0, 99, 2, 0), ("c", 0, 99, 1, 0)], [11, 6, 3]),
        # three levels are filled before anything is rounded: after 1 + 2.5, 16.5 remain for 2:1, which gives
        # 11 and 5.5
        (
            20,
            [("a", 0, 1, 5, 0), ("b", 0, 2.5, 3, 0), ("c", 0, 99, 2, 0), ("d", 0, 99, 1, 0)],
            [1, 2.5, 11, 5.5],
        ),
        # the remaining part of a device goes to the next project in the same order
        (4.5, [("a", 0, 99, 1, 0), ("b", 0, 99, 1, 0), ("c", 0, 99, 1, 0)], [2, 1.5, 1]),
        # rounding never lifts a project above its demand
        (2.3, [("a", 0, 1.2, 1, 0), ("b", 0, 1.2, 1, 0)], [1.2, 1.1]),
        (11, [("a", 2, 10, 1, 0), ("b", 2, 10, 4, 0)], [3, 8]),
        # no project with a weight demands the rest
        (10, [("a", 2, 9, 0, 0), ("b", 1, 3, 2, 0)], [2, 3]),
        # quotas are not scaled down, and then nothing is left over
        (4, [("a", 3, 9, 1, 0), ("b", 3, 9, 1, 5)], [3, 3]),
    ],
)
def test_the_rest_is_divided_by_priority_then_by_weight_and_rounded_once(
    total: float, claims: list[tuple[str, float, float, int, int]], expected: list[float]
) -> None:
    rows = [
        Claim(name, round(quota * 1000), round(demand * 1000), None, weight, priority, created_at_us=age)
        for age, (name, quota, demand, weight, priority) in enumerate(claims)
    ]
    assert list(divide(round(total * 1000), rows).values()) == [round(gpus * 1000) for gpus in expected]


@given(total=st.integers(0, 40_000), claims=ODD_CLAIMS, unit=st.sampled_from([1, 1000]))
def test_shares_are_the_exact_ones_rounded_to_the_largest_remainders(
    total: int, claims: list[Claim], unit: int
) -> None:
    exact, shares = rising_level(total, claims), divide(total, claims, unit)
    assert sum(shares.values()) == sum(exact.values())
    guaranteed = {c.name: min(c.wanted, total if c.quota == UNLIMITED else c.quota) for c in claims}
    rounded: list[tuple[Claim, Fraction, int]] = []
    for claim in claims:
        name = claim.name
        if exact[name] in (claim.wanted, guaranteed[name]):
            assert shares[name] == exact[name], claim
        else:
            floor, remainder = divmod(exact[name] - guaranteed[name], unit)
            rounded.append((claim, remainder, shares[name] - guaranteed[name] - floor * unit))
    assert len({claim.priority for claim, _, _ in rounded}) <= 1
    partly = 0
    for claim, remainder, extra in rounded:
        assert 0 <= extra <= unit
        could_take = min(unit, claim.wanted - (shares[claim.name] - extra))
        partly += 0 < extra < could_take
        if extra < could_take:
            behind = [
                other
                for other, its, more in rounded
                if more
                and other is not claim
                and (its, -other.created_at_us) < (remainder, -claim.created_at_us)
            ]
            assert not behind, "somebody with a smaller remainder, or younger, was rounded up first"
    assert partly <= 1


@given(
    total=st.integers(0, 30_000),
    claims=ODD_CLAIMS,
)
def test_a_lower_priority_gets_nothing_while_a_higher_one_could_be_given_more(
    total: int, claims: list[Claim]
) -> None:
    shares = divide(total, claims)
    guaranteed = {c.name: min(c.wanted, total if c.quota == UNLIMITED else c.quota) for c in claims}
    for low in claims:
        if shares[low.name] > guaranteed[low.name]:
            assert not [
                high
                for high in claims
                if high.priority > low.priority and high.weight and shares[high.name] < high.wanted
            ]


@given(total=st.integers(-5000, 30_000), claims=ODD_CLAIMS)
def test_an_amount_that_no_project_may_have_is_handed_back(total: int, claims: list[Claim]) -> None:
    shares, rest = divide_over_quota(total, claims, {claim.name: 0 for claim in claims})
    assert sum(shares.values()) + rest == max(0, total)


def test_ratios_that_differ_by_the_least_possible_are_kept_apart() -> None:
    # 1000001 / 1000000 is reached just after 1000000 / 999999
    claims = [Claim("a", 0, 1_000_001, weight=1_000_000), Claim("b", 0, 1_000_000, weight=999_999)]
    total = 2_000_000
    assert divide(total, claims, 1) == {
        name: round(share) for name, share in rising_level(total, claims).items()
    }


@given(total=st.integers(0, 30_000), claims=CLAIMS)
def test_no_project_gets_more_than_its_demand_and_the_sum_is_within_the_total(
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
def test_nothing_is_left_over_while_a_project_with_a_weight_wants_it(
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

    # rounding may give the remaining device to another project
    assert share(weights[0] + 1) >= share(weights[0]) - 1000


def test_a_department_divides_its_share() -> None:
    tree = ProjectTree(
        [
            Project("research", 6000),
            Project("sales", 2000, over_quota_weight=1),
            Project("vision", 4000, parent="research"),
            Project("speech", 2000, parent="research"),
        ]
    )
    requested = {"vision": (9000, 0, 0), "speech": (1000, 0, 0), "sales": (2000, 0, 0)}
    shares = fair_shares(tree, requested, (10_000, 0, 0))
    assert {name: share[0] for name, share in shares.items()} == {
        "research": 8000,
        "sales": 2000,
        "vision": 7000,
        "speech": 1000,
    }


def test_an_unbounded_resource_is_not_divided() -> None:
    tree = ProjectTree([Project("a", 1000), Project("b", 1000, quota_cpu_milli=500)])
    shares = fair_shares(tree, {"a": (0, 900, 7), "b": (0, 900, 7)}, (0, 1000, 7))
    assert shares["a"] == (0, 900, UNLIMITED)
    assert shares["b"] == (0, 500, UNLIMITED)


def test_a_limit_of_a_project_is_subtracted_from_the_demand_of_its_department() -> None:
    tree = ProjectTree(
        [
            Project("research", 0),
            Project("vision", 0, limit_gpu_milli=1000, parent="research"),
            Project("speech", 0, limit_gpu_milli=2000, parent="research"),
            Project("sales", 0),
        ]
    )
    hungry = dict.fromkeys(("vision", "speech", "sales"), (50000, 0, 0))
    shares = fair_shares(tree, hungry, (16_000, 0, 0))
    assert {name: share[0] for name, share in shares.items()} == {
        "research": 3000,
        "vision": 1000,
        "speech": 2000,
        "sales": 13_000,
    }


def test_limits_count_on_every_level_and_for_every_resource() -> None:
    tree = ProjectTree(
        [
            Project("site", None, limit_cpu_milli=9000),
            Project("research", None, parent="site", limit_cpu_milli=3000, quota_cpu_milli=0),
            Project("vision", None, parent="research", limit_cpu_milli=2000, quota_cpu_milli=0),
            Project("speech", None, parent="research", quota_cpu_milli=0),
            Project("sales", None, quota_cpu_milli=0),
        ]
    )
    shares = fair_shares(
        tree, {"vision": (0, 9000, 0), "speech": (0, 500, 0), "sales": (0, 99_000, 0)}, (0, 8000, 0)
    )
    assert {name: share[1] for name, share in shares.items()} == {
        "site": 2500,
        "research": 2500,
        "vision": 2000,
        "speech": 500,
        "sales": 5500,
    }


def test_limits_for_gpu_models_are_taken_off_on_every_level() -> None:
    def limits_of(gpus: int) -> tuple[GpuModelBounds, ...]:
        return (GpuModelBounds("H100", limit_gpu_milli=gpus * 1000),)

    tree = ProjectTree(
        [
            Project("research", 0, gpu_models=limits_of(5)),
            Project("vision", 0, gpu_models=limits_of(4), parent="research"),
            Project("speech", 0, gpu_models=limits_of(3), parent="research"),
            Project("sales", 0),
        ]
    )
    demand = {"vision": (9000, 0, 0), "speech": (9000, 0, 0), "sales": (99_000, 0, 0)}
    bound = {("vision", "H100"): 9000, ("speech", "H100"): 8000}
    shares = fair_shares(tree, demand, (20_000, 0, 0), bound)
    # vision may hold 4, speech 3 and one of another model: together 5 of this model and one of the other
    assert shares["research"][0] == 6000
    assert shares["sales"][0] == 14_000


@given(
    st.lists(
        st.tuples(
            st.integers(0, 9), st.sampled_from([None, 0, 1, 4]), st.integers(0, 3), st.sampled_from([0, 0, 1])
        ),
        min_size=1,
        max_size=9,
    ),
    st.integers(0, 20),
)
def test_in_a_tree_every_level_is_divided_as_one(
    rows: list[tuple[int, int | None, int, int]], gpus: int
) -> None:
    # the parent of p1 to p3 is p0, that of p4 to p6 is p1, and so on
    projects = [
        Project(
            f"p{index}",
            0 if index else 1000,
            limit_gpu_milli=None if limit is None else limit * 1000,
            over_quota_weight=weight,
            priority=priority,
            parent=f"p{(index - 1) // 3}" if index else None,
            created_at_us=index,
        )
        for index, (_, limit, weight, priority) in enumerate(rows)
    ]
    tree = ProjectTree(projects)
    demand = {
        f"p{index}": (rows[index][0] * 1000, 0, 0)
        for index in range(len(rows))
        if f"p{index}" not in tree.children
    }
    shares = fair_shares(tree, demand, (gpus * 1000, 0, 0))

    def asks(name: str) -> int:
        limit = tree.limit[name][0]
        return min(limit, demand[name][0] if name in demand else sum(map(asks, tree.children[name])))

    for parent, children in tree.children.items():
        total = gpus * 1000 if parent is None else shares[parent][0]
        claims = [
            Claim(
                name,
                tree.quota[name][0],
                asks(name),
                None,
                tree.projects[name].over_quota_weight,
                tree.projects[name].priority,
                tree.projects[name].created_at_us,
            )
            for name in children
        ]
        exact = rising_level(total, claims)
        assert all(abs(shares[name][0] - exact[name]) < 1000 for name in children)
        assert sum(shares[name][0] for name in children) == sum(exact.values())
