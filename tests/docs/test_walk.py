"""The walk of docs/architecture.md from a pod's event to its binding: such a pod does go through those files."""

import asyncio
import re
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

from orchestrator.cluster.transport import Transport
from orchestrator.control.observer import Observer
from orchestrator.control.scheduler import SchedulerLoop
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
from tests.control.test_scheduler import LISTS

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
PROJECT = {"metadata": {"name": "a", "uid": "uid-a"}, "spec": {"gpu": {"quota": 4}}}
CACHED: dict[str, list[dict[str, Any]]] = {
    "/api/v1/nodes": [NODE],
    "/api/v1/namespaces": [NAMESPACE],
    "/apis/muster.dev/v1alpha1/projects": [PROJECT],
}
BINDING = "/api/v1/namespaces/team/pods/train/binding"


def documented() -> set[str]:
    """The files of the walk."""
    text = (ROOT / "docs" / "architecture.md").read_text()
    section = text.split("## From a pod's event to its binding\n")[1].split("\n## ")[0]
    return set(re.findall(r"^\| \d+ \| `([^`]+)` \|", section, re.MULTILINE))


@contextmanager
def files_run() -> Iterator[set[str]]:
    """The files of the repository of which a function is called meanwhile, in any thread that begins meanwhile."""
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


async def serve_a_cluster(server: FakeApiServer, begin: asyncio.Event) -> None:
    """A node, a project, and from `begin` on a pod that asks for two GPUs."""
    train = pod("train", version="12")
    asked = {"requests": {"nvidia.com/gpu": "2", "cpu": "1"}, "limits": {"nvidia.com/gpu": "2"}}
    train["spec"] = {"schedulerName": "muster", "containers": [{"name": "c", "resources": asked}]}
    for path in LISTS:
        server.on("GET", path, page(*CACHED.get(path, [])))
    server.on("WATCH", "/api/v1/pods", Watch(begin, event("ADDED", train), SILENCE))
    server.on("POST", BINDING, Answer(code=201))


async def test_a_pod_goes_through_every_file_of_the_walk() -> None:
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
                        await until(lambda: server.asked("POST", BINDING))
    called = {str(Path(each).relative_to(ROOT)) for each in files if each.startswith(f"{ROOT}/orchestrator")}
    assert documented() - called == set()
