"""Resources beside GPUs, CPU and memory, from nodes and pods to the planner's snapshot."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from orchestrator.cluster.objects import Node, Pod
from orchestrator.observe.reader import read
from orchestrator.observe.request import (
    MAX_SCALARS,
    UnreadableRequest,
    asks_the_same,
    pod_request,
    readable_request,
)
from orchestrator.observe.snapshot import Observed
from tests.observe.objects import by_uid, decoded, namespace, pod, project

if TYPE_CHECKING:
    from orchestrator.planner import model

LONG = f"{'a' * 253}/{'b' * 63}"


def has(**allocatable: Any) -> Node:
    """Return a node n1 with 8 GPUs and these resources; `_` stands for `/` in a name."""
    resources = {"cpu": "80", "memory": "512Gi", "pods": "110", "nvidia.com/gpu": "8"}
    others = {key.replace("_", "/"): value for key, value in allocatable.items()}
    return decoded(
        Node,
        metadata={"name": "n1", "uid": "uid-n1"},
        status={"allocatable": resources | others, "conditions": [{"type": "Ready", "status": "True"}]},
    )


def wants(name: str = "p", *, requests: dict[str, Any], **changes: Any) -> Pod:
    spec = changes.pop("spec", {})
    containers = [{"name": "c", "resources": {"requests": requests}}]
    return pod(name, spec={**spec, "containers": containers}, **changes)


def snapshot(node: Node, *pods: Pod) -> model.Snapshot:
    return read(
        Observed(
            nodes=by_uid(node),
            pods=by_uid(*pods),
            namespaces=by_uid(namespace("muster-team-a", "team-a"), namespace("kube-system")),
            projects=by_uid(project("team-a", quota=4)),
        )
    ).snapshot


def test_a_node_has_the_resources_of_its_status_and_nothing_else() -> None:
    (node,) = snapshot(
        has(
            rdma_hca="2",
            **{"hugepages-2Mi": "1Gi", "hugepages-1Gi": "0", "ephemeral-storage": "439Gi", LONG: 7},
        )
    ).nodes
    assert node.scalars == {"rdma/hca": 2, "hugepages-2Mi": 1 << 30, "ephemeral-storage": 439 << 30, LONG: 7}
    assert node.pod_slots == 110


def test_a_node_may_have_as_much_as_a_quantity_can_say() -> None:
    (node,) = snapshot(has(rdma_hca=(1 << 63) - 1)).nodes
    assert node.scalars == {"rdma/hca": (1 << 63) - 1}


@pytest.mark.parametrize("quantity", ["-1", "many", "1Q", "", "1e99"])
def test_a_node_whose_resource_cannot_be_read_is_named(quantity: str) -> None:
    observed = Observed(nodes=by_uid(has(rdma_hca=quantity)), pods={}, namespaces={}, projects={})
    reading = read(observed)
    assert reading.snapshot.nodes == ()
    assert [skipped.name for skipped in reading.skipped] == ["n1"]


def test_a_pod_requests_all_that_its_containers_name() -> None:
    request = pod_request(wants(requests={"cpu": "1", "rdma/hca": "1", LONG: "3", "hugepages-2Mi": "0"}))
    assert request.scalars == ((LONG, 3), ("rdma/hca", 1))


def test_the_resource_that_stands_for_parts_of_gpus_is_none_of_a_node() -> None:
    assert pod_request(wants(requests={"muster.dev/gpu-part": "1"})).scalars == ()


@pytest.mark.parametrize("quantity", ["-1", "some", "10E"])
def test_a_request_that_cannot_be_meant_is_named(quantity: str) -> None:
    with pytest.raises(UnreadableRequest, match="rdma/hca"):
        pod_request(wants(requests={"rdma/hca": quantity}))


def test_a_pod_with_more_resources_than_a_decision_can_look_at_is_refused() -> None:
    names = {f"example.com/r{number}": "1" for number in range(MAX_SCALARS + 1)}
    with pytest.raises(UnreadableRequest, match=f"{MAX_SCALARS + 1} resources"):
        pod_request(wants(requests=names))
    assert len(readable_request(wants(requests=names)).scalars) == MAX_SCALARS + 1


@pytest.mark.parametrize("fraction", [False, True])
def test_a_running_pod_of_ours_holds_them(*, fraction: bool) -> None:
    annotations = {"muster.dev/gpu-devices": "0"} | ({"muster.dev/gpu-fraction": "0.5"} if fraction else {})
    gpus = {} if fraction else {"nvidia.com/gpu": "1"}
    running = wants(requests={"rdma/hca": "1", **gpus}, node="n1", annotations=annotations)
    (workload,) = snapshot(has(rdma_hca="2"), running).workloads
    assert workload.pods[0].request.scalars == (("rdma/hca", 1),)


def test_pods_of_other_schedulers_and_daemons_hold_them_on_their_node() -> None:
    others = [
        wants(
            name, requests={"rdma/hca": amount, "example.com/other": "1"}, namespace="kube-system", node="n1",
            spec={"schedulerName": "default-scheduler"},
        )
        for name, amount in (("daemon", "1"), ("other", "2"))
    ]  # fmt: skip
    (node,) = snapshot(has(rdma_hca="8"), *others).nodes
    assert node.foreign.scalars == (("rdma/hca", 3),)


def test_an_unreadable_request_of_another_scheduler_counts_as_the_whole_node() -> None:
    other = wants(
        "other", requests={"rdma/hca": "x", "hugepages-2Mi": "2Mi"}, namespace="kube-system", node="n1",
        spec={"schedulerName": "default-scheduler"},
    )  # fmt: skip
    (node,) = snapshot(has(rdma_hca="8", **{"hugepages-2Mi": "8Mi"}), other).nodes
    assert dict(node.foreign.scalars) == {"rdma/hca": 8, "hugepages-2Mi": 2 << 20}


def test_a_resize_in_progress_is_read_again() -> None:
    def state(actual: str) -> Pod:
        status = {"name": "c", "resources": {"requests": {"cpu": actual}}, "allocatedResources": {"cpu": "1"}}
        return decoded(
            Pod,
            metadata={"name": "p", "uid": "uid-p", "namespace": "muster-team-a"},
            spec={"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]},
            status={"phase": "Running", "containerStatuses": [status] if actual else []},
        )

    assert asks_the_same(state("1"), state("1"))
    assert not asks_the_same(state(""), state("4"))
    assert pod_request(state("4")).cpu_milli == 4000


def test_a_resize_at_pod_level_that_becomes_infeasible_is_read_again() -> None:
    def state(reason: str) -> Pod:
        return decoded(
            Pod,
            metadata={"name": "p"},
            spec={"containers": [{"name": "c"}], "resources": {"requests": {"cpu": "8"}}},
            status={
                "resources": {"requests": {"cpu": "2"}},
                "conditions": [{"type": "PodResizePending", "status": "True", "reason": reason}],
            },
        )

    assert not asks_the_same(state("Deferred"), state("Infeasible"))
    assert [pod_request(state(reason)).cpu_milli for reason in ("Deferred", "Infeasible")] == [8000, 2000]
