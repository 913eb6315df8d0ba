"""`Client.map`: functions in pods (client/functions.py, client/function_worker.py).

The test takes the place of the kubelet: it runs the command of the container with the file of the Secret.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from base64 import b64decode
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import cloudpickle
import pytest

from orchestrator.client import (
    Client,
    FunctionFailed,
    InvalidField,
    PythonDiffers,
    Submission,
    UsageError,
    WaitTimeout,
)
from orchestrator.client.functions import program
from orchestrator.submit.values import MAX_CODE_BYTES
from tests.cli.test_wait import end, once_watched

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.cli.memory_api_server import MemoryApiServer

cloudpickle.register_pickle_by_value(sys.modules[__name__])  # the pods lack this module
NAMESPACE = "muster-team-a"
JOB = Submission(name="sweep", image="python:3.12", user="ann", gpu_milli=1000)

Pod = dict[str, Any]


@pytest.fixture
def client(kubeconfig: Path) -> Iterator[Client]:
    with Client() as client:
        yield client


def ran(server: MemoryApiServer, folder: Path, index: int) -> Pod:
    """Run the container of one index, and return its pod."""
    job = server.find("jobs", "sweep", NAMESPACE)
    secret = server.find("secrets", "sweep-code", NAMESPACE)
    assert job is not None
    assert secret is not None
    (container,) = job["spec"]["template"]["spec"]["containers"]
    (mount,) = container["volumeMounts"]
    mounted = folder / f"mounted-{index}"
    mounted.mkdir()
    for key, value in secret["data"].items():
        (mounted / key).write_bytes(b64decode(value))
    message = folder / f"message-{index}"
    words = [
        word.replace(mount["mountPath"], str(mounted)).replace("/dev/termination-log", str(message))
        for word in container["command"]
    ]
    assert words[0] == "python3"
    done = subprocess.run(
        [sys.executable, "-I", "-S", *words[1:]],  # without the packages of this environment
        env={"JOB_COMPLETION_INDEX": str(index), "PATH": os.environ["PATH"]},
        cwd=folder,
        capture_output=True,
        check=False,
    )
    said = message.read_text() if message.exists() else ""
    return pod(server, index, f"sweep-{index}", done.returncode, said)


def pod(server: MemoryApiServer, index: int, name: str, code: int, message: str, **more: Any) -> Pod:
    job = server.find("jobs", "sweep", NAMESPACE)
    assert job is not None
    owner = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "name": "sweep",
        "uid": job["metadata"]["uid"],
        "controller": True,
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": NAMESPACE,
            "labels": {"muster.dev/workload": "sweep"},
            "annotations": {"batch.kubernetes.io/job-completion-index": str(index)},
            "ownerReferences": [owner],
            "creationTimestamp": "2026-01-01T00:00:00Z",
        },
        "spec": {"schedulerName": "muster", "containers": [{"name": "sweep", "image": "python"}]},
        "status": {
            "phase": "Succeeded" if code == 0 else "Failed",
            "containerStatuses": [
                {
                    "name": "sweep",
                    "state": {"terminated": {"exitCode": code, "reason": "Error", "message": message} | more},
                }
            ],
        },
    }


class Silent(Exception):
    """An error whose text cannot be had."""

    def __str__(self) -> str:
        raise ValueError("no text")


def raises(error: type[BaseException], *words: str) -> None:
    raise error(*words)


def nested(depth: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(depth):
        value = [value]
    return value


@contextmanager
def running(
    server: MemoryApiServer, pods: Callable[[], list[Pod]], condition: str = "Complete"
) -> Iterator[None]:
    """Let the pods end, and then the Job, once the client waits for it."""

    def act() -> None:
        try:
            server.add(*pods())
        finally:  # without an end, the client would wait for ever
            end(server, "sweep", condition)

    with once_watched(server, act):
        yield


def test_the_results_come_back_in_the_order_of_the_parameters(
    client: Client, server: MemoryApiServer, tmp_path: Path
) -> None:
    offset = 10

    def square(value: int) -> dict[str, Any]:
        print("a line of the log")
        return {"square": value * value + offset, "text": "größe", "pair": (1, None)}

    with running(server, lambda: [ran(server, tmp_path, index) for index in (2, 0, 1)]):
        results = client.map(square, iter([1, 2, 3]), JOB)
    assert results == [{"square": n * n + offset, "text": "größe", "pair": [1, None]} for n in (1, 2, 3)]
    assert server.all("jobs") == []


def test_it_is_one_indexed_job_of_the_described_pods(
    client: Client, server: MemoryApiServer, tmp_path: Path
) -> None:
    seen: list[Any] = []

    def pods() -> list[Pod]:
        seen.extend(server.all("jobs"))
        return [ran(server, tmp_path, index) for index in range(4)]

    job = replace(JOB, gpu_milli=2000, backoff_limit=3)
    with running(server, pods):
        assert client.map(len, ["", "a", "bb", "ccc"], job, parallelism=2) == [0, 1, 2, 3]
    spec = seen[0]["spec"]
    assert (spec["completionMode"], spec["completions"], spec["parallelism"]) == ("Indexed", 4, 2)
    assert spec["backoffLimitPerIndex"] == 3
    (container,) = spec["template"]["spec"]["containers"]
    assert container["resources"]["limits"] == {"nvidia.com/gpu": "2"}
    assert "initContainers" not in spec["template"]["spec"]


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda value: 1 / (value - 1), "index 1: ZeroDivisionError: "),
        (lambda value: {1, 2} if value == 1 else 0, "index 1: TypeError: the result is a set: return None, bool"),
        (lambda value: [{"a": {3: 4}}] if value else 0, "index 1: TypeError: the result[0]['a'] has the key 3"),
        (lambda value: "x" * 5000 * value, "index 1: ValueError: the result has 5014 bytes of JSON, and at most 4096"),
        (lambda value: sys.exit(3) if value == 1 else 0, "index 1: SystemExit: 3"),
        (lambda value: value if value != 1 else os.kill(os.getpid(), 9), "index 1 ended with exit code -9 and without"),
        (lambda value: value if value != 1 else os.environ["\n" * 9000 + "é" * 9000], "index 1: KeyError: "),
        (lambda value: raises(Silent) if value == 1 else 0, "index 1: Silent: the error has no text"),
        (lambda value: raises(KeyboardInterrupt) if value == 1 else 0, "index 1: KeyboardInterrupt"),
        (lambda value: raises(type("N" * 9000, (Exception,), {})) if value else 0, f"index 1: {'N' * 100}"),
        (lambda value: raises(ValueError, "\ud800") if value else 0, r"index 1: ValueError: \ud800"),
        (lambda value: raises(ValueError, "\x1b[31m") if value else 0, r"index 1: ValueError: \x1b[31m"),
        (lambda value: nested(9000) if value else 0, "index 1: RecursionError: "),
    ],
    ids=["error", "set", "key", "size", "exit", "killed", "long", "silent", "interrupt", "name", "surrogate", "escape",
         "nested"],
)  # fmt: skip
def test_the_error_of_a_function_has_its_index_and_the_job_is_kept(
    function: Callable[[Any], Any], message: str, client: Client, server: MemoryApiServer, tmp_path: Path
) -> None:
    with (
        running(server, lambda: [ran(server, tmp_path, index) for index in range(3)], "Failed"),
        pytest.raises(FunctionFailed) as failed,
    ):
        client.map(function, [0, 1, 2], JOB)
    assert str(failed.value).startswith(message)
    assert "\n" not in str(failed.value)
    assert failed.value.index == 1
    assert [job["metadata"]["name"] for job in server.all("jobs")] == ["sweep"]


def test_an_error_has_the_traceback_of_the_container(
    client: Client, server: MemoryApiServer, tmp_path: Path
) -> None:
    def inner(value: int) -> float:
        return 1 / value

    with (
        running(server, lambda: [ran(server, tmp_path, 0)], "Failed"),
        pytest.raises(FunctionFailed) as failed,
    ):
        client.map(inner, [0], JOB)
    assert "in inner\n" in failed.value.traceback


def test_a_traceback_has_no_escapes_for_a_terminal(client: Client, server: MemoryApiServer) -> None:
    message = json.dumps({"error": "E", "message": "m", "traceback": "line 1\n\x1b]0;x\x07"})
    with (
        running(server, lambda: [pod(server, 0, "sweep-0", 1, message)], "Failed"),
        pytest.raises(FunctionFailed) as failed,
    ):
        client.map(len, [""], JOB)
    assert failed.value.traceback == "line 1\n\\x1b]0;x\\x07"


def test_results_come_back_though_the_job_cannot_be_deleted(
    client: Client, server: MemoryApiServer, tmp_path: Path
) -> None:
    server.refuse("DELETE", f"/apis/batch/v1/namespaces/{NAMESPACE}/jobs/sweep", 403, "Forbidden")
    with (
        running(server, lambda: [ran(server, tmp_path, 0)]),
        pytest.warns(UserWarning, match="the results are there, and the job sweep is not deleted: "),
    ):
        assert client.map(len, ["abc"], JOB) == [3]


def test_the_most_indices_of_a_job_fit_into_the_archive() -> None:
    assert len(program(len, range(100_000))) < MAX_CODE_BYTES


def test_more_pods_than_parameters_are_not_asked_for(
    client: Client, server: MemoryApiServer, tmp_path: Path
) -> None:
    seen: list[Any] = []

    def pods() -> list[Pod]:
        seen.extend(server.all("jobs"))
        return [ran(server, tmp_path, index) for index in range(2)]

    with running(server, pods):
        client.map(len, ["", ""], JOB, parallelism=9)
    assert seen[0]["spec"]["parallelism"] == 2
    assert seen[0]["spec"]["backoffLimitPerIndex"] == 0


def test_the_wait_for_a_function_has_an_end(client: Client, server: MemoryApiServer) -> None:
    with pytest.raises(WaitTimeout):
        client.map(len, ["abc"], JOB, timeout_seconds=0.01)
    assert [job["metadata"]["name"] for job in server.all("jobs")] == ["sweep"]


def test_a_function_finds_the_modules_of_the_working_tree(
    client: Client, server: MemoryApiServer, tmp_path: Path
) -> None:
    (tmp_path / "of_the_tree.py").write_text("VALUE = 7\n")

    def imported(_: int) -> int:
        return int(__import__("of_the_tree").VALUE)

    with running(server, lambda: [ran(server, tmp_path, 0)]):
        assert client.map(imported, [0], JOB) == [7]


def test_another_python_in_the_image_is_an_error_before_anything_is_unpickled(
    client: Client, server: MemoryApiServer, tmp_path: Path
) -> None:
    def other_python() -> list[Pod]:
        """Let the archive come from another Python, with a function that no pickle is."""
        secret = server.find("secrets", "sweep-code", NAMESPACE)
        assert secret is not None
        (tmp_path / "a.pyz").write_bytes(b64decode(secret["data"]["function.pyz"]))
        with zipfile.ZipFile(tmp_path / "a.pyz") as archive:
            main = archive.read("__main__.py")
        with zipfile.ZipFile(tmp_path / "b.pyz", "w") as archive:
            archive.writestr("__main__.py", main)
            archive.writestr("python.json", "[3, 2]")
            archive.writestr("function.pickle", "no pickle")
        message = tmp_path / "message"
        done = subprocess.run(
            [sys.executable, str(tmp_path / "b.pyz"), str(message)],
            env={"JOB_COMPLETION_INDEX": "0"},
            check=False,
        )
        return [pod(server, 0, "sweep-0", done.returncode, message.read_text())]

    found = f"{sys.version_info[0]}.{sys.version_info[1]}"
    with (
        running(server, other_python, "Failed"),
        pytest.raises(PythonDiffers, match=f"the image has Python {found},"),
    ):
        client.map(len, [""], JOB)


@pytest.mark.parametrize(
    ("message", "more", "said"),
    [
        (
            "c__builtin__\neval\n",
            {},
            "index 0 ended with exit code 1 and without a result: Error c__builtin__ eval",
        ),
        (
            'exec: "python3": not found',
            {"reason": "StartError"},
            'StartError exec: "python3": not found; see',
        ),
        ("[" * 4000, {}, "without a result: Error [[[["),
        ("[1]", {}, "without a result: Error [1]"),
        ("", {"reason": "OOMKilled", "exitCode": 137}, "exit code 137 and without a result: OOMKilled"),
    ],
)
def test_a_message_that_is_no_outcome_is_shown_and_nothing_of_it_is_run(
    message: str, more: dict[str, Any], said: str, client: Client, server: MemoryApiServer
) -> None:
    with (
        running(server, lambda: [pod(server, 0, "sweep-0", 1, message, **more)], "Failed"),
        pytest.raises(FunctionFailed) as failed,
    ):
        client.map(len, [""], JOB)
    assert said in str(failed.value)


def test_of_several_attempts_the_one_that_succeeded_counts(client: Client, server: MemoryApiServer) -> None:
    def pods() -> list[Pod]:
        attempts = [
            pod(server, 0, "sweep-0-a", 1, '{"error": "ValueError"}'),
            pod(server, 0, "sweep-0-b", 0, '{"result": 7}'),
            pod(server, 0, "sweep-0-c", 1, '{"error": "ValueError"}'),
        ]
        foreign = pod(server, 0, "sweep-0-d", 0, '{"result": 8}')
        foreign["metadata"]["ownerReferences"][0]["uid"] = "another"
        foreign["metadata"]["creationTimestamp"] = "2027-01-01T00:00:00Z"
        endless = pod(server, 0, "sweep-0-e", 0, '{"result": 9}')
        endless["metadata"]["annotations"]["batch.kubernetes.io/job-completion-index"] = "9" * 5000
        return [*attempts, foreign, endless]

    with running(server, pods):
        assert client.map(len, [""], JOB) == [7]


@pytest.mark.parametrize(
    ("call", "error", "said"),
    [
        (lambda client: client.map(len, [sys.stdout], JOB), UsageError, "parameter 0 cannot be pickled"),
        (lambda client: client.map(len, [os.urandom(2 << 20)], JOB), InvalidField, "and at most 1048576 are possible"),
        (lambda client: client.map(len, [1], replace(JOB, args=("b",))), InvalidField, "args does not go with"),
        (lambda client: client.map(len, [1], JOB, parallelism=0), InvalidField, "parallelism 0 is not possible"),
        (lambda client: client.map(len, [1], replace(JOB, ttl_seconds=90)), InvalidField, "ttl_seconds does not"),
        (lambda client: client.map(len, [1], replace(JOB, interactive=True)), InvalidField, "interactive does not go"),
        (lambda client: client.map(len, range(100_001), JOB), InvalidField, "`map` takes at most 100000 parameters"),
    ],
    ids=["pickle", "size", "args", "parallelism", "ttl", "interactive", "count"],
)  # fmt: skip
def test_a_call_that_is_not_possible_makes_no_job(
    call: Callable[[Client], Any], error: type[Exception], said: str, client: Client, server: MemoryApiServer
) -> None:
    with pytest.raises(error, match=said):
        call(client)
    assert server.writes() == []
    assert client.map(len, [], JOB) == []


def test_the_largest_outcome_fits_into_the_message_of_a_container(
    client: Client, server: MemoryApiServer, tmp_path: Path
) -> None:
    length = 4096 - len(json.dumps({"result": ""}))
    with running(server, lambda: [ran(server, tmp_path, 0)]):
        assert client.map(lambda size: "x" * size, [length], JOB) == ["x" * length]
