"""Sets Kubernetes' taint `out-of-service` on nodes that have not been ready for a long time, if the site allows that.

Kubernetes then deletes the pods of the node without its kubelet, and their workloads start elsewhere. The operator
removes the taint when the node is ready again. The value of the taint distinguishes it from taints of administrators.

    not ready ──after seconds──> tainted ──ready──> not tainted

If the node has only lost its network, its containers still run, and their workload then runs twice. The maximum number
of nodes limits the damage if many nodes fail at the same time, for example because of a network failure.
"""

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from orchestrator.cluster.errors import ClusterError
from orchestrator.cluster.objects import Node
from orchestrator.cluster.quantity import time_us
from orchestrator.cluster.resources import NODES
from orchestrator.cluster.transport import JSON_PATCH, Transport
from orchestrator.names import OUT_OF_SERVICE_TAINT
from orchestrator.observe.stuck_pods import not_ready_since
from orchestrator.planner.model import SECOND_US

logger = logging.getLogger(__name__)

VALUE: Final = "muster"
"""The value of the operator's taints."""


class OutOfService:
    """Taints the nodes of `nodes`, a live cache, that have not been ready for `after_seconds`, at most `max_nodes` at a
    time.

    Nodes that administrators tainted count as well. `now_us` returns the time.
    """

    def __init__(
        self,
        transport: Transport,
        nodes: Mapping[str, Node],
        *,
        after_seconds: int,
        max_nodes: int,
        now_us: Callable[[], int],
        is_leader: Callable[[], bool],
    ) -> None:
        self._transport = transport
        self._nodes = nodes
        self._after_seconds = after_seconds
        self._max_nodes = max_nodes
        self._now_us = now_us
        self._is_leader = is_leader

    async def check(self) -> None:
        """Taint the nodes that are due, and remove the operator's taint from nodes that are ready."""
        if not self._is_leader():
            return
        nodes = sorted(self._nodes.values(), key=lambda node: node.metadata.name)
        for node in nodes:
            index = _own_taint(node)
            if index is not None and not_ready_since(node) is None:
                await self._patch(node, _removed(index), "is ready again: the taint is taken away")
        left = max(0, self._max_nodes - sum(map(_is_tainted, nodes)))
        due = list(self._due(nodes))
        for node, since in due[:left]:
            await self._patch(node, _added(node), f"is not ready since {since}: it is tainted")
        if len(due) > left:
            names = ", ".join(node.metadata.name for node, _ in due[left:])
            logger.warning("%s: not tainted, as at most %d nodes are at a time", names, self._max_nodes)

    def _due(self, nodes: Iterable[Node]) -> list[tuple[Node, str]]:
        """Return the nodes to taint, each with the time since which it is not ready, longest first."""
        before_us = self._now_us() - self._after_seconds * SECOND_US
        not_ready = [
            (node, since) for node in nodes if (since := not_ready_since(node)) and not _is_tainted(node)
        ]
        due = [(node, since) for node, since in not_ready if 0 < time_us(since) <= before_us]
        return sorted(due, key=lambda pair: (time_us(pair[1]), pair[0].metadata.name))

    async def _patch(self, node: Node, change: list[dict[str, Any]], why: str) -> None:
        name, version = node.metadata.name, node.metadata.resource_version
        # The patch names an index of the taints. The test of the version makes it fail if the list has
        # changed.
        test = {"op": "test", "path": "/metadata/resourceVersion", "value": version}
        try:
            await self._transport.patch(NODES.path(name=name), [test, *change], content_type=JSON_PATCH)
        except ClusterError as error:
            logger.warning("node %s %s: %s: %s", name, why, OUT_OF_SERVICE_TAINT, error)
        else:
            logger.warning("node %s %s: %s", name, why, OUT_OF_SERVICE_TAINT)


def _is_tainted(node: Node) -> bool:
    return any(taint.key == OUT_OF_SERVICE_TAINT for taint in node.spec.taints)


def _own_taint(node: Node) -> int | None:
    taints = enumerate(node.spec.taints)
    return next(
        (index for index, taint in taints if (taint.key, taint.value) == (OUT_OF_SERVICE_TAINT, VALUE)), None
    )


def _added(node: Node) -> list[dict[str, Any]]:
    taint = {"key": OUT_OF_SERVICE_TAINT, "value": VALUE, "effect": "NoExecute"}
    if node.spec.taints:
        return [{"op": "add", "path": "/spec/taints/-", "value": taint}]
    return [{"op": "add", "path": "/spec/taints", "value": [taint]}]


def _removed(index: int) -> list[dict[str, Any]]:
    test = {"op": "test", "path": f"/spec/taints/{index}/key", "value": OUT_OF_SERVICE_TAINT}
    return [test, {"op": "remove", "path": f"/spec/taints/{index}"}]
