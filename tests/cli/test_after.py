"""`muster submit --after`: the created objects, the refusals, and the output of list, get, explain, wait and the
client.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from orchestrator.client import Client, Dependency, InvalidField, Missing, Submission
from tests.cli.test_wait import end

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.cli.conftest import Outcome
    from tests.cli.memory_api_server import MemoryApiServer

    Muster = Callable[..., Outcome]

NAMESPACE = "muster-team-a"
IMAGE = ("-i", "image")


def job(server: MemoryApiServer, name: str) -> dict[str, Any]:
    found = server.find("jobs", name, NAMESPACE)
    assert found is not None
    return found


def after(server: MemoryApiServer, name: str) -> str | None:
    text: str | None = job(server, name)["metadata"]["annotations"].get("muster.dev/after")
    return text


@pytest.fixture
def prepared(muster: Muster, server: MemoryApiServer) -> MemoryApiServer:
    """The jobs good, which succeeded, bad, which failed, and prepare, which has not ended."""
    for name, condition in (("good", "Complete"), ("bad", "Failed"), ("prepare", "")):
        assert muster("submit", name, *IMAGE).code == 0
        if condition:
            end(server, name, condition)
    return server


def test_a_job_after_another_is_suspended_and_keeps_which(muster: Muster, prepared: MemoryApiServer) -> None:
    uid = job(prepared, "prepare")["metadata"]["uid"]
    words = ("--after", "prepare", "--after", "good", "--after", "bad:ended")
    assert muster("submit", "train", *IMAGE, *words).code == 0
    assert job(prepared, "train")["spec"]["suspend"] is True
    assert after(prepared, "train") == f"prepare:succeeded:{uid}"


def test_a_job_whose_dependencies_are_met_is_submitted_like_any_other(
    muster: Muster, prepared: MemoryApiServer
) -> None:
    assert muster("submit", "train", *IMAGE, "--after", "good", "--after", "bad:failed").code == 0
    assert "suspend" not in job(prepared, "train")["spec"]
    assert after(prepared, "train") is None


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        ("--after missing", "--after missing: project team-a has no job of that name"),
        ("--after notebook", "--after notebook: the job is interactive, and does not end by itself"),
        ("--after bad", "--after bad: the job has failed, so it does not become succeeded"),
        ("--after good:failed", "--after good: the job has succeeded, so it does not become failed"),
        ("--after brief:ended", "--ttl-after-finish 60s or more"),
        ("--after prepare:done", "one of succeeded, ended, failed"),
        ("--after prepare:", "one of succeeded, ended, failed"),
        ("--after Prepare", "write JOB or JOB:STATE"),
        ("--after prepare --after prepare:failed", "--after prepare is given twice"),
        ("--after prepare --interactive", "--after does not go with --interactive"),
        ("--after train", "--after train: project team-a has no job of that name"),
    ],
)
def test_a_dependency_that_cannot_be_met_is_refused_and_nothing_created(
    words: str, problem: str, muster: Muster, prepared: MemoryApiServer
) -> None:
    muster("submit", "notebook", *IMAGE, "--interactive")
    muster("submit", "brief", *IMAGE, "--ttl-after-finish", "5s")
    for dry_run in ((), ("--dry-run",)):
        outcome = muster("submit", "train", *IMAGE, *words.split(), *dry_run)
        assert outcome.code in (1, 2)
        assert problem in outcome.err
        assert outcome.err.count("\n") == 1
    assert prepared.find("jobs", "train", NAMESPACE) is None


def test_the_commands_say_why_it_has_not_started(muster: Muster, prepared: MemoryApiServer) -> None:
    muster("submit", "train", *IMAGE, "--after", "prepare")
    muster("submit", "clean", *IMAGE, "--after", "train:ended")
    because = "WaitsForJob: it starts after prepare has succeeded"
    (row,) = (line for line in muster("list", "-o", "wide").lines if line.startswith("train "))
    assert "Pending" in row
    assert because in row
    assert because in muster("get", "train").out
    assert muster("explain", "train").lines == [f"train of team-a is pending: {because}."]
    assert muster("explain", "train", "--json").json["waitsBecause"] == because
    assert muster("suspend", "train").err.startswith("Error: the job train has not started")

    end(prepared, "prepare", "Failed")
    never = "DependencyFailed: the job prepare has failed and not succeeded; "
    for name, words in (("train", never), ("clean", "DependencyFailed: the job train does not start either")):
        (row,) = (line for line in muster("list").lines if line.startswith(f"{name} "))
        assert row.split()[1] == "DependencyFailed"
        assert words in muster("list", "-o", "wide", "--status", "DependencyFailed").out
        assert f"{name} of team-a is pending: {words}" in muster("explain", name).out
        outcome = muster("wait", name)
        assert outcome.code == 1
        assert f"{name} does not start: {words}" in outcome.err
    assert muster("resume", "train").code == 0
    assert after(prepared, "train") is None
    assert job(prepared, "train")["spec"]["suspend"] is False
    assert "WaitsForJob: it starts after train has ended" in muster("get", "clean").out


def test_a_deleted_job_is_named_also_when_another_has_its_name_now(
    muster: Muster, prepared: MemoryApiServer
) -> None:
    muster("submit", "train", *IMAGE, "--after", "prepare:ended")
    muster("delete", "prepare")
    words = "DependencyFailed: the job prepare was deleted before it had ended; "
    assert words in muster("explain", "train").out
    muster("submit", "prepare", *IMAGE)
    end(prepared, "prepare", "Complete")
    assert words in muster("explain", "train").out
    assert "There is no job to be suspended" in muster("suspend", "--status", "DependencyFailed", "-y").out


def test_a_job_that_was_started_by_hand_is_suspended_for_good(
    muster: Muster, prepared: MemoryApiServer
) -> None:
    muster("submit", "train", *IMAGE, "--after", "prepare")
    started = job(prepared, "train")
    prepared.add({**started, "spec": {**started["spec"], "suspend": False}})
    assert muster("suspend", "train").code == 0
    assert job(prepared, "train")["spec"]["suspend"] is True
    assert after(prepared, "train") is None


def test_the_client_takes_dependencies(kubeconfig: object, prepared: MemoryApiServer) -> None:
    del kubeconfig
    with Client() as client:
        first = Submission(name="a", image="image", user="ann", after=(Dependency("prepare", "ended"),))
        views = client.submit(first).view, client.get_job("a")
        assert [view.waits_because for view in views] == [
            "WaitsForJob: it starts after prepare has ended"
        ] * 2
        with pytest.raises(Missing, match="after nothing"):
            client.submit(Submission(name="b", image="image", user="ann", after=(Dependency("nothing"),)))
    with pytest.raises(InvalidField, match="after"):
        Submission(name="b", image="image", user="ann", after=(Dependency("a", "done"),))
