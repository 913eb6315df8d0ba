from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import yaml

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.cli.conftest import Outcome
    from tests.cli.memory_api_server import MemoryApiServer

IMAGE = ("-i", "gcr.io/run-ai-demo/quickstart")
NAMESPACE = "muster-team-a"


def test_a_train_job_is_created_in_the_contexts_project(
    muster: Callable[..., Outcome], server: MemoryApiServer
) -> None:
    outcome = muster("submit", "hyper1", *IMAGE, "-g", "1", "-u", "yaron")
    assert (outcome.code, outcome.err) == (0, "")
    assert outcome.lines == [
        "The job 'hyper1' has been submitted successfully",
        "You can run `muster get hyper1 -p team-a` to check the job status",
    ]
    job = server.find("jobs", "hyper1", NAMESPACE)
    assert job is not None
    assert job["metadata"]["annotations"]["muster.dev/user"] == "yaron"
    assert job["metadata"]["annotations"]["muster.dev/command-line"] == (
        "muster submit hyper1 -i gcr.io/run-ai-demo/quickstart -g 1 -u yaron"
    )
    stamp = job["metadata"]["annotations"]["muster.dev/submitted-at"]
    assert job["spec"]["template"]["metadata"]["annotations"]["muster.dev/submitted-at"] == stamp


def test_the_label_decides_which_namespace_belongs_to_a_project(
    muster: Callable[..., Outcome], server: MemoryApiServer
) -> None:
    assert muster("submit", "hyper1", *IMAGE, "-p", "team-b").code == 0
    assert server.find("jobs", "hyper1", "people-of-b") is not None


@pytest.mark.parametrize("before", [True, False])
def test_common_options_stand_before_or_after_the_command(
    before: bool, muster: Callable[..., Outcome], server: MemoryApiServer
) -> None:
    project = ("--project", "team-b")
    words = ("submit", "hyper1", *IMAGE)
    assert muster(*project, *words).code == 0 if before else muster(*words, *project).code == 0
    assert server.find("jobs", "hyper1", "people-of-b") is not None


def test_an_interactive_job_comes_with_service_and_ingress_that_it_owns(
    muster: Callable[..., Outcome], server: MemoryApiServer
) -> None:
    words = ("--interactive", "--service-type=ingress", "--port", "8888")
    assert muster("submit", "note", *IMAGE, "-g", "1", *words).code == 0
    owner = server.find("statefulsets", "note", NAMESPACE)
    assert owner is not None
    for plural in ("services", "ingresses"):
        beside = server.find(plural, "note", NAMESPACE)
        assert beside is not None
        assert [each["uid"] for each in beside["metadata"]["ownerReferences"]] == [owner["metadata"]["uid"]]


@pytest.mark.parametrize("flag", [(), ("--interactive",)])
def test_a_name_is_taken_by_a_job_of_either_kind(
    flag: tuple[str, ...], muster: Callable[..., Outcome], server: MemoryApiServer
) -> None:
    assert muster("submit", "twice", *IMAGE).code == 0
    writes = len(server.writes())
    outcome = muster("submit", "twice", *IMAGE, *flag)
    assert outcome.code == 1
    assert outcome.err == (
        "Error: The job twice already exists, please delete it first. use 'muster delete twice'\n"
    )
    assert len(server.writes()) == writes


@pytest.mark.parametrize(
    ("plural", "group"), [("services", "/api/v1"), ("ingresses", "/apis/networking.k8s.io/v1")]
)
def test_nothing_is_left_when_a_later_object_is_refused(
    plural: str, group: str, muster: Callable[..., Outcome], server: MemoryApiServer
) -> None:
    server.refuse("POST", f"{group}/namespaces/{NAMESPACE}/{plural}", 403, "Forbidden")
    outcome = muster("submit", "note", *IMAGE, "--interactive", "-s", "ingress", "--port", "8888")
    assert outcome.code == 1
    assert outcome.err.count("\n") == 1
    assert "not authorized" in outcome.err
    assert [each for kind in ("statefulsets", "services", "ingresses") for each in server.all(kind)] == []


