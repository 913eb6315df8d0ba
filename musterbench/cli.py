"""How long a command of the command line takes: from the start of its process to its end.

The API server is one on loopback that sends what a real one would, in pages, and takes next to no time itself; so
what is measured is muster. Each case is run several times: the median counts, and the slowest is shown beside it.
"""

import json
import os
import resource
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from statistics import median
from typing import Final
from urllib.parse import parse_qs, urlsplit

from musterbench.result import Result
from musterbench.wire_objects import CREATED, JSON, running_pod, server_side
from orchestrator.cluster.transport import PAGE_SIZE
from orchestrator.names import PROJECT_LABEL
from orchestrator.submit.manifest import Placement, workload_manifest
from orchestrator.submit.submission import Submission

PROJECT: Final = "team-a"
NAMESPACE: Final = "muster-team-a"
JOBS_PATH: Final = f"/apis/batch/v1/namespaces/{NAMESPACE}/jobs"
PODS_PATH: Final = f"/api/v1/namespaces/{NAMESPACE}/pods"
NAMESPACE_PATH: Final = f"/api/v1/namespaces/{NAMESPACE}"
_SCRIPT: Final = "import sys; from orchestrator.cli.main import main; sys.exit(main())"


@dataclass(frozen=True, slots=True)
class Case:
    """One command. `wrong` says what is wrong with its output, or nothing."""

    name: str
    words: tuple[str, ...]
    limit_seconds: float
    wrong: Callable[[str], str | None]
    environment: tuple[tuple[str, str], ...] = ()


def run(jobs: int, repeats: int, *, progress: Callable[[str], None]) -> Iterator[Result]:
    """Measure every case with so many jobs in the project."""
    with _serving(jobs) as server, tempfile.TemporaryDirectory(prefix="muster-bench-") as folder:
        kubeconfig = Path(folder) / "config"
        kubeconfig.write_text(json.dumps(_kubeconfig(server)), encoding="utf-8")
        for case in _cases(jobs):
            progress(f"{case.name} …")
            yield _measured(case, jobs, repeats, kubeconfig)


def _cases(jobs: int) -> list[Case]:
    lines = jobs + 2

    def listed(out: str) -> str | None:
        count = len(out.splitlines())
        return None if count == lines else f"{count} lines instead of {lines}"

    def in_json(out: str) -> str | None:
        count = len(json.loads(out))
        return None if count == jobs else f"{count} jobs instead of {jobs}"

    def completed(out: str) -> str | None:
        count = out.count("train-")
        return None if count == jobs else f"{count} names instead of {jobs}"

    def helped(out: str) -> str | None:
        return None if "Usage: muster" in out else "no help"

    asking = (
        ("_MUSTER_COMPLETE", "bash_complete"),
        ("COMP_WORDS", "muster get job train-"),
        ("COMP_CWORD", "3"),
    )
    return [
        Case("cli: muster --help", ("--help",), 0.15, helped),
        Case("cli: muster submit --help", ("submit", "--help"), 0.3, helped),
        Case(f"cli: muster list, {jobs} jobs", ("list",), 1.0, listed),
        Case(f"cli: muster list -o json, {jobs} jobs", ("list", "-o", "json"), 1.0, in_json),
        Case(f"cli: TAB after 'muster get job', {jobs} jobs", (), 0.3, completed, asking),
    ]


def _measured(case: Case, jobs: int, repeats: int, kubeconfig: Path) -> Result:
    environment = {**os.environ, "KUBECONFIG": str(kubeconfig), **dict(case.environment)}
    problem: str | None = None
    times: list[float] = []
    processor: list[float] = []
    for _ in range(repeats + 1):
        started, used = time.perf_counter(), _processor_seconds()
        with (
            tempfile.TemporaryFile() as out,
            subprocess.Popen([*_muster(), *case.words], env=environment, stdout=out) as process,
        ):
            process.wait()
            times.append(time.perf_counter() - started)
            processor.append(_processor_seconds() - used)
            out.seek(0)
            text = out.read().decode()
        problem = problem or (f"exit code {process.returncode}" if process.returncode else case.wrong(text))
    warm = times[1:]  # the first run reads the files of the program from the disk
    return Result(
        case=case.name,
        nodes=0,
        gpus=0,
        jobs=jobs,
        seconds=median(warm),
        peak_rss_bytes=0,  # a process that was forked counts its parent's memory as its own
        problem=problem,
        figures={
            "processor_ms": median(processor[1:]) * 1000,
            "slowest_ms": max(warm) * 1000,
            "limit_ms": case.limit_seconds * 1000,
            "repeats": repeats,
        },
    )


