"""`muster list --watch` (`cli/watching.py`), for users and for programs."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import contextmanager
from queue import Queue
from threading import Thread
from typing import TYPE_CHECKING

from tests.cli.memory_api_server import pod_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.cli.conftest import Outcome
    from tests.cli.memory_api_server import MemoryApiServer

MUSTER = (sys.executable, "-c", "import sys; from orchestrator.cli.main import main; sys.exit(main())")
NAMESPACE = "muster-team-a"
PATIENCE_SECONDS = 120


class Watching:
    """A running `muster list --watch`."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self._lines: Queue[str] = Queue()
        Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._lines.put(line.rstrip("\n"))

    def next(self) -> str:
        """Return the next line. Fails if none comes in time."""
        return self._lines.get(timeout=PATIENCE_SECONDS)

    def until(self, *words: str) -> list[str]:
        """Return the cells of the first line with these words."""
        while True:
            cells = self.next().split()
            if set(words) <= set(cells):
                return cells


@contextmanager
def watching(kubeconfig: Path, *words: str) -> Iterator[Watching]:
    with subprocess.Popen(
        [*MUSTER, "list", "-w", *words],
        env={**os.environ, "KUBECONFIG": str(kubeconfig)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield Watching(process)
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(PATIENCE_SECONDS)


def test_a_watch_prints_the_table_and_then_the_changes(
    kubeconfig: Path, muster: Callable[..., Outcome], server: MemoryApiServer
) -> None:
    muster("submit", "first", "-i", "image")
    with watching(kubeconfig) as watch:
        assert watch.next() == "Showing jobs for project team-a"
        assert watch.next().startswith("NAME ")
        assert watch.next().split()[:2] == ["first", "Pending"]
        _until_watched(server)
        muster("submit", "second", "-i", "image")
        assert watch.until("second")[1] == "Pending"
        job = server.find("jobs", "second", NAMESPACE)
        assert job is not None
        server.add(pod_of(job, "second-abc", phase="Running", node_name="dgx1-2"))
        assert watch.until("second", "dgx1-2")[1] == "Running"
        muster("delete", "first")
        assert watch.until("first")[1] == "Deleted"
    assert watch.process.returncode == 130


def test_a_watch_for_programs_is_a_json_object_a_line(
    kubeconfig: Path, muster: Callable[..., Outcome], server: MemoryApiServer
) -> None:
    muster("submit", "first", "-i", "image")
    with watching(kubeconfig, "-A", "-o", "json") as watch:
        assert json.loads(watch.next())["name"] == "first"
        _until_watched(server)
        muster("delete", "first")
        assert json.loads(watch.next())["status"] == "Deleted"


def test_a_watch_that_may_not_list_ends_at_once(
    muster: Callable[..., Outcome], server: MemoryApiServer
) -> None:
    server.refuse("GET", f"/api/v1/namespaces/{NAMESPACE}/pods", 403, "Forbidden")
    outcome = muster("list", "-w")
    assert (outcome.code, outcome.out) == (1, "")
    assert "list pods" in outcome.err


def _until_watched(server: MemoryApiServer) -> None:
    """Wait until the command watches, because it never learns of earlier changes."""

    def watched() -> set[str]:
        return {path.rsplit("/", 1)[-1] for way, path in server.requests if way == "WATCH"}

    server.until(lambda: watched() >= {"jobs", "pods"})
