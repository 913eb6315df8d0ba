"""Why a pod does not run: from the API objects to the reasons of a failed step, in the record and as sentences."""

import asyncio
import hashlib
import json
from pathlib import Path
from typing import Any

import jsonschema
import msgspec
import pytest

from tests.cluster.fake_api_server import Watch, event, page, serving
from tests.validation.fake_target import FakeTarget
from tests.validation.judge.events import CLUSTER, delete, pod
from tests.validation.replay import GANG, assert_second_judge_agrees, run_command, settings
from tests.validation.witness.test_reader import kubeconfig
from validation.judge.causes import MAX_LINES, explain_pods
from validation.judge.events import Cause, PodSeen
from validation.judge.state import fold
from validation.report import log, manifest
from validation.report.redact import redact
from validation.report.verify import verify
from validation.schemas import ROOT
from validation.targets.recorder import GPU_NODES, NAMESPACES, NODES, PODS, SLICES, Recorder
from validation.witness.causes import MAX_CHARACTERS, cause_of
from validation.witness.objects import slim

UNSCHEDULABLE = {
    "type": "PodScheduled",
    "status": "False",
    "reason": "Unschedulable",
    "message": "0/2 nodes are available: 2 Insufficient nvidia.com/gpu.",
}
BACK_OFF = {"reason": "ImagePullBackOff", "message": 'Back-off pulling image "site.example/tf:1"'}
CREATING = {"reason": "ContainerCreating"}
CRASHED = {"terminated": {"exitCode": 1, "reason": "Error"}}


def container(name: str, last: dict[str, Any] | None = None, **state: Any) -> dict[str, Any]:
    return {"name": name, "state": state, "lastState": last or {}}


def wire(node: str = "n1", **status: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": "a-0", "namespace": "muster-p", "uid": "u", "resourceVersion": "1"},
        "spec": {"nodeName": node, "containers": [{"name": "a"}]},
        "status": {"phase": "Pending", **status},
    }


@pytest.mark.parametrize(
    ("entry", "cause"),
    [
        (wire(""), None),
        (
            wire("", conditions=[UNSCHEDULABLE]),
            Cause("PodScheduled", "Unschedulable", UNSCHEDULABLE["message"]),
        ),
        (wire("", conditions=[{**UNSCHEDULABLE, "status": "True"}]), None),
        (wire(conditions=[UNSCHEDULABLE]), None),
        (wire(containerStatuses=[container("a", running={})]), None),
        (
            wire(containerStatuses=[container("a", waiting=BACK_OFF)]),
            Cause("container a", BACK_OFF["reason"], BACK_OFF["message"]),
        ),
        (
            wire(containerStatuses=[container("a", waiting=CREATING)]),
            Cause("container a", "ContainerCreating"),
        ),
        (
            wire(containerStatuses=[container("a", waiting=CREATING), container("b", waiting=BACK_OFF)]),
            Cause("container b", BACK_OFF["reason"], BACK_OFF["message"]),
        ),
        (
            wire(
                initContainerStatuses=[container("clone", waiting=BACK_OFF)],
                containerStatuses=[container("a", waiting={"reason": "PodInitializing"})],
            ),
            Cause("container clone", BACK_OFF["reason"], BACK_OFF["message"]),
        ),
        (
            wire(
                containerStatuses=[
                    container("a", CRASHED, waiting={"reason": "CrashLoopBackOff", "message": "back-off 10s"})
                ]
            ),
            Cause(
                "container a", "CrashLoopBackOff", "back-off 10s; it ended before with exit code 1 (Error)"
            ),
        ),
        (
            wire(
                phase="Failed",
                containerStatuses=[container("a", terminated={"exitCode": 137, "reason": "OOMKilled"})],
            ),
            Cause("container a", "OOMKilled", "exit code 137"),
        ),
        (
            wire(
                phase="Succeeded",
                containerStatuses=[container("a", terminated={"exitCode": 0, "reason": "x"})],
            ),
            None,
        ),
        (
            wire(
                phase="Failed",
                reason="UnexpectedAdmissionError",
                message="Allocate failed due to\nno devices",
            ),
            Cause("pod", "UnexpectedAdmissionError", "Allocate failed due to no devices"),
        ),
        (wire(containerStatuses=[container("a", waiting={})]), None),
        (wire(containerStatuses=[container("a", waiting={"message": "w"})]), Cause("container a", "", "w")),
    ],
)
def test_the_cause_is_that_of_kubernetes(entry: dict[str, Any], cause: Cause | None) -> None:
    assert cause_of(slim(entry)) == cause


def test_a_long_message_is_cut() -> None:
    waiting = {"reason": "ErrImagePull", "message": "x" * 5000}
    cause = cause_of(slim(wire(containerStatuses=[container("a", waiting=waiting)])))
    assert cause is not None
    assert len(cause.message) == MAX_CHARACTERS
    assert cause.message.endswith("\N{HORIZONTAL ELLIPSIS}")


