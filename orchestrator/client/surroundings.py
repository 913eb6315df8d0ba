"""Reads the PVCs, warnings and nodes of pods that do not run.

PVCs and warnings are read only in namespaces with a pod that has a node and has not started. Objects that the user
may not read are left out.
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Final

from orchestrator.cluster.errors import Forbidden, NotFound
from orchestrator.cluster.objects import Event, Node, PersistentVolumeClaim, Pod
from orchestrator.cluster.pods import FINISHED
from orchestrator.cluster.resources import CLAIMS, EVENTS, NODES
from orchestrator.cluster.transport import Transport
from orchestrator.views.containers import Surroundings, claim_names, has_not_started
from orchestrator.views.jobs import event_time_us

MAX_NAMESPACES: Final = 8
"""Maximum number of namespaces whose PVCs and warnings one list reads."""
MAX_NODES: Final = 8
"""Maximum number of nodes of one job that are read."""


async def surroundings(transport: Transport, pods: Sequence[Pod]) -> dict[str, Surroundings]:
    """Return the PVCs and warnings of each namespace with pods that have a node and have not started."""
    late: dict[str, list[Pod]] = {}
    for pod in pods:
        if has_not_started(pod):
            late.setdefault(pod.metadata.namespace, []).append(pod)
    namespaces = sorted(late)[:MAX_NAMESPACES]
    read = await asyncio.gather(*(_around(transport, namespace, late[namespace]) for namespace in namespaces))
    return dict(zip(namespaces, read, strict=True))


async def _around(transport: Transport, namespace: str, pods: Sequence[Pod]) -> Surroundings:
    claims, events = await asyncio.gather(
        _claims(transport, namespace) if any(claim_names(pod) for pod in pods) else _nothing(),
        _warnings(transport, namespace),
    )
    return Surroundings(claims, events)


async def _nothing() -> dict[str, PersistentVolumeClaim]:
    return {}


async def _claims(transport: Transport, namespace: str) -> dict[str, PersistentVolumeClaim]:
    try:
        page = await transport.list(CLAIMS.path(namespace), PersistentVolumeClaim)
    except Forbidden:
        return {}
    return {claim.metadata.name: claim for claim in page.items}


async def _warnings(transport: Transport, namespace: str) -> list[Event]:
    try:
        page = await transport.list(EVENTS.path(namespace), Event, params={"fieldSelector": "type=Warning"})
    except Forbidden:
        return []
    return sorted(page.items, key=event_time_us)


async def nodes_of(transport: Transport, pods: Sequence[Pod]) -> Mapping[str, Node | None]:
    """Return the nodes of the pods that have not ended, by name; None for a node that does not exist."""
    names = sorted({pod.spec.node_name for pod in pods if pod.status.phase not in FINISHED} - {""})
    nodes = await asyncio.gather(*(_node(transport, name) for name in names[:MAX_NODES]))
    return {name: node for name, node in zip(names, nodes, strict=False) if not isinstance(node, Forbidden)}


async def _node(transport: Transport, name: str) -> Node | Forbidden | None:
    try:
        return await transport.get(NODES.path(name=name), Node)
    except NotFound:
        return None
    except Forbidden as error:
        return error
