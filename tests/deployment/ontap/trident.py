"""NetApp's Trident as a process: its REST interface for backends and nodes, its CSI socket for volumes."""

import http.client
import json
import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from musterlab.ports import choose
from tests.deployment.csi import Controller
from tests.deployment.ontap import programs

_SECONDS = 180
_READY_SECONDS = 60


@dataclass(frozen=True)
class Trident:
    """A running Trident. `log` is its log, which names all failed requests."""

    port: int
    controller: Controller
    log: Path

    def add_backend(self, backend: dict[str, Any]) -> str:
        """Add a backend; return the error, or an empty string."""
        return str(self._call("POST", "backend", backend).get("error", ""))

    def delete_backend(self, name: str) -> None:
        """Delete a backend without volumes."""
        error = self._call("DELETE", f"backend/{name}").get("error", "")
        assert not error, error

    def add_node(self, name: str, address: str) -> None:
        """Register a node, as Trident's node plugin does at its start."""
        node = {"name": name, "ips": [address], "publicationState": "clean"}
        error = self._call("PUT", f"node/{name}", node).get("error", "")
        assert not error, error

    def is_ready(self) -> bool:
        """Return whether Trident answers."""
        try:
            self._call("GET", "version")
        except OSError:
            return False
        return self.controller.socket.exists()

    def _call(self, method: str, path: str, body: Any = None) -> dict[str, Any]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=_SECONDS)
        with closing(connection):
            connection.request(method, f"/trident/v1/{path}", json.dumps(body) if body is not None else None)
            content = connection.getresponse().read()
        answer: dict[str, Any] = json.loads(content) if content else {}
        return answer


@contextmanager
def running(folder: Path) -> Iterator[Trident]:
    """Run Trident as a CSI controller without Kubernetes; it keeps its state in memory."""
    (port,) = choose(1)
    trident = Trident(port, Controller(folder / "csi.sock", fs_type="nfs"), folder / "trident.log")
    key = folder / "aes-key"
    key.write_bytes(os.urandom(32))
    command = [
        str(programs.trident()),
        "--no_persistence",
        "--rest",
        f"--port={port}",
        f"--csi_endpoint=unix://{trident.controller.socket}",
        "--csi_node_name=controller",
        "--csi_role=controller",
        f"--aes_key={key}",
        "--debug",
    ]
    with trident.log.open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, cwd=folder)
    try:
        deadline = time.monotonic() + _READY_SECONDS
        while not trident.is_ready():
            assert process.poll() is None, trident.log.read_text()[-2000:]
            assert time.monotonic() < deadline, trident.log.read_text()[-2000:]
            time.sleep(0.1)
        yield trident
    finally:
        process.terminate()
        process.wait(timeout=_SECONDS)
