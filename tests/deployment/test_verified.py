"""`verify` must not report unproved requirements as proved: single tasks of its roles on answers that a cluster could
give.
"""

import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.deployment.running import ROOT, Result, play

Body = dict[str, Any]

CLAIM = {
    "status": {
        "reservedFor": [{"name": "verify-claim"}],
        "allocation": {"devices": {"results": [{"device": "gpu-3"}]}},
    }
}
HALF = {
    "status": {
        "reservedFor": [{"name": "verify-half-0-x7k2p"}],
        "allocation": {"devices": {"results": [{"device": "gpu-3"}]}},
    }
}


def tasks_of(file: str, *names: str) -> list[Body]:
    """Return the tasks with these names from the role."""
    every = yaml.safe_load((ROOT / "roles" / file).read_text())
    return [task for name in names for task in every if task["name"] == name]


def run(folder: Path, tasks: list[Body], **known: object) -> Result:
    """Run tasks with these variables."""
    playbook = folder / "play.yml"
    content = [{"name": "Work", "hosts": "all", "gather_facts": False, "vars": known, "tasks": tasks}]
    playbook.write_text(yaml.safe_dump(content))
    words = ["-i", "here,", "-c", "local", "-e", f"ansible_python_interpreter={sys.executable}"]
    return play(playbook, folder, *words)


BOTH = [("verify-claim", "nvidia3"), ("verify-half-0-x7k2p", "nvidia3")]


def written(name: str, log: str) -> Body:
    return {"item": {"metadata": {"name": name}, "status": {"phase": "Running"}}, "log": log}


@pytest.mark.parametrize(
    ("pods", "claims", "why"),
    [
        (BOTH, [CLAIM, HALF], ""),
        (BOTH[:1], [CLAIM], "there is no pod of verify-half"),
        ([], [], "there is no pod of verify-claim, verify-half"),
        ([BOTH[0], ("verify-half-0-x7k2p", "")], [CLAIM], "its claim has no device"),
        ([("verify-claim", "nvidia2"), BOTH[1]], [CLAIM, HALF], "its container has nvidia2"),
    ],
    ids=["both", "no half", "none", "half of nothing", "another device"],
)  # fmt: skip
def test_devices_are_those_of_claims_that_are_there(
    tmp_path: Path, pods: list[tuple[str, str]], claims: list[Body], why: str
) -> None:
    names = ("Refuse a pod that is not there", "Refuse devices that are not those of the claim")
    done = run(
        tmp_path, tasks_of("verify/tasks/devices.yml", *names),
        verify_written={"results": [written(*pod) for pod in pods]}, verify_claims={"resources": claims},
        verify_shared=True, verify_project="verify",
    )  # fmt: skip
    assert done.code == (2 if why else 0), done.output
    assert why in " ".join(done.failures)


@pytest.mark.parametrize(
    ("age_seconds", "holder", "leads"), [(2, "a", True), (60, "a", False), (2, "", False)]
)
def test_an_operator_that_does_not_renew_the_lease_does_not_lead(
    tmp_path: Path, age_seconds: int, holder: str, *, leads: bool
) -> None:
    (task,) = tasks_of("orchestrator/tasks/verify.yml", "Refuse an operator without a leader")
    renewed = (datetime.now(UTC) - timedelta(seconds=age_seconds)).strftime("%Y-%m-%dT%H:%M:%S.000000Z")
    spec = {"holderIdentity": holder, "leaseDurationSeconds": 15, "renewTime": renewed}
    judged = {
        "name": "Judge",
        "ansible.builtin.assert": {"that": task["until"]},
        "vars": task.get("vars", {}),
    }
    done = run(tmp_path, [judged], orchestrator_lease={"resources": [{"spec": spec}]})
    assert (done.code == 0) is leads, done.output


def test_a_volume_of_an_earlier_verification_proves_nothing() -> None:
    (block,) = tasks_of("verify/tasks/storage.yml", "Prove that a volume can be made")
    pods, first, second = (task["kubernetes.core.k8s"] for task in block["block"][:3])
    assert (pods["state"], pods["label_selectors"], pods["delete_all"]) == (
        "absent",
        ["muster.dev/verify"],
        True,
    )
    claim = second["definition"]["metadata"]
    assert (first["state"], first["name"], first["namespace"]) == (
        "absent",
        claim["name"],
        claim["namespace"],
    )


