"""A double of a kubelet's pod-resources API at a socket, with answers set by a test."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from grpclib.const import Cardinality, Handler
from grpclib.server import Server

from orchestrator.agent.pod_resources import LIST, ListRequest, ListResponse


class Kubelet:
    """Answers List, or fails in the requested way."""

    def __init__(self) -> None:
        self.response = ListResponse()
        self.failure: Exception | None = None
        self.is_silent = False

    def __mapping__(self) -> dict[str, Handler]:
        return {LIST: Handler(self._list, Cardinality.UNARY_UNARY, ListRequest, ListResponse)}

    async def _list(self, stream: Any) -> None:
        await stream.recv_message()
        if self.is_silent:
            await asyncio.Event().wait()
        if self.failure is not None:
            raise self.failure
        await stream.send_message(self.response)


@asynccontextmanager
async def listening(kubelet: Kubelet, socket: Path) -> AsyncIterator[None]:
    server = Server([kubelet])
    await server.start(path=str(socket))
    try:
        yield
    finally:
        server.close()
        await server.wait_closed()
        socket.unlink(missing_ok=True)


def pod(response: Any, name: str, *devices: str, claimed: tuple[tuple[str, str], ...] = ()) -> None:
    entry = response.pod_resources.add(name=name, namespace="team-a")
    container = entry.containers.add(name="main")
    if devices:
        container.devices.add(resource_name="nvidia.com/gpu", device_ids=devices)
    for driver, device in claimed:
        claim = container.dynamic_resources.add()
        claim.claim_resources.add(driver_name=driver, device_name=device)
