"""The cluster after a plan was carried out, as the planner is going to see it next.

A pod that is bound runs; a pod that is evicted is gone at once and waits again in its old place in the queue, as the
pod that its controller makes anew.
"""

from dataclasses import replace

from orchestrator.planner.model import Binding, Plan, Pod, PodState, Snapshot, Workload


def obey(snapshot: Snapshot, decision: Plan) -> Snapshot:
    """The snapshot after the decision was carried out; what starts now is younger than all that runs."""
    placed = {each.pod: each for each in decision.bindings}
    evicted = {each.pod for each in decision.evictions}
    if not placed and not evicted:
        return snapshot
    now_us = moment_after(snapshot)
    changed = {each.workload for each in decision.bindings} | {each.workload for each in decision.evictions}
    workloads = tuple(
        _obey(each, placed, evicted, now_us) if each.id in changed else each for each in snapshot.workloads
    )
    return replace(snapshot, workloads=workloads)


def without_releasing(snapshot: Snapshot, *, stuck_too: bool = True) -> Snapshot:
    """The snapshot once pods that are on their way out are gone: their workloads wait for them anew."""
    workloads = tuple(_without_releasing(each, stuck_too=stuck_too) for each in snapshot.workloads)
    return replace(snapshot, workloads=workloads)


def moment_after(snapshot: Snapshot) -> int:
    """A time in microseconds that is later than all that the snapshot knows of."""
    made = max((each.created_at_us for each in snapshot.workloads), default=0)
    started = max((each.started_at_us for each in snapshot.workloads), default=0)
    return max(made, started, snapshot.now_us) + 1


def _obey(workload: Workload, placed: dict[str, Binding], evicted: set[str], now_us: int) -> Workload:
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
    waits_anew = any(pod.id in evicted for pod in pods)
    return replace(
        workload,
        pods=pods,
        started_at_us=started_us,
        waiting_since_us=now_us if waits_anew else workload.waiting_since_us,
    )


def _without_releasing(workload: Workload, *, stuck_too: bool) -> Workload:
    if not any(pod.state is PodState.RELEASING for pod in workload.pods):
        return workload
    pods = tuple(
        _waiting(pod) if pod.state is PodState.RELEASING and (stuck_too or not pod.stuck) else pod
        for pod in workload.pods
    )
    return replace(workload, pods=pods)


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
