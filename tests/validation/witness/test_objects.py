"""The conversion of API objects into the judge's events."""

import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

import orchestrator.names
from orchestrator.cluster.resources import DRA_VERSIONS, GPU_NODES, RESOURCE_SLICES
from validation.judge.events import Eviction, GpuSeen
from validation.witness import names
from validation.witness.objects import (
    container_ids,
    gpus_seen,
    node_seen,
    pod_seen,
    published_gpus,
    server_time,
    slim,
)

RECORDED = Path(__file__).parents[2] / "musterlab" / "recorded" / "resourceslice-memory.yaml"

WIRE: dict[str, Any] = {
    "metadata": {
        "name": "a-0",
        "namespace": "muster-p",
        "uid": "u1",
        "labels": {"muster.dev/workload": "a", "muster.dev/type": "train"},
        "annotations": {
            "muster.dev/gpu-devices": "2,3",
            "muster.dev/min-member": "4",
            "muster.dev/submitted-at": "2026-01-01T00:00:00.000001Z",
        },
    },
    "spec": {
        "nodeName": "n1",
        "priority": 50,
        "containers": [{"name": "a", "resources": {"limits": {"nvidia.com/gpu": "2"}}}],
    },
    "status": {"phase": "Running"},
}


def seen(**metadata: object) -> dict[str, object]:
    wire = {**WIRE, "metadata": {**WIRE["metadata"], **metadata}}
    event = pod_seen(slim(wire), change="added", project="p", t_ms=7)
    return {name: getattr(event, name) for name in event.__struct_fields__}


def test_a_bound_pod_of_a_gang() -> None:
    event = seen()
    assert (event["workload"], event["node"], event["devices"]) == ("a", "n1", (2, 3))
    assert (event["gpu_milli"], event["min_member"], event["priority"]) == (2000, 4, 50)
    assert event["preemptible"]
    assert event["eviction"] is None
    assert str(event["submitted_us"]).endswith("000001")


@pytest.mark.parametrize("fraction", ["NaN", "-1", "1e999999", "Infinity", "much"])
def test_a_text_that_is_no_gpu_fraction_holds_nothing_and_ends_no_recording(fraction: str) -> None:
    assert seen(annotations={"muster.dev/gpu-fraction": fraction})["gpu_milli"] == 0


@pytest.mark.parametrize(("fraction", "milli"), [("0.5", 500), ("0.1", 100), ("0.001", 1)])
def test_a_fraction_is_exact(fraction: str, milli: int) -> None:
    assert seen(annotations={"muster.dev/gpu-fraction": fraction})["gpu_milli"] == milli


@pytest.mark.parametrize(
    ("kind", "annotation", "preemptible"),
    [
        ("interactive", None, False),
        ("train", None, True),
        ("interactive", "true", True),
        ("train", "false", False),
    ],
)
def test_non_preemptible_pods(kind: str, annotation: str | None, preemptible: bool) -> None:
    annotations = {} if annotation is None else {"muster.dev/preemptible": annotation}
    assert seen(labels={"muster.dev/type": kind}, annotations=annotations)["preemptible"] is preemptible


def test_the_scheduler_s_eviction_is_told_from_the_kubelet_s() -> None:
    ours = {"muster.dev/eviction-reason": "why"}
    for reason, annotations, expected in (
        ("EvictionByEvictionAPI", ours, Eviction("EvictionByEvictionAPI", "why")),
        ("EvictionByEvictionAPI", {}, None),
        ("TerminationByKubelet", ours, None),
    ):
        condition = {"type": "DisruptionTarget", "status": "True", "reason": reason, "message": "evicting"}
        metadata = {**WIRE["metadata"], "annotations": annotations}
        wire = {
            **WIRE,
            "metadata": metadata,
            "status": {"phase": "Running", "conditions": [condition]},
        }
        assert pod_seen(slim(wire), change="added", project="p", t_ms=0).eviction == expected


def test_a_bare_pod_is_a_workload_of_its_own_name() -> None:
    assert seen(labels={})["workload"] == "a-0"


def test_the_api_server_s_own_time_is_that_of_the_last_write() -> None:
    metadata = {
        **WIRE["metadata"],
        "creationTimestamp": "2026-01-01T00:00:00Z",
        "managedFields": [{"time": "2026-01-01T00:00:05Z"}, {"time": "2026-01-01T00:00:03Z"}, {}],
    }
    assert server_time({"metadata": metadata}) == "2026-01-01T00:00:05Z"
    assert server_time(slim({**WIRE, "metadata": metadata})) == "2026-01-01T00:00:05Z"
    assert server_time({"metadata": {}}) == ""


def test_reports_of_kubelet_and_driver_are_taken_from_the_agent_s_object() -> None:
    holder = {"namespace": "muster-p", "pod": "a-0", "container": "a"}
    users = [{"podUid": "u1", "memoryMib": 5}, {"memoryMib": 1}]
    spec = {
        "observedAt": "2026-01-01T00:00:00Z",
        "gpus": [
            {"index": 0, "holders": [holder, {**holder, "container": "b"}], "users": users},
            {"index": 1},
        ],
    }
    event = gpus_seen({"metadata": {"name": "n1"}, "spec": spec}, change="added", t_ms=1)
    assert event.gpus == (GpuSeen(0, ("muster-p/a-0",), ("u1", "")), GpuSeen(1))
    assert gpus_seen({"metadata": {"name": "n1"}, "spec": spec}, change="deleted", t_ms=1).gpus == ()


