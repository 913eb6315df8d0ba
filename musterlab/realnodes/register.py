"""Gives real nodes their rights, labels and GPUs through the API, and waits until they are registered."""

import asyncio
from collections.abc import Sequence
from typing import Any

from musterlab.components import KIND_LABEL, PROGRAMS_ANNOTATION
from musterlab.gpus import built
from musterlab.gpus.models import RESOURCE
from musterlab.realnodes.plan import API_CLIENT_USER, NAMES_USER, RealNode
from orchestrator.cluster.errors import NotFound
from orchestrator.cluster.objects import Node
from orchestrator.cluster.resources import CLUSTER_ROLE_BINDINGS, CLUSTER_ROLES, NODES, Resource
from orchestrator.cluster.transport import Transport

REAL = "real"

_SLICES = Resource("resource.k8s.io", "v1", "resourceslices", "ResourceSlice", namespaced=False)
_POLL_SECONDS = 0.05
_RBAC = "rbac.authorization.k8s.io"
_OF_THE_MACHINE = frozenset({"cpu", "memory", "pods", "ephemeral-storage"})


async def permit(transport: Transport) -> None:
    """Give the API server the rights for logs and exec at kubelets, and the name server the right to list endpoints."""
    role = {
        "apiVersion": CLUSTER_ROLES.api_version,
        "kind": CLUSTER_ROLES.kind,
        "metadata": {"name": NAMES_USER},
        "rules": [{"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": ["list"]}],
    }
    await transport.create(CLUSTER_ROLES.path(), role)
    for user, granted in ((API_CLIENT_USER, "system:kubelet-api-admin"), (NAMES_USER, NAMES_USER)):
        binding = {
            "apiVersion": CLUSTER_ROLE_BINDINGS.api_version,
            "kind": CLUSTER_ROLE_BINDINGS.kind,
            "metadata": {"name": user},
            "roleRef": {"apiGroup": _RBAC, "kind": "ClusterRole", "name": granted},
            "subjects": [{"apiGroup": _RBAC, "kind": "User", "name": user}],
        }
        await transport.create(CLUSTER_ROLE_BINDINGS.path(), binding)


async def equip(transport: Transport, nodes: Sequence[RealNode]) -> None:
    """Wait until each kubelet has registered its node, and give it the labels and resources of its profile."""
    await asyncio.gather(*(_equip(transport, node) for node in nodes))


async def _equip(transport: Transport, node: RealNode) -> None:
    while not await _registered(transport, node.name):  # noqa: ASYNC110 - another process registers it
        await asyncio.sleep(_POLL_SECONDS)
    labels = {**node.profile.labels, KIND_LABEL: REAL}
    metadata: dict[str, Any] = {"labels": labels}
    if node.gpus is not None:
        roles = built.roles(node.gpus).items()
        metadata["annotations"] = {
            PROGRAMS_ANNOTATION: "; ".join(f"{role}: {program}" for role, program in roles)
        }
    await transport.patch(NODES.path(name=node.name), {"metadata": metadata})
    # The kubelet keeps resources that it does not measure. It would overwrite cpu, memory and others.
    added = {name: amount for name, amount in node.profile.capacity.items() if name not in _OF_THE_MACHINE}
    status = {"status": {"capacity": added, "allocatable": added}}
    await transport.patch(NODES.path(name=node.name, subresource="status"), status)


async def gpus_shown(transport: Transport, nodes: Sequence[RealNode]) -> bool:
    """Return whether the API server shows all GPUs that NVIDIA's programs announce on the nodes."""
    shown: dict[str, int] = {}
    if any(node.gpus is not None and node.gpus.stack == "dra" for node in nodes):
        page = await transport.list(_SLICES.path(), dict[str, Any])
        for item in page.items:
            name = item["spec"].get("nodeName", "")
            shown[name] = shown.get(name, 0) + len(item["spec"].get("devices", ()))
    else:
        listed = await transport.list(NODES.path(), Node)
        shown = {item.metadata.name: int(item.status.allocatable.get(RESOURCE, "0")) for item in listed.items}
    return all(shown.get(node.name, 0) == node.gpus.count for node in nodes if node.gpus is not None)


async def _registered(transport: Transport, name: str) -> bool:
    try:
        node = await transport.get(NODES.path(name=name), Node)
    except NotFound:
        return False
    # until the kubelet has set conditions, it can reset the extended resources of a new node to zero
    return bool(node.status.conditions)
