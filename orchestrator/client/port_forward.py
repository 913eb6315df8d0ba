"""Local ports that lead to the ports of a pod.

    async with listening(streams, target, [ForwardedPort(8080, 80)]) as addresses:
        ...

PortInUse   a local port is taken, or may not be used
"""

import asyncio
import re
import socket
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Final

from orchestrator.client.streams import StreamClient
from orchestrator.client.targets import Target
from orchestrator.cluster.errors import ClusterError
from orchestrator.cluster.forwarding import relay
from orchestrator.errors import FieldProblem, InvalidField

LOOPBACK: Final = "127.0.0.1"

_PORT = re.compile(r"[0-9]{1,5}")
_MAX_PORT: Final = 65535


class PortInUse(FieldProblem):
    """A local port cannot be listened on."""


@dataclass(frozen=True, slots=True)
class ForwardedPort:
    """A local port (0 for any free port), and the port of the pod to which it leads."""

    local: int
    remote: int


@dataclass(frozen=True, slots=True)
class Listening:
    """A local address that leads to a port of the pod."""

    address: str
    local: int
    remote: int

    def __str__(self) -> str:
        host = f"[{self.address}]" if ":" in self.address else self.address
        return f"{host}:{self.local} -> {self.remote}"


def parse_forwarded_port(text: str) -> ForwardedPort:
    """Return the ports of `8080:80`, `80` or `:80` (any free local port). Raises InvalidField.

    Example: `parse_forwarded_port("8080:80")` returns `ForwardedPort(local=8080, remote=80)`.
    """
    local, separator, remote = text.partition(":")
    numbers = [local or "0", remote] if separator else [text, text]
    if all(_PORT.fullmatch(number) and int(number) <= _MAX_PORT for number in numbers) and int(numbers[1]):
        return ForwardedPort(*map(int, numbers))
    raise InvalidField(
        "{ports} {text} is not possible: give LOCAL:REMOTE, each from 1 to 65535, or :REMOTE", text=text
    )


def parse_address(text: str) -> str:
    """Return the IP address of `localhost` or of an IP address. Raises InvalidField."""
    if text == "localhost":
        return LOOPBACK
    try:
        return str(ip_address(text))
    except ValueError as error:
        raise InvalidField(
            "{addresses} {text!r} is not possible: give an IP address of this machine", text=text
        ) from error


@asynccontextmanager
async def listening(
    streams: StreamClient,
    target: Target,
    ports: Sequence[ForwardedPort],
    addresses: Sequence[str] = (LOOPBACK,),
    *,
    report: Callable[[str], None] = lambda _: None,
) -> AsyncIterator[list[Listening]]:
    """Listen on all of the ports until the end of the context, which also ends the connections. If one port is not
    free, listen on no port.

    A connection that fails is closed, and `report` gets one line with the reason. Raises PortInUse.
    """
    connections: set[asyncio.Task[None]] = set()

    async def carried(port: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            writer.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            async with streams.port(target, port) as remote:
                await relay(reader, writer, remote)
        except ClusterError as error:
            report(f"a connection to port {port} failed: {error}")
            writer.transport.abort()
        finally:
            writer.close()

    def handler(port: ForwardedPort) -> Callable[[asyncio.StreamReader, asyncio.StreamWriter], None]:
        def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.ensure_future(carried(port.remote, reader, writer))
            connections.add(task)
            task.add_done_callback(connections.discard)

        return accept

    async with AsyncExitStack() as stack:
        listeners = []
        for port in ports:
            for address in addresses:
                try:
                    server = await asyncio.start_server(handler(port), address, port.local)
                except OSError as error:
                    raise PortInUse(
                        "{ports} {local}:{remote}: {address}:{local} cannot be listened on ({reason}); "
                        "choose another, or :{remote} for any that is free",
                        local=port.local,
                        remote=port.remote,
                        address=address,
                        reason=error.strerror or error,
                    ) from error
                stack.callback(server.close)
                listeners.append(Listening(address, server.sockets[0].getsockname()[1], port.remote))
        try:
            yield listeners
        finally:
            for task in connections:
                task.cancel()
            await asyncio.gather(*connections, return_exceptions=True)
