"""Registers a CSI driver with the kubelets: `python -m musterlab.storage.registrar NAME ENDPOINT SOCKET...`.

It answers as Kubernetes' node-driver-registrar does, at one socket for each kubelet.
"""

import asyncio
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from grpclib.const import Cardinality, Handler
from grpclib.server import Server

from musterlab.storage.messages import REGISTRATION, message_classes

SUPPORTED_VERSIONS: Final = ("1.0.0",)
_SERVICE: Final = "pluginregistration.Registration"
MESSAGES: Final = message_classes(_SERVICE.partition(".")[0], REGISTRATION)


class Registration:
    """The registration service of one driver. `endpoint` is the path of its socket, as the kubelet sees it."""

    def __init__(self, name: str, endpoint: str) -> None:
        self._info = MESSAGES["PluginInfo"](
            type="CSIPlugin", name=name, endpoint=endpoint, supported_versions=SUPPORTED_VERSIONS
        )
        self.errors: asyncio.Queue[str] = asyncio.Queue()

    def __mapping__(self) -> Mapping[str, Handler]:
        """Return the handlers of the service's two calls by path, in the form of grpclib."""
        calls = {
            "GetInfo": (self._get_info, "InfoRequest", "PluginInfo"),
            "NotifyRegistrationStatus": (
                self._take_status,
                "RegistrationStatus",
                "RegistrationStatusResponse",
            ),
        }
        return {
            f"/{_SERVICE}/{call}": Handler(
                function, Cardinality.UNARY_UNARY, MESSAGES[request], MESSAGES[answer]
            )
            for call, (function, request, answer) in calls.items()
        }

    async def _get_info(self, stream: Any) -> None:
        await stream.recv_message()
        await stream.send_message(self._info)

    async def _take_status(self, stream: Any) -> None:
        status = await stream.recv_message()
        if not status.plugin_registered:
            self.errors.put_nowait(status.error)
        await stream.send_message(MESSAGES["RegistrationStatusResponse"]())


async def serve(name: str, endpoint: str, sockets: list[Path]) -> str:
    """Serve at the sockets until a kubelet refuses the driver. Return its reason."""
    registration = Registration(name, endpoint)
    servers = [Server([registration]) for _ in sockets]
    try:
        for path, server in zip(sockets, servers, strict=True):
            path.unlink(missing_ok=True)
            await server.start(path=str(path))
        return await registration.errors.get()
    finally:
        for server in servers:
            server.close()
            await server.wait_closed()


if __name__ == "__main__":
    sys.exit(
        f"the kubelet refuses it: {asyncio.run(serve(sys.argv[1], sys.argv[2], [*map(Path, sys.argv[3:])]))}"
    )