async def test_a_cause_alone_is_an_event_of_its_own(tmp_path: Path) -> None:
    labels = {"muster.dev/project": "p"}
    namespace = {"name": "muster-p", "uid": "ns", "resourceVersion": "1", "labels": labels}
    after = wire(containerStatuses=[container("a", waiting=BACK_OFF)])
    after["metadata"] = {**after["metadata"], "resourceVersion": "2"}
    recorder = Recorder()
    async with serving() as server:
        for kind in (SLICES, NODES, GPU_NODES):
            server.on("GET", kind.path, page())
        server.on("GET", NAMESPACES.path, page({"metadata": namespace}))
        server.on("GET", PODS.path, page(wire()))
        server.on("WATCH", PODS.path, Watch(event("MODIFIED", after)))
        async with recorder.watching(kubeconfig(tmp_path, server.url)), asyncio.timeout(10):
            while len(pods := [one for one in recorder.events if isinstance(one, PodSeen)]) < 2:
                await recorder.changed(100)
    assert [one.cause.reason if one.cause else "" for one in pods] == ["", "ImagePullBackOff"]


WAITS = Cause("PodScheduled", "Unschedulable", "no node has 8 GPUs")


def waiting_pod(name: str, **fields: Any) -> PodSeen:
    return pod(5, name, node="", phase="Pending", devices=(), **{"cause": WAITS, **fields})


def test_only_pods_that_should_run_are_explained() -> None:
    events = [
        *CLUSTER,
        pod(1, "runs"),
        waiting_pod("waits"),
        waiting_pod("expected"),
        waiting_pod("removed"),
        waiting_pod("other", project="q"),
        delete(9, "removed"),
    ]
    assert explain_pods(fold(events), ["p"], ["expected"]) == [
        "pod waits-0 is Pending: PodScheduled: Unschedulable: no node has 8 GPUs"
    ]


def test_of_very_many_pods_some_are_named() -> None:
    events = [waiting_pod(f"w-{number:02}", cause=Cause("pod", "Evicted")) for number in range(MAX_LINES + 3)]
    lines = explain_pods(fold(events), ["p"])
    assert (len(lines), lines[0], lines[-1]) == (
        MAX_LINES + 1,
        "pod w-00-0 is Pending: pod: Evicted",
        "and 3 pods more",
    )


class CannotPull(FakeTarget):
    """Binds pods whose image no node can pull."""

    def bind(self, pod: PodSeen) -> PodSeen:
        cause = Cause("container main", BACK_OFF["reason"], BACK_OFF["message"])
        return self.tell(pod, change="modified", node="n1", phase="Pending", cause=cause)


@pytest.fixture(scope="module")
def failed_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("cannot-pull") / "r"
    run_command([GANG], settings(directory, CannotPull, parts=["gangs"]))
    return directory


def test_a_failed_step_says_why_its_pods_do_not_run(failed_run: Path) -> None:
    line = 'is Pending: container main: ImagePullBackOff: Back-off pulling image "site.example/tf:1"'
    step = next(
        step for step in json.loads((failed_run / "report.json").read_bytes())["steps"] if step["differences"]
    )
    assert step["verdict"] == "FAIL"
    assert all(line in cause for cause in step["volatile"]["causes"])
    assert not any("ImagePullBackOff" in difference for difference in step["differences"])
    for name in ("report.md", "junit.xml"):
        assert "ImagePullBackOff" in (failed_run / name).read_text(), name
    assert verify(failed_run).problems == []
    assert_second_judge_agrees(failed_run)


def test_every_line_of_the_log_is_by_its_schema(failed_run: Path) -> None:
    published = json.loads((ROOT / "report" / "events.schema.json").read_text())
    jsonschema.Draft202012Validator.check_schema(published)
    validator = jsonschema.Draft202012Validator(published)
    lines = (failed_run / log.NAME).read_bytes().splitlines()
    causes = [msgspec.json.decode(line) for line in lines if b"ImagePullBackOff" in line]
    assert causes
    for line in [msgspec.json.decode(line) for line in lines[:20]] + causes[:5]:
        validator.validate(line)


def test_a_redacted_report_keeps_the_reason_without_the_message(failed_run: Path, tmp_path: Path) -> None:
    redact(failed_run, tmp_path / "public")
    content = (tmp_path / "public" / log.NAME).read_bytes()
    assert b"ImagePullBackOff" in content
    assert b"site.example" not in content
    assert verify(tmp_path / "public").problems == []


def test_a_report_from_before_there_were_causes_is_still_judged_and_not_verified(tmp_path: Path) -> None:
    directory = tmp_path / "r"
    run_command([GANG], settings(directory, parts=["gangs"]))
    journal, report = directory / log.NAME, directory / "report.json"
    content = journal.read_bytes()
    before = content.replace(b'"cause":null,', b"")
    assert before != content
    journal.write_bytes(before)
    old, new = (hashlib.sha256(entry).hexdigest().encode() for entry in (content, before))
    report.write_bytes(report.read_bytes().replace(old, new))
    (directory / manifest.NAME).write_bytes(manifest.render(directory))
    (line,) = verify(directory).problems
    assert "is not in canonical form" in line
    assert_second_judge_agrees(directory)
