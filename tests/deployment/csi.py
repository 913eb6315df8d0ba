"""A client of CSI controllers: the calls that Kubernetes' sidecars make, over the driver's socket.

The messages are described as far as tests use them, with the numbers and types of the fields of `csi.proto`
(container-storage-interface/spec v1.12.0).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from grpclib.client import Channel, UnaryUnaryMethod

_SECONDS = 180.0
_MULTI_NODE_MULTI_WRITER = 5
_KIND = descriptor_pb2.FieldDescriptorProto
_SCALARS = {
    "string": _KIND.TYPE_STRING,
    "int64": _KIND.TYPE_INT64,
    "int32": _KIND.TYPE_INT32,
    "bool": _KIND.TYPE_BOOL,
}
_MESSAGES: dict[str, dict[str, tuple[int, str]]] = {
    "CapacityRange": {"required_bytes": (1, "int64")},
    "MountVolume": {"fs_type": (1, "string"), "mount_flags": (2, "string*")},
    "AccessMode": {"mode": (1, "int32")},
    "VolumeCapability": {"mount": (2, "MountVolume"), "access_mode": (3, "AccessMode")},
    "SnapshotSource": {"snapshot_id": (1, "string")},
    "VolumeSource": {"volume_id": (1, "string")},
    "VolumeContentSource": {"snapshot": (1, "SnapshotSource"), "volume": (2, "VolumeSource")},
    "StringEntry": {"key": (1, "string"), "value": (2, "string")},
    "Volume": {"capacity_bytes": (1, "int64"), "volume_id": (2, "string")},
    "Snapshot": {"snapshot_id": (2, "string"), "ready_to_use": (5, "bool")},
    "CreateVolumeRequest": {
        "name": (1, "string"),
        "capacity_range": (2, "CapacityRange"),
        "volume_capabilities": (3, "VolumeCapability*"),
        "parameters": (4, "StringEntry*"),
        "volume_content_source": (6, "VolumeContentSource"),
    },
    "CreateVolumeResponse": {"volume": (1, "Volume")},
    "DeleteVolumeRequest": {"volume_id": (1, "string")},
    "CreateSnapshotRequest": {"source_volume_id": (1, "string"), "name": (2, "string")},
    "CreateSnapshotResponse": {"snapshot": (1, "Snapshot")},
    "DeleteSnapshotRequest": {"snapshot_id": (1, "string")},
    "ControllerExpandVolumeRequest": {"volume_id": (1, "string"), "capacity_range": (2, "CapacityRange")},
    "ControllerExpandVolumeResponse": {"capacity_bytes": (1, "int64")},
    "ControllerPublishVolumeRequest": {
        "volume_id": (1, "string"),
        "node_id": (2, "string"),
        "volume_capability": (3, "VolumeCapability"),
    },
    "ControllerPublishVolumeResponse": {"publish_context": (1, "StringEntry*")},
    "ControllerUnpublishVolumeRequest": {"volume_id": (1, "string"), "node_id": (2, "string")},
    "Empty": {},
}
"""Fields by message: number and type; a star stands for many. On the wire a map is many entries, an enum a number."""


def _classes() -> dict[str, Any]:
    file = descriptor_pb2.FileDescriptorProto(name="csi.proto", package="csi.v1", syntax="proto3")
    for message, fields in _MESSAGES.items():
        described = file.message_type.add(name=message)
        for name, (number, written) in fields.items():
            kind = written.removesuffix("*")
            entry = described.field.add(name=name, number=number)
            entry.label = _KIND.LABEL_OPTIONAL if kind == written else _KIND.LABEL_REPEATED
            entry.type = _SCALARS.get(kind, _KIND.TYPE_MESSAGE)
            if kind not in _SCALARS:
                entry.type_name = f".csi.v1.{kind}"
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"csi.v1.{name}"))
        for name in _MESSAGES
    }


_CLASSES = _classes()
_CAPABILITY = {"mount": {"fs_type": "nfs"}, "access_mode": {"mode": _MULTI_NODE_MULTI_WRITER}}


@dataclass(frozen=True)
class Controller:
    """A CSI controller that listens at a socket. Every call raises grpclib's GRPCError with what the driver says."""

    socket: Path

    async def create_volume(
        self,
        name: str,
        size_bytes: int,
        parameters: Mapping[str, str],
        *,
        snapshot: str = "",
        volume: str = "",
    ) -> str:
        """Create a volume, perhaps from a snapshot or as a clone of another; return its id."""
        request: dict[str, Any] = {
            "name": name,
            "capacity_range": {"required_bytes": size_bytes},
            "volume_capabilities": [_CAPABILITY],
            "parameters": [{"key": key, "value": value} for key, value in parameters.items()],
        }
        if snapshot:
            request["volume_content_source"] = {"snapshot": {"snapshot_id": snapshot}}
        if volume:
            request["volume_content_source"] = {"volume": {"volume_id": volume}}
        answer = await self._call("CreateVolume", request, "CreateVolumeResponse")
        return str(answer.volume.volume_id)

    async def delete_volume(self, volume: str) -> None:
        """Delete a volume."""
        await self._call("DeleteVolume", {"volume_id": volume})

    async def create_snapshot(self, name: str, volume: str) -> str:
        """Take a snapshot that is ready to use; return its id."""
        request = {"source_volume_id": volume, "name": name}
        snapshot = (await self._call("CreateSnapshot", request, "CreateSnapshotResponse")).snapshot
        assert snapshot.ready_to_use
        return str(snapshot.snapshot_id)

    async def delete_snapshot(self, snapshot: str) -> None:
        """Delete a snapshot."""
        await self._call("DeleteSnapshot", {"snapshot_id": snapshot})

    async def expand_volume(self, volume: str, size_bytes: int) -> int:
        """Make a volume larger; return its size in bytes."""
        request = {"volume_id": volume, "capacity_range": {"required_bytes": size_bytes}}
        answer = await self._call("ControllerExpandVolume", request, "ControllerExpandVolumeResponse")
        return int(answer.capacity_bytes)

    async def publish_volume(self, volume: str, node: str) -> dict[str, str]:
        """Let a node mount a volume; return what the node is told of it."""
        request = {"volume_id": volume, "node_id": node, "volume_capability": _CAPABILITY}
        answer = await self._call("ControllerPublishVolume", request, "ControllerPublishVolumeResponse")
        return {entry.key: entry.value for entry in answer.publish_context}

    async def unpublish_volume(self, volume: str, node: str) -> None:
        """Let a node no longer mount a volume."""
        await self._call("ControllerUnpublishVolume", {"volume_id": volume, "node_id": node})

    async def _call(self, name: str, request: dict[str, Any], answer: str = "Empty") -> Any:
        message = _CLASSES[f"{name}Request"]
        channel = Channel(path=str(self.socket))
        try:
            method: UnaryUnaryMethod[Any, Any] = UnaryUnaryMethod(
                channel, f"/csi.v1.Controller/{name}", message, _CLASSES[answer]
            )
            return await method(message(**request), timeout=_SECONDS)
        finally:
            channel.close()
