"""A client of CSI controllers: makes the calls of Kubernetes' sidecars over the driver's socket."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from grpclib.client import Channel, UnaryUnaryMethod

from musterlab.storage.messages import CSI, message_classes

_SECONDS = 180.0
_MULTI_NODE_MULTI_WRITER = 5
_MESSAGES = {
    "ControllerExpandVolumeRequest": {"volume_id": (1, "string"), "capacity_range": (2, "CapacityRange")},
    "ControllerExpandVolumeResponse": {"capacity_bytes": (1, "int64")},
    "ControllerPublishVolumeRequest": {
        "volume_id": (1, "string"),
        "node_id": (2, "string"),
        "volume_capability": (3, "VolumeCapability"),
    },
    "ControllerPublishVolumeResponse": {"publish_context": (1, "StringEntry*")},
    "ControllerUnpublishVolumeRequest": {"volume_id": (1, "string"), "node_id": (2, "string")},
}
"""Messages that the lab's own driver does not need."""
_CLASSES = message_classes("csi.v1", {**CSI, **_MESSAGES})


async def call(socket: Path, name: str, request: Mapping[str, Any], answer: str = "Empty") -> Any:
    """Call a method of a driver, such as `Controller/CreateVolume`. Raises grpclib's GRPCError with the driver's
    message.
    """
    message = _CLASSES[f"{name.rpartition('/')[2]}Request"]
    channel = Channel(path=str(socket))
    try:
        method: UnaryUnaryMethod[Any, Any] = UnaryUnaryMethod(
            channel, f"/csi.v1.{name}", message, _CLASSES[answer]
        )
        return await method(message(**request), timeout=_SECONDS)
    finally:
        channel.close()


def capability(fs_type: str = "") -> dict[str, Any]:
    """Return the capability of a volume that many nodes mount."""
    return {"mount": {"fs_type": fs_type}, "access_mode": {"mode": _MULTI_NODE_MULTI_WRITER}}


@dataclass(frozen=True)
class Controller:
    """A CSI controller that listens at a socket. Every call raises grpclib's GRPCError with the driver's message."""

    socket: Path
    fs_type: str = ""

    async def create_volume(
        self,
        name: str,
        size_bytes: int,
        parameters: Mapping[str, str] = MappingProxyType({}),
        *,
        snapshot: str = "",
        volume: str = "",
    ) -> str:
        """Create a volume, empty, from a snapshot or as a clone of a volume; return its id."""
        request: dict[str, Any] = {
            "name": name,
            "capacity_range": {"required_bytes": size_bytes},
            "volume_capabilities": [capability(self.fs_type)],
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
        """Let a node mount a volume; return the context for the node."""
        request = {"volume_id": volume, "node_id": node, "volume_capability": capability(self.fs_type)}
        answer = await self._call("ControllerPublishVolume", request, "ControllerPublishVolumeResponse")
        return {entry.key: entry.value for entry in answer.publish_context}

    async def unpublish_volume(self, volume: str, node: str) -> None:
        """Withdraw a volume from a node."""
        await self._call("ControllerUnpublishVolume", {"volume_id": volume, "node_id": node})

    async def _call(self, name: str, request: dict[str, Any], answer: str = "Empty") -> Any:
        return await call(self.socket, f"Controller/{name}", request, answer)
