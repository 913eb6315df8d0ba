"""What is done for real nodes through the API: rights, labels, GPUs; and waiting until they are usable."""

import asyncio
from collections.abc import Sequence

from lab.components import KIND_LABEL
from lab.realnodes.plan import API_CLIENT_USER, RealNode
from orchestrator.cluster.errors import NotFound
from orchestrator.cluster.objects import Node
from orchestrator.cluster.resources import CLUSTER_ROLE_BINDINGS, NODES
from orchestrator.cluster.transport import Transport

REAL = "real"

_POLL_SECONDS = 0.05
_OF_THE_MACHINE = frozenset({"cpu", "memory", "pods", "ephemeral-storage"})


async def permit_api_server(transport: Transport) -> None:
    """Let the API server ask kubelets for logs, and for containers to be entered."""
    rbac = "rbac.authorization.k8s.io"
    binding = {
        "apiVersion": CLUSTER_ROLE_BINDINGS.api_version,
        "kind": CLUSTER_ROLE_BINDINGS.kind,
        "metadata": {"name": API_CLIENT_USER},
        "roleRef": {"apiGroup": rbac, "kind": "ClusterRole", "name": "system:kubelet-api-admin"},
        "subjects": [{"apiGroup": rbac, "kind": "User", "name": API_CLIENT_USER}],
    }
    await transport.create(CLUSTER_ROLE_BINDINGS.path(), binding)


async def equip(transport: Transport, nodes: Sequence[RealNode]) -> None:
    """Wait until each kubelet has registered its node, and give it the labels and GPUs of its profile."""
    await asyncio.gather(*(_equip(transport, node) for node in nodes))


async def _equip(transport: Transport, node: RealNode) -> None:
    while not await _registered(transport, node.name):  # noqa: ASYNC110 - another process registers it
        await asyncio.sleep(_POLL_SECONDS)
    labels = {**node.profile.labels, KIND_LABEL: REAL}
    await transport.patch(NODES.path(name=node.name), {"metadata": {"labels": labels}})
    # a kubelet keeps the resources that an administrator added; what it measures itself it would overwrite
    added = {name: amount for name, amount in node.profile.capacity.items() if name not in _OF_THE_MACHINE}
    status = {"status": {"capacity": added, "allocatable": added}}
    await transport.patch(NODES.path(name=node.name, subresource="status"), status)


async def _registered(transport: Transport, name: str) -> bool:
    try:
        node = await transport.get(NODES.path(name=name), Node)
    except NotFound:
        return False
    # before that the kubelet still sets the extended resources of a new node to zero
    return bool(node.status.conditions)
