"""The pending workloads after a decision, for the statuses of projects and for metrics."""

from collections.abc import Iterator

from orchestrator.planner.gangs import start_chunks
from orchestrator.planner.model import Plan, Pod, PodState, Snapshot, Workload


def waiting_workloads(snapshot: Snapshot, decision: Plan) -> Iterator[Workload]:
    """Yield the workloads with a chunk that could start and no pod that this decision bound."""
    bound = {binding.workload for binding in decision.bindings}
    for workload in snapshot.workloads:
        if workload.id not in bound and start_chunks(workload):
            yield workload


def waiting_since_us(workload: Workload) -> int:
    """Return the time since which the pods of the workload are pending, in microseconds since the epoch."""
    return workload.waiting_since_us or workload.created_at_us


def pending_pods(workload: Workload) -> Iterator[Pod]:
    """Yield the pending pods of the workload."""
    return (pod for pod in workload.pods if pod.state is PodState.PENDING)
