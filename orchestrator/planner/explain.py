"""The one dominant reason why a workload waits, and what would make it fit."""

from orchestrator.planner.decision import Decision
from orchestrator.planner.gangs import chunk_gpu_milli
from orchestrator.planner.model import DEVICE_MILLI, PendingReason, Pod, Waiting, Workload
from orchestrator.planner.ordering import entitled_gpu_milli
from orchestrator.planner.quota import gpus


def no_room(decision: Decision, workload: Workload, chunk: tuple[Pod, ...]) -> PendingReason:
    """Why a chunk that its project may hold found no place."""
    ledger = decision.ledger
    pod = max(chunk, key=lambda each: each.request.gpu_milli)
    matching = [account for account in ledger.nodes if decision.placer.accepts(account, workload, pod)]
    if not matching:
        return PendingReason(
            Waiting.NO_NODE_MATCHES,
            f"none of the {len(ledger.nodes)} nodes is ready and matches its selector, tolerations and node type",
        )
    largest = max(account.node.gpu_count for account in matching)
    if pod.request.gpu_count > largest:
        return PendingReason(
            Waiting.TOO_LARGE,
            f"a pod asks for {pod.request.gpu_count} GPUs, the largest node that matches has {largest}: ask for less",
        )
    asked = chunk_gpu_milli(chunk)
    free = sum(
        account.free_milli(d, later=False) for account in matching for d in range(account.node.gpu_count)
    )
    project = ledger.tree.projects[workload.project]
    held = ledger.allocated_gpu_milli[project.name]
    share = decision.shares_gpu_milli[project.name]
    entitled = entitled_gpu_milli(project.quota_gpu_milli, project.limit_gpu_milli, share)
    wants = f"asks for {gpus(asked)} GPUs" + (f" in {len(chunk)} pods together" if len(chunk) > 1 else "")
    if free >= asked and asked:
        whole = sum(account.idle_devices for account in matching)
        detail = f"{gpus(free)} are free, {whole} of them whole, but not where they are needed"
        return PendingReason(Waiting.FRAGMENTED, f"{wants}; {detail}: fits when workloads end or move")
    standing = (
        f"{project.name} holds {gpus(held)} (quota {gpus(project.quota_gpu_milli)}, fair share {gpus(share)})"
    )
    if asked and held + asked > entitled:
        return PendingReason(
            Waiting.AT_FAIR_SHARE,
            f"{wants}; {gpus(free)} are free and {standing}: fits when others return {gpus(max(asked - free, 0))}, "
            f"or with a higher quota",
        )
    total = gpus(sum(account.node.gpu_count for account in matching) * DEVICE_MILLI)
    return PendingReason(
        Waiting.CLUSTER_FULL,
        f"{wants}; {gpus(free)} of {total} are free and {standing}: "
        f"fits when {gpus(max(asked - free, 0))} are returned",
    )