def _processor_seconds() -> float:
    """Return what all processes that have ended took of the processors: the part that other programs do not change."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _muster() -> list[str]:
    installed = Path(sys.executable).with_name("muster")
    return [str(installed)] if installed.exists() else [sys.executable, "-P", "-c", _SCRIPT]


def _kubeconfig(server: str) -> JSON:
    name = {"name": "bench"}
    return {
        "current-context": "bench",
        "clusters": [name | {"cluster": {"server": server}}],
        "users": [name | {"user": {}}],
        "contexts": [name | {"context": {"cluster": "bench", "user": "bench", "namespace": NAMESPACE}}],
    }


def _objects(jobs: int) -> dict[str, list[JSON]]:
    placement = Placement(PROJECT, NAMESPACE, "2026-01-01T00:00:00.000000Z")
    objects: dict[str, list[JSON]] = {JOBS_PATH: [], PODS_PATH: []}
    for number in range(jobs):
        name = f"train-{number:05d}"
        submission = Submission(
            name=name,
            image="nvcr.io/nvidia/pytorch:24.05-py3",
            user="ann",
            gpu_milli=1000,
            command=("python", "train.py"),
            command_line=f"muster submit {name} -i nvcr.io/nvidia/pytorch:24.05-py3 -g 1 -- python train.py",
        )
        job = workload_manifest(submission, placement)
        job["metadata"] |= server_side(f"job-{number}")
        job["status"] = {"active": 1, "startTime": CREATED}
        objects[JOBS_PATH].append(job)
        objects[PODS_PATH].append(running_pod(job, f"dgx1-{number // 8}", str(number % 8)))
    return objects


@contextmanager
def _serving(jobs: int) -> Iterator[str]:
    """Run the API server; give its URL."""
    answers = _Answers(_objects(jobs))

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            body = answers.body(self.path, self.headers.get("Accept", ""))
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            """Say nothing."""

    listener = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    listener.daemon_threads = True
    thread = threading.Thread(target=listener.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.server_port}"
    finally:
        listener.shutdown()
        thread.join()
        listener.server_close()


class _Answers:
    """Answers made once, so that the server's own time is not measured."""

    def __init__(self, objects: dict[str, list[JSON]]) -> None:
        namespace = {"metadata": {"name": NAMESPACE, "uid": "ns", "labels": {PROJECT_LABEL: PROJECT}}}
        self._namespace = json.dumps(namespace).encode()
        self._names = {
            path: json.dumps({"rows": [{"cells": [item["metadata"]["name"]]} for item in items]}).encode()
            for path, items in objects.items()
        }
        self._pages: dict[tuple[str, str], bytes] = {}
        for path, items in objects.items():
            for start in range(0, max(1, len(items)), PAGE_SIZE):
                following = str(start + PAGE_SIZE) if start + PAGE_SIZE < len(items) else ""
                page = {
                    "metadata": {"resourceVersion": "1", "continue": following},
                    "items": items[start : start + PAGE_SIZE],
                }
                self._pages[path, str(start) if start else ""] = json.dumps(page).encode()

    def body(self, target: str, accept: str) -> bytes:
        """Return what is at a path; of a collection that nobody made, nothing."""
        url = urlsplit(target)
        if url.path == NAMESPACE_PATH:
            return self._namespace
        if "as=Table" in accept:
            return self._names.get(url.path, b'{"rows": []}')
        start = parse_qs(url.query).get("continue", [""])[0]
        return self._pages.get((url.path, start), b'{"metadata": {}, "items": []}')
