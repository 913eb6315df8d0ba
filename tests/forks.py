"""Processes of `muster` whose start takes a tenth of the time: forks of a process that has imported the command line.

As a program, this file is that process. It ends when its standard input ends.
"""

from __future__ import annotations

import atexit
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

PACKAGES = ("orchestrator.cli", "orchestrator.client", "deployment", "validation")
_LOCK = threading.Lock()
_SERVERS: dict[int, tuple[str, subprocess.Popen[bytes]]] = {}


def run(
    arguments: Sequence[str], environment: Mapping[str, str], seconds: float
) -> subprocess.CompletedProcess[str]:
    """Run `muster` with these arguments, and without standard input. Raises TimeoutError after this time."""
    request = {"arguments": [*arguments], "environment": dict(environment), "directory": str(Path.cwd())}
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(seconds)
        connection.connect(_server())
        connection.sendall(json.dumps(request).encode() + b"\n")
        with connection.makefile("rb") as stream:
            answer = json.loads(stream.read())
    return subprocess.CompletedProcess(["muster", *arguments], answer["code"], answer["out"], answer["err"])


def _server() -> str:
    """Return the address of the process that forks, and start it if this process has none."""
    with _LOCK:
        if os.getpid() not in _SERVERS:
            address = f"\0muster-tests-{os.getpid()}"
            with socket.socket(socket.AF_UNIX) as listener:
                listener.bind(address)
                listener.listen(64)
                process = subprocess.Popen(
                    [sys.executable, "-P", __file__, str(listener.fileno())],
                    pass_fds=[listener.fileno()],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.DEVNULL,
                )
            _SERVERS[os.getpid()] = (address, process)
            atexit.register(process.communicate)  # closes its standard input
        return _SERVERS[os.getpid()][0]


def _serve(listener: socket.socket) -> None:
    for package in map(import_module, PACKAGES):
        for module in iter_modules(package.__path__, f"{package.__name__}."):
            import_module(module.name)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while sys.stdin not in select.select([listener, sys.stdin], [], [])[0]:
        connection, _ = listener.accept()
        if os.fork() == 0:
            listener.close()
            _answer(connection)
            os._exit(0)
        connection.close()


def _answer(connection: socket.socket) -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    with (
        connection.makefile("rb") as stream,
        tempfile.TemporaryFile() as out,
        tempfile.TemporaryFile() as err,
    ):
        request = json.loads(stream.readline())
        child = os.fork()
        if child == 0:
            connection.close()
            _run(request, out.fileno(), err.fileno())
        _, status = os.waitpid(child, 0)
        texts = {}
        for name, file in (("out", out), ("err", err)):
            file.seek(0)
            texts[name] = file.read().decode()
    connection.sendall(json.dumps({"code": os.waitstatus_to_exitcode(status), **texts}).encode())


def _run(request: Mapping[str, Any], out: int, err: int) -> None:
    """Become the process of the command."""
    from orchestrator.cli.main import main

    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(out, 1)
    os.dup2(err, 2)
    os.chdir(request["directory"])
    os.environ.clear()
    os.environ.update(request["environment"])
    tempfile.tempdir = None  # TMPDIR of the command counts
    sys.argv = ["-c", *request["arguments"]]
    code = 1
    try:
        code = main()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    _serve(socket.socket(fileno=int(sys.argv[1])))
