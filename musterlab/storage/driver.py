"""The lab's own CSI driver, one process for all real nodes of a lab: volumes are folders of the machine.

    python -m musterlab.storage.driver LAB FOLDER NODE=KUBELET...

The driver bind-mounts the folder of a volume, below FOLDER, into each node that publishes it. So all nodes see the same
bytes. LAB is the state directory of the lab. KUBELET is the folder of the kubelet of the node.
"""

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final

from grpclib import GRPCError, Status
from grpclib.const import Cardinality, Handler
from grpclib.server import Server

from musterlab.cluster import Lab
from musterlab.errors import LabError
from musterlab.storage import registrar
from musterlab.storage.messages import CSI, message_classes
from musterlab.storage.nodes import Node, real_nodes
from musterlab.storage.volumes import Kind, Stored, Volumes

NAME: Final = "storage.lab.muster.dev"
KUBELET: Final = "/var/lib/kubelet"
"""Folder of the kubelet, as its node sees it."""
SOCKET: Final = f"plugins/{NAME}/csi.sock"
REGISTRATION: Final = f"plugins_registry/{NAME}-reg.sock"
MESSAGES: Final = message_classes("csi.v1", CSI)

_CONTROLLER_SERVICE: Final = 1
_CREATE_DELETE_VOLUME: Final = 1
_CREATE_DELETE_SNAPSHOT: Final = 5
_CLONE_VOLUME: Final = 7
_RPCS: Final = (_CREATE_DELETE_VOLUME, _CREATE_DELETE_SNAPSHOT, _CLONE_VOLUME)
_Call = Callable[[Any], Awaitable[Any]]


class Driver:
    """The driver on one node: CSI's services Identity, Controller and Node."""

    def __init__(self, volumes: Volumes, node: Node) -> None:
        self._volumes = volumes
        self._node = node

    def __mapping__(self) -> Mapping[str, Handler]:
        """Return the handlers of the three services by path, in the form of grpclib."""
        calls: dict[str, tuple[_Call, str, str]] = {
            "Identity/GetPluginInfo": (self._info, "Empty", "GetPluginInfoResponse"),
            "Identity/GetPluginCapabilities": (
                self._capabilities,
                "Empty",
                "GetPluginCapabilitiesResponse",
            ),
            "Identity/Probe": (self._probe, "Empty", "ProbeResponse"),
            "Controller/ControllerGetCapabilities": (
                self._controller_capabilities,
                "Empty",
                "ControllerGetCapabilitiesResponse",
            ),
            "Controller/CreateVolume": (self._create_volume, "CreateVolumeRequest", "CreateVolumeResponse"),
            "Controller/DeleteVolume": (self._delete_volume, "DeleteVolumeRequest", "Empty"),
            "Controller/ValidateVolumeCapabilities": (
                self._validate,
                "ValidateVolumeCapabilitiesRequest",
                "ValidateVolumeCapabilitiesResponse",
            ),
            "Controller/CreateSnapshot": (
                self._create_snapshot,
                "CreateSnapshotRequest",
                "CreateSnapshotResponse",
            ),
            "Controller/DeleteSnapshot": (self._delete_snapshot, "DeleteSnapshotRequest", "Empty"),
            "Node/NodeGetCapabilities": (self._node_capabilities, "Empty", "Empty"),
            "Node/NodeGetInfo": (self._node_info, "Empty", "NodeGetInfoResponse"),
            "Node/NodePublishVolume": (self._publish, "NodePublishVolumeRequest", "Empty"),
            "Node/NodeUnpublishVolume": (self._unpublish, "NodeUnpublishVolumeRequest", "Empty"),
        }
        return {
            f"/csi.v1.{name}": Handler(
                _answering(call), Cardinality.UNARY_UNARY, MESSAGES[request], MESSAGES[answer]
            )
            for name, (call, request, answer) in calls.items()
        }

    async def _info(self, _request: Any) -> Any:
        return MESSAGES["GetPluginInfoResponse"](name=NAME, vendor_version="1")

    async def _capabilities(self, _request: Any) -> Any:
        return MESSAGES["GetPluginCapabilitiesResponse"](
            capabilities=[{"service": {"type": _CONTROLLER_SERVICE}}]
        )

    async def _probe(self, _request: Any) -> Any:
        return MESSAGES["ProbeResponse"](ready={"value": True})

    async def _controller_capabilities(self, _request: Any) -> Any:
        return MESSAGES["ControllerGetCapabilitiesResponse"](
            capabilities=[{"rpc": {"type": rpc}} for rpc in _RPCS]
        )

    async def _create_volume(self, request: Any) -> Any:
        _require(request, "name", "volume_capabilities")
        _refuse_parameters(request)
        for capability in request.volume_capabilities:
            _check_capability(capability)
        sizes = request.capacity_range
        content = request.volume_content_source
        volume = await self._volumes.create_volume(
            request.name, _source(content), sizes.required_bytes, sizes.limit_bytes
        )
        answer = {"capacity_bytes": volume.size_bytes, "volume_id": volume.identifier}
        if volume.source:
            answer["content_source"] = content
        return MESSAGES["CreateVolumeResponse"](volume=answer)

    async def _delete_volume(self, request: Any) -> Any:
        _require(request, "volume_id")
        await self._volumes.delete("volumes", request.volume_id)
        return MESSAGES["Empty"]()

    async def _validate(self, request: Any) -> Any:
        _require(request, "volume_id", "volume_capabilities")
        self._volumes.find("volumes", request.volume_id)
        answer = MESSAGES["ValidateVolumeCapabilitiesResponse"]
        try:
            for capability in request.volume_capabilities:
                _check_capability(capability)
        except GRPCError as error:
            return answer(message=error.message)
        return answer(confirmed={"volume_capabilities": request.volume_capabilities})

    async def _create_snapshot(self, request: Any) -> Any:
        _require(request, "name", "source_volume_id")
        _refuse_parameters(request)
        snapshot = await self._volumes.create_snapshot(request.name, request.source_volume_id)
        return MESSAGES["CreateSnapshotResponse"](snapshot=_described(snapshot))

    async def _delete_snapshot(self, request: Any) -> Any:
        _require(request, "snapshot_id")
        await self._volumes.delete("snapshots", request.snapshot_id)
        return MESSAGES["Empty"]()

    async def _node_capabilities(self, _request: Any) -> Any:
        return MESSAGES["Empty"]()

    async def _node_info(self, _request: Any) -> Any:
        return MESSAGES["NodeGetInfoResponse"](node_id=self._node.name)

    async def _publish(self, request: Any) -> Any:
        _require(request, "volume_id", "target_path", "volume_capability")
        _check_capability(request.volume_capability)
        volume = self._volumes.find("volumes", request.volume_id)
        source = self._volumes.data(volume)
        await self._node.bind(source, request.target_path, read_only=request.readonly)
        return MESSAGES["Empty"]()

    async def _unpublish(self, request: Any) -> Any:
        _require(request, "volume_id", "target_path")
        await self._node.unbind(request.target_path)
        return MESSAGES["Empty"]()


