"""The report of `verify` on the workloads of kube-system: which are down, on which node, and with which last line."""

import importlib.util
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.deployment.running import ROOT
from tests.deployment.test_verified import run, tasks_of

Body = dict[str, Any]

PLUGINS = ROOT / "roles" / "verify" / "filter_plugins"
LOOP = '[FATAL] plugin/loop: Loop (127.0.0.1:52890 -> :53) detected for zone "."'


def _filters() -> dict[str, Any]:
    spec = importlib.util.spec_from_file_location("workloads", PLUGINS / "workloads.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    filters: dict[str, Any] = module.FilterModule().filters()
    return filters


pressed_nodes, starting_pods, unavailable_workloads, reduced_workloads = _filters().values()


def deployment(name: str = "coredns", wanted: int = 2, there: int = 2, *, available: bool = True) -> Body:
    status = {
        "availableReplicas": there,
        "conditions": [{"type": "Available", "status": str(available)}],
    }
    return {
        "kind": "Deployment",
        "metadata": {"name": name},
        "spec": {"replicas": wanted},
        "status": status,
    }


def daemon_set(name: str = "kube-flannel", wanted: int = 2) -> Body:
    return {
        "kind": "DaemonSet",
        "metadata": {"name": name},
        "spec": {},
        "status": {"desiredNumberScheduled": wanted},
    }


def pod(owner: str, node: str, *, ready: bool = True, name: str = "", **status: object) -> Body:
    """Return a pod of `KIND/NAME` on a node."""
    kind, _, of = owner.partition("/")
    return {
        "metadata": {
            "name": name or f"{of}-x7k2p",
            "ownerReferences": [{"kind": kind, "name": of, "controller": True}],
        },
        "spec": {"nodeName": node},
        "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": str(ready)}]} | status,
    }


def waiting(reason: str, message: str = "") -> list[Body]:
    return [{"name": "main", "ready": False, "state": {"waiting": {"reason": reason, "message": message}}}]


