"""What a project may hold at all, whatever is free: its limit, and its quota for work that cannot be taken back."""

from orchestrator.planner.ledger import Ledger
from orchestrator.planner.model import Amounts, PendingReason, PodState, Waiting, Workload
from orchestrator.planner.quota import gpus

_UNITS = ("GPUs", "thousandths of a processor", "bytes of memory")


def refusal(ledger: Ledger, workload: Workload, asked: Amounts) -> PendingReason | None:
    """Why the project or one of its departments may not hold that much more, or None."""
    return limit_refusal(ledger, workload, asked) or quota_refusal(ledger, workload, asked)


def keeps_limits(ledger: Ledger, workload: Workload) -> bool:
    """Whether the project and its departments are within their limits as the ledger stands."""
    return all(
        ledger.allocated[name][resource] <= ledger.tree.limit[name][resource]
        for name in ledger.tree.lineage[workload.project]
        for resource in ledger.tree.resources
    )


def limiting(ledger: Ledger, workload: Workload, asked: Amounts) -> tuple[str, int] | None:
    """The first project of the lineage whose limit would be passed, and for which resource."""
    for name in ledger.tree.lineage[workload.project]:
        held, limit = ledger.allocated[name], ledger.tree.limit[name]
        for resource in ledger.tree.resources:
            if asked[resource] and held[resource] + asked[resource] > limit[resource]:
                return name, resource
    return None


def limit_refusal(ledger: Ledger, workload: Workload, asked: Amounts) -> PendingReason | None:
    """`limiting` in words."""
    found = limiting(ledger, workload, asked)
    if found is None:
        return None
    name, resource = found
    held, limit = ledger.allocated[name][resource], ledger.tree.limit[name][resource]
    return PendingReason(
        Waiting.PROJECT_LIMIT,
        f"asks for {_amount(asked, resource)}; {name} holds {_number(held, resource)} of its "
        f"limit of {_number(limit, resource)}: fits when {name} returns "
        f"{_number(held + asked[resource] - limit, resource)}, or with a higher limit",
    )


def quota_refusal(ledger: Ledger, workload: Workload, asked: Amounts) -> PendingReason | None:
    """Work that may not be evicted never leaves the quota: nobody could get the GPUs back."""
    if workload.preemptible:
        return None
    for name in ledger.tree.lineage[workload.project]:
        kept, quota = ledger.non_preemptible[name], ledger.tree.quota[name]
        for resource in ledger.tree.resources:
            if asked[resource] and kept[resource] + asked[resource] > quota[resource]:
                return PendingReason(
                    Waiting.OVER_QUOTA,
                    f"asks for {_amount(asked, resource)} that cannot be taken back; {name} holds "
                    f"{_number(kept[resource], resource)} of that kind and its quota is "
                    f"{_number(quota[resource], resource)}: submit it as preemptible, or raise the quota",
                )
    return None


def incomplete(workload: Workload) -> PendingReason:
    """Why a gang does not start for which not enough pods have been made."""
    there = sum(pod.state is not PodState.RELEASING for pod in workload.pods)
    going = len(workload.pods) - there
    leaving = f" ({going} more are on their way out)" if going else ""
    found = (
        f"{there} of the {workload.min_member} pods that its gang needs are there{leaving}"
        if workload.groups is None
        else f"its sub-groups need more pods than the {there} that are there{leaving}"
    )
    return PendingReason(Waiting.INCOMPLETE_GANG, f"{found}: starts when the missing ones have been made")


def _number(amount: int, resource: int) -> str:
    return gpus(amount) if resource == 0 else str(amount)


def _amount(asked: Amounts, resource: int) -> str:
    return f"{_number(asked[resource], resource)} {_UNITS[resource]}"
