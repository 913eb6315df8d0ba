"""`muster wait`, `submit --wait` and the waits of the client: states, failures, deletions and time limits."""

from __future__ import annotations

from contextlib import contextmanager
from threading import Thread
from typing import TYPE_CHECKING

import pytest

from orchestrator.client import Client, NoSuchWorkload, NotReached, Submission, WaitTimeout
from tests.cli.memory_api_server import pod_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

    from tests.cli.conftest import Outcome
    from tests.cli.memory_api_server import MemoryApiServer

NAMESPACE = "muster-team-a"


def end(server: MemoryApiServer, name: str, condition: str) -> None:
    """Set the condition with which the Job has ended."""
    job: dict[str, Any] | None = server.find("jobs", name, NAMESPACE)
    assert job is not None
    server.add({**job, "status": {"conditions": [{"type": condition, "status": "True"}]}})


@contextmanager
def once_watched(server: MemoryApiServer, change: Callable[[], object]) -> Iterator[None]:
    """Make the change as soon as a new watch of Jobs begins."""
    before = watches(server)

    def act() -> None:
        server.until(lambda: watches(server) > before)
        change()

    thread = Thread(target=act)
    thread.start()
    yield
    thread.join()


def watches(server: MemoryApiServer) -> int:
    return sum(method == "WATCH" and path.endswith("/jobs") for method, path in server.requests)


def test_jobs_that_are_where_they_should_be_are_not_waited_for(
    muster: Callable[..., Outcome], server: MemoryApiServer
) -> None:
    for name, condition in (("one", "Complete"), ("two", "Failed")):
        muster("submit", name, "-i", "image")
        end(server, name, condition)
    assert muster("wait", "one", "two").code == 0
    assert muster("wait", "one", "--for", "succeeded").code == 0
    assert muster("wait", "one", "--for", "running").code == 0
    outcome = muster("wait", "one", "two", "--for", "succeeded")
    assert (outcome.code, outcome.out) == (1, "")
    assert "two is Failed; see 'muster logs two'" in outcome.err


def test_a_job_that_changes_ends_the_wait_and_each_status_is_said(
    muster: Callable[..., Outcome], server: MemoryApiServer
) -> None:
    muster("submit", "one", "-i", "image")
    job = server.find("jobs", "one", NAMESPACE)
    assert job is not None
    with once_watched(server, lambda: server.add(pod_of(job, "one-0", phase="Running", node_name="dgx1-1"))):
        outcome = muster("wait", "one", "--for", "running", "--timeout", "60s")
    assert outcome.code == 0
    assert outcome.err.splitlines()[-1] == "one: Running"


def test_a_time_that_is_over_and_a_job_that_does_not_exist_are_failures(
    muster: Callable[..., Outcome],
) -> None:
    muster("submit", "one", "-i", "image")
    outcome = muster("wait", "one", "--timeout", "3s")
    assert outcome.code == 124
    assert "not ended after 3 s: one is Pending" in outcome.err
    assert "The job two does not exist" in muster("wait", "one", "two").err
    assert muster("wait").code == 2
    assert muster("wait", "one", "--timeout", "soon").code == 2


def test_a_submission_waits_for_the_end_of_its_job(
    muster: Callable[..., Outcome], server: MemoryApiServer
) -> None:
    with once_watched(server, lambda: end(server, "one", "Complete")):
        assert muster("submit", "one", "-i", "image", "--wait").code == 0


def test_a_failure_is_named_with_the_end_of_its_last_pod(
    muster: Callable[..., Outcome], server: MemoryApiServer
) -> None:
    muster("submit", "one", "-i", "image")
    job = server.find("jobs", "one", NAMESPACE)
    assert job is not None
    pod = pod_of(job, "one-0", phase="Failed", node_name="dgx1-1")
    ended = {"exitCode": 3, "reason": "Error"}
    pod["status"]["containerStatuses"] = [{"name": "main", "state": {"terminated": ended}}]
    server.add(pod)
    end(server, "one", "Failed")
    outcome = muster("wait", "one", "--for", "succeeded")
    assert outcome.code == 1
    assert "one is Failed (container main ended with exit code 3" in outcome.err
    with Client() as client, pytest.raises(NotReached) as caught:
        client.wait_for_jobs("one", until="succeeded")
    assert caught.value.reason.startswith("container main ended with exit code 3")


@pytest.mark.usefixtures("kubeconfig")
def test_a_handle_waits_and_cancels_and_names_the_job(server: MemoryApiServer) -> None:
    with Client() as client:
        job = client.submit(Submission(name="one", image="image", user="ann"))
        assert repr(job) == "Job(project='team-a', namespace='muster-team-a')"
        assert job.name == "one"
        with pytest.raises(WaitTimeout, match="one is Pending"):
            job.wait("running", timeout_seconds=3)
        with once_watched(server, delete_job), pytest.raises(NotReached, match="one was deleted"):
            job.result(timeout_seconds=60)
        with pytest.raises(NoSuchWorkload):
            job.wait()
        again = client.submit(Submission(name="one", image="image", user="ann"))
        end(server, "one", "Complete")
        assert again.result().is_final
        again.cancel()
        assert client.list_jobs() == []
        assert len(list(client.watch_jobs(timeout_seconds=3))) == 1


def delete_job() -> None:
    """Delete the job as another client would."""
    with Client() as other:
        other.delete_job("one")