def test_a_workload_that_cannot_be_removed_again_is_named(
    muster: Callable[..., Outcome], server: MemoryApiServer
) -> None:
    server.refuse("POST", f"/api/v1/namespaces/{NAMESPACE}/services", 500, "InternalError")
    server.refuse("DELETE", f"/apis/apps/v1/namespaces/{NAMESPACE}/statefulsets/note", 500, "InternalError")
    outcome = muster("submit", "note", *IMAGE, "--interactive", "-s", "nodeport", "--port", "8888")
    assert outcome.code == 1
    assert "muster delete note" in outcome.err


def test_the_service_of_an_earlier_job_of_that_name_gives_way(
    muster: Callable[..., Outcome], server: MemoryApiServer
) -> None:
    labels = {"muster.dev/workload": "note"}
    owner = {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "note", "uid": "gone"}
    metadata = {"name": "note", "namespace": NAMESPACE, "labels": labels, "ownerReferences": [owner]}
    server.add({"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": {}})
    assert muster("submit", "note", *IMAGE, "--interactive", "-s", "nodeport", "--port", "8888").code == 0
    service = server.find("services", "note", NAMESPACE)
    assert service is not None
    assert service["spec"]["type"] == "NodePort"


def test_the_service_of_another_owner_is_not_changed(
    muster: Callable[..., Outcome], server: MemoryApiServer
) -> None:
    metadata = {"name": "note", "namespace": NAMESPACE}
    server.add({"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": {"type": "theirs"}})
    outcome = muster("submit", "note", *IMAGE, "--interactive", "-s", "nodeport", "--port", "8888")
    assert outcome.code == 1
    service = server.find("services", "note", NAMESPACE)
    assert service is not None
    assert service["spec"]["type"] == "theirs"
    assert server.all("statefulsets") == []


def test_dry_run_prints_the_objects_and_creates_nothing(
    muster: Callable[..., Outcome], server: MemoryApiServer
) -> None:
    outcome = muster(
        "submit",
        "note",
        *IMAGE,
        "--interactive",
        "-s",
        "ingress",
        "--port",
        "80",
        "--dry-run",
        "-p",
        "team-b",
    )
    assert outcome.code == 0
    objects = list(yaml.safe_load_all(outcome.out))
    assert [each["kind"] for each in objects] == ["StatefulSet", "Service", "Ingress"]
    assert {each["metadata"]["namespace"] for each in objects} == {"people-of-b"}
    assert server.writes() == []


def test_dry_run_works_without_a_cluster_and_names_its_guesses(
    muster: Callable[..., Outcome], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "nothing"))
    outcome = muster("submit", "hyper1", *IMAGE, "-p", "team-x", "--dry-run")
    assert outcome.code == 0
    assert yaml.safe_load(outcome.out)["metadata"]["namespace"] == "muster-team-x"
    assert "is assumed" in outcome.err


@pytest.mark.parametrize(
    ("words", "command", "args"),
    [
        (("--command", "sleep", "--args", "infinity"), ["sleep"], ["infinity"]),
        (("--command=start-notebook.sh",), ["start-notebook.sh"], None),
        (("--args", "--x=1", "--args", "-g"), None, ["--x=1", "-g"]),
        (("--args", "--"), None, ["--"]),
        (("--args=--x=1",), None, ["--x=1"]),
        (("--", "python", "-g", "2"), None, ["python", "-g", "2"]),
        (("--command", "--", "python", "-v"), ["python", "-v"], None),
        (("--command=true", "--", "python"), ["python"], None),
        (("--command=false", "--", "python"), None, ["python"]),
        (("--args", "first", "--", "--command", "--"), None, ["first", "--command", "--"]),
        (("--",), None, None),
    ],
)
def test_command_and_arguments_of_both_generations(
    words: tuple[str, ...],
    command: list[str] | None,
    args: list[str] | None,
    muster: Callable[..., Outcome],
    server: MemoryApiServer,
) -> None:
    assert muster("submit", "x", *IMAGE, *words).code == 0
    container = _container(server)
    assert (container.get("command"), container.get("args")) == (command, args)


@pytest.mark.parametrize(
    ("words", "kind"),
    [
        (("--interactive",), "statefulsets"),
        (("--interactive=true",), "statefulsets"),
        (("--interactive=false",), "jobs"),
        (("--interactive", "--interactive=false"), "jobs"),
        (("--interactive=false", "--interactive"), "statefulsets"),
        (("--interactive=False", "-e", "--interactive=true"), None),
        (("--args", "--interactive=true"), "jobs"),
    ],
)
def test_a_boolean_may_be_given_as_true_or_false(
    words: tuple[str, ...], kind: str | None, muster: Callable[..., Outcome], server: MemoryApiServer
) -> None:
    outcome = muster("submit", *words, "x", *IMAGE)
    assert outcome.code == (2 if kind is None else 0)
    for plural in ("statefulsets", "jobs"):
        assert bool(server.all(plural)) == (plural == kind)


