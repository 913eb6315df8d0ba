"""The demand of projects, as far as the cluster could satisfy it: by plans, by hand, and against a flow."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.planner import Planner, plan
from orchestrator.planner.accounting.demand import MAX_NESTED, bounded_demand
from orchestrator.planner.cluster_state import ClusterState
from orchestrator.planner.model import (
    GPU_MODEL_LABEL,
    Amounts,
    Constraints,
    GpuModelBounds,
    Node,
    Pod,
    PodState,
    Project,
    Request,
    Snapshot,
    Workload,
)
from orchestrator.planner.node_sets import NodeSets, node_set, positions_in
from tests.planner.builders import node, project, workload

SMALL = Constraints(node_selector=(("pool", "small"),))
LARGE = Constraints(node_selector=(("pool", "large"),))
NOWHERE = Constraints(node_selector=(("pool", "none"),))


def cluster() -> list[Node]:
    """Return one node with 4 GPUs in the small pool, and two nodes with 8 each in the large pool."""
    return [
        node("small-1", 4, labels={"pool": "small"}, node_type="small"),
        node("large-1", 8, labels={"pool": "large"}, node_type="large"),
        node("large-2", 8, labels={"pool": "large"}, node_type="large"),
    ]


def shares(
    workloads: Iterable[Workload], *projects: Project, nodes: Iterable[Node] = ()
) -> Mapping[str, int]:
    everybody = projects or (project("a", 0, over_quota_weight=1), project("b", 0, over_quota_weight=1))
    decision = plan(Snapshot(tuple(nodes) or tuple(cluster()), everybody, tuple(workloads)))
    return {name: share // 1000 for name, share in decision.shares_gpu_milli.items()}


def with_request(new: Workload, request: Request) -> Workload:
    return replace(new, pods=tuple(replace(pod, request=request) for pod in new.pods))


def running_on(new: Workload, place: str, first: int = 0) -> Workload:
    pods: list[Pod] = []
    for pod in new.pods:
        devices = tuple(range(first, first + pod.request.gpu_count))
        first += len(devices)
        pods.append(replace(pod, state=PodState.ALLOCATED, node=place, devices=devices))
    return replace(new, pods=tuple(pods), started_at_us=1)


HUNGRY = workload("others", "b", 1000, pods=99)


@pytest.mark.parametrize(
    "impossible",
    [
        workload("w", "a", 9000, pods=9),
        workload("w", "a", 5000, pods=9, constraints=SMALL),
        workload("w", "a", 1000, pods=9, constraints=NOWHERE),
        with_request(workload("w", "a", 1000, pods=9), Request(gpu_count=1, cpu_milli=80_001)),
        with_request(workload("w", "a", 1000, pods=9), Request(gpu_count=1, memory_bytes=(512 << 30) + 1)),
        with_request(workload("w", "a", 1000, pods=9), Request(gpu_portion_milli=500, shared_devices=9)),
        # a gang larger than all nodes that it may use
        workload("w", "a", 8000, pods=3, gang=True),
        workload("w", "a", 1000, pods=5, gang=True, constraints=SMALL),
    ],
)
def test_a_chunk_that_could_not_start_on_empty_nodes_counts_for_nothing(impossible: Workload) -> None:
    assert shares([impossible, HUNGRY]) == {"a": 0, "b": 20}
    assert shares([impossible, HUNGRY, workload("small", "a", 1000, pods=2)]) == {"a": 2, "b": 18}


def test_one_pod_that_fits_nowhere_takes_its_gang_along_and_no_pod_beside_it() -> None:
    gang = workload("w", "a", 2000, pods=4, gang=True)
    pods = (replace(gang.pods[0], constraints=NOWHERE), *gang.pods[1:])
    assert shares([replace(gang, pods=pods), HUNGRY]) == {"a": 0, "b": 20}
    assert shares([replace(gang, pods=pods, min_member=1), HUNGRY]) == {"a": 6, "b": 14}


def test_a_project_that_is_bound_to_a_node_type_counts_at_most_its_capacity() -> None:
    bound = project("a", 0, over_quota_weight=9, train_node_types=("small",))
    assert shares(
        [workload("w", "a", 1000, pods=99), HUNGRY], bound, project("b", 0, over_quota_weight=1)
    ) == {"a": 4, "b": 16}


@pytest.mark.parametrize(
    ("pools", "expected"),
    [
        ([(SMALL, 99)], 4),
        ([(SMALL, 99), (LARGE, 3)], 7),
        ([(SMALL, 99), (Constraints(), 2)], 6),
        ([(SMALL, 99), (LARGE, 99)], 20),
        ([(SMALL, 99), (NOWHERE, 9)], 4),
    ],
)
def test_each_pool_bounds_the_pods_that_may_run_only_there(
    pools: list[tuple[Constraints, int]], expected: int
) -> None:
    waiting = [
        workload(f"w{number}", "a", 1000, pods=pods, constraints=constraints)
        for number, (constraints, pods) in enumerate(pools)
    ]
    heavy, light = project("a", 0, over_quota_weight=99), project("b", 0, over_quota_weight=0)
    assert shares(waiting, heavy, light)["a"] == expected


def test_running_pods_count_in_their_pool_and_always_count() -> None:
    heavy, light = project("a", 0, over_quota_weight=99), project("b", 0, over_quota_weight=0)
    waiting = workload("w", "a", 1000, pods=99, constraints=SMALL)
    in_pool = running_on(workload("r", "a", 1000, pods=3, constraints=SMALL), "small-1")
    assert shares([in_pool, waiting], heavy, light)["a"] == 4
    elsewhere = running_on(workload("r", "a", 1000, pods=3, constraints=LARGE), "large-1")
    assert shares([elsewhere, waiting], heavy, light)["a"] == 7
    # it runs on a node that would not admit it any more
    stray = running_on(workload("r", "a", 1000, pods=3, constraints=NOWHERE), "large-1")
    assert shares([stray, waiting], heavy, light)["a"] == 7
    cordoned = [replace(each, schedulable=each.name != "small-1") for each in cluster()]
    assert shares([in_pool], project("a", 5000), light, nodes=cordoned)["a"] == 3


def test_demand_for_a_gpu_model_that_no_node_can_serve_counts_for_nothing() -> None:
    nodes = [
        node("h", 8, labels={GPU_MODEL_LABEL: "H100"}),
        node("a-1", 4, labels={GPU_MODEL_LABEL: "A100"}),
        node("a-2", 4, labels={GPU_MODEL_LABEL: "A100"}),
    ]
    on_a100 = Constraints(node_selector=((GPU_MODEL_LABEL, "A100"),))
    bounds = (GpuModelBounds("A100", quota_gpu_milli=0),)
    projects = [Project(name, 0, gpu_models=bounds) for name in ("a", "b")]

    def demand(*workloads: Workload) -> Mapping[tuple[str, str], int]:
        state = ClusterState(Snapshot(tuple(nodes), tuple(projects), workloads))
        return state.demand.by_model(state.ledger.model_held)

    too_large = workload("w", "a", 5000, pods=2, constraints=on_a100)
    fitting = workload("f", "a", 3000, pods=2, constraints=on_a100)
    assert demand(too_large) == {("a", "A100"): 0, ("b", "A100"): 0}
    assert demand(too_large, fitting)["a", "A100"] == 6000
    assert demand(workload("many", "b", 1000, pods=99, constraints=on_a100))["b", "A100"] == 8000
    assert demand(workload("any", "b", 1000, pods=99))["b", "A100"] == 0


def flow(groups: Mapping[int, Amounts], nodes: list[int], resource: int = 0) -> int:
    """Return the most that the nodes could satisfy: the smallest cut over all subsets of the groups."""
    sets = list(groups)
    cuts: list[int] = []
    for size in range(len(sets) + 1):
        for chosen in combinations(sets, size):
            union = 0
            for each in chosen:
                union |= each
            rest = sum(groups[each][resource] for each in sets if each not in chosen)
            cuts.append(rest + sum(nodes[position] for position in positions_in(union)))
    return min(cuts)


def bounded(groups: Mapping[int, Amounts], nodes: list[int]) -> int:
    sets = NodeSets([Node(f"n{at}", gpus, 0, 0) for at, gpus in enumerate(nodes)])
    in_milli = {each: (amounts[0] * 1000, 0, 0) for each, amounts in groups.items()}
    return bounded_demand(in_milli, sets.capacity)[0] // 1000


NODE_GPUS = st.lists(st.integers(0, 9), min_size=6, max_size=6)
AMOUNTS = st.integers(0, 30).map(lambda gpus: (gpus, 0, 0))


@given(NODE_GPUS, st.dictionaries(st.sampled_from([0b1, 0b11, 0b111, 0b111111, 0b11000, 0b1000]), AMOUNTS))
def test_sets_that_are_nested_or_disjoint_are_bounded_exactly(
    nodes: list[int], groups: dict[int, Amounts]
) -> None:
    assert bounded(groups, nodes) == flow(groups, nodes)


@given(NODE_GPUS, st.dictionaries(st.integers(0, 63), AMOUNTS, max_size=5))
def test_a_bound_is_never_below_the_capacity_of_the_nodes(
    nodes: list[int], groups: dict[int, Amounts]
) -> None:
    found = bounded(groups, nodes)
    assert flow(groups, nodes) <= found <= min(sum(gpus for gpus, _, _ in groups.values()), sum(nodes))


def test_very_many_different_sets_are_bounded_one_by_one_and_together() -> None:
    nodes = [1] * (MAX_NESTED + 10)
    groups = {node_set([at], len(nodes)): (5, 0, 0) for at in range(len(nodes))}
    assert bounded(groups, nodes) == len(nodes)


def test_books_that_are_kept_count_as_new_ones_do() -> None:
    nodes, projects = tuple(cluster()), (project("a", 0), project("b", 0))
    everything = [
        workload("w1", "a", 1000, pods=9, constraints=SMALL),
        workload("gang", "a", 8000, pods=2, gang=True),
        workload("incomplete", "b", 1000, pods=2, minimum=3),
        running_on(workload("r", "b", 1000, pods=3, constraints=SMALL), "small-1"),
        running_on(workload("stray", "b", 1000, pods=2, constraints=NOWHERE), "large-1"),
        HUNGRY,
    ]
    planner = Planner()
    for workloads in (everything, everything[::2], everything[1:], [], everything[3:], everything):
        snapshot = Snapshot(nodes, projects, tuple(workloads))
        assert planner.plan(snapshot).shares_gpu_milli == plan(snapshot).shares_gpu_milli