def _answering(call: _Call) -> Callable[[Any], Awaitable[None]]:
    """Return a handler of grpclib that answers a request by a call."""

    async def handle(stream: Any) -> None:
        await stream.send_message(await call(await stream.recv_message()))

    return handle


def _require(request: Any, *fields: str) -> None:
    """Raise GRPCError for the first field that the request lacks."""
    present = {field.name for field, _ in request.ListFields()}
    for field in fields:
        if field not in present:
            raise GRPCError(Status.INVALID_ARGUMENT, f"the request has no {field}")


def _refuse_parameters(request: Any) -> None:
    """Raise GRPCError for a class with parameters."""
    names = ", ".join(entry.key for entry in request.parameters)
    if names:
        raise GRPCError(Status.INVALID_ARGUMENT, f"{NAME} knows no parameters: remove {names} from the class")


def _check_capability(capability: Any) -> None:
    """Raise GRPCError for a volume that cannot be a folder of the machine."""
    options = " ".join([capability.mount.fs_type, *capability.mount.mount_flags]).strip()
    if capability.HasField("block") or options:
        wanted = f"mounted with {options!r}" if options else "a block device"
        raise GRPCError(Status.INVALID_ARGUMENT, f"a volume of {NAME} is a folder: it cannot be {wanted}")


def _source(content: Any) -> tuple[Kind, str] | None:
    """Return the source of a new volume, if it has one."""
    if content.snapshot.snapshot_id:
        return "snapshots", content.snapshot.snapshot_id
    if content.volume.volume_id:
        return "volumes", content.volume.volume_id
    return None


def _described(snapshot: Stored) -> dict[str, Any]:
    seconds, nanoseconds = divmod(snapshot.created_nanoseconds, 10**9)
    return {
        "size_bytes": snapshot.size_bytes,
        "snapshot_id": snapshot.identifier,
        "source_volume_id": snapshot.source.removeprefix("volumes/"),
        "creation_time": {"seconds": seconds, "nanos": nanoseconds},
        "ready_to_use": True,
    }


@contextlib.asynccontextmanager
async def serving(folder: Path, nodes: Mapping[Path, Node]) -> AsyncIterator[None]:
    """Serve volumes of one folder while the block runs, at the socket of each node."""
    volumes = Volumes(folder)
    servers = [Server([Driver(volumes, node)]) for node in nodes.values()]
    try:
        for path, server in zip(nodes, servers, strict=True):
            path.unlink(missing_ok=True)
            await server.start(path=str(path))
        yield
    finally:
        for server in servers:
            server.close()
            await server.wait_closed()


async def serve(process: Callable[[str], int], folder: Path, kubelets: Mapping[str, Path]) -> str:
    """Serve the volumes of a folder to real nodes until a kubelet refuses the driver; return the reason.

    `process` returns, for the name of a node, the id of a process that sees the node's files. `kubelets` has the folder
    of each node's kubelet.
    """
    for kubelet in kubelets.values():
        for name in (SOCKET, REGISTRATION):
            (kubelet / name).parent.mkdir(parents=True, exist_ok=True)
    nodes = {kubelet / SOCKET: Node(name, partial(process, name)) for name, kubelet in kubelets.items()}
    async with serving(folder, nodes):
        # a kubelet calls the driver as soon as it finds the registration
        registrations = [kubelet / REGISTRATION for kubelet in kubelets.values()]
        return await registrar.serve(NAME, f"{KUBELET}/{SOCKET}", registrations)


def _process_in(lab: Lab) -> Callable[[str], int]:
    """Return the function that finds a process of a real node of a lab."""

    def process(name: str) -> int:
        try:
            return real_nodes(lab)[name]
        except (LabError, KeyError):
            raise GRPCError(Status.UNAVAILABLE, f"node {name} does not run") from None

    return process


if __name__ == "__main__":
    _pairs = (argument.split("=", 1) for argument in sys.argv[3:])
    _kubelets = {name: Path(path) for name, path in _pairs}
    _reason = asyncio.run(serve(_process_in(Lab(Path(sys.argv[1]))), Path(sys.argv[2]), _kubelets))
    sys.exit(f"the kubelet refuses it: {_reason}")
