"""Finds pods without reports of their kubelet: the grace period is over, or the node is not ready. Pure.

Kubernetes keeps a terminating pod until its kubelet confirms that the containers have ended. If the kubelet is dead,
Kubernetes keeps the pod forever. The planner neither waits for a stuck pod nor counts it for a limit or quota.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from orchestrator.cluster.objects import FINISHED, Node, Pod
from orchestrator.cluster.quantity import format_time, time_us
from orchestrator.names import OUT_OF_SERVICE_TAINT
from orchestrator.observe.dict_ops import discard, put
from orchestrator.observe.grace_periods import terminates

STUCK_AFTER_SECONDS: Final = 30
"""Time after the end of its grace period at which a pod counts as stuck. A kubelet reports the end within seconds."""
STUCK: Final = "Stuck"
NODE_NOT_READY: Final = "NodeNotReady"
_SECOND_US: Final = (
    # Not imported from the planner, because `muster list` uses this module and the planner is slow to import.
    1_000_000
)
_NO_PODS: Final[Mapping[str, Pod]] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class PodProblem:
    """The reason why a bound pod makes no progress. `code` is `Stuck` or `NodeNotReady`."""

    code: str
    node: str
    message: str


class StuckPods:
    """The bound pods by node, and the stuck pods among them."""

    def __init__(self, max_checkpoint_grace_seconds: int) -> None:
        self._max_checkpoint_grace_seconds = max_checkpoint_grace_seconds
        self._pods_on: dict[str, dict[str, Pod]] = {}
        self._node_of: dict[str, str] = {}
        self._terminating: dict[str, Pod] = {}
        self._not_ready: dict[str, str] = {}
        self._stuck: dict[str, PodProblem] = {}

    def note_pod(self, pod: Pod, *, is_there: bool) -> None:
        """Apply a change of a pod."""
        uid, node = pod.metadata.uid, pod.spec.node_name
        is_bound = is_there and bool(node) and pod.status.phase not in FINISHED
        before = self._node_of.get(uid)
        if before is not None and not (is_bound and before == node):
            discard(self._pods_on, before, uid)
        put(self._node_of, uid, node if is_bound else None)
        if is_bound:
            self._pods_on.setdefault(node, {})[uid] = pod
        deleted = is_bound and pod.metadata.deletion_timestamp is not None
        put(self._terminating, uid, pod if deleted else None)

    def note_node(self, node: Node, *, is_there: bool) -> None:
        """Apply a change of a node."""
        put(self._not_ready, node.metadata.name, not_ready_since(node) if is_there else None)

    def pods_on(self, node: str) -> Collection[Pod]:
        """Return the bound pods of a node that have not ended."""
        return self._pods_on.get(node, _NO_PODS).values()

    def __contains__(self, uid: object) -> bool:
        return uid in self._stuck

    def read(self, now_us: int) -> list[str]:
        """Find the stuck pods at this time. Return the uids of pods that became stuck, or are stuck no longer.

        If `now_us` is 0, no grace period is over.
        """
        if not self._terminating and not self._stuck:
            return []
        before = self._stuck
        self._stuck = {
            uid: problem
            for uid, pod in self._terminating.items()
            if (problem := self._problem(pod, now_us)) is not None
        }
        return list(before.keys() ^ self._stuck.keys())

    def problems(self) -> Mapping[str, PodProblem]:
        """Return, by uid, the stuck pods and other pods on nodes that are not ready, as of the last `read`."""
        if not self._not_ready:
            return self._stuck
        return {**dict(self._on_dead_nodes()), **self._stuck}

    def _on_dead_nodes(self) -> Iterator[tuple[str, PodProblem]]:
        for name, since in self._not_ready.items():
            for uid, pod in self._pods_on.get(name, {}).items():
                yield uid, _node_problem(pod, since)

    def _problem(self, pod: Pod, now_us: int) -> PodProblem | None:
        since = self._not_ready.get(pod.spec.node_name)
        if since is not None and terminates(pod, self._max_checkpoint_grace_seconds):
            return _node_problem(pod, since)
        ends_us = time_us(pod.metadata.deletion_timestamp or "")
        if not ends_us or not now_us or now_us <= ends_us + STUCK_AFTER_SECONDS * _SECOND_US:
            return None
        if since is not None:
            return _node_problem(pod, since)
        metadata, node = pod.metadata, pod.spec.node_name
        return PodProblem(
            STUCK,
            node,
            f"node {node}: the pod should have ended at {format_time(ends_us, places=0)} and has not. End its "
            f"processes on the node or restart the node, then `kubectl delete pod {metadata.name} -n "
            f"{metadata.namespace} --force` if Kubernetes still shows it",
        )


def not_ready_since(node: Node) -> str | None:
    """Return the timestamp since which the node is not ready, "" if unknown; None if the node is ready."""
    ready = next((condition for condition in node.status.conditions if condition.type == "Ready"), None)
    if ready is None or ready.status == "True":
        return None
    return ready.last_transition_time


def _node_problem(pod: Pod, since: str) -> PodProblem:
    node = pod.spec.node_name
    lead = f"node {node} is not ready" + (f" since {since}" if since else "")
    return PodProblem(
        NODE_NOT_READY,
        node,
        f"{lead}: its kubelet does not say whether the pod runs or has ended; if the machine is off, "
        f"`kubectl taint node {node} {OUT_OF_SERVICE_TAINT}=nodeshutdown:NoExecute` lets it start on another node",
    )
