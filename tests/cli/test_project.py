from __future__ import annotations

import re
import stat
import threading
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from orchestrator.client.projects import NoNamespace, NoSuchProject, OperatorSilent, ProjectClient
from orchestrator.cluster.kubeconfig import load_access
from orchestrator.cluster.transport import Transport
from tests.cli.memory_api_server import namespace_of, project_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.cli.conftest import Outcome
    from tests.cli.memory_api_server import MemoryApiServer


def test_a_created_project_has_the_requested_values(
    muster: Callable[..., Outcome], server: MemoryApiServer
) -> None:
    words = ("--limit", "6", "--over-quota-weight=0.5", "--priority", "3", "--interactive-time-limit", "12h")
    kinds = ("--train-node-type", "dgx1", "--train-node-type", "dgx2", "--interactive-node-type", "dgx1")
    outcome = muster(
        "project", "create", "team-c", "-g", "2.5", *words, *kinds, "--member", "user:ann@example.org"
    )
    assert (outcome.code, outcome.err) == (0, "")
    assert outcome.lines == ["Project team-c has been created in namespace muster-team-c"]
    made = server.find("projects", "team-c")
    assert made is not None
    assert made["spec"] == {
        "gpu": {"quota": 2.5, "limit": 6, "overQuotaWeight": 0.5},
        "priority": 3,
        "nodeAffinity": {"train": ["dgx1", "dgx2"], "interactive": ["dgx1"]},
        "interactiveTimeLimit": "12h",
        "members": [{"kind": "User", "name": "ann@example.org"}],
    }


def test_the_rights_of_its_pods_are_set_and_taken_back(
    muster: Callable[..., Outcome], server: MemoryApiServer
) -> None:
    directories = ("--directory", "/scratch:rw", "--directory", "/sets", "--directory", "/home:rw:nas")
    words = (
        "--pod-security",
        "baseline",
        "--ingress-domain",
        "c.example.org",
        "--max-termination-grace",
        "15m",
    )
    assert muster("project", "create", "team-c", "-g", "1", *directories, *words).code == 0
    made = server.find("projects", "team-c")
    assert made is not None
    assert made["spec"]["security"] == {
        "podSecurity": "baseline",
        "directories": [
            {"path": "/scratch", "writable": True},
            {"path": "/sets"},
            {"path": "/home", "nfsServer": "nas", "writable": True},
        ],
        "ingressDomain": "c.example.org",
        "maxTerminationGraceSeconds": 900,
    }
    assert "DIRECTORIES: /scratch (rw),/sets (ro),nas:/home (rw)" in muster("get", "project", "team-c").lines
    assert muster("project", "update", "team-c", "--directory", "", "--ingress-domain", "").code == 0
    changed = server.find("projects", "team-c")
    assert changed is not None
    left = {key: value for key, value in changed["spec"]["security"].items() if value}
    assert left == {"podSecurity": "baseline", "maxTerminationGraceSeconds": 900}


@pytest.mark.parametrize(
    ("option", "value", "path"),
    [
        ("--member", "user:ann", ("members",)),
        ("--train-node-type", "dgx1", ("nodeAffinity", "train")),
        ("--interactive-node-type", "dgx1", ("nodeAffinity", "interactive")),
        ("--image-pull-secret", "ngc", ("imagePullSecrets",)),
    ],
)
def test_an_empty_text_removes_every_value_of_a_list(
    option: str, value: str, path: tuple[str, ...], muster: Callable[..., Outcome], server: MemoryApiServer
) -> None:
    def listed() -> Any:
        found: Any = (server.find("projects", "team-c") or {})["spec"]
        for key in path:
            found = found[key]
        return found

    assert muster("project", "create", "team-c", "-g", "1", option, value).code == 0
    assert len(listed()) == 1
    assert muster("project", "update", "team-c", option, "").code == 0
    assert listed() == []


@pytest.mark.parametrize("text", ["scratch", "/scratch:x", "/a/../b", "/a,b", "/a//b"])
def test_a_directory_that_cannot_be_meant_is_refused(text: str, muster: Callable[..., Outcome]) -> None:
    outcome = muster("project", "create", "team-c", "-g", "1", "--directory", text)
    assert outcome.code == 2
    assert f"--directory {text!r} is not possible: give /PATH[:ro|rw][:NFS-SERVER]" in outcome.err


