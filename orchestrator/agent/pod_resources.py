"""Reads the devices of the node's containers from the kubelet's pod-resources API (v1).

Only the fields that are read are described here, with the numbers and types of
`k8s.io/kubelet/pkg/apis/podresources/v1/api.proto` (Kubernetes 1.36). protobuf skips all others.
"""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError
from grpclib.client import Channel, UnaryUnaryMethod
from grpclib.exceptions import GRPCError, ProtocolError, StreamTerminatedError
from h2.exceptions import H2Error

from orchestrator.agent.errors import KubeletUnreachable
from orchestrator.agent.model import Holder

SOCKET: Final = Path("/var/lib/kubelet/pod-resources/kubelet.sock")
LIST: Final = "/v1.PodResourcesLister/List"
_SECONDS: Final = 5.0

_MANY: Final = True
_FIELDS: Final[dict[str, tuple[tuple[int, str, str, bool], ...]]] = {
    "ListPodResourcesRequest": (),
    "ListPodResourcesResponse": ((1, "pod_resources", "PodResources", _MANY),),
    "PodResources": (
        (1, "name", "string", False),
        (2, "namespace", "string", False),
        (3, "containers", "ContainerResources", _MANY),
    ),
    "ContainerResources": (
        (1, "name", "string", False),
        (2, "devices", "ContainerDevices", _MANY),
        (5, "dynamic_resources", "DynamicResource", _MANY),
    ),
    "ContainerDevices": ((1, "resource_name", "string", False), (2, "device_ids", "string", _MANY)),
    "DynamicResource": ((4, "claim_resources", "ClaimResource", _MANY),),
    "ClaimResource": ((2, "driver_name", "string", False), (4, "device_name", "string", False)),
}
"""The fields of each message: number, name, type, and whether the field is repeated."""


_FAILURES: Final = (
    OSError,
    GRPCError,
    ProtocolError,
    StreamTerminatedError,
    H2Error,
    DecodeError,
    AttributeError,  # grpclib 0.4.9 raises it if the connection was closed before the request
)


@dataclass(frozen=True, slots=True)
class HeldDevice:
    """A device of a container. `device` is its name at the plugin or DRA driver. `driver` is empty for a plugin."""

    holder: Holder
    device: str
    driver: str = ""


def _message_class(name: str) -> Any:
    """Return the class of a message, which protobuf makes from `_FIELDS`."""
    file = descriptor_pb2.FileDescriptorProto(name="pod_resources.proto", package="v1", syntax="proto3")
    kinds = descriptor_pb2.FieldDescriptorProto
    for message, fields in _FIELDS.items():
        described = file.message_type.add(name=message)
        for number, field, kind, many in fields:
            entry = described.field.add(name=field, number=number)
            entry.label = kinds.LABEL_REPEATED if many else kinds.LABEL_OPTIONAL
            entry.type = kinds.TYPE_STRING if kind == "string" else kinds.TYPE_MESSAGE
            if kind != "string":
                entry.type_name = f".v1.{kind}"
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"v1.{name}"))


ListRequest: Final = _message_class("ListPodResourcesRequest")
ListResponse: Final = _message_class("ListPodResourcesResponse")


def held_devices(response: Any) -> Iterator[HeldDevice]:
    """Yield the devices that a `ListResponse` names, in its order."""
    for pod in response.pod_resources:
        for container in pod.containers:
            holder = Holder(pod.namespace, pod.name, container.name)
            for devices in container.devices:
                for device in devices.device_ids:
                    yield HeldDevice(holder, device)
            for claim in container.dynamic_resources:
                for device in claim.claim_resources:
                    yield HeldDevice(holder, device.device_name, device.driver_name)


async def list_devices(socket: Path = SOCKET, seconds: float = _SECONDS) -> list[HeldDevice]:
    """Return the devices of the containers of this node. Raises KubeletUnreachable.

    Each call has its own connection, because a kubelet that restarts creates a new socket.
    """
    channel = Channel(path=str(socket))
    try:
        async with asyncio.timeout(seconds):
            method: UnaryUnaryMethod[Any, Any] = UnaryUnaryMethod(channel, LIST, ListRequest, ListResponse)
            return list(held_devices(await method(ListRequest())))
    except TimeoutError as error:
        raise KubeletUnreachable(f"the kubelet does not answer at {socket} within {seconds:g} s") from error
    except _FAILURES as error:
        raise KubeletUnreachable(f"the kubelet does not answer at {socket}: {error}") from error
    finally:
        channel.close()