def mounting_pod(name: str, node: str, **status: object) -> Body:
    return {"metadata": {"name": name, "uid": name}, "spec": {"nodeName": node}, "status": status}


def ended(message: str, reason: str = "Error") -> list[Body]:
    return [{"state": {"terminated": {"message": message, "reason": reason}}}]


WARNINGS = [
    {
        "metadata": {"creationTimestamp": f"2026-11-25T00:00:0{second}Z"},
        "involvedObject": {"name": "b", "uid": uid},
        "message": message,
    }
    for second, uid, message in (
        (3, "b", "MountVolume.SetUp failed: access denied"),
        (1, "b", "of an earlier moment"),
        (5, "before", "of an earlier pod"),
    )
]


NEVER_STARTED = ended("The container could not be located", "ContainerStatusUnknown")
WAITING: list[Body] = [{"state": {"waiting": {"reason": "ErrImagePull"}}}]


@pytest.mark.parametrize(
    ("name", "status", "why"),
    [
        ("b", {"phase": "Failed", "containerStatuses": ended("it is not there\n")}, "it is not there"),
        ("b", {"phase": "Failed", "containerStatuses": NEVER_STARTED}, "MountVolume.SetUp failed: access denied"),
        ("b", {"phase": "Pending"}, "MountVolume.SetUp failed: access denied"),
        ("c", {"phase": "Pending", "containerStatuses": WAITING}, "ErrImagePull"),
        ("c", {"phase": "Failed", "message": "Pod was active too long"}, "Pod was active too long"),
        ("c", {"phase": "Pending"}, "the pod is Pending"),
    ],
    ids=["what it said", "never started", "cannot mount", "no image", "too slow", "nothing known"],
)  # fmt: skip
def test_a_node_that_does_not_work_with_the_volume_is_named_with_the_reason(
    tmp_path: Path, name: str, status: Body, why: str
) -> None:
    values = yaml.safe_load((ROOT / "roles" / "verify" / "vars" / "main.yml").read_text())
    pods = [mounting_pod("a", "n1", phase="Succeeded"), mounting_pod(name, "n2", **status)]
    done = run(
        tmp_path, tasks_of("verify/tasks/pods.yml", "Refuse a node on which it does not work"),
        verify_mounting={"resources": pods}, verify_warnings={"resources": WARNINGS}, verify_act="read",
        verify_advice="Look at the exports",
        __verify_hindrances=values["__verify_hindrances"],
    )  # fmt: skip
    assert done.code == 2, done.output
    (failure,) = done.failures
    assert f"no read on n2: {why}." in " ".join(failure.split())
    assert "n1:" not in failure


def node(name: str, **spec: object) -> Body:
    return {"metadata": {"name": name}, "spec": spec}


def test_a_volume_is_not_proved_on_nodes_that_are_cordoned_and_verify_says_so(tmp_path: Path) -> None:
    nodes = [node("a", unschedulable=True), node("b", unschedulable=True), node("c", unschedulable=True)]
    chosen = [
        {
            "name": "Mount",
            "ansible.builtin.include_tasks": str(ROOT / "roles" / "verify" / "tasks" / "mount.yml"),
        }
    ]
    done = run(
        tmp_path, [*chosen, *tasks_of("verify/tasks/storage.yml", "Report the requirements that are not proved")],
        verify_found={"resources": nodes}, muster_hosts_left_out=["c"], verify_mount_seconds=60,
        verify_mount_image="busybox",
    )  # fmt: skip
    assert done.code == 0, done.output
    assert "no node has mounted a volume, for every node is cordoned" in done.output
    done = run(
        tmp_path, tasks_of("verify/tasks/storage.yml", "Report the requirements that are not proved"),
        verify_mounted=["a"], verify_cordoned=["b"], verify_mount_seconds=60,
    )  # fmt: skip
    assert "storage: not proved on b, which is cordoned" in done.output
    assert "no node has mounted" not in done.output