@pytest.mark.parametrize(
    "value", ["-1", "1.5", "0", "nan", "0.0001", "inf", "", "0.0", "1e0", "+1", "\u0661", "1,0"]
)
@pytest.mark.parametrize("join", [True, False])
def test_an_impossible_number_of_gpus_is_refused_in_one_line(
    value: str, join: bool, muster: Callable[..., Outcome], server: MemoryApiServer
) -> None:
    words = (f"--gpu={value}",) if join else ("-g", value)
    outcome = muster("submit", "x", *IMAGE, *words)
    assert (outcome.code, outcome.out) == (2, "")
    assert outcome.err.count("\n") == 1
    assert "-g/--gpu" in outcome.err
    assert "whole number" in outcome.err
    assert server.requests == []


@pytest.mark.parametrize(
    ("words", "names"),
    [
        (("x",), "--image"),
        (("X", *IMAGE), "'X'"),
        (("a" * 53, *IMAGE), "52"),
        (("x", "--name", "y", *IMAGE), "two names"),
        (("x", *IMAGE, "--frob"), "--frob"),
        (("x", *IMAGE, "-g"), "-g"),
        (("x", *IMAGE, "--interactive=maybe"), "--interactive"),
        (("x", *IMAGE, "--service-type", "ftp", "--port", "1"), "--service-type"),
        (("x", *IMAGE, "--service-type", "ingress"), "--port"),
        (("x", *IMAGE, "--port", "80"), "--service-type"),
        (("x", *IMAGE, "--port", "0", "-s", "ingress"), "--port"),
        (("x", *IMAGE, "--completions", "0"), "--completions"),
        (("x", *IMAGE, "--parallelism", "2"), "--completions"),
        (("x", *IMAGE, "--min-member", "2"), "--min-member"),
        (("x", *IMAGE, "--interactive", "--completions", "2"), "--completions"),
        (("x", *IMAGE, "--ttl-after-finish", "5"), "--ttl-after-finish"),
        (("x", *IMAGE, "--memory", "lots"), "--memory"),
        (("x", *IMAGE, "--cpu", "0"), "--cpu"),
        (("x", *IMAGE, "--pvc", "fast:10Gi:data"), "--pvc"),
        (("x", *IMAGE, "--pvc", "claim:data"), "--pvc"),
        (("x", *IMAGE, "-v", "mnt:/mnt"), "--volume"),
        (("x", *IMAGE, "-e", "novalue"), "--environment"),
        (("x", *IMAGE, "-e", "NVIDIA_VISIBLE_DEVICES=all"), "NVIDIA_VISIBLE_DEVICES"),
        (("x", *IMAGE, "--large-shm", "-v", "/a:/dev/shm"), "/dev/shm"),  # noqa: S108
        (("x", *IMAGE, "--local-image", "--image-pull-policy", "Always"), "--local-image"),
        (("x", *IMAGE, "--command"), "--command"),
        (("x", *IMAGE, "--command", "--"), "--command"),
        (("x", *IMAGE, "--command=sleep", "--", "y"), "--command"),
        (("x", "y", *IMAGE), "y"),
        (("x\ud800", *IMAGE), "UTF-8"),
        (("x\n\x1b[31m", *IMAGE), "name"),
    ],
)
def test_impossible_submissions_are_refused_in_one_line_and_nothing_is_created(
    words: tuple[str, ...], names: str, muster: Callable[..., Outcome], server: MemoryApiServer
) -> None:
    outcome = muster("submit", *words)
    assert (outcome.code, outcome.out) == (2, "")
    assert outcome.err.startswith("Error: ")
    assert outcome.err.count("\n") == 1
    assert "\x1b" not in outcome.err
    assert names in outcome.err
    assert server.writes() == []


def _container(server: MemoryApiServer) -> dict[str, Any]:
    (job,) = server.all("jobs")
    container: dict[str, Any] = job["spec"]["template"]["spec"]["containers"][0]
    return container
