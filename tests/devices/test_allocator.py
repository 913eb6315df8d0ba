"""`orchestrator.devices.allocator` with all modules below it, rule by rule."""

import re
from dataclasses import replace

import pytest

from orchestrator.devices.model import (
    Allocated,
    Capacity,
    Configuration,
    Constraint,
    DeviceClass,
    DeviceTaint,
    DeviceToleration,
    Failed,
    Features,
    NodeChoice,
    NodeTerm,
    RequestChoice,
    RequestPolicy,
    Unsatisfiable,
    WorkBoundReached,
)
from orchestrator.devices.pools import NodePlace
from orchestrator.devices.quantity import parse_nano
from orchestrator.labels import LabelRequirement
from tests.devices.builders import (
    CLASS,
    DRIVER,
    NODE,
    allocate,
    allocator,
    claim,
    counters,
    device,
    exactly,
    first_available,
    names,
    resource_slice,
    take,
)

NUMA = f"{DRIVER}/numa"
SHARED = replace(
    device("gpu-0"),
    shareable=True,
    capacity={"memory": Capacity(parse_nano("32Gi"), RequestPolicy(default_nano=parse_nano("8Gi")))},
)


def memory(amount: str) -> tuple[tuple[str, int], ...]:
    return (("memory", parse_nano(amount)),)


def test_the_first_free_device_is_chosen_and_no_device_twice() -> None:
    devices = allocator(resource_slice(device("gpu-0"), device("gpu-1")))
    assert names(take(devices, claim(exactly()))) == [["gpu-0"]]
    assert names(take(devices, claim(exactly()))) == [["gpu-1"]]
    assert allocate(devices, claim(exactly())) == Unsatisfiable()


def test_claims_of_one_pod_are_allocated_together_or_not_at_all() -> None:
    devices = allocator(resource_slice(device("gpu-0"), device("gpu-1")))
    assert names(allocate(devices, claim(exactly()), claim(exactly(), name="other"))) == [
        ["gpu-0"],
        ["gpu-1"],
    ]
    assert allocate(devices, claim(exactly()), claim(exactly(count=2))) == Unsatisfiable()


def test_an_earlier_choice_is_taken_back_where_it_is_in_the_way_of_a_later_one() -> None:
    slices = resource_slice(device("gpu-0", attributes={"numa": 1}), device("gpu-1", attributes={"numa": 0}))
    first = exactly("any")
    second = exactly("numa-1", selectors=(f'device.attributes["{DRIVER}"].numa == 1',))
    assert names(allocate(allocator(slices), claim(first, second))) == [["gpu-1", "gpu-0"]]


def test_a_node_without_the_devices_is_searched_again_once_some_were_released() -> None:
    devices = allocator(resource_slice(device("gpu-0")))
    held = take(devices, claim(exactly()))
    waiting = devices.group((claim(exactly(), name="waiting"),))
    assert devices.allocate(NODE, waiting) == Unsatisfiable()
    assert list(devices.worth_asking([NODE], waiting)) == []
    devices.ledger.release(held.allocations[0])
    assert list(devices.worth_asking([NODE], waiting)) == [NODE]
    assert isinstance(devices.allocate(NODE, waiting), Allocated)


def test_a_what_if_is_a_checkpoint_and_a_rollback() -> None:
    devices = allocator(resource_slice(device("gpu-0")))
    mark = devices.ledger.checkpoint()
    take(devices, claim(exactly()))
    devices.ledger.rollback(mark)
    assert names(allocate(devices, claim(exactly()))) == [["gpu-0"]]


def test_all_means_every_device_that_matches_and_at_least_one() -> None:
    devices = allocator(resource_slice(device("gpu-0"), device("gpu-1")))
    assert names(allocate(devices, claim(exactly(mode="All")))) == [["gpu-0", "gpu-1"]]
    take(devices, claim(exactly()))
    assert allocate(devices, claim(exactly(mode="All"))) == Unsatisfiable()
    assert allocate(devices, claim(exactly(mode="All", selectors=("false",)))) == Unsatisfiable()


def test_the_first_alternative_that_is_possible_counts() -> None:
    devices = allocator(resource_slice(device("gpu-0")))
    answer = allocate(devices, claim(first_available("gpu", exactly("two", 2), exactly("one"))))
    assert names(answer) == [["gpu-0"]]
    assert isinstance(answer, Allocated)
    assert answer.alternatives == (1,)
    assert answer.allocations[0].results[0].request == "gpu/one"


@pytest.mark.parametrize(("distinct", "expected"), [(False, ["gpu-0", "gpu-2"]), (True, ["gpu-0", "gpu-1"])])
def test_constraints_compare_an_attribute(distinct: bool, expected: list[str]) -> None:
    slices = resource_slice(*(device(f"gpu-{index}", attributes={"numa": index % 2}) for index in range(4)))
    constraint = Constraint(NUMA, distinct)
    assert names(allocate(allocator(slices), claim(exactly(count=2), constraints=[constraint]))) == [expected]


