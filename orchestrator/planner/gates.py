"""What a project may hold at all, whatever is free: its limit, and its quota for work that cannot be taken back."""

from orchestrator.planner.ledger import Ledger
from orchestrator.planner.model import PendingReason, Waiting, Workload
from orchestrator.planner.quota import gpus


def refusal(ledger: Ledger, workload: Workload, asked_gpu_milli: int) -> PendingReason | None:
    """Why the project or one of its departments may not hold that much more, or None."""
    return limit_refusal(ledger, workload, asked_gpu_milli) or quota_refusal(
        ledger, workload, asked_gpu_milli
    )


def limit_refusal(ledger: Ledger, workload: Workload, asked_gpu_milli: int) -> PendingReason | None:
    """The first project of the lineage whose limit would be passed."""
    for name in ledger.tree.lineage[workload.project] if asked_gpu_milli else ():
        limit = ledger.tree.projects[name].limit_gpu_milli
        held = ledger.allocated_gpu_milli[name]
        if limit is not None and held + asked_gpu_milli > limit:
            return PendingReason(
                Waiting.PROJECT_LIMIT,
                f"asks for {gpus(asked_gpu_milli)} GPUs; {name} holds {gpus(held)} of its limit of {gpus(limit)}: "
                f"fits when {name} returns {gpus(held + asked_gpu_milli - limit)}, or with a higher limit",
            )
    return None


def quota_refusal(ledger: Ledger, workload: Workload, asked_gpu_milli: int) -> PendingReason | None:
    """Work that may not be evicted never leaves the quota: nobody could get the GPUs back."""
    if workload.preemptible or not asked_gpu_milli:
        return None
    for name in ledger.tree.lineage[workload.project]:
        quota = ledger.tree.projects[name].quota_gpu_milli
        held = ledger.non_preemptible_gpu_milli[name]
        if held + asked_gpu_milli > quota:
            return PendingReason(
                Waiting.OVER_QUOTA,
                f"asks for {gpus(asked_gpu_milli)} GPUs that cannot be taken back; {name} holds {gpus(held)} of that "
                f"kind and its quota is {gpus(quota)}: submit it as preemptible, or raise the quota",
            )
    return None
