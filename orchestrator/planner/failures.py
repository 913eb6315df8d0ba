"""Decides from the failures in a snapshot which nodes are avoided and which workloads back off.

    two failures in a row on a node ──> no pod is placed there:        10 s, 20 s, 40 s … after the last failure
    a refused request of a workload ──> none of its pods is placed:    10 s, 20 s, 40 s … after the last refusal
    a third failure of a workload ────> none of its pods is placed:    10 s, 20 s, 40 s … after the last failure
    its containers did not start ─────> none of its pods is placed:    5 min, 10 min, 20 min …
    an agent reports a fault of a host > no pod is placed there:       until it reports no fault

If a workload fails on several nodes, the workload is probably the cause. Other workloads do not avoid these nodes
because of it. The same applies to containers that did not start in time, because the image may be wrong. If the time is
not known (`now_us` is 0), nodes are avoided and no workload backs off.

If more hosts have faults than `max_unhealthy_nodes`, by default a tenth of the nodes, the oldest faults count. A cause
that many hosts share, such as a silent NFS server, does not close the cluster.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from orchestrator.planner.model import (
    SECOND_US,
    FailureKind,
    PendingReason,
    Rejection,
    Snapshot,
    Waiting,
    Workload,
)

FIRST_DELAY_SECONDS: Final = 10
NOT_STARTED_DELAY_SECONDS: Final = 300
MAX_DELAY_SECONDS: Final = 640
MAX_NOT_STARTED_DELAY_SECONDS: Final = 3600
IN_A_ROW: Final = 2
"""A node is avoided after this number of failures. A workload backs off after one failure more."""
HOST_FAULT_PERCENT: Final = 10
"""Portion of the nodes that faults of hosts keep out of placements at a time, but at least one node."""
OF_RUNTIME: Final = frozenset(("ContainerCannotRun", "StartError"))
"""Reasons of the container runtime.

