"""Computes the snapshot after a plan was carried out. Pure.

A bound pod runs. An evicted pod uses its devices during its grace period, which is counted in decisions. Its successor
has a new id and the same name, request and position in the queue.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Final

from orchestrator.planner.actions.unstarted import is_failed_start
from orchestrator.planner.gangs import has_gang
from orchestrator.planner.model import (
    Binding,
    FailureKind,
    Plan,
    Pod,
    PodState,
    Rejection,
    Snapshot,
    Workload,
)
from orchestrator.simulation.claims import carry_out_grants, claims_after, own_claims, release_claims

_GENERATION: Final = "+"
"""Separates the id of the first pod from the number of a successor."""


def apply_plan(snapshot: Snapshot, plan: Plan) -> Snapshot:
    """Return the snapshot after the plan's bindings, evictions and nominations; the same object if they change nothing.

    Evicted pods are releasing. A workload that starts now is younger than all running workloads.
    """
    bindings = {binding.pod: binding for binding in plan.bindings}
    evicted = {eviction.pod for eviction in plan.evictions}
    nominations = {nomination.pod: nomination for nomination in plan.nominations}
    now_us = moment_after(snapshot)
    workloads = tuple(
        _apply(workload, bindings, evicted, nominations, now_us) for workload in snapshot.workloads
    )
    is_same = all(new is old for new, old in zip(workloads, snapshot.workloads, strict=True))
    dynamic = carry_out_grants(snapshot, plan)
    if is_same and plan.left_over == snapshot.left_over and dynamic is snapshot.dynamic:
        return snapshot
    return replace(
        snapshot,
        workloads=snapshot.workloads if is_same else workloads,
        left_over=plan.left_over,
        dynamic=dynamic,
        rejections=(*snapshot.rejections, *_unstarted(snapshot, plan)),
    )


def _unstarted(snapshot: Snapshot, plan: Plan) -> Iterator[Rejection]:
    """Yield a rejection for each evicted pod that could not start."""
    evictions = {eviction.pod: eviction for eviction in plan.evictions}
    for workload in snapshot.workloads if evictions else ():
        for pod in workload.pods:
            if pod.id in evictions and is_failed_start(evictions[pod.id], pod.start_problem):
                yield Rejection(
                    pod.node or "",
                    workload.id,
                    pod.id,
                    pod.start_problem,
                    FailureKind.NOT_STARTED,
                    snapshot.now_us,
                )


def after_decision(snapshot: Snapshot, plan: Plan) -> Snapshot:
    """Return the snapshot after the plan, if every evicted pod ends immediately and its successor is pending."""
    return replace_pods(apply_plan(snapshot, plan), (eviction.pod for eviction in plan.evictions))[0]


def add_successors(snapshot: Snapshot, predecessors: Iterable[str]) -> tuple[Snapshot, dict[str, str]]:
    """Return the snapshot with a pending successor beside each predecessor, and the successors' ids by predecessor."""
    return _with_successors(snapshot, frozenset(predecessors), is_deleted=False)


def replace_pods(snapshot: Snapshot, predecessors: Iterable[str]) -> tuple[Snapshot, dict[str, str]]:
    """Return the snapshot with a pending successor instead of each predecessor, and the successors' ids by predecessor.
    The successor keeps the nomination of its predecessor.
    """
    return _with_successors(snapshot, frozenset(predecessors), is_deleted=True)


def remove_pods(snapshot: Snapshot, removed: Iterable[str], successors: Mapping[str, str]) -> Snapshot:
    """Return the snapshot without the removed pods.

    If such a pod has a nomination, its successor gets the nomination.
    """
    ids = frozenset(removed)
    nominated_pods: dict[str, Pod] = {}
    for workload in snapshot.workloads:
        for pod in workload.pods:
            if pod.id in ids and pod.nominated_node is not None and pod.id in successors:
                nominated_pods[successors[pod.id]] = pod
    workloads = tuple(_remove(workload, ids, nominated_pods) for workload in snapshot.workloads)
    return replace(snapshot, workloads=workloads, dynamic=release_claims(snapshot.dynamic, ids))


