"""The commands on several jobs together (`cli/batch.py`): suspend, resume, delete."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.cli.memory_api_server import pod_of
from tests.cli.terminals import terminal

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.cli.conftest import Outcome
    from tests.cli.memory_api_server import MemoryApiServer

NAMESPACE = "muster-team-a"


def test_a_job_is_suspended_and_resumed(muster: Callable[..., Outcome], server: MemoryApiServer) -> None:
    muster("submit", "train", "-i", "image", "-g", "1")
    outcome = muster("suspend", "train")
    assert (outcome.code, outcome.out) == (0, "The job 'train' has been suspended successfully\n")
    assert _spec(server, "jobs", "train")["suspend"] is True
    assert muster("list").lines[2].split()[1] == "Suspended"
    assert muster("resume", "job", "train").code == 0
    assert _spec(server, "jobs", "train")["suspend"] is False
    assert muster("list").lines[2].split()[1] == "Pending"


def test_an_interactive_job_is_suspended_by_its_replicas_and_gets_them_back(
    muster: Callable[..., Outcome], server: MemoryApiServer
) -> None:
    muster("submit", "note", "-i", "image", "-g", "2", "--interactive")
    made = server.find("statefulsets", "note", NAMESPACE)
    assert made is not None
    made["spec"]["replicas"] = 3
    for _ in range(2):
        assert muster("suspend", "note").code == 0
    assert _spec(server, "statefulsets", "note")["replicas"] == 0
    line = muster("list").lines[2].split()
    assert (line[1], line[8]) == ("Suspended", "6")
    for _ in range(2):
        assert muster("resume", "note").code == 0
    assert _spec(server, "statefulsets", "note")["replicas"] == 3
    found = server.find("statefulsets", "note", NAMESPACE)
    assert found is not None
    assert "muster.dev/suspended-replicas" not in found["metadata"]["annotations"]


@pytest.mark.parametrize("command", ["suspend", "resume"])
def test_ended_or_missing_jobs_are_named_and_the_others_are_done(
    command: str, muster: Callable[..., Outcome], server: MemoryApiServer
) -> None:
    for name in ("ended", "other"):
        muster("submit", name, "-i", "image")
    ended = server.find("jobs", "ended", NAMESPACE)
    assert ended is not None
    ended["status"] = {"conditions": [{"type": "Complete", "status": "True"}]}
    spec = {"schedulerName": "muster", "containers": [{"name": "main", "image": "image"}]}
    metadata = {"name": "bare", "namespace": NAMESPACE}
    server.add({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
    outcome = muster(command, "ended", "nothing", "bare", "other")
    assert outcome.code == 1
    assert outcome.lines == [f"The job 'other' has been {command.rstrip('e')}ed successfully"]
    errors = outcome.err.splitlines()
    assert [word in line for word, line in zip(("ended", "nothing", "bare"), errors, strict=True)] == [
        True
    ] * 3


def test_all_jobs_of_the_project_and_no_others_are_suspended_resumed_and_deleted(
    muster: Callable[..., Outcome], server: MemoryApiServer
) -> None:
    for name in ("one", "two"):
        muster("submit", name, "-i", "image")
    muster("submit", "foreign", "-i", "image", "-p", "team-b")
    for command in ("suspend", "resume", "delete"):
        outcome = muster(command, "-A")
        assert outcome.code == 0
        assert len(outcome.lines) == 2
    assert [each["metadata"]["name"] for each in server.all("jobs")] == ["foreign"]
    assert muster("delete", "--all").lines == ["There is no job to be deleted"]


@pytest.mark.parametrize("command", ["suspend", "resume", "delete"])
@pytest.mark.parametrize("words", [("-A", "x"), ("job",), ("--all=false",)])
def test_names_and_all_exclude_each_other(
    command: str, words: tuple[str, ...], muster: Callable[..., Outcome], server: MemoryApiServer
) -> None:
    outcome = muster(command, *words)
    assert (outcome.code, outcome.out) == (2, "")
    assert "--all" in outcome.err
    assert server.requests == []


def test_newer_scripts_say_delete_job(muster: Callable[..., Outcome], server: MemoryApiServer) -> None:
    muster("submit", "one", "-i", "image")
    assert muster("delete", "job", "one", "-p", "team-a").code == 0
    assert server.all("jobs") == []


def test_a_change_in_between_is_not_overwritten(
    muster: Callable[..., Outcome], server: MemoryApiServer
) -> None:
    muster("submit", "train", "-i", "image")
    job = server.find("jobs", "train", NAMESPACE)
    assert job is not None
    path = f"/apis/batch/v1/namespaces/{NAMESPACE}/jobs/train"
    server.refuse("PATCH", path, 409, "Conflict")
    outcome = muster("suspend", "train")
    assert outcome.code == 1
    assert outcome.err.count("\n") == 1


def test_a_right_that_is_missing_is_named_with_the_role_that_has_it(
    muster: Callable[..., Outcome], server: MemoryApiServer
) -> None:
    muster("submit", "train", "-i", "image")
    server.refuse("DELETE", f"/apis/batch/v1/namespaces/{NAMESPACE}/jobs/train", 403, "Forbidden")
    outcome = muster("delete", "train")
    assert outcome.code == 1
    for word in ("denied", "delete jobs", NAMESPACE, "muster-researcher"):
        assert word in outcome.err


def test_a_suspended_job_whose_pod_still_ends_is_terminating(
    muster: Callable[..., Outcome], server: MemoryApiServer
) -> None:
    muster("submit", "train", "-i", "image")
    job = server.find("jobs", "train", NAMESPACE)
    assert job is not None
    pod = pod_of(job, "train-abc", phase="Running", node_name="dgx1-1")
    pod["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    server.add(pod)
    muster("suspend", "train")
    assert muster("list").lines[2].split()[1] == "Terminating"


def _spec(server: MemoryApiServer, plural: str, name: str) -> dict[str, Any]:
    found = server.find(plural, name, NAMESPACE)
    assert found is not None
    spec: dict[str, Any] = found["spec"]
    return spec


def test_all_are_ones_own_jobs_unless_others_are_asked_for(
    muster: Callable[..., Outcome], server: MemoryApiServer
) -> None:
    muster("submit", "mine", "-i", "image")
    for name in ("theirs", "others"):
        muster("submit", name, "-i", "image", "-u", "bob")
    outcome = muster("delete", "--all")
    assert outcome.lines == ["The job 'mine' has been deleted successfully"]
    assert outcome.err == "2 jobs of other users not deleted: add --all-users\n"
    assert muster("delete", "--user", "bob", "-l", "none").lines == ["There is no job to be deleted"]
    assert muster("delete", "--status", "pending", "--all-users").code == 0
    assert server.all("jobs") == []


def test_a_choice_and_names_exclude_each_other(muster: Callable[..., Outcome]) -> None:
    for words in (("one", "--status", "Failed"), ("one", "--all-users"), ("--user", "bob", "--all-users")):
        outcome = muster("delete", *words)
        assert (outcome.code, outcome.out) == (2, "")


@pytest.mark.parametrize("command", ["delete", "suspend", "requeue"])
def test_one_interrupt_ends_a_question_and_nothing_is_changed(
    command: str, muster: Callable[..., Outcome], server: MemoryApiServer, kubeconfig: Path
) -> None:
    muster("submit", "one", "-i", "image")
    server.requests.clear()
    with terminal(kubeconfig, command, "--all", columns=250) as person:
        person.see(b"Continue?")
        person.type(b"\x03")
        person.see(b"interrupted")
        assert person.exit_code() == 130
    assert server.writes() == []
