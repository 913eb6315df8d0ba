"""The nodes behind one API server, their allocation, and the measurements of their kubelets.

NoSuchNode      no node of that name
"""

import asyncio
import logging
import time
from collections.abc import Coroutine, Iterable
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from orchestrator.client.published import published_gpus
from orchestrator.cluster.errors import ClusterError, Forbidden, NotFound
from orchestrator.cluster.gpu_nodes import GpuNode
from orchestrator.cluster.objects import Node, Pod
from orchestrator.cluster.resources import GPU_NODES, NODES, PODS
from orchestrator.cluster.timeouts import KUBELET_SECONDS
from orchestrator.cluster.transport import Transport
from orchestrator.errors import MusterError
from orchestrator.submit.name_rules import is_object_name
from orchestrator.views.gpus import GpuView, gpu_views
from orchestrator.views.nodes import NodeView, Summary, node_views

logger = logging.getLogger(__name__)
Answer = TypeVar("Answer")

_WITH_NODE: Final = {"fieldSelector": "spec.nodeName!="}


class NoSuchNode(MusterError):
    """There is no node of that name."""


@dataclass(frozen=True, slots=True)
class Nodes:
    """The nodes by name.

    `denied` is the missing permission if the user may not read the measurements of the kubelets; None otherwise.
    """

    views: list[NodeView]
    denied: Forbidden | None = None


class NodeClient:
    """The nodes of a cluster. Every method raises MusterError."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def nodes(self, *, usage: bool = False) -> Nodes:
        """Return all nodes; with `usage` also the measurements of kubelets that answer."""
        nodes, pods, gpus, published = await asyncio.gather(
            self._transport.list(NODES.path(), Node),
            self._transport.list(PODS.path(), Pod, params=_WITH_NODE),
            self.gpus(),
            published_gpus(self._transport),
        )
        if not usage:
            return Nodes(node_views(nodes.items, pods.items, gpus=gpus, published=published))
        summaries, denied = await self._summaries(node.metadata.name for node in nodes.items)
        return Nodes(node_views(nodes.items, pods.items, summaries, gpus, published), denied)

    async def gpus(self) -> dict[str, tuple[GpuView, ...]]:
        """Return the GPUs by the names of their nodes, as the agents wrote them last.

        Empty without agents, or without the right to see their reports.
        """
        try:
            page = await self._transport.list(GPU_NODES.path(), GpuNode)
        except (NotFound, Forbidden) as error:
            logger.debug("nothing is known of single GPUs: %s", error)
            return {}
        now_us = time.time_ns() // 1000
        return {node.metadata.name: gpu_views(node, now_us) for node in page.items}

    async def node(self, name: str) -> NodeView:
        """Return one node with the measurements of its kubelet. Raises NoSuchNode."""
        if not is_object_name(name):
            raise no_such_node(name)
        try:
            node, pods, gpus, published = await asyncio.gather(
                self._transport.get(NODES.path(name=name), Node),
                self._transport.list(PODS.path(), Pod, params={"fieldSelector": f"spec.nodeName={name}"}),
                self.gpus(),
                published_gpus(self._transport),
            )
        except NotFound as error:
            raise no_such_node(name) from error
        summaries, _ = await self._summaries([name])
        return node_views([node], pods.items, summaries, gpus, published)[0]

    async def _summaries(self, names: Iterable[str]) -> tuple[dict[str, Summary], Forbidden | None]:
        """Return the measurements of these nodes' kubelets, and the refusal if the user may not ask them."""

        async def summary_of(name: str) -> tuple[str, Summary] | Forbidden | None:
            path = f"{NODES.path(name=name, subresource='proxy')}/stats/summary"
            try:
                summary = await self._transport.get(path, Summary)
            except Forbidden as error:
                return error
            except ClusterError as error:
                logger.debug("no figures of node %s: %s", name, error)
                return None
            # If several nodes have one address, the same kubelet answers for all of them, with the figures of one node.
            return (name, summary) if summary.node_name == name else None

        answers = await while_some_answer(map(summary_of, names), KUBELET_SECONDS)
        denied = next((answer for answer in answers if isinstance(answer, Forbidden)), None)
        return dict(answer for answer in answers if isinstance(answer, tuple)), denied


async def while_some_answer(
    questions: Iterable[Coroutine[Any, Any, Answer]], patience_seconds: float
) -> list[Answer]:
    """Ask all questions at the same time. Return the answers if no further answer comes for `patience_seconds`.

    Example: 3 of 40 nodes do not answer, and the patience is 1 s. The function returns the 37 answers 1 s after the
    last of them. It does not wait 1 s for each of the 3 nodes.
    """
    pending = {asyncio.ensure_future(question) for question in questions}
    answers = []
    try:
        while pending:
            done, pending = await asyncio.wait(
                pending, timeout=patience_seconds, return_when=asyncio.FIRST_COMPLETED
            )
            if not done:
                break
            answers += [task.result() for task in done]
    finally:
        for task in pending:
            task.cancel()
        await asyncio.gather(*pending, return_exceptions=True)
    return answers


def no_such_node(name: str) -> NoSuchNode:
    """Return the error for a node that the cluster does not have."""
    return NoSuchNode(f"there is no node {name}; 'muster list nodes' shows all")