def test_a_process_of_which_only_the_container_is_known_is_its_pod_s() -> None:
    ids = {"containerStatuses": [{"name": "a", "containerID": "containerd://0f3a"}, {"name": "b"}]}
    pod = {**WIRE, "status": {**WIRE["status"], **ids}}
    assert container_ids(pod) == container_ids(slim(pod)) == ("0f3a",)
    assert container_ids(WIRE) == ()
    users = [{"podUid": "", "containerId": "0f3a"}, {"podUid": "", "containerId": "77"}, {"podUid": "u2"}]
    node = {"metadata": {"name": "n1"}, "spec": {"gpus": [{"index": 0, "users": users}]}}
    event = gpus_seen(node, change="added", t_ms=1, pods_by_container={"0f3a": "u1"})
    assert event.gpus == (GpuSeen(0, (), ("u1", "", "u2")),)


def published(generation: int = 1, **changes: Any) -> dict[str, Any]:
    """Return a ResourceSlice of NVIDIA's driver for a node with eight GPUs."""
    pool = {"name": "n1", "generation": generation, "resourceSliceCount": 1}
    devices = copy.deepcopy(yaml.safe_load(RECORDED.read_text())["devices"])
    spec = {"driver": "gpu.nvidia.com", "nodeName": "n1", "pool": pool, "devices": devices}
    return {"metadata": {"name": "s"}, "spec": {**spec, **changes}}


def test_gpus_that_are_published_as_devices_are_those_of_the_node() -> None:
    whole = published()
    tainted, parted = published(2), published()
    tainted["spec"]["devices"][3]["taints"] = [{"key": "gpu.nvidia.com/xid", "effect": "NoSchedule"}]
    tainted["spec"]["devices"][4]["taints"] = [{"key": "told", "effect": "None"}]
    parted["spec"]["devices"][0]["attributes"]["type"] = {"string": "mig"}
    old = published(devices=[{"name": each["name"], "basic": each} for each in whole["spec"]["devices"]])
    assert published_gpus([slim(whole)]) == published_gpus([old]) == {"n1": 8}
    assert published_gpus([whole, tainted]) == {"n1": 7}, "of a pool the newest generation counts"
    assert published_gpus([parted]) == {"n1": 7}
    assert published_gpus([published(driver="other"), published(nodeName=None)]) == {}
    assert published_gpus([published(devices=None)]) == {"n1": 0}, "a slice of counters alone"


def test_gpus_of_a_node_that_plugin_and_driver_announce_count_once() -> None:
    ready = {"conditions": [{"type": "Ready", "status": "True"}]}
    node = {"metadata": {"name": "n1"}, "status": ready}
    plugged = {**node, "status": {**ready, "allocatable": {"nvidia.com/gpu": "8"}}}
    assert node_seen(node, change="added", t_ms=1, published=8).gpus == 8
    assert node_seen(plugged, change="added", t_ms=1).gpus == 8
    assert node_seen(plugged, change="added", t_ms=1, published=4).gpus == 8
    assert node_seen(node, change="deleted", t_ms=1, published=8).gpus == 0


def test_a_node_is_in_the_group_that_its_label_says() -> None:
    node: dict[str, Any] = {"metadata": {"name": "n1", "labels": {"run.ai/type": "blue"}}, "status": {}}
    assert node_seen(slim(node), change="added", t_ms=1).node_type == "blue"
    assert node_seen({"metadata": {"name": "n1"}}, change="added", t_ms=1).node_type == ""


def test_a_cordoned_node_and_a_nominated_pod_are_seen_as_such() -> None:
    node = {"metadata": {"name": "n1"}, "spec": {"unschedulable": True}, "status": {}}
    assert node_seen(slim(node), change="added", t_ms=1).cordoned
    assert not node_seen(slim({**node, "spec": {}}), change="added", t_ms=1).cordoned
    waits = {**WIRE, "status": {"phase": "Pending", "nominatedNodeName": "n2"}}
    assert pod_seen(slim(waits), change="added", project="p", t_ms=7).nominated_node == "n2"


def test_its_names_are_those_that_the_orchestrator_uses() -> None:
    ours = {name: value for name, value in vars(names).items() if name.isupper()}
    theirs = {name: getattr(orchestrator.names, name) for name in ours if hasattr(orchestrator.names, name)}
    assert len(theirs) == len(ours) - 5, (
        "but for two paths, NVIDIA's label of the product, kubectl's annotation, a namespace of Kubernetes"
    )
    assert {name: ours[name] for name in theirs} == theirs
    assert GPU_NODES.path() == names.GPU_NODES_PATH
    slices = [replace(RESOURCE_SLICES, version=version).path() for version in DRA_VERSIONS]
    assert slices == list(names.RESOURCE_SLICES_PATHS)