def successor(pod: Pod) -> Pod:
    """Return the pending pod that a controller creates after this pod, with the same nomination."""
    base, _, generation = pod.id.rpartition(_GENERATION)
    is_successor = bool(base) and generation.isdecimal()
    number = int(generation) + 1 if is_successor else 1
    return replace(
        pod,
        id=f"{base if is_successor else pod.id}{_GENERATION}{number}",
        state=PodState.PENDING,
        node=None,
        devices=(),
        replaced=False,
        stuck=False,
        never_started=False,
        bound_at_us=0,
        start_problem="",
        cannot_start=False,
        ends_by_us=0,
        claims=own_claims(pod),
    )


def moment_after(snapshot: Snapshot) -> int:
    """Return a time in microseconds after the snapshot's time and after the creation and start of every workload."""
    last_created_us = max((workload.created_at_us for workload in snapshot.workloads), default=0)
    last_started_us = max((workload.started_at_us for workload in snapshot.workloads), default=0)
    return max(last_created_us, last_started_us, snapshot.now_us) + 1


class Departures:
    """A simulated cluster in which evicted pods terminate over several decisions.

    `grace_decisions` returns the number of decisions for which a pod terminates. If `is_late` is true for a pod, its
    successor appears only after its end. A pod that terminates at the beginning gets a successor after its end unless
    it is `replaced` or the successor's id is known. A stuck pod stays.
    """

    def __init__(
        self,
        snapshot: Snapshot,
        grace_decisions: Callable[[Pod], int],
        is_late: Callable[[Pod], bool] = lambda _: False,
    ) -> None:
        self.snapshot = snapshot
        self._grace_decisions = grace_decisions
        self._is_late = is_late
        terminating = [pod for pod in _releasing(snapshot) if not pod.stuck]
        self._remaining = {pod.id: grace_decisions(pod) for pod in terminating}
        known = {pod.id for workload in snapshot.workloads for pod in workload.pods} if terminating else set()
        self._successors = {pod.id: heir for pod in terminating if (heir := successor(pod).id) in known}
        self._finish()

    @property
    def is_quiet(self) -> bool:
        """Whether no pod is terminating."""
        return not self._remaining

    def carry_out(self, plan: Plan) -> bool:
        """Apply the plan and advance to the next decision. Return whether that changed the cluster or `left_over`.

        Only the next decision serves the left-over workloads first.
        """
        before = self.snapshot
        self.snapshot = apply_plan(before, plan)
        self._remaining = {pod: number - 1 for pod, number in self._remaining.items()}
        evicted = {eviction.pod for eviction in plan.evictions}
        if evicted:
            self._start(pod for pod in _releasing(self.snapshot) if pod.id in evicted)
        self._finish()
        has_new_left_over = bool(plan.left_over) and plan.left_over != before.left_over
        return (
            has_new_left_over
            or self.snapshot.workloads is not before.workloads
            or self.snapshot.dynamic is not before.dynamic
        )

    def lose(self, pods: Iterable[str]) -> None:
        """Remove pods without a grace period, as if their node had failed. Their successors are pending."""
        self._remaining |= dict.fromkeys(pods, 0)
        self._finish()

    def _start(self, pods: Iterable[Pod]) -> None:
        pods = list(pods)
        self._remaining |= {pod.id: self._grace_decisions(pod) for pod in pods}
        prompt = [pod.id for pod in pods if not self._is_late(pod) and self._remaining[pod.id] > 0]
        if prompt:
            self.snapshot, successors = add_successors(self.snapshot, prompt)
            self._successors |= successors

    def _finish(self) -> None:
        removed = [pod for pod, number in self._remaining.items() if number <= 0]
        if not removed:
            return
        # The successor of a replaced pod can have been evicted too, and then its id is not known here.
        replaced = {pod.id for pod in _releasing(self.snapshot) if pod.replaced} | self._successors.keys()
        self.snapshot = remove_pods(
            self.snapshot, [pod for pod in removed if pod in replaced], self._successors
        )
        self.snapshot, _ = replace_pods(self.snapshot, [pod for pod in removed if pod not in replaced])
        for pod in removed:
            del self._remaining[pod]
            self._successors.pop(pod, None)


