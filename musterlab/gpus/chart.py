"""The objects that a DRA driver for GPUs needs: DeviceClass, service account, rights. NVIDIA's chart has them too.

Names and rights are those of the chart of dra-driver-nvidia-gpu 9593204 (0.5.0-dev), read 2026-11-27.
"""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

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
DRIVER: Final = "gpu.nvidia.com"
DEVICE_CLASSES: Final = Resource("resource.k8s.io", "v1", "deviceclasses", "DeviceClass", namespaced=False)

_ACCOUNT: Final = f"{NAMESPACE}-service-account-kubeletplugin"
_TOKEN_SECONDS: Final = 30 * 24 * 3600
_RBAC: Final = "rbac.authorization.k8s.io"
_RIGHTS: Final = {
    ("resource.nvidia.com", "computedomains"): "get list watch",
    ("resource.k8s.io", "resourceclaims"): "get list watch",
    ("resource.k8s.io", "resourceslices"): "get list watch create update delete",
    ("", "nodes"): "get list watch update patch",
    ("", "pods"): "get list watch",
}
_RIGHTS_IN_NAMESPACE: Final = {
    ("resource.nvidia.com", "computedomaincliques"): "get",
    ("apps", "deployments"): "get list watch create update patch delete",
}
_ANY_DEVICE: Final = f"device.driver == '{DRIVER}'"
_WHOLE_GPU: Final = f"{_ANY_DEVICE} && device.attributes['{DRIVER}'].type == 'gpu'"


def objects(*, nvidias_driver: bool) -> Iterator[tuple[Resource, dict[str, Any]]]:
    """Yield the objects for NVIDIA's DRA driver, or for the example driver, whose devices have no attribute `type`."""
    yield (
        DEVICE_CLASSES,
        {
            "metadata": {"name": DRIVER},
            "spec": {
                "selectors": [{"cel": {"expression": _WHOLE_GPU if nvidias_driver else _ANY_DEVICE}}],
                "extendedResourceName": "nvidia.com/gpu",
            },
        },
    )
    yield SERVICE_ACCOUNTS, {"metadata": {"name": _ACCOUNT, "namespace": NAMESPACE}}
    for role, binding, rights, metadata in (
        (CLUSTER_ROLES, CLUSTER_ROLE_BINDINGS, _RIGHTS, {}),
        (ROLES, ROLE_BINDINGS, _RIGHTS_IN_NAMESPACE, {"namespace": NAMESPACE}),
    ):
        name = f"{NAMESPACE}-{role.kind.lower()}-kubeletplugin"
        yield role, {"metadata": {"name": name, **metadata}, "rules": list(_rules(rights))}
        yield (
            binding,
            {
                "metadata": {"name": f"{NAMESPACE}-{role.kind.lower()}-binding-kubeletplugin", **metadata},
                "roleRef": {"apiGroup": _RBAC, "kind": role.kind, "name": name},
                "subjects": [{"kind": "ServiceAccount", "name": _ACCOUNT, "namespace": NAMESPACE}],
            },
        )


def _rules(rights: Mapping[tuple[str, str], str]) -> Iterator[dict[str, Any]]:
    for (group, plural), verbs in rights.items():
        yield {"apiGroups": [group], "resources": [plural], "verbs": verbs.split()}


async def install(transport: Transport, *, nvidias_driver: bool) -> None:
    """Create the namespace and the objects."""
    await transport.create(
        NAMESPACES.path(), {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
    )
    for resource, item in objects(nvidias_driver=nvidias_driver):
        named = {"apiVersion": resource.api_version, "kind": resource.kind, **item}
        await transport.create(resource.path(item["metadata"].get("namespace")), named)


async def write_access(transport: Transport, kubelet_access: Path, path: Path) -> None:
    """Write a kubeconfig for the driver's service account. Its API server is that of the kubelet's kubeconfig."""
    request = {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenRequest",
        "spec": {"expirationSeconds": _TOKEN_SECONDS},
    }
    answer = await transport.create(SERVICE_ACCOUNTS.path(NAMESPACE, _ACCOUNT, subresource="token"), request)
    config = json.loads(kubelet_access.read_text())
    (user,) = config["users"]
    user["user"] = {"token": answer["status"]["token"]}
    path.touch(mode=0o600)
    path.write_text(json.dumps(config))
