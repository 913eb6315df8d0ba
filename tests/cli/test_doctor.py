"""`muster doctor`: the problems that it prints, and the content of its archive."""

from __future__ import annotations

import json
import tarfile
from typing import TYPE_CHECKING

import pytest

from orchestrator.cli.doctor import skipped_problems
from orchestrator.control.report.skipped import Listed, Record
from tests.cli.memory_api_server import node, pod_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.cli.conftest import Outcome
    from tests.cli.memory_api_server import MemoryApiServer

    Muster = Callable[..., Outcome]

NAMESPACE = "muster-team-a"
PRIVATE = ("hunter2", "registry.example.com/secret-model", "ann@example.com", "python train.py")


def contents(path: Path) -> dict[str, str]:
    """Return the text of each file in the archive."""
    with tarfile.open(path) as archive:
        return {name: archive.extractfile(name).read().decode() for name in archive.getnames()}  # type: ignore[union-attr]


def event(reason: str, message: str, component: str) -> dict[str, object]:
    """Return an event with the present time."""
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": f"x.{reason.lower()}", "namespace": NAMESPACE},
        "involvedObject": {"kind": "Pod", "namespace": NAMESPACE, "name": "x-abc"},
        "type": "Warning",
        "reason": reason,
        "message": message,
        "lastTimestamp": "2999-01-01T00:00:00Z",
        "reportingComponent": component,
    }


def test_problems_are_printed_and_private_text_is_not_in_the_archive(
    muster: Muster, server: MemoryApiServer, tmp_path: Path
) -> None:
    image, user = PRIVATE[1], PRIVATE[2]
    words = ("-g", "1", "-e", f"TOKEN={PRIVATE[0]}", "--command", "--", *PRIVATE[3].split())
    assert muster("submit", "x", "-i", image, "-u", user, *words).code == 0
    waiting = {"waiting": {"reason": "ImagePullBackOff", "message": f"cannot pull {image}"}}
    statuses = [{"name": "x", "state": waiting, "restartCount": 0}]
    job = server.all("jobs")[0]
    server.add(pod_of(job, "x-abc", node_name="dgx1-1", containerStatuses=statuses))
    server.add(
        event("Failed", f"Failed to pull image {image}", "kubelet"),
        event("Scheduled", "placed on dgx1-1", "muster"),
    )
    cordoned = node("dgx1-3", 8)
    cordoned["spec"] = {"unschedulable": True}
    server.add(cordoned)
    path = tmp_path / "report.tar.gz"
    outcome = muster("doctor", "--file", str(path))
    assert outcome.code == 1
    assert "jobs: 1 with ImagePullBackOff; see 'muster list -A --status ImagePullBackOff'" in outcome.lines
    assert [line for line in outcome.lines if line.startswith("node dgx1-3: ")]
    assert outcome.lines[-1] == f"Archive: {path}"
    assert path.stat().st_mode & 0o777 == 0o600
    files = contents(path)
    assert {"problems.txt", "versions.json", "events.json", "snapshot.yaml"} <= files.keys()
    messages = {each["reason"]: each["message"] for each in json.loads(files["events.json"])}
    assert messages == {"Failed": "", "Scheduled": "placed on dgx1-1"}
    for text in PRIVATE:
        assert not [name for name, content in files.items() if text in content]


def test_all_that_the_scheduler_left_out_is_a_problem() -> None:
    record = Record((Listed("Node", "", "n1", "bad", "now"), Listed("Pod", "a", "x", "odd", "now")), 3, 2)
    assert skipped_problems(record) == [
        "Node n1: bad", "Pod a/x: odd", "3 more objects are skipped",
        "2 workloads were not reached by the last decision",
    ]  # fmt: skip


@pytest.mark.parametrize("path", ["/api/v1/nodes", "/api/v1/events"])
def test_a_part_that_may_not_be_read_is_a_problem(
    path: str, muster: Muster, server: MemoryApiServer, tmp_path: Path
) -> None:
    server.refuse("GET", path, 403, "Forbidden")
    outcome = muster("doctor", "--file", str(tmp_path / "report.tar.gz"))
    assert outcome.code == 1
    subject = path.rpartition("/")[2]
    assert [line for line in outcome.lines if line.startswith(f"{subject}: not read; ")]
    files = contents(tmp_path / "report.tar.gz")
    assert f"{subject}: not read (Forbidden)" in files["problems.txt"].splitlines()
    assert (
        "refused by the test" not in files["problems.txt"]
    )  # the message of a real API server, with the user's name


def test_an_existing_file_is_kept(muster: Muster, server: MemoryApiServer, tmp_path: Path) -> None:
    kept_file = tmp_path / "report.tar.gz"
    kept_file.write_text("mine")
    outcome = muster("doctor", "--file", str(kept_file))
    assert (outcome.code, kept_file.read_text(), server.requests) == (2, "mine", [])
