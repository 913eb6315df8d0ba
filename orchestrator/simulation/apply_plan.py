"""The cluster after a plan was carried out, as the planner sees it next. Pure.

A pod that is bound runs. A pod that is evicted holds its devices while its grace period lasts, counted in decisions;
the pod that its controller makes instead has a new id and the same name, request and place in the queue.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Final

from orchestrator.planner.model import Binding, Plan, Pod, PodState, Snapshot, Workload

_GENERATION: Final = "+"
"""Between the id of a pod and the number of its successor."""


def apply_plan(snapshot: Snapshot, plan: Plan) -> Snapshot:
    """The snapshot with the plan's bindings, evictions and nominations in it; the same object if that changes nothing.

    Evicted pods are releasing. What starts now is younger than all that runs.
    """
    bindings = {each.pod: each for each in plan.bindings}
    evicted = {each.pod for each in plan.evictions}
    nominations = {each.pod: each for each in plan.nominations}
    now_us = moment_after(snapshot)
    workloads = tuple(_apply(each, bindings, evicted, nominations, now_us) for each in snapshot.workloads)
    is_same = all(new is old for new, old in zip(workloads, snapshot.workloads, strict=True))
    if is_same and plan.left_over == snapshot.left_over:
        return snapshot
    return replace(snapshot, workloads=snapshot.workloads if is_same else workloads, left_over=plan.left_over)


def after_decision(snapshot: Snapshot, plan: Plan) -> Snapshot:
    """The snapshot before the next decision, where whoever is evicted is gone at once and its successor waits."""
    return replace_pods(apply_plan(snapshot, plan), (each.pod for each in plan.evictions))[0]


def add_successors(snapshot: Snapshot, predecessors: Iterable[str]) -> tuple[Snapshot, dict[str, str]]:
    """The snapshot with a waiting pod beside each of these, and the ids of the new pods by those of the old."""
    return _with_successors(snapshot, frozenset(predecessors), is_gone=False)


def replace_pods(snapshot: Snapshot, predecessors: Iterable[str]) -> tuple[Snapshot, dict[str, str]]:
    """The snapshot with a waiting pod in place of each of these, and the ids of the new pods by those of the old.

    A room that is kept for the successor of a pod is now the successor's.
    """
    return _with_successors(snapshot, frozenset(predecessors), is_gone=True)


def remove_pods(snapshot: Snapshot, gone: Iterable[str], successors: Mapping[str, str]) -> Snapshot:
    """The snapshot without these pods. A room that one of them kept passes to its successor, if there is one."""
    ids = frozenset(gone)
    kept_rooms: dict[str, Pod] = {}
    for workload in snapshot.workloads:
        for pod in workload.pods:
            if pod.id in ids and pod.nominated_node is not None and pod.id in successors:
                kept_rooms[successors[pod.id]] = pod
    workloads = tuple(_remove(each, ids, kept_rooms) for each in snapshot.workloads)
    return replace(snapshot, workloads=workloads)


def successor(pod: Pod) -> Pod:
    """The waiting pod that a controller makes instead of this one; a room that is kept for it is its own."""
    base, _, generation = pod.id.rpartition(_GENERATION)
    is_successor = bool(base) and generation.isdecimal()
    number = int(generation) + 1 if is_successor else 1
    return replace(
        pod,
        id=f"{base if is_successor else pod.id}{_GENERATION}{number}",
        state=PodState.PENDING,
        node=None,
        devices=(),
        stuck=False,
        ends_by_us=0,
    )


def moment_after(snapshot: Snapshot) -> int:
    """A time in microseconds that is later than all that the snapshot knows of."""
    made = max((each.created_at_us for each in snapshot.workloads), default=0)
    started = max((each.started_at_us for each in snapshot.workloads), default=0)
    return max(made, started, snapshot.now_us) + 1


class Departures:
    """A cluster from decision to decision, in which evicted pods take their time to go.

    `grace_decisions` says how many decisions see a pod on its way out, `is_late` whether its successor comes when it
    is gone, and not at once. Successors of pods that are on their way out at the beginning, and are not there yet, come
    when these are gone.
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
        leaving = _releasing(snapshot)
        self._remaining = {pod.id: grace_decisions(pod) for pod in leaving}
        known = {pod.id for each in snapshot.workloads for pod in each.pods} if leaving else set()
        self._successors = {pod.id: heir for pod in leaving if (heir := successor(pod).id) in known}
        self._finish()

    @property
    def is_quiet(self) -> bool:
        """Whether no pod is on its way out."""
        return not self._remaining

    def carry_out(self, plan: Plan) -> bool:
        """Apply the plan and let the time until the next decision pass. False: the snapshot is the same as before."""
        before = self.snapshot
        self.snapshot = apply_plan(before, plan)
        self._remaining = {pod: number - 1 for pod, number in self._remaining.items()}
        evicted = {each.pod for each in plan.evictions}
        if evicted:
            self._start(pod for pod in _releasing(self.snapshot) if pod.id in evicted)
        self._finish()
        return self.snapshot is not before

    def lose(self, pods: Iterable[str]) -> None:
        """Pods are gone at once, with their node; their successors wait."""
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
        gone = [pod for pod, number in self._remaining.items() if number <= 0]
        if not gone:
            return
        self.snapshot = remove_pods(
            self.snapshot, [pod for pod in gone if pod in self._successors], self._successors
        )
        self.snapshot, _ = replace_pods(self.snapshot, [pod for pod in gone if pod not in self._successors])
        for pod in gone:
            del self._remaining[pod]
            self._successors.pop(pod, None)


def _releasing(snapshot: Snapshot) -> list[Pod]:
    return [pod for each in snapshot.workloads for pod in each.pods if pod.state is PodState.RELEASING]


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
    return replace(workload, pods=pods, started_at_us=started_us)


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
    )


def _evicted(pod: Pod) -> Pod:
    return replace(pod, state=PodState.RELEASING)


def _nominated(pod: Pod, room: Binding | None) -> Pod:
    node, devices = (None, ()) if room is None else (room.node, room.devices)
    if (pod.nominated_node, pod.nominated_devices) == (node, devices):
        return pod
    return replace(pod, nominated_node=node, nominated_devices=devices)


def _with_successors(
    snapshot: Snapshot, predecessors: frozenset[str], *, is_gone: bool
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
            # while the old pod is there, the room that is kept for the next one is written on the old one
            pods += [new] if is_gone else [pod, _nominated(new, None)]
        workloads.append(replace(workload, pods=tuple(pods), waiting_since_us=now_us))
    return replace(snapshot, workloads=tuple(workloads)), successors


def _remove(workload: Workload, gone: frozenset[str], kept_rooms: Mapping[str, Pod]) -> Workload:
    if gone.isdisjoint(pod.id for pod in workload.pods):
        return workload
    pods = []
    for pod in workload.pods:
        if pod.id in gone:
            continue
        old = kept_rooms.get(pod.id)
        if old is not None and pod.state is PodState.PENDING and pod.nominated_node is None:
            pod = replace(  # noqa: PLW2901
                pod, nominated_node=old.nominated_node, nominated_devices=old.nominated_devices
            )
        pods.append(pod)
    return replace(workload, pods=tuple(pods))
