"""The pending workloads after a decision: counted once, for the statuses of projects and for metrics."""

from collections.abc import Iterator

from orchestrator.planner.gangs import start_chunks
from orchestrator.planner.model import Plan, Pod, PodState, Snapshot, Workload


def waiting_workloads(snapshot: Snapshot, decision: Plan) -> Iterator[Workload]:
    """Yield the workloads with startable pods of which none was bound in this decision."""
    bound = {binding.workload for binding in decision.bindings}
    for workload in snapshot.workloads:
        if workload.id not in bound and start_chunks(workload):
            yield workload


def waiting_since_us(workload: Workload) -> int:
    """Return the start of its pods' wait."""
    return workload.waiting_since_us or workload.created_at_us


def pending_pods(workload: Workload) -> Iterator[Pod]:
    """Yield its pods without a node."""
    return (pod for pod in workload.pods if pod.state is PodState.PENDING)
