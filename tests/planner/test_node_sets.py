"""Sets of nodes compared with the rules for one node, and with sums node by node."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.labels import LabelRequirement
from orchestrator.planner.accounting.ledger import Ledger, NodeAccount, capacity
from orchestrator.planner.accounting.quota import ProjectTree
from orchestrator.planner.model import GPU_MODEL_LABEL, Constraints, Node, Request, Taint, Toleration
from orchestrator.planner.node_sets import Column, NodeSets, node_set, positions_in
from orchestrator.planner.placement.node_devices import devices_for
from tests.planner.builders import project, workload
from tests.world.facts import admits

KEYS = st.sampled_from(["rack", "zone", "kubernetes.io/hostname"])
VALUES = st.sampled_from(["a", "b", "1", "7", "x"])
TAINTS = st.builds(
    Taint,
    key=st.sampled_from(["dgx", "maintenance"]),
    value=st.sampled_from(["", "yes"]),
    effect=st.sampled_from(["NoSchedule", "NoExecute", "PreferNoSchedule"]),
)


def _named(node: Node, name: str) -> Node:
    there = tuple(gpu for gpu in node.unhealthy_gpus if gpu < node.gpu_count)
    return replace(node, name=name, unhealthy_gpus=there)


NODES = st.builds(
    Node,
    name=st.just(""),
    gpu_count=st.integers(0, 9),
    cpu_milli=st.integers(50, 200),
    memory_bytes=st.sampled_from([0, 1, 2**40, 2**40 - 1]),
    pod_slots=st.integers(0, 2),
    labels=st.dictionaries(KEYS, VALUES),
    taints=st.lists(TAINTS, max_size=2).map(tuple),
    schedulable=st.sampled_from([True, True, True, False]),
    node_type=st.sampled_from(["", "train", "interactive"]),
    foreign=st.builds(Request, gpu_count=st.integers(0, 2), cpu_milli=st.integers(0, 50)),
    foreign_pods=st.integers(0, 1),
    gpu_memory_mib=st.sampled_from([0, 16, 80]),
    unhealthy_gpus=st.sampled_from([(), (0,), (1, 2)]),
    lost_gpus=st.sampled_from([0, 0, 1]),
)
CLUSTERS = st.lists(NODES, max_size=9).map(
    lambda nodes: [_named(node, f"n{index}") for index, node in enumerate(nodes)]
)
REQUIREMENTS = st.builds(
    LabelRequirement,
    key=KEYS,
    operator=st.sampled_from(["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"]),
    values=st.lists(VALUES, max_size=2).map(tuple),
)
TOLERATIONS = st.builds(
    Toleration,
    key=st.sampled_from(["", "dgx"]),
    operator=st.sampled_from(["Equal", "Exists"]),
    value=st.sampled_from(["", "yes"]),
    effect=st.sampled_from(["", "NoSchedule"]),
)
CONSTRAINTS = st.builds(
    Constraints,
    node_selector=st.lists(st.tuples(KEYS, VALUES), max_size=1).map(tuple),
    node_terms=st.lists(st.lists(REQUIREMENTS, max_size=2).map(tuple), max_size=2).map(tuple),
    tolerations=st.lists(TOLERATIONS, max_size=2).map(tuple),
)
REQUESTS = st.one_of(
    st.builds(
        Request,
        gpu_count=st.integers(0, 9),
        cpu_milli=st.integers(0, 201),
        memory_bytes=st.sampled_from([0, 1, 2**40]),
    ),
    st.builds(Request, gpu_portion_milli=st.integers(1, 999), shared_devices=st.integers(1, 3)),
    st.builds(Request, gpu_memory_mib=st.sampled_from([1, 16, 17, 81]), shared_devices=st.integers(1, 3)),
)


@given(CLUSTERS, CONSTRAINTS, st.sampled_from([(), ("train",), ("train", "interactive")]))
def test_a_set_admits_the_pods_that_each_of_its_nodes_accepts(
    nodes: list[Node], constraints: Constraints, node_types: tuple[str, ...]
) -> None:
    admitting = NodeSets(nodes).admitting(constraints, node_types)
    job = workload("job", "a", 1000, constraints=constraints)
    team = project("a", 1000, train_node_types=node_types)
    assert list(positions_in(admitting)) == [
        position for position, node in enumerate(nodes) if admits(node, job.pods[0], job, team)
    ]


@given(CLUSTERS, REQUESTS)
def test_a_node_could_hold_the_pods_that_fit_an_empty_account(nodes: list[Node], request: Request) -> None:
    def holds(node: Node) -> bool:
        account = NodeAccount(node, 0)
        has_devices = devices_for(account, request, "", later=False) is not None
        return has_devices and account.has_capacity(request, later=False)

    assert list(positions_in(NodeSets(nodes).holding(request))) == [
        position for position, node in enumerate(nodes) if holds(node)
    ]


@given(CLUSTERS)
def test_all_nodes_together_have_the_capacity_that_projects_share(nodes: list[Node]) -> None:
    sets = NodeSets(nodes)
    assert sets.capacity(sets.everywhere) == capacity(nodes)
    assert sets.capacity(sets.everywhere) == Ledger(nodes, ProjectTree(())).capacity


@given(st.lists(st.integers(0, 1 << 50), max_size=9), st.integers(-1, 1 << 51), st.data())
def test_a_column_sums_and_compares_as_its_amounts_do(
    amounts: list[int], amount: int, data: st.DataObject
) -> None:
    chosen = data.draw(st.sets(st.sampled_from(range(len(amounts))))) if amounts else set()
    near = data.draw(st.sampled_from([amount, *amounts, *(each + 1 for each in amounts)]))
    column = Column(amounts)
    assert column.total(node_set(chosen, len(amounts))) == sum(amounts[at] for at in chosen)
    assert list(positions_in(column.at_least(near))) == [
        at for at, each in enumerate(amounts) if each >= near
    ]


@pytest.mark.parametrize(
    ("models", "chosen", "expected"),
    [(["A", "A", "B"], [0, 1], ["A"]), (["A", "", "B"], [0, 1], ["A", ""]), (["A", None], [0, 1], ["A"])],
)
def test_the_models_of_a_set_are_those_of_its_nodes_with_gpus(
    models: list[str | None], chosen: list[int], expected: list[str]
) -> None:
    nodes = [
        Node(
            f"n{position}",
            0 if model is None else 8,
            0,
            0,
            labels={GPU_MODEL_LABEL: model} if model else {},
        )
        for position, model in enumerate(models)
    ]
    assert NodeSets(nodes).models_in(node_set(chosen, len(nodes))) == expected