def _releasing(snapshot: Snapshot) -> list[Pod]:
    return [
        pod for workload in snapshot.workloads for pod in workload.pods if pod.state is PodState.RELEASING
    ]


def _apply(
    workload: Workload,
    bindings: Mapping[str, Binding],
    evicted: set[str],
    nominations: Mapping[str, Binding],
    now_us: int,
) -> Workload:
    pods = tuple(
        _running(pod, bindings[pod.id], now_us)
        if pod.id in bindings
        else _nominated(_evicted(pod) if pod.id in evicted else pod, nominations.get(pod.id))
        for pod in workload.pods
    )
    if all(new is old for new, old in zip(pods, workload.pods, strict=True)):
        return workload
    runs = any(pod.state is PodState.ALLOCATED for pod in pods)
    runs_on = any(pod.state is PodState.ALLOCATED and pod.id not in bindings for pod in pods)
    started_us = (workload.started_at_us if runs_on else now_us) if runs else 0
    after = replace(workload, pods=pods, started_at_us=started_us)
    # as in a real cluster, a gang that is complete again is not stale
    return replace(after, stale_since_us=0) if workload.stale_since_us and has_gang(after) else after


def _running(pod: Pod, binding: Binding, now_us: int) -> Pod:
    ends_by_us = 0 if pod.max_runtime_seconds is None else now_us + pod.max_runtime_seconds * 1_000_000
    return replace(
        pod,
        state=PodState.ALLOCATED,
        node=binding.node,
        devices=binding.devices,
        ends_by_us=ends_by_us,
        nominated_node=None,
        nominated_devices=(),
        claims=claims_after(pod, binding),
    )


def _evicted(pod: Pod) -> Pod:
    return replace(pod, state=PodState.RELEASING)


def _nominated(pod: Pod, nomination: Binding | None) -> Pod:
    node, devices = (None, ()) if nomination is None else (nomination.node, nomination.devices)
    if (pod.nominated_node, pod.nominated_devices) == (node, devices):
        return pod
    return replace(pod, nominated_node=node, nominated_devices=devices)


def _with_successors(
    snapshot: Snapshot, predecessors: frozenset[str], *, is_deleted: bool
) -> tuple[Snapshot, dict[str, str]]:
    if not predecessors:
        return snapshot, {}
    now_us = moment_after(snapshot)
    successors: dict[str, str] = {}
    workloads = []
    for workload in snapshot.workloads:
        if predecessors.isdisjoint(pod.id for pod in workload.pods):
            workloads.append(workload)
            continue
        pods: list[Pod] = []
        for pod in workload.pods:
            if pod.id not in predecessors:
                pods.append(pod)
                continue
            new = successor(pod)
            successors[pod.id] = new.id
            # until its end, the old pod carries the nomination for its successor
            pods += [new] if is_deleted else [replace(pod, replaced=True), _nominated(new, None)]
        workloads.append(replace(workload, pods=tuple(pods), waiting_since_us=now_us))
    dynamic = release_claims(snapshot.dynamic, predecessors) if is_deleted else snapshot.dynamic
    return replace(snapshot, workloads=tuple(workloads), dynamic=dynamic), successors


def _remove(workload: Workload, removed: frozenset[str], nominated_pods: Mapping[str, Pod]) -> Workload:
    if removed.isdisjoint(pod.id for pod in workload.pods):
        return workload
    pods = []
    for pod in workload.pods:
        if pod.id in removed:
            continue
        old = nominated_pods.get(pod.id)
        if old is not None and pod.state is PodState.PENDING and pod.nominated_node is None:
            pod = replace(  # noqa: PLW2901
                pod, nominated_node=old.nominated_node, nominated_devices=old.nominated_devices
            )
        pods.append(pod)
    return replace(workload, pods=tuple(pods))
