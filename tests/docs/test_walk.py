"""Two walks in walks.md, of a pod and of a submit, go through the documented files."""

import asyncio
import re
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from orchestrator.cli.main import main
from orchestrator.cluster.transport import Transport
from orchestrator.control.decide.observer import Observer
from orchestrator.control.decide.scheduler import SchedulerLoop
from tests.cli import memory_api_server
from tests.cli.conftest import write_kubeconfig
from tests.cluster.fake_api_server import (
    SILENCE,
    Answer,
    FakeApiServer,
    Watch,
    access_to,
    event,
    page,
    pod,
    serving,
)
from tests.cluster.waiting import running, until
from tests.control.decide.test_scheduler import LISTS

ROOT = Path(__file__).resolve().parents[2]
AMOUNTS = {"nvidia.com/gpu": "8", "cpu": "40", "memory": "512Gi", "pods": "110"}
NODE = {
    "metadata": {"name": "n1", "uid": "uid-n1"},
    "status": {
        "capacity": AMOUNTS,
        "allocatable": AMOUNTS,
        "conditions": [{"type": "Ready", "status": "True"}],
    },
}
NAMESPACE = {"metadata": {"name": "team", "uid": "uid-team", "labels": {"muster.dev/project": "a"}}}
PROJECT = {"metadata": {"name": "a", "uid": "uid-a"}, "spec": {"gpu": {"quota": 4}, "namespace": "team"}}
CACHED: dict[str, list[dict[str, Any]]] = {
    "/api/v1/nodes": [NODE],
    "/api/v1/namespaces": [NAMESPACE],
    "/apis/muster.dev/v1alpha1/projects": [PROJECT],
}
BINDING = "/api/v1/namespaces/team/pods/train/binding"


def documented(title: str) -> set[str]:
    """Return the files of a walk."""
    text = (ROOT / "docs" / "explanation" / "walks.md").read_text()
    section = text.split(f"## {title}\n")[1].split("\n## ")[0]
    return set(re.findall(r"^\| \d+ \| `([^`]+)` \|", section, re.MULTILINE))


@contextmanager
def files_run() -> Iterator[set[str]]:
    """Collect the files of the repository in which a function is called during the block, in new threads too."""
    files: set[str] = set()

    def note(frame: FrameType, kind: str, _argument: Any) -> None:
        if kind == "call" and frame.f_code.co_name != "<module>":
            files.add(frame.f_code.co_filename)

    before = sys.getprofile()
    sys.setprofile(note)
    threading.setprofile(note)
    try:
        yield files
    finally:
        sys.setprofile(before)
        threading.setprofile(None)


def relative(files: set[str]) -> set[str]:
    """Return the files in the repository, relative to its root."""
    return {str(Path(each).relative_to(ROOT)) for each in files if each.startswith(f"{ROOT}/orchestrator")}


async def serve_a_cluster(server: FakeApiServer, begin: asyncio.Event) -> None:
    """Let the server have a node, a project, and from `begin` on a pod that requests two GPUs."""
    train = pod("train", version="12")
    resources = {"requests": {"nvidia.com/gpu": "2", "cpu": "1"}, "limits": {"nvidia.com/gpu": "2"}}
    train["spec"] = {"schedulerName": "muster", "containers": [{"name": "c", "resources": resources}]}
    for path in LISTS:
        server.on("GET", path, page(*CACHED.get(path, [])))
    server.on("WATCH", "/api/v1/pods", Watch(begin, event("ADDED", train), SILENCE))
    server.on("POST", BINDING, Answer(code=201))


async def test_a_pod_passes_every_file_of_the_walk() -> None:
    begin = asyncio.Event()
    async with serving() as server:
        await serve_a_cluster(server, begin)
        async with Transport(access_to(server)) as transport:
            observer = Observer(transport)
            async with observer.running():
                loop = SchedulerLoop(
                    transport, observer, on_plan=lambda _reading, _plan: None, is_leader=lambda: True
                )
                await loop.catch_up()
                with files_run() as files:
                    async with running(loop.run()):
                        begin.set()
                        await until(lambda: server.requests_of("POST", BINDING))
    assert documented("From a pod's event to its binding") - relative(files) == set()


def test_a_submit_passes_every_file_of_the_walk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with memory_api_server.serving() as server:
        server.add(memory_api_server.project_of("team-a", 4), memory_api_server.namespace_of("team-a"))
        write_kubeconfig(tmp_path / "config", server.url)
        monkeypatch.setenv("KUBECONFIG", str(tmp_path / "config"))
        with files_run() as files:
            assert main(["submit", "train", "-i", "image", "-g", "0.5"]) == 0
    assert documented("From a submit to its objects") - relative(files) == set()