A wrong command in the pod causes them too, so they do not double the delay of a node.
"""
TOGETHER_US: Final = 2 * SECOND_US
"""Failures of one workload within this time count as one attempt, because its pods start together."""


class Failures:
    """The failures of one snapshot. `avoided` has, by node, the reason why no pod is placed there.

    `back_offs` has, by workload id, the reason why none of the workload's pending pods is placed.
    """

    def __init__(self, snapshot: Snapshot, workloads: Mapping[str, Workload]) -> None:
        self.avoided: dict[str, str] = {}
        self.back_offs: dict[str, PendingReason] = {}
        self._avoided_by: dict[str, dict[str, str]] = {}
        self._now_us = snapshot.now_us
        self.avoided.update(host_faults(snapshot))
        if snapshot.rejections:
            self._count(snapshot.rejections, workloads)

    @property
    def has_avoided(self) -> bool:
        """Whether at least one workload avoids at least one node."""
        return bool(self.avoided or self._avoided_by)

    def avoided_by(self, workload: Workload) -> Mapping[str, str]:
        """Return, by node, the reason why no pod of the workload is placed there."""
        own = self._avoided_by.get(workload.id)
        return self.avoided if own is None else {**own, **self.avoided}

    def _count(self, rejections: Sequence[Rejection], workloads: Mapping[str, Workload]) -> None:
        by_node: dict[str, list[Rejection]] = {}
        by_workload: dict[str, list[Rejection]] = {}
        for rejection in rejections:
            by_workload.setdefault(rejection.workload, []).append(rejection)
            if rejection.kind is not FailureKind.REFUSED:
                by_node.setdefault(rejection.node, []).append(rejection)
        culprits = {name for name, mine in by_workload.items() if _fails_everywhere(mine)}
        for node, here in by_node.items():
            counted = [
                rejection
                for rejection in here
                if rejection.kind is FailureKind.REJECTED and not rejection.node_recovered
            ]
            if len({rejection.workload for rejection in counted}) == 1 and counted[0].workload in culprits:
                counted = []
            if why := self._why_avoided(node, counted):
                self.avoided[node] = why
            for name in {rejection.workload for rejection in here}:
                own = [rejection for rejection in here if rejection.workload == name]
                if why := self._why_avoided(node, own):
                    self._avoided_by.setdefault(name, {})[node] = why
        for name, mine in by_workload.items():
            workload = workloads.get(name)
            failed = [rejection for rejection in mine if not rejection.workload_recovered]
            if workload is not None and failed and (reason := self._back_off(workload, failed)):
                self.back_offs[name] = reason

    def _why_avoided(self, node: str, counted: Sequence[Rejection]) -> str:
        """Return the reason why the node is avoided after these failures; empty if it is not avoided."""
        if len(counted) < IN_A_ROW:
            return ""
        last = counted[-1]
        by_kubelet = sum(rejection.reason not in OF_RUNTIME for rejection in counted)
        left_us = self._left_us(last, delay_us(max(1, by_kubelet - IN_A_ROW + 1)))
        if left_us <= 0:
            return ""
        times = f"{len(counted)} pods in a row failed there before a container ran"
        until = f", it is tried again in {span_text(left_us)}" if self._now_us else ""
        return f"node {node} is avoided: {times}, the last with {last.reason or 'no reason'}{until}"

    def _back_off(self, workload: Workload, mine: Sequence[Rejection]) -> PendingReason | None:
        """Return why the workload is not placed; None if it may be placed, or if the time is not known."""
        if not self._now_us:
            return None
        definite = [rejection for rejection in mine if rejection.kind is not FailureKind.REJECTED]
        rejected = [rejection for rejection in mine if rejection.kind is FailureKind.REJECTED]
        size = max(1, len(workload.pods))
        times = _attempts(definite) + max(0, -(-len(rejected) // size) - IN_A_ROW)
        if not times:
            return None
        last = mine[-1]
        first, most = FIRST_DELAY_SECONDS, MAX_DELAY_SECONDS
        if last.kind is FailureKind.NOT_STARTED:
            first, most = NOT_STARTED_DELAY_SECONDS, MAX_NOT_STARTED_DELAY_SECONDS
        left_us = self._left_us(last, delay_us(times, first, most))
        if left_us <= 0:
            return None
        return PendingReason(
            Waiting.BACK_OFF, f"{_words(last, len(mine))}; it is tried again in {span_text(left_us)}"
        )

    def _left_us(self, last: Rejection, delay: int) -> int:
        """Return the rest of the delay; a failure without a time counts as one that has just happened."""
        return (last.at_us or self._now_us) + delay - self._now_us if self._now_us else delay


def host_faults(snapshot: Snapshot) -> dict[str, str]:
    """Return, by node, the faults of hosts for which no pod is placed there, within the maximum number of nodes."""
    faulty = [node for node in snapshot.nodes if node.host_fault]
    if not faulty:
        return {}
    most = snapshot.settings.max_unhealthy_nodes
    if most is None:
        most = max(1, len(snapshot.nodes) * HOST_FAULT_PERCENT // 100)
    faulty.sort(key=lambda node: (node.host_fault_since_us, node.name))
    return {
        node.name: f"node {node.name} is avoided: it reports a host fault: {node.host_fault}"
        for node in faulty[:most]
    }


NO_FAILURES: Final = Failures(Snapshot((), (), ()), {})


def delay_us(times: int, first_seconds: int = FIRST_DELAY_SECONDS, most: int = MAX_DELAY_SECONDS) -> int:
    """Return the delay after this number of failures, in microseconds; it doubles with each.

    Example: `delay_us(3)` returns `40000000`.
    """
    return min(first_seconds << min(times - 1, 16), most) * SECOND_US


def span_text(span_us: int) -> str:
    """Return a span of time as text: in seconds, or in minutes from two minutes on; rounded up.

    Example: `span_text(150_000_000)` returns `'3 min'`.
    """
    seconds = -(-span_us // SECOND_US)
    return f"{seconds} s" if seconds < 120 else f"{-(-seconds // 60)} min"


def _fails_everywhere(rejections: Iterable[Rejection]) -> bool:
    """Return whether these failures of one workload were on several nodes, without a later start of the workload."""
    nodes = {
        rejection.node
        for rejection in rejections
        if rejection.kind is not FailureKind.REFUSED and not rejection.workload_recovered
    }
    return len(nodes) > 1


def _attempts(rejections: Sequence[Rejection]) -> int:
    """Return how often the workload was tried: failures within `TOGETHER_US` of each other are one attempt."""
    attempts, before_us = 0, 0
    for rejection in rejections:
        if not attempts or rejection.at_us - before_us > TOGETHER_US:
            attempts += 1
        before_us = rejection.at_us
    return attempts


def _words(last: Rejection, count: int) -> str:
    where = f" on {last.node}" if last.node else ""
    if last.kind is FailureKind.REFUSED:
        return f"the API server refused its last start{where}: {last.reason}"
    if last.kind is FailureKind.NOT_STARTED:
        return f"it gave its GPUs back, as its containers did not start{where}: {last.reason}"
    pods = "1 pod" if count == 1 else f"{count} pods"
    return f"{pods} of it failed before a container ran, the last{where} with {last.reason or 'no reason'}"
