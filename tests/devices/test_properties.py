"""Properties of every allocation on random small worlds; a short brute force determines the possible ones."""

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.devices.model import (
    Allocated,
    Capacity,
    Claim,
    Constraint,
    Device,
    DeviceTaint,
    DeviceToleration,
    Request,
    RequestChoice,
    ResourceSlice,
    Unsatisfiable,
)
from tests.devices.builders import (
    DRIVER,
    allocate,
    allocator,
    claim,
    counters,
    device,
    exactly,
    first_available,
    resource_slice,
)

COUNTER = 3
MEMORY = 4
NUMA = f"{DRIVER}/numa"
ANY_TOLERATION = DeviceToleration(operator="Exists")


@dataclass(frozen=True)
class World:
    devices: tuple[Device, ...]
    claims: tuple[Claim, ...]

    @property
    def slices(self) -> tuple[ResourceSlice, ...]:
        middle = len(self.devices) // 2
        return (
            resource_slice(*self.devices[:middle], name="a", slice_count=3),
            resource_slice(*self.devices[middle:], name="b", slice_count=3),
            resource_slice(name="c", counter_sets=(counters("set", units=COUNTER),), slice_count=3),
        )


@st.composite
def devices(draw: st.DrawFn) -> tuple[Device, ...]:
    listed = []
    for index in range(draw(st.integers(1, 4))):
        numa = draw(st.sampled_from([0, 1, None]))
        listed.append(
            device(
                f"gpu-{index}",
                attributes={} if numa is None else {"numa": numa},
                capacity={"memory": Capacity(MEMORY)},
                shareable=draw(st.booleans()),
                counters=draw(
                    st.sampled_from([(), (counters("set", units=1),), (counters("set", units=2),)])
                ),
                taints=draw(st.sampled_from([(), (), (DeviceTaint("broken", "", "NoExecute"),)])),
            )
        )
    return tuple(listed)


@st.composite
def requests(draw: st.DrawFn, name: str) -> RequestChoice:
    def one(called: str) -> RequestChoice:
        return exactly(
            called,
            draw(st.integers(1, 2)),
            selectors=draw(st.sampled_from([(), (f'has(device.attributes["{DRIVER}"].numa)',)])),
            tolerations=draw(st.sampled_from([(), (ANY_TOLERATION,)])),
            capacity=draw(st.sampled_from([None, (("memory", 2),)])),
            admin_access=draw(st.sampled_from([None, None, None, True])),
        )

    if draw(st.integers(0, 3)):
        return one(name)
    return first_available(name, one("x"), one("y"))


@st.composite
def claims(draw: st.DrawFn, name: str) -> Claim:
    names = [f"r{index}" for index in range(draw(st.integers(1, 2)))]
    constraints = draw(
        st.lists(
            st.builds(Constraint, st.just(NUMA), st.booleans(), st.sampled_from([(), ("r0",)])), max_size=1
        )
    )
    return claim(*(draw(requests(current)) for current in names), name=name, constraints=constraints)


@st.composite
def worlds(draw: st.DrawFn) -> World:
    names = ["one", "two"][: draw(st.integers(1, 2))]
    return World(draw(devices()), tuple(draw(claims(name)) for name in names))


Pick = tuple[int, Request, Device]
"""The index of a claim, a request in it, and a device for the request."""


def every_choice(world: World) -> Iterator[list[Pick]]:
    """Yield all assignments of devices to requests. Most of them break a rule."""
    slots = [
        (number, choice) for number, current in enumerate(world.claims) for choice in current.spec.requests
    ]

    def continued(index: int) -> Iterator[list[Pick]]:
        if index == len(slots):
            yield []
            return
        number, choice = slots[index]
        for request in choice.alternatives:
            for chosen in combinations(world.devices, request.count):
                for rest in continued(index + 1):
                    yield [(number, request, one) for one in chosen] + rest

    return continued(0)


def is_right(world: World, picks: Sequence[Pick]) -> bool:
    return (
        all(suits(request, one) for _, request, one in picks)
        and nobody_shares_what_is_whole(picks)
        and all(used <= MEMORY for used in memory_used(picks).values())
        and sum(units(one) for one in {one for _, _, one in picks}) <= COUNTER
        and all(
            holds(
                constraint, [one for at, request, one in picks if at == number and constraint.covers(request)]
            )
            for number, current in enumerate(world.claims)
            for constraint in current.spec.constraints
        )
    )