def test_quotas_beyond_the_cluster_are_refused(
    muster: Callable[..., Outcome], server: MemoryApiServer
) -> None:
    assert muster("project", "create", "team-c", "-g", "10").code == 0
    outcome = muster("project", "create", "team-d", "-g", "0.5")
    assert (outcome.code, outcome.out) == (1, "")
    assert outcome.err.count("\n") == 1
    assert "16.5" in outcome.err
    assert "16" in outcome.err
    assert server.find("projects", "team-d") is None
    assert muster("project", "update", "team-c", "-g", "10.5").code == 1
    assert muster("project", "update", "team-c", "-g", "9.5").code == 0
    assert muster("project", "create", "team-d", "-g", "0.5").code == 0


@pytest.mark.parametrize(
    ("option", "said"),
    [
        ("--cpu=161", "the quotas add up to 161 CPUs, the cluster has 160"),
        ("--memory=1025Gi", "the quotas add up to 1025Gi of memory, the cluster has 1024Gi"),
    ],
)
def test_processors_and_memory_beyond_the_cluster_are_refused_too(
    muster: Callable[..., Outcome], server: MemoryApiServer, option: str, said: str
) -> None:
    outcome = muster("project", "create", "team-c", "-g", "1", option)
    assert (outcome.code, outcome.out, outcome.err.count("\n")) == (1, "", 1)
    assert said in outcome.err
    assert server.find("projects", "team-c") is None
    assert muster("project", "create", "team-c", "-g", "1", "--cpu=160", "--memory=1Ti").code == 0


def test_departments_hold_the_quotas_of_their_projects(
    muster: Callable[..., Outcome], server: MemoryApiServer
) -> None:
    assert muster("project", "create", "vision", "-g", "8").code == 0
    assert muster("project", "create", "cats", "-g", "5", "--parent", "vision").code == 0
    outcome = muster("project", "create", "dogs", "-g", "5", "--parent", "vision")
    assert outcome.code == 1
    assert "vision" in outcome.err
    assert "nowhere" in muster("project", "create", "dogs", "-g", "1", "--parent", "nowhere").err
    outcome = muster("project", "update", "vision", "--parent", "cats")
    assert outcome.code != 0
    assert "the departments of vision would form a cycle: vision > cats > vision" in outcome.err
    assert muster("project", "delete", "vision").code == 1


def test_a_project_is_created_once(muster: Callable[..., Outcome]) -> None:
    outcome = muster("project", "create", "team-a", "-g", "1")
    assert outcome.code == 1
    assert "muster project update team-a" in outcome.err


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (("Team", "-g", "1"), "Team"),
        (("team-c", "-g", "-1"), "-g/--gpu"),
        (("team-c", "-g", "nan"), "-g/--gpu"),
        (("team-c", "-g", "0.0001"), "-g/--gpu"),
        (("team-c", "-g", "1e999999"), "-g/--gpu"),
        (("team-c", "-g", ""), "-g/--gpu"),
        (("team-c",), "--gpu"),
        (("team-c", "-g", "1", "--limit", "x"), "--limit"),
        (("team-c", "-g", "1", "--member", "ann"), "--member"),
        (("team-c", "-g", "1", "--cpu", "many"), "--cpu"),
        (("team-c", "-g", "1", "--cpu-limit=-1"), "--cpu-limit"),
        (("team-c", "-g", "1", "--memory", "4Q"), "--memory"),
        (("team-c", "-g", "1", "--memory-limit", "nan"), "--memory-limit"),
        (("team-c", "-g", "1", "--preempt-min-runtime", "soon"), "--preempt-min-runtime"),
        (("team-c", "-g", "1", "--reclaim-min-runtime", "-5m"), "--reclaim-min-runtime"),
        (("team-c", "-g", "1", "--interactive-time-limit", "soon"), "--interactive-time-limit"),
        (("team-c", "-g", "1", "--train-node-type", "a b"), "--train-node-type"),
    ],
)
def test_impossible_values_are_refused_before_the_cluster_is_asked(
    words: tuple[str, ...], named: str, muster: Callable[..., Outcome], server: MemoryApiServer
) -> None:
    outcome = muster("project", "create", *words)
    assert (outcome.code, outcome.out) == (2, "")
    assert outcome.err.count("\n") == 1
    assert named in outcome.err
    assert server.requests == []


def test_a_quota_is_changed_by_an_amount(muster: Callable[..., Outcome], server: MemoryApiServer) -> None:
    assert muster("project", "create", "team-c", "-g", "1.5").code == 0
    for change, quota in (("+2", 3.5), ("-0.5", 3), ("-3", 0)):
        assert muster("project", "update", "team-c", "-g", change).code == 0
        found = server.find("projects", "team-c", "")
        assert found is not None
        assert found["spec"]["gpu"]["quota"] == quota
    for words, error in (
        (("-g", "-1"), "the value is 0"),
        (("--limit", "+1"), "there is no value to change"),
        (("-g", "+"), "is not possible"),
        (("-g", "++1"), "is not possible"),
    ):
        outcome = muster("project", "update", "team-c", *words)
        assert (outcome.code, outcome.out) == (2, "")
        assert error in outcome.err


