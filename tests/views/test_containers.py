"""The one-line reason why a job does not run: containers, PVCs, warnings, nodes, terminating pods."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from orchestrator.cluster.objects import Event, Node, PersistentVolumeClaim, Pod
from orchestrator.views.containers import (
    Surroundings,
    activity,
    has_not_started,
    last_exit,
    restarts,
    waits_because,
)

JSON = dict[str, Any]


def pod(name: str = "x-0", phase: str = "Pending", *, node: str = "n1", **parts: Any) -> Pod:
    spec = {"nodeName": node, **parts.pop("spec", {})}
    metadata = {"name": name, "uid": f"uid-{name}", **parts.pop("metadata", {})}
    return msgspec.convert({"metadata": metadata, "spec": spec, "status": {"phase": phase, **parts}}, Pod)


def container(name: str = "main", count: int = 0, last: JSON | None = None, **state: JSON) -> JSON:
    last_state = {"terminated": last} if last else {}
    return {"name": name, "state": state, "restartCount": count, "lastState": last_state}


def waiting(reason: str, message: str = "", **more: Any) -> JSON:
    return {"containerStatuses": [container(waiting={"reason": reason, "message": message}, **more)]}


def ended(exit_code: int, reason: str = "Error", **more: Any) -> JSON:
    return {"exitCode": exit_code, "reason": reason, **more}


RUNS: JSON = {"containerStatuses": [container(running={})]}
DELETED: JSON = {"deletionTimestamp": "2026-01-01T00:01:00Z"}
FULL: JSON = {
    "type": "PodScheduled",
    "status": "False",
    "reason": "Unschedulable",
    "message": "ClusterFull: 0 free",
}


@pytest.mark.parametrize(
    ("one", "because"),
    [
        (pod(phase="Running", **RUNS), ""),
        (pod(phase="Succeeded"), ""),
        (pod(phase="Failed", reason="Evicted"), ""),
        (pod(), ""),
        (pod(**waiting("ContainerCreating")), ""),
        (pod(node=""), ""),
        (pod(node="", conditions=[FULL]), "ClusterFull: 0 free"),
        (pod(node="", conditions=[FULL | {"message": "none of ours: words"}]), "none of ours: words"),
        (pod(node="", conditions=[FULL | {"message": ""}]), "Unschedulable"),
        (
            pod(node="", spec={"schedulingGates": [{"name": "a/b"}]}),
            "SchedulingGated: it has the scheduling gate a/b",
        ),
        (
            pod(**waiting("ErrImagePull", "rpc error:\n code = NotFound")),
            "ErrImagePull: container main: rpc error: code = NotFound",
        ),
        (pod(**waiting("InvalidImageName")), "InvalidImageName: container main"),
        (
            pod(phase="Running", **waiting("CrashLoopBackOff", "back-off 5m0s", count=5, last=ended(3))),
            "CrashLoopBackOff: container main: ended last with exit code 3, 5 restarts",
        ),
        (
            pod(**waiting("CreateContainerError", "no /bin/x", count=1, last=ended(137, "OOMKilled"))),
            "CreateContainerError: container main: no /bin/x, ended last with exit code 137 (OOMKilled), 1 restart",
        ),
        (
            pod(phase="Running", containerStatuses=[container(terminated=ended(1, message="no data\n"))]),
            "Error: container main ended with exit code 1: no data",
        ),
        (
            pod(
                initContainerStatuses=[container("get", waiting={"reason": "ImagePullBackOff"})],
                **waiting("PodInitializing"),
            ),
            "ImagePullBackOff: container get",
        ),
        (pod(metadata=DELETED, phase="Running"), "Terminating: 1 pod on n1 has not ended yet"),
        (pod(metadata=DELETED, node=""), "Terminating: 1 pod has not ended yet"),
    ],
)
def test_a_pod_that_does_not_run_has_a_reason(one: Pod, because: str) -> None:
    assert waits_because([one]) == because


def test_a_long_message_is_cut() -> None:
    assert len(waits_because([pod(**waiting("ErrImagePull", "x" * 5000))])) < 350


def test_the_pod_that_tells_most_speaks_for_the_job() -> None:
    """A failing container comes before a pod without a node. A terminating pod does not count if the job has another
    pod.
    """
    pods = [
        pod("x-0", node="", conditions=[FULL]),
        pod("x-1", **waiting("ErrImagePull", "gone")),
        pod("x-2", **waiting("ErrImagePull", "gone")),
        pod("x-3", metadata=DELETED),
        pod("x-4", "Failed"),
    ]
    assert waits_because(pods) == "ErrImagePull: container main: gone (2 of 3 pods)"
    assert waits_because([pods[0], pods[3]]) == "ClusterFull: 0 free"


def claim(name: str, phase: str, storage_class: str | None = None) -> PersistentVolumeClaim:
    body = {"metadata": {"name": name, "uid": f"uid-{name}"}, "spec": {}, "status": {"phase": phase}}
    if storage_class:
        body["spec"] = {"storageClassName": storage_class}
    return msgspec.convert(body, PersistentVolumeClaim)


def event(about: str, reason: str, message: str, kind: str = "Warning") -> Event:
    body = {"involvedObject": {"uid": f"uid-{about}"}, "type": kind, "reason": reason, "message": message}
    return msgspec.convert(body, Event)


VOLUMES: JSON = {"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]}
SCRATCH: JSON = {"volumes": [{"name": "s", "ephemeral": {"volumeClaimTemplate": {"spec": {}}}}]}


@pytest.mark.parametrize(
    ("spec", "around", "because"),
    [
        (VOLUMES, Surroundings({"data": claim("data", "Bound")}), ""),
        (
            VOLUMES,
            Surroundings({"data": claim("data", "Pending")}),
            "VolumeUnbound: PersistentVolumeClaim data without a StorageClass is Pending",
        ),
        (
            VOLUMES,
            Surroundings(
                {"data": claim("data", "Pending", "ontap")},
                [event("data", "ProvisioningFailed", "no\nspace"), event("x-0", "FailedMount", "late")],
            ),
            "VolumeUnbound: PersistentVolumeClaim data of StorageClass ontap is Pending; ProvisioningFailed: no space",
        ),
        (
            SCRATCH,
            Surroundings({"x-0-s": claim("x-0-s", "Lost", "fast")}),
            "VolumeUnbound: PersistentVolumeClaim x-0-s of StorageClass fast is Lost",
        ),
        (
            {},
            Surroundings({}, [event("x-0", "FailedMount", "first"), event("x-0", "FailedMount", "second")]),
            "FailedMount: second",
        ),
        ({}, Surroundings({}, [event("x-0", "Pulled", "fine", "Normal"), event("y-0", "Failed", "no")]), ""),
        (
            {},
            Surroundings({}, [event("x-0", "FailedMount", "was"), event("x-0", "Pulling", "x", "Normal")]),
            "",
        ),
    ],
)
def test_a_pod_that_has_not_started_has_its_claims_and_warnings_for_a_reason(
    spec: JSON, around: Surroundings, because: str
) -> None:
    one = pod(spec=spec, **waiting("ContainerCreating"))
    assert has_not_started(one)
    assert waits_because([one], around) == because
    started = pod(phase="Running", spec=spec, **RUNS)
    assert not has_not_started(started)
    assert waits_because([started], around) == ""


def machine(**conditions: str) -> Node:
    listed = [
        {"type": kind, "status": status, "reason": "KubeletDead"} for kind, status in conditions.items()
    ]
    return msgspec.convert({"metadata": {"name": "n1"}, "status": {"conditions": listed}}, Node)


@pytest.mark.parametrize(
    ("node", "because", "sentence"),
    [
        (machine(Ready="True"), "", "x of a runs on n1."),
        (
            machine(Ready="Unknown"),
            "NodeNotReady: node n1: not ready: KubeletDead",
            "x of a is bound to n1 and does not run there: NodeNotReady: node n1: not ready: KubeletDead.",
        ),
        (
            None,
            "NodeDeleted: the cluster has no node n1 any more",
            "x of a is bound to n1 and does not run there: NodeDeleted: the cluster has no node n1 any more.",
        ),
    ],
)
def test_a_pod_on_a_failing_node_does_not_count_as_running(
    node: Node | None, because: str, sentence: str
) -> None:
    around = Surroundings(nodes={"n1": node})
    one = pod(phase="Running", **RUNS)
    assert waits_because([one], around) == because
    assert activity("x of a", [one], around) == [sentence]


def test_terminating_pods_on_a_dead_node_name_it() -> None:
    around = Surroundings(nodes={"n1": machine(Ready="Unknown")})
    pods = [pod("x-0", "Running", metadata=DELETED, **RUNS), pod("x-1", "Running", metadata=DELETED, **RUNS)]
    words = "2 pods on n1 have not ended yet; node n1: not ready: KubeletDead"
    assert waits_because(pods, around) == f"Terminating: {words}"
    assert activity("x of a", pods, around) == [f"x of a is terminating: {words}."]


def test_each_group_of_pods_has_its_sentence() -> None:
    pods = [
        pod("x-0", "Running", containerStatuses=[container(count=2, last=ended(1), running={})]),
        pod("x-1", node="n2", **waiting("ErrImagePull", "gone")),
        pod("x-2", node="n3"),
        pod("x-3", "Running", node="n4", metadata=DELETED),
        pod("x-4", node="", conditions=[FULL]),
    ]
    assert activity("x of a", pods) == [
        "x of a runs with 1 of its 4 pods on n1.",
        "x of a is bound to n2, n3 and does not run there: ErrImagePull: container main: gone (1 of 2 pods).",
        "x of a is terminating: 1 pod on n4 has not ended yet.",
        "Restarts of its containers: 2, last exit code 1.",
    ]
    assert activity("x of a", pods[2:3]) == [
        "x of a is bound to n3 and does not run there: its containers are being created."
    ]
    assert activity("x of a", pods[4:]) == []


def test_the_last_failure_is_that_of_the_youngest_pod() -> None:
    old = pod(
        "x-0",
        "Failed",
        metadata={"creationTimestamp": "2026-01-01T00:00:00Z"},
        reason="OutOfcpu",
        message="m",
    )
    young = pod(
        "x-1",
        "Failed",
        metadata={"creationTimestamp": "2026-01-01T00:00:01Z"},
        containerStatuses=[
            container("side", terminated=ended(0)),
            container(terminated=ended(137, "OOMKilled")),
        ],
    )
    assert last_exit([old, young]) == "container main ended with exit code 137 (OOMKilled)"
    assert last_exit([old]) == "OutOfcpu: m"
    assert last_exit([pod(phase="Succeeded")]) == ""
    assert restarts([old, young]) == ""
