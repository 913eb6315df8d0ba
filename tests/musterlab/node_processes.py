"""The programs of a real node, and the kubelet's request to its container runtime for a container."""

import asyncio
import json
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from grpclib.client import Channel, UnaryUnaryMethod

from musterlab.cluster import Lab
from musterlab.realnodes.machine import CONTAINERD_SOCKET

_STATUS = "/runtime.v1.RuntimeService/ContainerStatus"


def processes(lab: Lab, node: str, program: str) -> Iterator[int]:
    """Yield the ids, on this machine, of a node's processes with this name."""
    (top,) = (process.pid for process in lab.status().processes if process.name == node)
    for status in Path("/proc").glob("[0-9]*/status"):
        with suppress(FileNotFoundError, ProcessLookupError):
            fields = dict(line.split(":\t", 1) for line in status.read_text().splitlines() if ":\t" in line)
            if fields["Name"] == program and _descends(int(fields["PPid"]), top):
                yield int(fields["Pid"])


def _descends(pid: int, ancestor: int) -> bool:
    while pid > 1:
        if pid == ancestor:
            return True
        stat = Path(f"/proc/{pid}/stat").read_text()
        pid = int(stat.rpartition(")")[2].split()[1])
    return False


class _Bytes(bytes):
    """A gRPC message that is not decoded."""

    def SerializeToString(self) -> bytes:  # noqa: N802 - as grpclib calls it
        return bytes(self)

    FromString = bytes


def runtime_configuration(lab: Lab, node: str, container: str) -> dict[str, Any]:
    """Return the kubelet's request to the runtime for a container: CRI's `ContainerConfig`, as containerd shows it."""
    (pid,) = processes(lab, node, "containerd")
    answer = asyncio.run(_query(Path(f"/proc/{pid}/root{CONTAINERD_SOCKET}"), container.encode()))
    start = answer.index(b'{"sandboxID"')  # in the map `info`, whose only entry is JSON
    shown, _ = json.JSONDecoder().raw_decode(answer[start:].decode())
    configuration: dict[str, Any] = shown["config"]
    return configuration


async def _query(socket: Path, container: bytes) -> bytes:
    channel = Channel(path=str(socket))
    try:
        method: UnaryUnaryMethod[Any, Any] = UnaryUnaryMethod(channel, _STATUS, _Bytes, _Bytes)
        # container_id = 1, verbose = 2
        answer: bytes = await method(_Bytes(b"\x0a" + bytes([len(container)]) + container + b"\x10\x01"))
        return answer
    finally:
        channel.close()
