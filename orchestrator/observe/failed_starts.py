"""Collects the failed starts for a decision, from the status of pods and from the notes of the operator. Pure.

A failure is forgotten after six hours, or after a container of its workload and a container on its node have started.
"""

from collections.abc import Callable, Collection, Iterable
from dataclasses import replace
from typing import Final, NamedTuple

from orchestrator.cluster.objects import FINISHED, Pod
from orchestrator.observe.dict_ops import put
from orchestrator.observe.pod_status import (
    failed_at_us,
    is_rejected,
    last_start_us,
    rejection_reason,
)
from orchestrator.planner.model import SECOND_US, Rejection

FORGET_US: Final = 6 * 3600 * SECOND_US
MAX_NOTED: Final = 1000
"""Maximum number of noted failures; the newest are kept."""
MAX_ENDED: Final = 10_000
"""Maximum number of nodes and workloads for which the last start of an ended pod is stored."""


class Start(NamedTuple):
    """The time at which a container of a workload started on a node."""

    node: str
    workload: str
    at_us: int


class FailedStarts:
    """The rejected pods of muster, and the failures that the operator noted.

    `workload_of` returns the id of the workload of a pod. `pods_of` returns the pods of a workload that have not ended,
    and `pods_on` the pods on a node.
    """

    def __init__(
        self,
        workload_of: Callable[[str], str],
        pods_of: Callable[[str], Collection[Pod]],
        pods_on: Callable[[str], Collection[Pod]],
    ) -> None:
        self._workload_of = workload_of
        self._pods_of = pods_of
        self._pods_on = pods_on
        self._rejected: dict[str, Pod] = {}
        self._noted: list[Rejection] = []
        self._ended: dict[str, Start] = {}
        """The last start of pods that have ended, by node and by workload."""

    def note_pod(self, pod: Pod, *, is_there: bool) -> None:
        """Apply a change of a pod."""
        uid, has_ended = pod.metadata.uid, is_there and pod.status.phase in FINISHED
        rejected = has_ended and is_rejected(pod)
        put(self._rejected, uid, pod if rejected else None)
        if has_ended and not rejected and (at_us := last_start_us(pod)):
            start = Start(pod.spec.node_name, self._workload_of(uid), at_us)
            for key in (start.node, start.workload):
                self._ended[key] = max(start, self._ended.get(key, start), key=lambda each: each.at_us)
            while len(self._ended) > MAX_ENDED:
                del self._ended[next(iter(self._ended))]

    def note(self, failure: Rejection) -> None:
        """Store a failure that no pod shows."""
        self._noted = [*self._noted[-MAX_NOTED + 1 :], failure]

    def read(self, now_us: int) -> tuple[Rejection, ...]:
        """Return the failures that count at this time, oldest first."""
        if not self._rejected and not self._noted:
            return ()
        since_us = now_us - FORGET_US
        self._noted = [failure for failure in self._noted if failure.at_us > since_us]
        rejected = (rejection_of(pod, self._workload_of(uid), uid) for uid, pod in self._rejected.items())
        found = [each for each in (*rejected, *self._noted) if each.at_us > since_us]
        found.sort(key=lambda each: each.pod)
        starts = [
            Start(pod.spec.node_name, self._workload_of(uid), at_us)
            for uid, pod in self._beside(found).items()
            if (at_us := last_start_us(pod))
        ]
        return counting(found, [*starts, *self._ended.values()])

    def _beside(self, failures: Iterable[Rejection]) -> dict[str, Pod]:
        """Return the pods of the failures' workloads and on their nodes, by uid."""
        nodes = {failure.node for failure in failures}
        workloads = {failure.workload for failure in failures}
        groups = (*map(self._pods_on, nodes), *map(self._pods_of, workloads))
        return {pod.metadata.uid: pod for pods in groups for pod in pods}


def rejection_of(pod: Pod, workload: str, pod_id: str) -> Rejection:
    """Return the failure of a rejected pod."""
    return Rejection(pod.spec.node_name, workload, pod_id, rejection_reason(pod), at_us=failed_at_us(pod))


def counting(failures: Iterable[Rejection], starts: Iterable[Start]) -> tuple[Rejection, ...]:
    """Return the failures after which the workload or the node has not recovered, oldest first.

    A workload or node has recovered if a container started there later. After a failure without a time, neither the
    workload nor the node counts as recovered.
    """
    by_workload: dict[str, int] = {}
    by_node: dict[str, int] = {}
    for start in starts:
        by_workload[start.workload] = max(start.at_us, by_workload.get(start.workload, 0))
        by_node[start.node] = max(start.at_us, by_node.get(start.node, 0))
    marked = (
        replace(
            failure,
            node_recovered=by_node.get(failure.node, 0) > failure.at_us > 0,
            workload_recovered=by_workload.get(failure.workload, 0) > failure.at_us > 0,
        )
        for failure in failures
    )
    remembered = [each for each in marked if not (each.node_recovered and each.workload_recovered)]
    return tuple(sorted(remembered, key=lambda failure: failure.at_us))