def suits(request: Request, one: Device) -> bool:
    return (not request.selectors or "numa" in one.attributes) and (
        not one.taints or bool(request.tolerations)
    )


def nobody_shares_what_is_whole(picks: Sequence[Pick]) -> bool:
    regular = Counter(one for _, request, one in picks if not one.shareable and not request.is_admin)
    by_claim = Counter((at, one) for at, _, one in picks if not one.shareable)
    return all(count == 1 for count in (*regular.values(), *by_claim.values()))


def memory_used(picks: Sequence[Pick]) -> Counter[Device]:
    used: Counter[Device] = Counter()
    for _, request, one in picks:
        if one.shareable:
            used[one] += 2 if request.capacity else MEMORY
    return used


def units(one: Device) -> int:
    return sum(nano for listed in one.counters for _, nano in listed.counters)


def holds(constraint: Constraint, chosen: Sequence[Device]) -> bool:
    values = [one.attributes["numa"].values if "numa" in one.attributes else None for one in chosen]
    if None in values:
        return False
    return len(set(values)) == len(values) if constraint.distinct else len(set(values)) <= 1


def picks_of(world: World, answer: Allocated) -> list[Pick]:
    by_name = {one.name: one for one in world.devices}
    return [
        (
            number,
            next(r for c in current.spec.requests for r in c.alternatives if r.name == result.request),
            one,
        )
        for number, (current, allocation) in enumerate(zip(world.claims, answer.allocations, strict=True))
        for result in allocation.results
        for one in [by_name[result.device_id[2]]]
    ]


@settings(max_examples=300, deadline=None)
@given(worlds())
def test_devices_are_allocated_exactly_where_a_brute_force_finds_a_way(world: World) -> None:
    answer = allocate(allocator(*world.slices), *world.claims)
    is_possible = any(is_right(world, picks) for picks in every_choice(world))
    assert isinstance(answer, Allocated if is_possible else Unsatisfiable)


@settings(max_examples=300, deadline=None)
@given(worlds())
def test_an_allocation_breaks_no_rule(world: World) -> None:
    answer = allocate(allocator(*world.slices), *world.claims)
    if isinstance(answer, Allocated):
        assert is_right(world, picks_of(world, answer))


@settings(deadline=None)
@given(worlds(), st.randoms(use_true_random=False))
def test_the_order_in_which_slices_are_listed_does_not_matter(world: World, chance: random.Random) -> None:
    shuffled = list(world.slices)
    chance.shuffle(shuffled)
    assert allocate(allocator(*shuffled), *world.claims) == allocate(allocator(*world.slices), *world.claims)


@settings(deadline=None)
@given(devices(), st.lists(claims("claim"), min_size=2, max_size=8))
def test_claims_one_after_the_other_never_exceed_the_devices(
    listed: tuple[Device, ...], waiting: list[Claim]
) -> None:
    world = World(listed, ())
    group = allocator(*world.slices)
    picks: list[Pick] = []
    shares: Counter[tuple[str, str]] = Counter()
    for number, current in enumerate(waiting):
        one_claim = replace(current, uid=str(number))
        answer = allocate(group, one_claim)
        if not isinstance(answer, Allocated):
            continue
        allocation = answer.allocations[0]
        picks += [
            (number, request, one)
            for _, request, one in picks_of(World(listed, (one_claim,)), answer)
            if not request.is_admin
        ]
        mark = group.ledger.checkpoint()
        group.ledger.take(allocation)
        group.ledger.rollback(mark)
        assert allocate(group, one_claim) == answer
        group.ledger.take(allocation)
        shares.update(
            (result.device_id[2], result.share_id) for result in allocation.results if result.share_id
        )
    assert nobody_shares_what_is_whole(picks)
    assert all(used <= MEMORY for used in memory_used(picks).values())
    assert sum(units(one) for one in {one for _, _, one in picks}) <= COUNTER
    assert all(count == 1 for count in shares.values())
