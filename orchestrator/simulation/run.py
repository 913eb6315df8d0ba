"""The smallest cluster that obeys a plan: what the planner decides happens at once, until it decides nothing more.

A pod that is bound runs; a pod that is evicted is gone at once and waits again in its old place in the queue, as the
pod that its controller makes anew. Nothing ends by itself.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from orchestrator.planner import plan
from orchestrator.planner.model import Binding, Plan, Pod, PodState, Snapshot, Workload

MOST_DECISIONS: Final = 100

Planner = Callable[[Snapshot], Plan]


@dataclass(frozen=True, slots=True)
class Run:
    """What came of a snapshot. `steps` are the decisions that changed something; `last` is the latest of all.

    `is_stable` says that `last` changed nothing: it then speaks about `after`.
    """

    before: Snapshot
    after: Snapshot
    steps: tuple[Plan, ...]
    last: Plan
    is_stable: bool


def settle(snapshot: Snapshot, *, most_decisions: int = MOST_DECISIONS, planner: Planner = plan) -> Run:
    """Decide and obey until a decision changes nothing, or `most_decisions` have been made.

    Pods that are on their way out are taken to be gone first.
    """
    current = without_releasing(snapshot)
    steps: list[Plan] = []
    for _ in range(most_decisions):
        decision = planner(current)
        if not decision.bindings and not decision.evictions:
            return Run(snapshot, current, tuple(steps), decision, is_stable=True)
        steps.append(decision)
        current = obey(current, decision)
    return Run(snapshot, current, tuple(steps), steps[-1], is_stable=False)


def decide_once(snapshot: Snapshot, *, planner: Planner = plan) -> Run:
    """One decision on the snapshot as it is, and what it changes."""
    decision = planner(snapshot)
    changes = bool(decision.bindings or decision.evictions)
    after = obey(snapshot, decision) if changes else snapshot
    return Run(snapshot, after, (decision,) if changes else (), decision, is_stable=not changes)


def obey(snapshot: Snapshot, decision: Plan) -> Snapshot:
    """The snapshot after the decision was carried out; what starts now is younger than all that runs."""
    placed = {each.pod: each for each in decision.bindings}
    evicted = {each.pod for each in decision.evictions}
    if not placed and not evicted:
        return snapshot
    now_us = moment_after(snapshot)
    workloads = tuple(_obey(each, placed, evicted, now_us) for each in snapshot.workloads)
    return replace(snapshot, workloads=workloads)


def without_releasing(snapshot: Snapshot) -> Snapshot:
    """The snapshot once pods that are on their way out are gone: their workloads wait for them anew."""
    if not any(pod.state is PodState.RELEASING for each in snapshot.workloads for pod in each.pods):
        return snapshot
    workloads = (
        replace(
            each, pods=tuple(_waiting(pod) if pod.state is PodState.RELEASING else pod for pod in each.pods)
        )
        for each in snapshot.workloads
    )
    return replace(snapshot, workloads=tuple(workloads))


def moment_after(snapshot: Snapshot) -> int:
    """A time in microseconds that is later than all that the snapshot knows of."""
    times = (max(each.created_at_us, each.started_at_us) for each in snapshot.workloads)
    return max([*times, snapshot.now_us]) + 1


def _obey(workload: Workload, placed: dict[str, Binding], evicted: set[str], now_us: int) -> Workload:
    if not any(pod.id in placed or pod.id in evicted for pod in workload.pods):
        return workload
    pods = tuple(
        _running(pod, placed[pod.id], now_us)
        if pod.id in placed
        else _waiting(pod)
        if pod.id in evicted
        else pod
        for pod in workload.pods
    )
    runs = any(pod.state is PodState.ALLOCATED for pod in pods)
    kept = any(pod.state is PodState.ALLOCATED and pod.id not in placed for pod in pods)
    started_us = (workload.started_at_us if kept else now_us) if runs else 0
    return replace(workload, pods=pods, started_at_us=started_us)


def _running(pod: Pod, binding: Binding, now_us: int) -> Pod:
    ends_by_us = 0 if pod.max_runtime_seconds is None else now_us + pod.max_runtime_seconds * 1_000_000
    return replace(
        pod,
        state=PodState.ALLOCATED,
        node=binding.node,
        devices=binding.devices,
        ends_by_us=ends_by_us,
    )


def _waiting(pod: Pod) -> Pod:
    return replace(pod, state=PodState.PENDING, node=None, devices=(), ends_by_us=0)