NO_NODE: Body = {
    "phase": "Pending",
    "conditions": [
        {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/1 nodes are available"}
    ],
}  # fmt: skip
CRASHING = pod(
    "ReplicaSet/coredns-5dd5756b68", "cp01", ready=False, containerStatuses=waiting("CrashLoopBackOff")
)
FLANNEL = [pod("DaemonSet/kube-flannel", node) for node in ("cp01", "gpu01")]
BROKEN_FLANNEL = pod(
    "DaemonSet/kube-flannel",
    "gpu01",
    ready=False,
    initContainerStatuses=[
        {"name": "install-cni", "state": {"terminated": {"exitCode": 0}}},
        {"name": "copy", "state": {"waiting": {"reason": "ErrImagePull", "message": "not found"}}},
    ],
    containerStatuses=waiting("PodInitializing"),
)
SCHEDULER = pod(
    "Node/cp01",
    "cp01",
    ready=False,
    name="kube-scheduler-cp01",
    containerStatuses=waiting("CrashLoopBackOff"),
)


@pytest.mark.parametrize(
    ("workloads", "pods", "left_out", "expected"),
    [
        ([deployment()], [], [], []),
        ([deployment(there=0, available=False)], [CRASHING], [],
         [("Deployment coredns", "0 of 2 pods are available", "main", "is in CrashLoopBackOff")]),
        ([deployment(there=0, available=False)], [], [],
         [("Deployment coredns", "0 of 2 pods are available", "", "it has no pod")]),
        ([deployment(there=1, available=False)], [pod("ReplicaSet/coredns-autoscaler-7", "n", ready=False)], [],
         [("Deployment coredns", "1 of 2 pods are available", "", "it has no pod")]),
        ([deployment(wanted=0, there=0, available=False)], [], [], []),
        ([daemon_set()], FLANNEL, [], []),
        ([daemon_set(wanted=0)], [], [], []),
        ([daemon_set()], FLANNEL[:1], [], [("DaemonSet kube-flannel", "1 of 2 pods are ready", "", "it has no pod")]),
        ([daemon_set()], [FLANNEL[0], BROKEN_FLANNEL], [],
         [("DaemonSet kube-flannel", "1 of 2 pods are ready", "copy", "is in ErrImagePull: not found")]),
        ([daemon_set()], [FLANNEL[0], BROKEN_FLANNEL], ["gpu01"], []),
        ([daemon_set()], [BROKEN_FLANNEL, FLANNEL[0]], ["cp01"],
         [("DaemonSet kube-flannel", "0 of 1 pods are ready", "copy", "is in ErrImagePull: not found")]),
        ([], [SCHEDULER], [], [("static pod kube-scheduler-cp01", "not ready", "main", "is in CrashLoopBackOff")]),
        ([], [pod("Job/backup-1", "cp01", ready=False, phase="Failed")], [], []),
        ([], [pod("Node/cp01", "cp01", ready=False, phase="Succeeded")], [], []),
    ],
    ids=["all", "crash", "no pod", "a name that begins alike", "none wanted", "daemons", "daemons for no node",
         "missing daemon", "init container", "broken on a host left out", "broken beside a host left out",
         "static pod", "job", "ended"],
)  # fmt: skip
def test_a_workload_that_is_not_available_is_named_with_its_pod_and_the_reason(
    workloads: list[Body], pods: list[Body], left_out: list[str], expected: list[tuple[str, ...]]
) -> None:
    found = unavailable_workloads(workloads, pods, left_out)
    assert [(each["workload"], each["state"], each["container"], each["why"]) for each in found] == expected


def test_a_second_pod_of_dns_without_a_node_is_said_and_not_waited_for() -> None:
    second = pod("ReplicaSet/coredns-5dd5756b68", "", ready=False, **NO_NODE)
    one = deployment(there=1)
    assert starting_pods([second, CRASHING], []) == [CRASHING["metadata"]["name"]]
    assert starting_pods([CRASHING], ["cp01"]) == []
    assert unavailable_workloads([one], [second], []) == []
    (said,) = reduced_workloads([one, daemon_set(wanted=0)], [second], [])
    assert said == (
        "Deployment coredns has 1 of 2 pods: coredns-5dd5756b68-x7k2p has no node: 0/1 nodes are available"
    )


@pytest.mark.parametrize(
    ("pods", "log", "says"),
    [
        ([CRASHING], f"plugin/reload\n{LOOP}\n", f"last line: {LOOP}; look at `kubectl -n kube-system describe"),
        ([CRASHING], "", "pod coredns-5dd5756b68-x7k2p on cp01 is in CrashLoopBackOff; look at"),
        ([], "", "it has no pod; look at `kubectl -n kube-system get events`"),
    ],
    ids=["with a log", "without a log", "without a pod"],
)  # fmt: skip
def test_the_refusal_repeats_the_last_line_of_the_container(
    tmp_path: Path, pods: list[Body], log: str, says: str
) -> None:
    values = yaml.safe_load((ROOT / "roles" / "verify" / "vars" / "main.yml").read_text())
    down = unavailable_workloads([deployment(there=0, available=False)], pods, [])
    done = run(
        tmp_path, tasks_of("verify/tasks/system.yml", "Refuse a cluster whose own workloads are not available"),
        verify_system_down=down, verify_system_said={"results": [{"log": log}]},
        __verify_system_lines=values["__verify_system_lines"],
    )  # fmt: skip
    assert done.code == 2, done.output
    (failure,) = done.failures
    assert "kube-system: Deployment coredns: 0 of 2 pods are available; " in failure
    assert says in failure


@pytest.mark.parametrize(
    ("kind", "status", "says"),
    [
        ("DiskPressure", "True", "free space in /var/lib/kubelet and /var/lib/containerd"),
        ("MemoryPressure", "True", "end programs outside Kubernetes"),
        ("PIDPressure", "True", "end programs that start many processes"),
        ("DiskPressure", "False", ""),
        ("Ready", "True", ""),
        ("NetworkUnavailable", "True", ""),
    ],
)
def test_a_node_that_gets_no_pods_is_named_with_the_fix(kind: str, status: str, says: str) -> None:
    node = {
        "metadata": {"name": "gpu01"},
        "status": {"conditions": [{"type": kind, "status": status, "message": "kubelet has disk pressure"}]},
    }
    bare = {"metadata": {"name": "gpu02"}, "status": {}}
    said = pressed_nodes([node, bare], [])
    assert bool(said) == bool(says)
    assert all(f"node gpu01 has {kind} (kubelet has disk pressure): {says}" in line for line in said)
    assert pressed_nodes([node, bare], ["gpu01"]) == []
