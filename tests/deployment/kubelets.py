"""Node objects as an installation of Kubernetes registers them: with kubelets of a release, and without machines."""

import asyncio
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from orchestrator.cluster.errors import NotFound
from orchestrator.cluster.kubeconfig import load_access
from orchestrator.cluster.resources import NODES
from orchestrator.cluster.transport import Transport

_EMPTY: Final = dict.fromkeys(
    ("architecture", "bootID", "kernelVersion", "kubeProxyVersion", "machineID", "operatingSystem", "osImage",
     "systemUUID"), ""
)  # fmt: skip


def run(kubeconfig: Path, release: str, names: Iterable[str]) -> None:
    """Set the kubelet release of these nodes; create nodes that do not exist yet."""

    async def register() -> None:
        async with Transport(load_access(kubeconfig)) as transport:
            for name in names:
                await _run(transport, release, name)

    asyncio.run(register())


async def _run(transport: Transport, release: str, name: str) -> None:
    info = {"kubeletVersion": f"v{release}", "containerRuntimeVersion": "containerd://2.2.3"}
    status = {"status": {"nodeInfo": _EMPTY | info}}
    try:
        await transport.patch(NODES.path(None, name, "status"), status)
    except NotFound:
        await transport.create(NODES.path(), {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}})
        await transport.patch(NODES.path(None, name, "status"), status)