def test_no_two_of_three_devices_share_a_distinct_attribute() -> None:
    slices = resource_slice(*(device(f"gpu-{index}", attributes={"numa": index % 2}) for index in range(8)))
    claims = claim(exactly(count=3), constraints=[Constraint(NUMA, distinct=True)])
    assert allocate(allocator(slices), claims) == Unsatisfiable()


def test_a_device_without_the_attribute_violates_the_constraint() -> None:
    constraint = Constraint(NUMA)
    assert allocate(
        allocator(resource_slice(device("gpu-0"))), claim(exactly(), constraints=[constraint])
    ) == (Unsatisfiable())


def test_a_taint_needs_a_toleration_which_the_result_repeats() -> None:
    slices = resource_slice(device("gpu-0", taints=(DeviceTaint("xid", "48", "NoSchedule"),)))
    assert allocate(allocator(slices), claim(exactly())) == Unsatisfiable()
    toleration = DeviceToleration(key="xid", operator="Exists")
    answer = allocate(allocator(slices), claim(exactly(tolerations=(toleration,))))
    assert isinstance(answer, Allocated)
    assert answer.allocations[0].results[0].tolerations == (toleration,)
    other = DeviceToleration(key="xid", value="79")
    assert allocate(allocator(slices), claim(exactly(tolerations=(other,)))) == Unsatisfiable()


def test_admin_access_gets_devices_of_others_and_holds_nothing() -> None:
    devices = allocator(resource_slice(device("gpu-0")))
    take(devices, claim(exactly()))
    assert names(take(devices, claim(exactly(admin_access=True)))) == [["gpu-0"]]
    assert allocate(devices, claim(exactly("a", admin_access=True), exactly("b", admin_access=True))) == (
        Unsatisfiable()
    )


def test_a_device_with_admin_access_is_still_free_for_another_claim_of_the_pod() -> None:
    devices = allocator(resource_slice(device("gpu-0")))
    both = claim(exactly(admin_access=True)), claim(exactly(), name="other")
    assert names(allocate(devices, *both)) == [["gpu-0"], ["gpu-0"]]


def test_parts_of_a_device_never_exceed_it_and_have_names_of_their_own() -> None:
    devices = allocator(resource_slice(SHARED))
    results = [
        take(devices, claim(exactly(capacity=memory("16Gi")), name=name)).allocations[0].results[0]
        for name in ("a", "b")
    ]
    assert results[0].share_id != results[1].share_id
    assert results[0].consumed == memory("16Gi")
    assert allocate(devices, claim(exactly(capacity=memory("1")))) == Unsatisfiable()


def test_a_whole_device_is_not_a_part_and_a_part_that_says_nothing_is_the_default() -> None:
    devices = allocator(resource_slice(SHARED))
    assert take(devices, claim(exactly())).allocations[0].results[0].consumed == memory("8Gi")
    assert len(names(allocate(devices, claim(*(exactly(f"part-{index}") for index in range(3)))))[0]) == 3
    assert allocate(devices, claim(*(exactly(f"part-{index}") for index in range(4)))) == Unsatisfiable()


def test_counters_of_a_pool_bound_its_partitions() -> None:
    partitions = [device(f"mig-{index}", counters=(counters("gpu-0", memory=4),)) for index in range(3)]
    slices = [
        resource_slice(*partitions, slice_count=2),
        resource_slice(name="counters", counter_sets=(counters("gpu-0", memory=10),), slice_count=2),
    ]
    devices = allocator(*slices)
    assert len(names(take(devices, claim(exactly(count=2))))[0]) == 2
    assert allocate(devices, claim(exactly())) == Unsatisfiable()


def test_only_the_newest_generation_of_a_pool_counts_and_only_if_it_is_complete() -> None:
    old = resource_slice(device("gpu-0"), name="old", generation=1)
    new = resource_slice(device("gpu-1"), name="new", generation=2)
    assert names(allocate(allocator(old, new), claim(exactly()))) == [["gpu-1"]]
    incomplete = allocator(old, replace(new, slice_count=2))
    assert allocate(incomplete, claim(exactly())) == Unsatisfiable()
    answer = allocate(incomplete, claim(exactly(mode="All")))
    assert isinstance(answer, Failed)
    assert "it is being updated" in answer.why


def test_an_invalid_pool_is_named_and_other_nodes_may_do() -> None:
    twice = resource_slice(device("gpu-0"), device("gpu-0"))
    answer = allocate(allocator(twice), claim(exactly()))
    assert isinstance(answer, Failed)
    assert answer.only_this_node
    assert "not unique" in answer.why


def test_pools_with_binding_conditions_come_last() -> None:
    fabric = resource_slice(device("fabric", binding_conditions=("attached",)), pool="a")
    answer = allocate(allocator(fabric, resource_slice(device("local"), pool="b")), claim(exactly(count=2)))
    assert names(answer) == [["local", "fabric"]]
    assert isinstance(answer, Allocated)
    assert answer.allocations[0].results[1].binding_conditions == ("attached",)


