"""Failures in a cluster. The name of a workload or node requests its failure: `w007-refused` is refused, for example.

| name                | failure |
|---------------------|--------------|
| workload `-refused` | the API server refuses each binding |
| workload `-partly`  | the API server refuses the binding of each pod but the first |
| workload `-silent`  | no container of it starts |
| workload `-hopeless`| no container of it starts, and its kubelet says that none can |
| workload `-endless` | its terminating pods do not end |
| node `rejects-`     | its kubelet rejects each pod |
| node `shaky-`       | its kubelet rejects every other pod |
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING
from zlib import crc32

from orchestrator.observe.failed_starts import Start, counting
from orchestrator.planner.model import FailureKind, PodState, Rejection, Snapshot, Workload
from orchestrator.simulation.apply_plan import Departures
from tests.world.facts import all_pods
from tests.world.pod_constraints import releasing

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from orchestrator.planner.model import Binding, Plan, Pod

ENDS_NEVER = "endless"
START_PROBLEMS = {"silent": "ImagePullBackOff", "hopeless": "InvalidImageName"}
WORKLOADS = ("refused", "partly", *START_PROBLEMS, ENDS_NEVER)
NODES = ("rejects", "shaky")
UNREACHABLE = "not ready"
ENDLESS = 1_000_000
"""Grace period, in decisions, of a pod that does not end."""


def has_failed(snapshot: Snapshot, workload: Workload) -> bool:
    """Return whether a start of the workload failed, and no start has succeeded since."""
    return any(each.workload == workload.id and not each.workload_recovered for each in snapshot.rejections)


def failed_nodes(snapshot: Snapshot, workload: Workload) -> set[str]:
    """Return the nodes that the scheduler may avoid for the workload: two pods failed there, of any workloads or of
    this one.
    """
    started = [each for each in snapshot.rejections if each.kind is not FailureKind.REFUSED]
    anyone = Counter(each.node for each in started if not each.node_recovered)
    own = Counter(each.node for each in started if each.workload == workload.id)
    return {node for counts in (anyone, own) for node, count in counts.items() if count > 1}


class FailingCluster(Departures):
    """A cluster that carries out plans, with the failures that the names of workloads and nodes request."""

    def __init__(
        self, snapshot: Snapshot, grace_decisions: Callable[[Pod], int], is_late: Callable[[Pod], bool]
    ) -> None:
        self._terminating: Counter[str] = Counter()
        """The decisions that terminating pods have seen."""
        self._started_us: dict[str, int] = {}
        self._grace = grace_decisions
        super().__init__(
            snapshot, lambda pod: ENDLESS if self._does_not_end(pod) else grace_decisions(pod), is_late
        )

    @property
    def is_quiet(self) -> bool:
        return all(pod.stuck for pod in releasing(self.snapshot))

    def refresh(self) -> None:
        """Let pods end whose nodes have returned, and mark pods again after nodes were added or removed."""
        ended = [
            pod.id for pod in releasing(self.snapshot) if pod.id in self._remaining and self._ends_now(pod)
        ]
        self.lose(ended)
        self._mark(set())

    def carry_out(self, plan: Plan) -> bool:
        before = self.snapshot
        workloads = {workload.id: workload for workload in before.workloads}
        pods = {pod.id: pod for _, pod in all_pods(before)}
        refused = {
            each.pod: each for each in plan.bindings if _is_refused(workloads[each.workload], pods[each.pod])
        }
        rejected = {
            each.pod: each
            for each in plan.bindings
            if each.pod not in refused and _is_rejected(each.node, pods[each.pod])
        }
        bound = {each.pod for each in plan.bindings} - refused.keys() - rejected.keys()
        if refused:
            plan = replace(plan, bindings=tuple(each for each in plan.bindings if each.pod not in refused))
        has_changed = super().carry_out(plan)
        if rejected:
            self.lose(rejected)
        self._started_us.update(dict.fromkeys(bound, before.now_us))
        self._terminating.update(pod.id for pod in releasing(self.snapshot))
        self._mark(bound)
        failures = [
            *self._failures(refused.values(), FailureKind.REFUSED, "quota"),
            *self._failures(rejected.values(), FailureKind.REJECTED, "UnexpectedAdmissionError"),
        ]
        self._count(failures)
        return has_changed or bool(failures) or self.snapshot.workloads is not before.workloads

    def _dead_nodes(self) -> set[str]:
        return {node.name for node in self.snapshot.nodes if node.unhealthy == UNREACHABLE}

    def _does_not_end(self, pod: Pod) -> bool:
        return f"-{ENDS_NEVER}-" in pod.name or pod.node in self._dead_nodes()

    def _ends_now(self, pod: Pod) -> bool:
        """Return whether the pod's node is back, after the end of its grace period."""
        return not self._does_not_end(pod) and self._remaining[pod.id] > ENDLESS // 2

    def _is_stuck(self, pod: Pod) -> bool:
        if pod.state is not PodState.RELEASING or not self._does_not_end(pod):
            return False
        return pod.stuck or pod.node in self._dead_nodes() or self._terminating[pod.id] > self._grace(pod)

    def _failures(self, bindings: Iterable[Binding], kind: FailureKind, reason: str) -> Iterator[Rejection]:
        for each in bindings:
            yield Rejection(each.node, each.workload, each.pod, reason, kind, self.snapshot.now_us)

    def _mark(self, bound: set[str]) -> None:
        """Mark new pods that do not start, and terminating pods that should have ended."""
        workloads = tuple(
            workload.with_pods(tuple(self._marked(pod, workload, bound) for pod in workload.pods))
            for workload in self.snapshot.workloads
        )
        if workloads != self.snapshot.workloads:
            self.snapshot = replace(self.snapshot, workloads=workloads)

    def _marked(self, pod: Pod, workload: Workload, bound: set[str]) -> Pod:
        kind = _kind(workload)
        if pod.id in bound and kind in START_PROBLEMS:
            return replace(
                pod,
                never_started=True,
                bound_at_us=self.snapshot.now_us,
                start_problem=START_PROBLEMS[kind],
                cannot_start=kind == "hopeless",
            )
        is_stuck = self._is_stuck(pod)
        return pod if is_stuck == pod.stuck else replace(pod, stuck=is_stuck)

    def _count(self, failures: list[Rejection]) -> None:
        """Remember the failures until the workload or the node recovers."""
        if not failures and not self.snapshot.rejections:
            return
        starts = [
            Start(
                pod.node or "",
                workload.id,
                self._started_us.get(pod.id, min(workload.started_at_us, self.snapshot.now_us)),
            )
            for workload, pod in all_pods(self.snapshot)
            if pod.state is PodState.ALLOCATED and not pod.never_started
        ]
        known = {workload.id for workload in self.snapshot.workloads}
        remembered = counting((*self.snapshot.rejections, *failures), starts)
        self.snapshot = replace(
            self.snapshot, rejections=tuple(each for each in remembered if each.workload in known)
        )


def _kind(workload: Workload) -> str:
    return workload.name.rpartition("-")[2]


def _is_refused(workload: Workload, pod: Pod) -> bool:
    kind = _kind(workload)
    return kind == "refused" or (kind == "partly" and not pod.name.endswith("-0"))


def _is_rejected(node: str, pod: Pod) -> bool:
    kind = node.partition("-")[0]
    return kind == "rejects" or (kind == "shaky" and crc32(pod.id.encode()) % 2 == 0)
