"""Which containers have which devices: the kubelet's answers, of a server at a socket and as bytes."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from grpclib.const import Cardinality, Handler, Status
from grpclib.exceptions import GRPCError
from grpclib.server import Server
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.agent.errors import KubeletUnreachable
from orchestrator.agent.model import Holder
from orchestrator.agent.pod_resources import (
    LIST,
    HeldDevice,
    ListRequest,
    ListResponse,
    held_devices,
    list_devices,
)


class Kubelet:
    """Answers List, or fails in the way that it is told."""

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


async def test_devices_of_plugins_and_of_claims_are_listed_with_their_containers(tmp_path: Path) -> None:
    kubelet = Kubelet()
    pod(kubelet.response, "one", "GPU-1", "GPU-2")
    pod(kubelet.response, "two", claimed=(("gpu.nvidia.com", "gpu-3"),))
    pod(kubelet.response, "without")
    socket = tmp_path / "kubelet.sock"
    async with listening(kubelet, socket):
        held = await list_devices(socket)
    one, two = Holder("team-a", "one", "main"), Holder("team-a", "two", "main")
    assert held == [
        HeldDevice(one, "GPU-1"),
        HeldDevice(one, "GPU-2"),
        HeldDevice(two, "gpu-3", "gpu.nvidia.com"),
    ]


async def test_a_kubelet_that_restarts_is_asked_again(tmp_path: Path) -> None:
    kubelet, socket = Kubelet(), tmp_path / "kubelet.sock"
    pod(kubelet.response, "one", "GPU-1")
    for _ in range(2):
        async with listening(kubelet, socket):
            assert len(await list_devices(socket)) == 1
        with pytest.raises(KubeletUnreachable, match=r"does not answer at .*kubelet\.sock"):
            await list_devices(socket)


async def test_a_socket_where_nobody_listens_any_more_is_one_line(tmp_path: Path) -> None:
    socket = tmp_path / "kubelet.sock"
    server = await asyncio.start_unix_server(lambda _reader, writer: writer.close(), str(socket))
    with pytest.raises(KubeletUnreachable):
        await list_devices(socket)
    server.close()
    await server.wait_closed()
    with pytest.raises(KubeletUnreachable):
        await list_devices(socket)


async def test_a_kubelet_that_refuses_or_is_silent_is_one_line(tmp_path: Path) -> None:
    kubelet, socket = Kubelet(), tmp_path / "kubelet.sock"
    async with listening(kubelet, socket):
        kubelet.failure = GRPCError(Status.RESOURCE_EXHAUSTED, "rejected by rate limit")
        with pytest.raises(KubeletUnreachable, match="rejected by rate limit"):
            await list_devices(socket)
        kubelet.is_silent = True
        with pytest.raises(KubeletUnreachable, match=r"within 0\.05 s"):
            await list_devices(socket, seconds=0.05)


@given(
    st.lists(
        st.tuples(st.text(max_size=20), st.lists(st.text(min_size=1, max_size=20), max_size=3)), max_size=5
    )
)
def test_what_was_encoded_is_decoded(pods: list[tuple[str, list[str]]]) -> None:
    response = ListResponse()
    for name, devices in pods:
        pod(response, name, *devices)
    decoded = list(held_devices(ListResponse.FromString(response.SerializeToString())))
    assert [(device.holder.pod, device.device) for device in decoded] == [
        (name, device) for name, devices in pods for device in devices
    ]
