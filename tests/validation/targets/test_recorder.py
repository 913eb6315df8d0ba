"""From the wire's pods to the judge's events."""

from typing import Any

import msgspec
import pytest

from orchestrator.cluster.objects import Pod
from validation.judge.events import Eviction
from validation.targets.recorder import pod_seen

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
    event = pod_seen(msgspec.convert(wire, Pod), change="added", project="p", t_ms=7)
    return {name: getattr(event, name) for name in event.__struct_fields__}


def test_a_bound_pod_of_a_gang() -> None:
    event = seen()
    assert (event["workload"], event["node"], event["devices"]) == ("a", "n1", (2, 3))
    assert (event["gpu_milli"], event["min_member"], event["priority"]) == (2000, 4, 50)
    assert event["preemptible"]
    assert event["eviction"] is None
    assert str(event["submitted_us"]).endswith("000001")


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
def test_what_cannot_be_preempted(kind: str, annotation: str | None, preemptible: bool) -> None:
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
        assert pod_seen(msgspec.convert(wire, Pod), change="added", project="p", t_ms=0).eviction == expected


def test_a_bare_pod_is_a_workload_of_its_own_name() -> None:
    assert seen(labels={})["workload"] == "a-0"
