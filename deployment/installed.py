"""The installed releases of Kubernetes, Trident and the DRA driver, read from the cluster."""

import base64
import gzip
import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from deployment.cluster_record import call_api_server
from orchestrator.cluster.errors import Forbidden, NotFound
from orchestrator.cluster.resources import NODES, SECRETS, Resource
from orchestrator.cluster.transport import Transport

_ORCHESTRATORS: Final = Resource(
    "trident.netapp.io", "v1", "tridentorchestrators", "TridentOrchestrator", namespaced=False
)
_PROVISIONERS: Final = Resource("trident.netapp.io", "v1", "tridentprovisioners", "TridentProvisioner")


@dataclass(frozen=True)
class Installed:
    """The installed releases, without a leading v; empty where nothing is. `problem` is why none could be read."""

    kubelets: dict[str, str] = field(default_factory=dict)
    trident: str = ""
    dra: str = ""
    ontap: str = ""
    problem: str = ""


def detect(
    kubeconfig: Path,
    context: str,
    hosts: Iterable[str],
    *,
    trident_namespace: str = "trident",
    dra: tuple[str, str] = ("dra-driver-nvidia-gpu", "dra-driver-nvidia-gpu"),
    ontap: str = "",
) -> Installed:
    """Read the installed releases. `hosts` are the site's nodes; `dra` is namespace and name of its Helm release."""
    releases: dict[str, Any] = {}

    async def check(transport: Transport) -> None:
        nodes = await transport.get(NODES.path())
        mine = set(hosts)
        releases["kubelets"] = {
            node["metadata"]["name"]: node["status"]["nodeInfo"]["kubeletVersion"].lstrip("v")
            for node in nodes["items"]
            if node["metadata"]["name"] in mine and node.get("status", {}).get("nodeInfo")
        }
        releases["trident"] = await _trident(transport, trident_namespace)
        releases["dra"] = await _helm_release(transport, *dra)

    problem = call_api_server(kubeconfig, context, check)
    return Installed(**releases, ontap=ontap, problem=problem)


async def _trident(transport: Transport, namespace: str) -> str:
    for path in (_ORCHESTRATORS.path(), _PROVISIONERS.path(namespace)):
        for entry in (await _list(transport, path))["items"]:
            release = entry.get("status", {}).get("version", "")
            if release:
                return str(release).lstrip("v")
    return ""


async def _helm_release(transport: Transport, namespace: str, name: str) -> str:
    """Return the chart version in Helm's newest record of a release: JSON, gzipped, in base64 twice."""
    selector = f"owner=helm,name={name},status=deployed"
    records = await _list(transport, f"{SECRETS.path(namespace)}?labelSelector={selector}")
    newest = max(
        records["items"], key=lambda record: int(record["metadata"]["labels"]["version"]), default=None
    )
    if newest is None:
        return ""
    packed = base64.b64decode(base64.b64decode(newest["data"]["release"]))
    record = json.loads(gzip.decompress(packed))
    return str(record["chart"]["metadata"]["version"]).lstrip("v")


async def _list(transport: Transport, path: str) -> Any:
    try:
        return await transport.get(path)
    except (NotFound, Forbidden):
        return {"items": []}
