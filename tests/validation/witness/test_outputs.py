"""The last line and the end of a container: from the API objects to the judge's event."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.fake_api_server import CUT, Answer, Watch, event, page, serving
from tests.validation.witness.kubelet_outputs import (
    ENDINGS,
    IMAGE_ID,
    NAMESPACE,
    NEVER_STARTED,
    NO_POD,
    Ending,
    ended_pod,
    printed,
)
from tests.validation.witness.test_reader import kubeconfig
from validation.judge.events import OutputSeen
from validation.targets.recorder import GPU_NODES, NAMESPACES, NODES, PODS, SLICES, Recorder
from validation.witness.objects import slim
from validation.witness.outputs import MAX_BYTES, ended, main_container, ran_ms, read_last_line, read_log
from validation.witness.reader import ReadFailed, connect


def log_path(name: str) -> str:
    return f"/api/v1/namespaces/{NAMESPACE}/pods/{name}/log"


async def last_line(directory: Path, *answers: Any) -> str:
    async with serving() as server:
        server.on("GET", log_path("p"), *answers)
        client = connect(kubeconfig(directory, server.url))
        try:
            return await asyncio.to_thread(read_last_line, client, NAMESPACE, "p", "main")
        finally:
            (request,) = server.requests
            assert request.query == {"container": "main", "tailLines": "1", "limitBytes": str(MAX_BYTES)}
            assert request.headers["Authorization"] == "Bearer secret"


@pytest.mark.parametrize("ending", ENDINGS, ids=lambda ending: ending.name)
async def test_the_last_line_is_read_with_the_user_s_access(tmp_path: Path, ending: Ending) -> None:
    assert await last_line(tmp_path, printed(ending)) == ending.line


async def test_bytes_that_are_no_text_are_kept_apart_from_unread_ones(tmp_path: Path) -> None:
    assert await last_line(tmp_path, Answer(b"\xff\xfe broken\n")) == "\ufffd\ufffd broken"


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (NEVER_STARTED, "400 Bad Request"),
        (NO_POD, "404 Not Found"),
        (Answer({}, 403), "403 Forbidden"),
        (Answer({}, 500), "500 Internal Server Error"),
    ],
)
async def test_a_refusal_is_no_line(tmp_path: Path, answer: Answer, message: str) -> None:
    with pytest.raises(ReadFailed, match=message):
        await last_line(tmp_path, answer)


async def test_a_whole_log_is_read_with_its_spaces_and_line_ends(tmp_path: Path) -> None:
    async with serving() as server:
        server.on("GET", log_path("p"), Answer(b" epoch 1\r\nepoch 2\n"), Answer({}, 400))
        client = connect(kubeconfig(tmp_path, server.url))
        assert await asyncio.to_thread(read_log, client, NAMESPACE, "p", "main") == " epoch 1\r\nepoch 2\n"
        assert server.requests[0].query == {"container": "main", "limitBytes": str(MAX_BYTES)}
        with pytest.raises(ReadFailed, match="400 Bad Request"):
            await asyncio.to_thread(read_log, client, NAMESPACE, "p", "main")


async def test_a_log_that_breaks_off_is_no_line(tmp_path: Path) -> None:
    with pytest.raises(ReadFailed):
        await last_line(tmp_path, Watch(b'{"kind": "Train', CUT))


@pytest.mark.parametrize("ending", ENDINGS, ids=lambda ending: ending.name)
def test_how_a_container_ended_is_its_kubelet_s_word(ending: Ending) -> None:
    terminated = ended(ended_pod(ending), "main")
    assert (terminated["exitCode"], terminated["imageID"]) == (ending.exit_code, IMAGE_ID)
    assert ran_ms(terminated) == 65_000


def test_a_kubelet_that_says_nothing_of_the_container_leaves_it_open() -> None:
    assert ended({"status": {}}, "main") == {}
    assert ran_ms(ended({"status": {"containerStatuses": [{"name": "main", "state": {}}]}}, "main")) == 0
    assert ran_ms({"startedAt": None, "finishedAt": "2026-01-01T00:00:00Z"}) == 0


async def recorded_output(
    directory: Path, ending: Ending, answer: Answer, *, sidecar: bool = False
) -> OutputSeen:
    """Return the recorded event of a workload whose pod ends; with `sidecar`, another
    container comes first in the pod.
    """

    def ended_so() -> dict[str, Any]:
        return with_sidecar(ended_pod(ending)) if sidecar else ended_pod(ending)

    namespace = {
        "name": NAMESPACE,
        "uid": "ns",
        "resourceVersion": "1",
        "labels": {"muster.dev/project": "p"},
    }
    waiting = ended_so()
    waiting["metadata"] |= {"resourceVersion": "1"}
    waiting["status"] = {"phase": "Running"}
    recorder = Recorder()
    recorder.follow_output("p", ending.name)
    async with serving() as server:
        for kind in (SLICES, NODES, GPU_NODES):
            server.on("GET", kind.path, page())
        server.on("GET", NAMESPACES.path, page({"metadata": namespace}))
        server.on("GET", PODS.path, page(waiting))
        again = ended_so()
        again["metadata"] |= {"resourceVersion": "3"}
        changes = [event("MODIFIED", ended_so()), event("MODIFIED", again)]
        server.on("WATCH", PODS.path, Watch(*changes))
        server.on("GET", log_path(ending.name), answer)
        async with recorder.watching(kubeconfig(directory, server.url)), asyncio.timeout(10):
            while not any(isinstance(seen, OutputSeen) for seen in recorder.events):
                await recorder.changed(100)
        (request,) = server.requests_of("GET", log_path(ending.name))
        assert request.query["container"] == "main"
    (output,) = (seen for seen in recorder.events if isinstance(seen, OutputSeen))
    return output


def with_sidecar(pod: dict[str, Any]) -> dict[str, Any]:
    """Return the pod with a sidecar as its first container, and the annotation that names the main container."""
    pod["metadata"]["annotations"] = {"kubectl.kubernetes.io/default-container": "main"}
    pod["spec"]["containers"].insert(0, {"name": "istio-proxy", "resources": {}})
    terminated = {"exitCode": 0, "startedAt": "2026-01-01T00:00:00Z", "finishedAt": "2026-01-01T00:09:00Z"}
    statuses = pod["status"].get("containerStatuses", [])
    statuses.insert(0, {"name": "istio-proxy", "imageID": "mesh", "state": {"terminated": terminated}})
    return pod


async def test_a_job_with_a_sidecar_is_recorded_by_its_own_container(tmp_path: Path) -> None:
    failed = next(ending for ending in ENDINGS if ending.exit_code)
    output = await recorded_output(tmp_path, failed, printed(failed), sidecar=True)
    assert (output.container, output.line, output.exit_code) == ("main", failed.line, failed.exit_code)
    assert (output.image, output.ran_ms) == (IMAGE_ID, 65_000)


@pytest.mark.parametrize(
    ("annotation", "label", "containers", "name"),
    [
        ("main", "a", ["mesh", "a", "main"], "main"),
        ("gone", "a", ["mesh", "a"], "a"),
        (None, "a", ["mesh", "a"], "a"),
        (None, "job", ["first", "second"], "first"),
        (None, None, ["first", "second"], "first"),
    ],
)
def test_the_container_of_the_job_is_the_one_that_is_named_so(
    annotation: str | None, label: str | None, containers: list[str], name: str
) -> None:
    annotations = {"kubectl.kubernetes.io/default-container": annotation} if annotation else None
    labels = {"muster.dev/workload": label} if label else None
    pod = {
        "metadata": {"uid": "u", "annotations": annotations, "labels": labels},
        "spec": {"containers": [{"name": container} for container in containers]},
    }
    assert main_container(slim(pod)) == name


@pytest.mark.parametrize("ending", ENDINGS, ids=lambda ending: ending.name)
async def test_the_output_of_a_followed_workload_is_recorded_once(tmp_path: Path, ending: Ending) -> None:
    output = await recorded_output(tmp_path, ending, printed(ending))
    assert (output.line, output.exit_code, output.problem) == (ending.line, ending.exit_code, "")
    assert (output.workload, output.pod, output.node) == (ending.name, ending.name, "n1")
    assert (output.image, output.ran_ms) == (IMAGE_ID, 65_000)


async def test_output_that_cannot_be_read_is_recorded_with_the_problem(tmp_path: Path) -> None:
    output = await recorded_output(tmp_path, ENDINGS[0], NO_POD)
    assert (output.line, output.exit_code, output.problem) == ("", 0, "404 Not Found")
