"""Warnings about a job that asks for more GPUs than a node, the cluster or its project has."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from orchestrator.client.jobs import Scope
from orchestrator.cluster.errors import Forbidden, NotFound
from orchestrator.cluster.gpu_fraction import DEVICE_MILLI, format_gpu, gpu_milli
from orchestrator.cluster.objects import Node, Project
from orchestrator.cluster.resources import NODES, PROJECTS
from orchestrator.cluster.transport import Transport

_UNCHECKED_MILLI: Final = DEVICE_MILLI
"""Requests up to this amount are not checked, because nearly every cluster has one GPU and most jobs request at most
one.
"""


async def unfitting(transport: Transport, scope: Scope, pod_milli: int, pods: int) -> list[str]:
    """Return a warning for each limit that `pods` pods, started together, exceed.

    Limits that the user may not read are not checked.

    Each pod asks for `pod_milli`. The job is not refused: nodes can be added, and limits can change.
    """
    gang_milli = pod_milli * pods
    if gang_milli <= _UNCHECKED_MILLI:
        return []
    node_gpus, limit_milli = await asyncio.gather(_gpus_of_nodes(transport), _limit_milli(transport, scope))
    gang = _gpus(gang_milli)
    warnings = []
    if node_gpus and pod_milli > max(node_gpus) * DEVICE_MILLI:
        warnings.append(
            f"it stays pending: a pod asks for {_gpus(pod_milli)}, and the largest node has {max(node_gpus)}"
        )
    elif node_gpus and gang_milli > sum(node_gpus) * DEVICE_MILLI:
        warnings.append(f"it stays pending: it asks for {gang} at once, and the cluster has {sum(node_gpus)}")
    if limit_milli is not None and gang_milli > limit_milli:
        warnings.append(
            f"it stays pending: it asks for {gang}, and the limit of project {scope.project} is "
            f"{format_gpu(limit_milli)}"
        )
    return warnings


def _gpus(milli: int) -> str:
    return f"{format_gpu(milli)} GPU{'s' * (milli > DEVICE_MILLI)}"


async def _gpus_of_nodes(transport: Transport) -> Sequence[int]:
    """Return the number of GPUs of each node that has some; empty if the user may not read the nodes."""
    from orchestrator.client.published import published_gpus
    from orchestrator.views.nodes import node_views

    try:
        page, published = await asyncio.gather(transport.list(NODES.path(), Node), published_gpus(transport))
    except Forbidden:
        return ()
    views = node_views(page.items, (), published=published)
    return [view.gpu_milli // DEVICE_MILLI for view in views if view.gpu_milli]


async def _limit_milli(transport: Transport, scope: Scope) -> int | None:
    with suppress(Forbidden, NotFound):
        project = await transport.get(PROJECTS.path(None, scope.project), Project)
        limit = project.spec.gpu.limit
        return None if limit is None else gpu_milli(limit)
    return None
