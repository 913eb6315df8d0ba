"""The devices of containers: the kubelet's answers from a server at a socket, and as bytes."""

import asyncio
from pathlib import Path

import pytest
from grpclib.const import Status
from grpclib.exceptions import GRPCError
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.agent.errors import KubeletUnreachable
from orchestrator.agent.model import Holder
from orchestrator.agent.pod_resources import (
    HeldDevice,
    ListResponse,
    held_devices,
    list_devices,
)
from tests.agent.kubelets import Kubelet, listening, pod


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


async def test_a_socket_without_a_listener_is_one_line(tmp_path: Path) -> None:
    socket = tmp_path / "kubelet.sock"
    server = await asyncio.start_unix_server(lambda _reader, writer: writer.close(), str(socket))
    with pytest.raises(KubeletUnreachable):
        await list_devices(socket)
    server.close()
    await server.wait_closed()
    with pytest.raises(KubeletUnreachable):
        await list_devices(socket)


@pytest.mark.parametrize("answer", [b"", b"HTTP/1.1 400 Bad Request\r\n\r\n", bytes(range(256)) * 64])
async def test_another_listener_there_is_one_line(tmp_path: Path, answer: bytes) -> None:
    socket = tmp_path / "kubelet.sock"

    async def reply(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(answer)
        await writer.drain()
        writer.close()

    server = await asyncio.start_unix_server(reply, str(socket))
    for _ in range(20):
        with pytest.raises(KubeletUnreachable):
            await list_devices(socket)
    server.close()
    await server.wait_closed()


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
def test_encoded_messages_are_decoded(pods: list[tuple[str, list[str]]]) -> None:
    response = ListResponse()
    for name, devices in pods:
        pod(response, name, *devices)
    decoded = list(held_devices(ListResponse.FromString(response.SerializeToString())))
    assert [(device.holder.pod, device.device) for device in decoded] == [
        (name, device) for name, devices in pods for device in devices
    ]


def recorded(name: str) -> list[HeldDevice]:
    """Return the decoded answer of a real kubelet (Kubernetes 1.36) for a pod with GPUs and one without."""
    body = (Path(__file__).parent / "recorded" / f"{name}.bin").read_bytes()
    return list(held_devices(ListResponse.FromString(body)))


def test_a_real_kubelets_answer_names_the_device_plugins_gpus() -> None:
    uuid = "GPU-00000100-0000-0000-0000-00000000000"
    first, second = (Holder("default", "train-0", container) for container in ("c0", "c1"))
    assert recorded("device-plugin") == [
        HeldDevice(first, f"{uuid}7"),
        HeldDevice(second, f"{uuid}6"),
        HeldDevice(second, f"{uuid}5"),
    ]


def test_a_real_kubelets_answer_names_the_devices_of_a_claim() -> None:
    holder = Holder("default", "train-0", "c0")
    assert recorded("dra") == [
        HeldDevice(holder, "gpu-1", "gpu.nvidia.com"),
        HeldDevice(holder, "gpu-3", "gpu.nvidia.com"),
    ]
