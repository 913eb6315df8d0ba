"""Packing pods on a few empty nodes, compared with an exhaustive search."""

from itertools import combinations, product

from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.planner.model import DEVICE_MILLI
from orchestrator.planner.preemption.packing import Packing, Parcel, Slot, Space

spaces = st.lists(
    st.builds(
        lambda free, cpu, slots: Space(tuple(free), (slots, cpu, 100), (0,) * len(free)),
        st.lists(st.sampled_from([0, 300, 500, 700, 1000]), max_size=3),
        st.integers(0, 8),
        st.integers(0, 4),
    ),
    min_size=1,
    max_size=3,
)


@st.composite
def problems(draw: st.DrawFn) -> tuple[list[Parcel], list[Space]]:
    nodes = draw(spaces)
    parcels = []
    for _ in range(draw(st.integers(1, 4))):
        is_shared = draw(st.booleans())
        count = draw(st.integers(1, 2)) if is_shared else draw(st.integers(0, 2))
        share = draw(st.sampled_from([200, 300, 500, 700]))
        shares = tuple(share if draw(st.integers(0, 4)) else None for _ in nodes)
        home = None
        if draw(st.booleans()):
            position = draw(st.integers(0, len(nodes) - 1))
            if len(nodes[position].free_milli) >= count:
                home = (position, tuple(range(count)))
        parcels.append(Parcel(count, shares, is_shared, (1, draw(st.integers(0, 5)), 1), home))
    return parcels, nodes


def may_be(slots: list[Slot], parcels: list[Parcel], nodes: list[Space]) -> bool:
    for position, node in enumerate(nodes):
        here = [
            (parcel, devices) for parcel, (at, devices) in zip(parcels, slots, strict=True) if at == position
        ]
        if any(parcel.share_milli[position] is None for parcel, _ in here):
            return False
        if any(sum(parcel.rest[index] for parcel, _ in here) > node.rest[index] for index in range(3)):
            return False
        for device, free in enumerate(node.free_milli):
            there = [parcel for parcel, devices in here if device in devices]
            taken = sum(
                (parcel.share_milli[position] or 0) if parcel.is_shared else DEVICE_MILLI for parcel in there
            )
            if taken > free:
                return False
    return True


def every_spot(parcel: Parcel, nodes: list[Space]) -> list[Slot]:
    return [
        (position, devices)
        for position, node in enumerate(nodes)
        for devices in combinations(range(len(node.free_milli)), parcel.count)
    ]


@settings(max_examples=300, deadline=None)
@given(problems())
def test_slots_are_found_exactly_where_there_are_any(problem: tuple[list[Parcel], list[Space]]) -> None:
    parcels, nodes = problem
    slots = Packing(parcels, nodes).find()
    if slots is not None:
        assert all(
            len(set(devices)) == parcel.count for parcel, (_, devices) in zip(parcels, slots, strict=True)
        )
        assert may_be(slots, parcels, nodes)
        return
    ways = product(*(every_spot(parcel, nodes) for parcel in parcels))
    assert not any(may_be(list(way), parcels, nodes) for way in ways)


def test_a_pod_that_can_keep_its_placement_does() -> None:
    nodes = [Space((1000, 1000), (9, 9, 9), (1, 1)), Space((1000, 1000), (9, 9, 9), (0, 0))]
    waiting = Parcel(2, (DEVICE_MILLI, DEVICE_MILLI), is_shared=False, rest=(1, 1, 1), home=None)
    there = Parcel(1, (DEVICE_MILLI, DEVICE_MILLI), is_shared=False, rest=(1, 1, 1), home=(0, (1,)))
    assert Packing([there, waiting], nodes).find() == [(0, (1,)), (1, (0, 1))]
