"""What a project may hold at all, whatever is free: its limit, and its quota for work that cannot be taken back."""

from orchestrator.planner.accounting.ledger import Ledger
from orchestrator.planner.model import Amounts, PodState, Workload
from orchestrator.planner.obstacles import GangIncomplete, LimitReached, QuotaReached


def violation(ledger: Ledger, workload: Workload, requested: Amounts) -> LimitReached | QuotaReached | None:
    """Why the project or one of its departments may not hold that much more, or None."""
    return limit_violation(ledger, workload, requested) or quota_violation(ledger, workload, requested)


def keeps_limits(ledger: Ledger, workload: Workload) -> bool:
    """Whether the project and its departments are within their limits as the ledger stands."""
    for name in ledger.tree.lineage[workload.project]:
        held, limit = ledger.allocated[name], ledger.tree.limit[name]
        if held[0] > limit[0] or held[1] > limit[1] or held[2] > limit[2]:
            return False
    return True


def limiting(ledger: Ledger, workload: Workload, requested: Amounts) -> tuple[str, int] | None:
    """The first project of the lineage whose limit would be passed, and for which resource."""
    for name in ledger.tree.lineage[workload.project]:
        held, limit = ledger.allocated[name], ledger.tree.limit[name]
        for resource in ledger.tree.resources:
            if requested[resource] and held[resource] + requested[resource] > limit[resource]:
                return name, resource
    return None


def limit_violation(ledger: Ledger, workload: Workload, requested: Amounts) -> LimitReached | None:
    """`limiting` with the amounts on both sides."""
    reached = limiting(ledger, workload, requested)
    if reached is None:
        return None
    name, resource = reached
    return LimitReached(
        name,
        resource,
        requested=requested[resource],
        held=ledger.allocated[name][resource],
        limit=ledger.tree.limit[name][resource],
    )


def quota_violation(ledger: Ledger, workload: Workload, requested: Amounts) -> QuotaReached | None:
    """Work that may not be evicted never leaves the quota: nobody could get the GPUs back."""
    if workload.preemptible:
        return None
    for name in ledger.tree.lineage[workload.project]:
        non_preemptible, quota = ledger.non_preemptible[name], ledger.tree.quota[name]
        for resource in ledger.tree.resources:
            if requested[resource] and non_preemptible[resource] + requested[resource] > quota[resource]:
                return QuotaReached(
                    name,
                    resource,
                    requested=requested[resource],
                    held=non_preemptible[resource],
                    quota=quota[resource],
                )
    return None


def incomplete(workload: Workload) -> GangIncomplete:
    """Why a gang does not start for which not enough pods have been made."""
    present = sum(pod.state is not PodState.RELEASING for pod in workload.pods)
    needed = workload.min_member if workload.groups is None else None
    return GangIncomplete(present, needed, leaving=len(workload.pods) - present)
