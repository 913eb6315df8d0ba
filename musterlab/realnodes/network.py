"""The network of the real nodes: `main(SPECIFICATION)`, run as a process of the lab, with the standard library only.

It is a network namespace with one bridge, to which the nodes and their pods are connected. The machine does not see the
bridge, and no route leads out. All connections across its border go through this process:

- pods and kubelets reach the API server at its port on loopback, and at its service address;
- the API server reaches kubelets and pods through HTTP CONNECT on a socket file (its egress selector);
- containerd pulls the lab's images from a registry on loopback.

The process is also the name server for the names of services.
"""

import asyncio
import contextlib
import ipaddress
import json
import os
import socket
import sys
import threading
from pathlib import Path
from typing import Any

from musterlab.realnodes import kernel, names, registry

BRIDGE = "muster0"
BRIDGE_HARDWARE_ADDRESS = "02:00:0a:50:00:01"  # administered locally
GATEWAY = "10.80.0.1"
MASK = "255.255.0.0"
API_SERVICE = "10.96.0.1"
NAME_SERVICE = "10.96.0.10"
REGISTRY_PORT = 5000
LOOPBACK = "127.0.0.1"

_CHUNK_BYTES = 65536
_ESTABLISHED = b"HTTP/1.1 200 Connection established\r\n\r\n"
_REFUSED = b"HTTP/1.1 502 Bad Gateway\r\n\r\n"


class Network:
    """The namespace, its sockets, and their users."""

    def __init__(self, specification: dict[str, Any]) -> None:
        self._api_port: int = specification["api_port"]
        self._addresses: list[str] = specification["node_addresses"]
        self._egress = Path(specification["egress_socket"])
        self._images = Path(specification["images"])
        self._published = Path(specification["published"])
        self._services = names.Services(self._api_port, *specification["credentials"])
        self._home = os.open("/proc/self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        kernel.unshare(kernel.CLONE_NEWNET)
        self._namespace = os.open("/proc/self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        self._entrances = self._open()
        self._registry = socket.create_server((LOOPBACK, REGISTRY_PORT))
        self._names = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._names.bind((NAME_SERVICE, 53))
        kernel.enter(self._home)

    def _open(self) -> list[socket.socket]:
        kernel.bring_up("lo")
        kernel.add_bridge(BRIDGE, BRIDGE_HARDWARE_ADDRESS)
        kernel.add_address(BRIDGE, GATEWAY, MASK)
        for number, address in enumerate(self._addresses, 1):
            kernel.add_address(f"{BRIDGE}:{number}", address, MASK)
        for label, address in (("api", API_SERVICE), ("dns", NAME_SERVICE)):
            kernel.add_address(f"{BRIDGE}:{label}", address, "255.255.255.255")
        kernel.bring_up(BRIDGE)
        return [socket.create_server((LOOPBACK, self._api_port)), socket.create_server((API_SERVICE, 443))]

    async def serve(self) -> None:
        """Publish the path of the namespace, and forward bytes until the process is killed."""
        threading.Thread(target=registry.serve, args=(self._registry, self._images), daemon=True).start()
        threading.Thread(target=names.serve, args=(self._names, self._services.resolve), daemon=True).start()
        for entrance in self._entrances:
            await asyncio.start_server(self._to_api_server, sock=entrance)
        self._egress.unlink(missing_ok=True)
        server = await asyncio.start_unix_server(self._to_node, self._egress)
        temporary = self._published.with_suffix(".new")
        temporary.write_text(json.dumps({"namespace": f"/proc/{os.getpid()}/fd/{self._namespace}"}))
        temporary.replace(self._published)
        await server.serve_forever()

    async def _to_api_server(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            streams = await asyncio.open_connection(LOOPBACK, self._api_port)
        except OSError:
            writer.close()
            return
        await _join((reader, writer), streams)

    async def _to_node(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            request = await reader.readuntil(b"\r\n\r\n")
            streams = await self._connect(*_connect_target(request))
        except (OSError, ValueError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            with contextlib.suppress(OSError):
                writer.write(_REFUSED)
                await writer.drain()
            writer.close()
            return
        writer.write(_ESTABLISHED)
        await _join((reader, writer), streams)

    async def _connect(self, address: str, port: int) -> "Streams":
        with kernel.inside(self._namespace, self._home):
            connection = socket.socket()
        connection.setblocking(False)
        try:
            await asyncio.get_running_loop().sock_connect(connection, (address, port))
        except BaseException:
            connection.close()
            raise
        return await asyncio.open_connection(sock=connection)


Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


def _connect_target(request: bytes) -> tuple[str, int]:
    """Return the address and port of a CONNECT request. Raises ValueError for another request, and for a host name."""
    verb, target, _ = request.decode().split(" ", 2)
    if verb != "CONNECT":
        raise ValueError(f"{verb} is not served here")
    host, _, port = target.rpartition(":")
    return str(ipaddress.ip_address(host.strip("[]"))), int(port)


async def _join(one: Streams, other: Streams) -> None:
    """Pass bytes both ways until both sides have ended."""
    try:
        await asyncio.gather(_pass(one[0], other[1]), _pass(other[0], one[1]))
    except OSError:
        pass  # the receiver has closed the connection
    finally:
        one[1].close()
        other[1].close()


async def _pass(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while chunk := await reader.read(_CHUNK_BYTES):
        writer.write(chunk)
        await writer.drain()
    if writer.can_write_eof():
        writer.write_eof()


def main(specification: str) -> None:
    """Serve until killed."""
    os.umask(0o077)
    asyncio.run(Network(json.loads(Path(specification).read_text())).serve())


if __name__ == "__main__":
    main(sys.argv[1])
