"""The objects of the DRA driver's own chart that a lab needs: its class of devices, its account and that one's rights.

They are read from the chart's templates. What a template asks of Helm there is a name, a condition that holds here, or
labels, which nothing needs; anything else is an error.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import yaml

from musterlab.errors import StartError
from musterlab.gpus.recipe import CHART
from orchestrator.cluster.resources import (
    CLUSTER_ROLE_BINDINGS,
    CLUSTER_ROLES,
    NAMESPACES,
    ROLE_BINDINGS,
    ROLES,
    SERVICE_ACCOUNTS,
    Resource,
)
from orchestrator.cluster.transport import Transport

NAMESPACE: Final = "dra-driver-nvidia-gpu"
DEVICE_CLASSES: Final = Resource("resource.k8s.io", "v1", "deviceclasses", "DeviceClass", namespaced=False)

_ACCOUNT = f"{NAMESPACE}-service-account"
_PLUGIN_ACCOUNT = f"{_ACCOUNT}-kubeletplugin"
_TOKEN_SECONDS = 30 * 24 * 3600
_VALUES = {
    "$resourceApiVersion": DEVICE_CLASSES.api_version,
    "$namespace": NAMESPACE,
    "dra-driver-nvidia-gpu.name": NAMESPACE,
    "dra-driver-nvidia-gpu.namespace": NAMESPACE,
    "dra-driver-nvidia-gpu.serviceAccountName": _ACCOUNT,
}
_RESOURCES = {
    resource.kind: resource
    for resource in (
        DEVICE_CLASSES, SERVICE_ACCOUNTS, CLUSTER_ROLES, CLUSTER_ROLE_BINDINGS, ROLES, ROLE_BINDINGS
    )
}  # fmt: skip
_ACTION_LINE = re.compile(r"\s*\{\{.*\}\}\s*")
_ACTION = re.compile(r"\{\{-?\s*(?:include\s+\"([^\"]+)\"\s+[$.]|(\$\w+))\s*-?\}\}")


def objects(chart: Path) -> Iterator[dict[str, Any]]:
    """Read the objects from the templates in a folder.

    Raises:
        StartError: a template asks for something that is not known here.
    """
    for template in sorted(chart.glob("*.yaml")):
        lines = [line for line in template.read_text().splitlines() if not _ACTION_LINE.fullmatch(line)]
        text = _ACTION.sub(_value, "\n".join(lines))
        if "{{" in text:
            raise StartError(f"{template} asks for something that a lab does not know")
        for item in yaml.safe_load_all(text):
            if item and "openshift" not in item["metadata"]["name"]:
                metadata = {key: value for key, value in item["metadata"].items() if value}
                yield {**item, "metadata": metadata}


def _value(action: re.Match[str]) -> str:
    return _VALUES.get(action[1] or action[2], action[0])


async def install(transport: Transport, programs: Path) -> None:
    """Create the namespace and the chart's objects."""
    await transport.create(
        NAMESPACES.path(), {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
    )
    for item in objects(programs / CHART):
        resource = _RESOURCES[item["kind"]]
        await transport.create(resource.path(item["metadata"].get("namespace")), item)


async def write_access(transport: Transport, kubelet_access: Path, path: Path) -> None:
    """Write a kubeconfig of the driver's account, for the API server that a node's kubelet knows."""
    request = {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenRequest",
        "spec": {"expirationSeconds": _TOKEN_SECONDS},
    }
    answer = await transport.create(
        SERVICE_ACCOUNTS.path(NAMESPACE, _PLUGIN_ACCOUNT, subresource="token"), request
    )
    config = json.loads(kubelet_access.read_text())
    (user,) = config["users"]
    user["user"] = {"token": answer["status"]["token"]}
    path.touch(mode=0o600)
    path.write_text(json.dumps(config))