def test_devices_of_another_node_are_not_reached() -> None:
    devices = allocator(resource_slice(device("gpu-0")))
    assert allocate(devices, claim(exactly()), place=NodePlace("node-2")) == Unsatisfiable()


def test_the_allocation_says_from_where_it_can_be_used() -> None:
    rack = NodeTerm(expressions=(LabelRequirement("rack", "In", ("r1",)),))
    network = resource_slice(device("nic-0"), pool="rack", nodes=NodeChoice(terms=(rack,)))
    answer = allocate(allocator(network), claim(exactly()))
    assert isinstance(answer, Allocated)
    assert answer.allocations[0].nodes == rack
    anywhere = resource_slice(device("disk-0"), pool="net", nodes=NodeChoice(all_nodes=True))
    answer = allocate(allocator(anywhere), claim(exactly()))
    assert isinstance(answer, Allocated)
    assert answer.allocations[0].nodes is None
    answer = allocate(allocator(resource_slice(device("gpu-0"))), claim(exactly()))
    assert isinstance(answer, Allocated)
    assert answer.allocations[0].nodes == NodeTerm(
        fields=(LabelRequirement("metadata.name", "In", ("node-1",)),)
    )


def test_parameters_of_the_class_and_of_the_claim_are_passed_on() -> None:
    classes = {"gpu": replace(CLASS, config=(Configuration('{"a":1}'),))}
    devices = allocator(resource_slice(device("gpu-0")), classes=classes)
    basic = claim(exactly())
    spec = replace(
        basic.spec, config=(Configuration('{"b":2}', ("gpu",)), Configuration('{"c":3}', ("other",)))
    )
    answer = allocate(devices, replace(basic, spec=spec))
    assert isinstance(answer, Allocated)
    assert [
        (listed.from_class, listed.config.opaque, listed.config.requests)
        for listed in answer.allocations[0].config
    ] == [(True, '{"a":1}', ("gpu",)), (False, '{"b":2}', ("gpu",))]


@pytest.mark.parametrize(
    ("request_for", "features", "why"),
    [
        (exactly(class_name="none"), Features(), "there is no device class none"),
        (exactly(selectors=("device.none.x",)), Features(), "gpu-0.*CEL"),
        (exactly(count=33), Features(), "a claim can hold 32"),
        (exactly(admin_access=False), Features(admin_access=False), "admin access, which is off"),
        (exactly(capacity=()), Features(consumable_capacity=False), "capacity, which is off"),
        (first_available("gpu", exactly()), Features(prioritized_list=False), "subrequests, which is off"),
    ],
)
def test_the_error_in_a_claim_is_reported(request_for: RequestChoice, features: Features, why: str) -> None:
    answer = allocate(allocator(resource_slice(device("gpu-0")), features=features), claim(request_for))
    assert isinstance(answer, Failed)
    assert not answer.only_this_node
    assert re.search(why, answer.why), answer.why


def test_a_search_that_looks_at_too_much_is_given_up() -> None:
    slices = resource_slice(*(device(f"gpu-{index}", attributes={"numa": index}) for index in range(32)))
    hard = claim(exactly(count=16), constraints=[Constraint(NUMA, distinct=True)])
    other = claim(exactly(count=17), name="other")
    devices = allocator(slices)
    assert allocate(devices, hard, other, max_work=500) == WorkBoundReached()
    assert devices.looked_at - devices._matches.work == 501


def test_devices_that_are_as_good_as_each_other_are_not_tried_one_by_one() -> None:
    slices = resource_slice(*(device(f"gpu-{index}", attributes={"numa": 0}) for index in range(64)))
    hard = claim(exactly("a", 8), exactly("b", selectors=("false",)), constraints=[Constraint(NUMA)])
    assert allocate(allocator(slices), hard, max_work=10_000) == Unsatisfiable()


def test_slices_that_change_are_evaluated_again_and_others_are_not() -> None:
    one, two = resource_slice(device("gpu-0")), resource_slice(device("gpu-1"), pool="other")
    devices = allocator(one, two)
    selectors = ("cel.bind(own, device, own.driver != '')",)
    take(devices, claim(exactly(count=2, selectors=selectors)))
    before = devices._matches.evaluated
    changed = resource_slice(device("gpu-2"), pool="other")
    devices.observe([one, changed], {"gpu": CLASS})
    assert names(allocate(devices, claim(exactly(selectors=selectors)))) == [["gpu-2"]]
    assert devices._matches.evaluated == before + 1


def test_a_class_that_appears_makes_its_claims_possible() -> None:
    devices = allocator(resource_slice(device("gpu-0")))
    late = claim(exactly(class_name="late", selectors=("true",)))
    assert isinstance(allocate(devices, late), Failed)
    devices.observe(list(devices._inventory.slices), {"late": DeviceClass("late")})
    assert names(allocate(devices, late)) == [["gpu-0"]]