def test_update_changes_only_the_named_values(
    muster: Callable[..., Outcome], server: MemoryApiServer
) -> None:
    server.add(project_of("team-c", 2, priority=1, interactiveTimeLimit="1h"))
    assert muster("project", "update", "team-c", "--limit", "4").code == 0
    changed = server.find("projects", "team-c")
    assert changed is not None
    assert changed["spec"] == {"gpu": {"quota": 2, "limit": 4}, "priority": 1, "interactiveTimeLimit": "1h"}
    assert muster("project", "update", "team-c", "--limit=", "--interactive-time-limit=").code == 0
    changed = server.find("projects", "team-c")
    assert changed is not None
    assert changed["spec"] == {"gpu": {"quota": 2}, "priority": 1}


def test_processors_memory_and_minimum_runtimes_are_set_and_removed(
    muster: Callable[..., Outcome], server: MemoryApiServer
) -> None:
    words = ("--cpu=64", "--cpu-limit=80500m", "--memory-limit=1Ti", "--reclaim-min-runtime=10m")
    assert muster("project", "create", "team-c", "-g", "1", *words).code == 0
    made = server.find("projects", "team-c")
    assert made is not None
    assert made["spec"]["cpu"] == {"quota": "64", "limit": "80500m"}
    assert made["spec"]["memory"] == {"limit": "1Ti"}
    assert made["spec"]["reclaimMinRuntime"] == "10m"
    less = ("--cpu-limit=", "--memory=0", "--reclaim-min-runtime=", "--preempt-min-runtime=1m")
    assert muster("project", "update", "team-c", *less).code == 0
    changed = server.find("projects", "team-c")
    assert changed is not None
    assert changed["spec"] == {
        "gpu": {"quota": 1},
        "nodeAffinity": {},
        "cpu": {"quota": "64"},
        "memory": {"quota": "0", "limit": "1Ti"},
        "preemptMinRuntime": "1m",
    }


def test_list_marks_the_default_project(muster: Callable[..., Outcome], server: MemoryApiServer) -> None:
    affinity = {"train": ["dgx1", "dgx2"]}
    server.add(project_of("lab", 0.5, parent="team-a", interactiveTimeLimit="12h", nodeAffinity=affinity))
    outcome = muster("project", "list")
    assert [re.split(r" {2,}", line) for line in outcome.lines] == [
        ["PROJECT", "DEPARTMENT", "DESERVED GPUs", "INT LIMIT", "INT AFFINITY", "TRAIN AFFINITY"],
        ["lab", "team-a", "0.5", "12h0m0s", "-", "dgx1,dgx2"],
        ["team-a (default)", "-", "4", "-", "-", "-"],
        ["team-b", "-", "2", "-", "-", "-"],
    ]
    assert [each["name"] for each in muster("project", "list", "-o", "json").json] == [
        "lab",
        "team-a",
        "team-b",
    ]


def test_a_project_says_when_it_was_created(muster: Callable[..., Outcome], server: MemoryApiServer) -> None:
    lab = project_of("lab", 1)
    lab["metadata"]["creationTimestamp"] = "2026-11-21T10:00:05Z"
    server.add(lab)
    created = {each["name"]: each["created"] for each in muster("project", "list", "-o", "json").json}
    assert created["lab"] == "2026-11-21T10:00:05Z"


def test_set_rewrites_the_namespace_of_the_context(muster: Callable[..., Outcome], kubeconfig: Path) -> None:
    kubeconfig.chmod(0o600)
    outcome = muster("project", "set", "team-b")
    assert (outcome.code, outcome.out) == (0, "Project team-b has been set as default project\n")
    context = yaml.safe_load(kubeconfig.read_text())["contexts"][0]["context"]
    assert context["namespace"] == "people-of-b"
    assert stat.S_IMODE(kubeconfig.stat().st_mode) == 0o600
    assert muster("list").lines[0] == "Showing jobs for project team-b"


def test_set_of_an_unknown_project_changes_nothing(muster: Callable[..., Outcome], kubeconfig: Path) -> None:
    before = kubeconfig.read_bytes()
    assert muster("project", "set", "nobody").code == 1
    assert kubeconfig.read_bytes() == before


def test_a_project_with_jobs_is_deleted_only_by_force(
    muster: Callable[..., Outcome], server: MemoryApiServer
) -> None:
    muster("submit", "hyper1", "-i", "image")
    outcome = muster("project", "delete", "team-a")
    assert outcome.code == 1
    assert "--force" in outcome.err
    assert server.find("projects", "team-a") is not None
    assert muster("project", "delete", "team-a", "--force").code == 0
    assert server.find("projects", "team-a") is None


