"""GPU fractions (`-g 0.5`) on nodes that publish their GPUs: by a claim for memory, packed as without claims."""

from collections.abc import Mapping
from dataclasses import replace

import pytest

from orchestrator.devices.model import (
    Allocation,
    Claim,
    ClaimSpec,
    DeviceResult,
    DynamicResources,
    NodeChoice,
    ObservedClaim,
)
from orchestrator.devices.quantity import parse_nano
from orchestrator.observe.extended_claims import IS_SHAREABLE
from orchestrator.planner import plan
from orchestrator.planner.model import Node, PodState, Project, Request, Snapshot, Waiting, Workload
from orchestrator.simulation.apply_plan import after_decision
from tests.devices.builders import CLASS, DRIVER, device, exactly, resource_slice
from tests.planner import builders

MEMORY_MIB = 32 << 10


def cluster(*counts: int, shareable: bool = True) -> Snapshot:
    """Return nodes that publish these numbers of GPUs, and a project that may use them all."""
    nodes: list[Node] = []
    slices = []
    for number, count in enumerate(counts):
        name = f"node-{number}"
        names = tuple(f"gpu-{index}" for index in range(count))
        nodes.append(
            builders.node(
                name,
                count,
                published_gpus=tuple((DRIVER, name, each) for each in names),
                gpu_memory_mib=MEMORY_MIB,
            )
        )
        devices = (device(each, memory="32Gi", shareable=shareable) for each in names)
        slices.append(resource_slice(*devices, pool=name, nodes=NodeChoice(node_name=name)))
    project = Project("a", quota_gpu_milli=sum(counts) * 1000)
    return Snapshot(tuple(nodes), (project,), (), dynamic=DynamicResources(tuple(slices), (CLASS,)))


def job(name: str, request: Request, *, pods: int = 1, age: int = 0, claims: bool = True) -> Workload:
    made = builders.workload(name, "a", 0, pods=pods, age=age)
    spec = ClaimSpec((exactly("gpu-part", count=request.shared_devices, selectors=(IS_SHAREABLE,)),))
    return replace(
        made,
        pods=tuple(
            replace(
                pod,
                request=request,
                extended_claim=Claim("", "team", f"{pod.name}-part", spec) if claims else None,
            )
            for pod in made.pods
        ),
    )


def part(milli: int, devices: int = 1) -> Request:
    return Request(gpu_portion_milli=milli, shared_devices=devices)


def started(snapshot: Snapshot, *jobs: Workload) -> Snapshot:
    for submitted in jobs:
        snapshot = replace(snapshot, workloads=(*snapshot.workloads, submitted))
        snapshot = after_decision(snapshot, plan(snapshot))
    return snapshot


def places(snapshot: Snapshot) -> dict[str, tuple[str, tuple[int, ...]]]:
    """Return node and GPUs of the running pods, which must be those of their claims."""
    held = {listed.claim.key: listed.allocation for listed in snapshot.dynamic.claims}
    found = {}
    for workload in snapshot.workloads:
        for pod in workload.pods:
            if pod.state is not PodState.ALLOCATED:
                continue
            (key,) = pod.claims
            allocation = held[key]
            assert allocation is not None
            by_claim = [int(result.device_id[2].removeprefix("gpu-")) for result in allocation.results]
            assert sorted(by_claim) == sorted(pod.devices)
            found[pod.id] = (pod.node or "", pod.devices)
    return found


def memory_of(snapshot: Snapshot) -> Mapping[tuple[str, str, str], int]:
    held: dict[tuple[str, str, str], int] = {}
    for listed in snapshot.dynamic.claims:
        for result in listed.allocation.results if listed.allocation else ():
            nano = dict(result.consumed)["memory"]
            held[result.device_id] = held.get(result.device_id, 0) + nano
    return held


def test_a_half_is_half_of_the_memory_and_two_of_them_share_a_gpu() -> None:
    after = started(cluster(2), job("one", part(500)), job("two", part(500), age=1))
    assert places(after) == {"one-0": ("node-0", (0,)), "two-0": ("node-0", (0,))}
    assert memory_of(after) == {(DRIVER, "node-0", "gpu-0"): parse_nano("32Gi")}


def test_eight_eighths_share_a_gpu() -> None:
    after = started(cluster(4), job("eighths", part(125), pods=8))
    assert set(places(after).values()) == {("node-0", (0,))}
    assert len(places(after)) == 8


def test_requests_of_more_than_a_gpu_together_never_share_one() -> None:
    after = started(cluster(1, 1), job("half", part(500)), job("large", part(600), age=1))
    assert places(after) == {"half-0": ("node-0", (0,)), "large-0": ("node-1", (0,))}


def test_a_fraction_is_placed_where_the_least_is_free_not_on_the_first_device_of_the_pool() -> None:
    jobs = [job("a", part(400)), job("b", part(700), age=1), job("c", part(300), age=2)]
    assert places(started(cluster(3), *jobs))["c-0"] == ("node-0", (1,))


def test_parts_of_several_gpus_are_of_different_ones() -> None:
    after = started(cluster(3), job("two", part(250, devices=2)))
    assert places(after) == {"two-0": ("node-0", (0, 1))}


@pytest.mark.parametrize(("theirs_gib", "evicted"), [(16, []), (17, ["half-0"])])
def test_muster_gives_way_where_another_scheduler_gave_too_much_of_a_gpu_away(
    theirs_gib: int, evicted: list[str]
) -> None:
    after = started(cluster(2), job("half", part(500)))
    consumed = (("memory", parse_nano(f"{theirs_gib}Gi")),)
    result = DeviceResult("gpu", (DRIVER, "node-0", "gpu-0"), share_id="theirs", consumed=consumed)
    claim = Claim("uid-theirs", "team", "theirs", ClaimSpec((exactly(),)))
    theirs = ObservedClaim(claim, Allocation((result,)), ("somebody",))
    claims = (*after.dynamic.claims, theirs)
    decision = plan(replace(after, dynamic=replace(after.dynamic, claims=claims)))
    assert [eviction.pod for eviction in decision.evictions] == evicted
    assert all(eviction.rule == "double-claim" for eviction in decision.evictions)


def test_memory_is_given_as_it_is_asked_for() -> None:
    after = started(cluster(1), job("memory", Request(gpu_memory_mib=8 << 10)))
    assert memory_of(after) == {(DRIVER, "node-0", "gpu-0"): parse_nano("8Gi")}


def test_a_gpu_that_its_driver_does_not_share_is_not_given_for_a_part() -> None:
    snapshot = replace(cluster(2, shareable=False), workloads=(job("half", part(500)),))
    decision = plan(snapshot)
    assert not decision.bindings
    assert "no GPU there with enough free memory is shared by the driver" in decision.pending["half"].message


@pytest.mark.parametrize("others", [(), (builders.node("plain", 1),)])
def test_without_a_container_that_can_see_it_a_part_is_not_given(others: tuple[Node, ...]) -> None:
    snapshot = cluster(2)
    snapshot = replace(
        snapshot, nodes=(*snapshot.nodes, *others), workloads=(job("half", part(500), claims=False),)
    )
    decision = plan(snapshot)
    assert [binding.node for binding in decision.bindings] == [node.name for node in others]
    if not others:
        assert decision.pending["half"].code is Waiting.CLAIMS
        assert "muster.dev/gpu-part" in decision.pending["half"].message