def test_a_cluster_without_the_operator_is_told_the_command_to_install_it(
    muster: Callable[..., Outcome], server: MemoryApiServer
) -> None:
    server.refuse("GET", "/apis/muster.dev/v1alpha1/projects", 404, "NotFound")
    outcome = muster("project", "list")
    assert outcome.code == 1
    assert "muster operator-yaml" in outcome.err


def test_no_wait_does_not_wait_for_the_namespace(
    muster: Callable[..., Outcome], server: MemoryApiServer
) -> None:
    server.operator_runs = False
    assert (
        muster("project", "create", "team-c", "-g", "1", "--no-wait").out
        == "Project team-c has been created\n"
    )


async def test_a_namespace_that_comes_late_is_waited_for(kubeconfig: Path, server: MemoryApiServer) -> None:
    server.add(project_of("late", 1))
    async with Transport(load_access(kubeconfig)) as transport:
        timer = threading.Timer(0.2, lambda: server.add(namespace_of("late")))
        timer.start()
        scope = await ProjectClient(transport).resolve("late", "")
        timer.join()
    assert scope.namespace == "muster-late"


async def test_a_wait_for_a_namespace_is_said_before_it_ends(
    kubeconfig: Path, server: MemoryApiServer
) -> None:
    why = "the namespace muster-late is being deleted"
    condition = {"type": "Ready", "status": "False", "reason": "NoNamespace", "message": why}
    server.add({**project_of("late", 1), "status": {"conditions": [condition]}})
    lines: list[str] = []

    def report(line: str) -> None:
        lines.append(line)
        server.add(namespace_of("late"))

    async with Transport(load_access(kubeconfig)) as transport:
        scope = await ProjectClient(transport, patience_seconds=60, report=report).resolve("late", "")
    assert scope.namespace == "muster-late"
    assert [f"project late: {why}" in line for line in lines] == [True]


async def test_a_namespace_that_never_comes_means_that_the_operator_does_not_run(
    kubeconfig: Path, server: MemoryApiServer
) -> None:
    server.add(project_of("late", 1))
    async with Transport(load_access(kubeconfig)) as transport:
        with pytest.raises(OperatorSilent, match="operator does not run"):
            await ProjectClient(transport, patience_seconds=0.2).resolve("late", "")
        with pytest.raises(NoSuchProject):
            await ProjectClient(transport, patience_seconds=0.2).resolve("nobody", "")


async def test_a_missing_namespace_is_explained_by_the_condition_of_the_project(
    kubeconfig: Path, server: MemoryApiServer
) -> None:
    """The namespace of an earlier project with this name is still terminating."""
    why = "the namespace muster-late is being deleted: the project has another one after that"
    condition = {"type": "Ready", "status": "False", "reason": "NoNamespace", "message": why}
    server.add({**project_of("late", 1), "status": {"conditions": [condition]}})
    async with Transport(load_access(kubeconfig)) as transport:
        with pytest.raises(NoNamespace, match=f"the project late has no namespace: {why}"):
            await ProjectClient(transport, 0.4).resolve("late", "")


def test_quotas_for_gpu_models_are_set_changed_and_removed(
    muster: Callable[..., Outcome], server: MemoryApiServer
) -> None:
    """Every node of the double has this model."""
    model = "Tesla-V100-SXM2-32GB"

    def models() -> object:
        made = server.find("projects", "team-c")
        return None if made is None else made["spec"]["gpu"].get("models")

    words = ("--gpu-model-quota", f"{model}=4", "--gpu-model-limit", f"{model}=8")
    assert muster("project", "create", "team-c", "-g", "6", *words).code == 0
    assert models() == {model: {"quota": 4, "limit": 8}}
    assert muster("project", "update", "team-c", "--gpu-model-limit", f"{model}=").code == 0
    assert models() == {model: {"quota": 4}}
    for wrong, words_of_error in (
        (f"{model}=7", "add up to 7 GPUs, its quota is 6"),
        ("Tesla-P100=1", "the quotas for Tesla-P100 add up to 1 GPUs"),
        ("4", "MODEL=GPUS"),
        (f"{model}=x", "--gpu-model-quota"),
    ):
        outcome = muster("project", "update", "team-c", "--gpu-model-quota", wrong)
        assert (outcome.code, outcome.err.count("\n")) == (1 if "add up" in words_of_error else 2, 1)
        assert words_of_error in outcome.err
    assert models() == {model: {"quota": 4}}
    assert muster("project", "update", "team-c", "--gpu-model-quota", f"{model}=").code == 0
    assert not models()
