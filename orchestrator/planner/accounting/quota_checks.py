"""Checks a project's limit, and its quota for non-preemptible workloads.

Each limit and quota has two checks: one counts terminating pods, the other does not.

A terminating pod holds its devices, so it counts until it has ended. A workload that only fits without terminating pods
is nominated, and bound after they have ended.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from orchestrator.planner.accounting.ledger import Ledger
from orchestrator.planner.model import Amounts, PodState, Workload
from orchestrator.planner.obstacles import GangIncomplete, LimitReached, QuotaReached, StillCharged


def violation(ledger: Ledger, workload: Workload, requested: Amounts) -> LimitReached | QuotaReached | None:
    """Return the limit or quota that the workload would exceed with `requested` more, or None."""
    return limit_violation(ledger, workload, requested) or quota_violation(ledger, workload, requested)


def keeps_limits(ledger: Ledger, workload: Workload) -> bool:
    """Return whether the project and its departments are within their limits on the ledger now."""
    for name in ledger.tree.lineage[workload.project]:
        held, limit = ledger.allocated[name], ledger.tree.limit[name]
        if held[0] > limit[0] or held[1] > limit[1] or held[2] > limit[2]:
            return False
    return True


def limiting(ledger: Ledger, workload: Workload, requested: Amounts) -> tuple[str, int] | None:
    """Return the first project or department whose limit would be exceeded, and the resource index; or None."""
    for name in ledger.tree.lineage[workload.project]:
        held, limit = ledger.allocated[name], ledger.tree.limit[name]
        for resource in ledger.tree.resources:
            if requested[resource] and held[resource] + requested[resource] > limit[resource]:
                return name, resource
    return None


def limit_violation(ledger: Ledger, workload: Workload, requested: Amounts) -> LimitReached | None:
    """Return the first limit that would be exceeded (see `limiting`), with the allocated and the maximum amount; or
    None.
    """
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
    """Return the quota that a non-preemptible workload would exceed, or None.

    Such a workload cannot be evicted. If it used borrowed GPUs, their project could not reclaim its own quota.
    """
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
    """Return the reason of a gang that has too few existing pods."""
    present = sum(pod.state is not PodState.RELEASING for pod in workload.pods)
    needed = workload.min_member if workload.groups is None else None
    return GangIncomplete(present, needed, terminating=len(workload.pods) - present)


class Use(NamedTuple):
    """The amounts that a pod of the project holds, or will hold, on a node with GPUs of `gpu_model`."""

    project: str
    amounts: Amounts
    gpu_model: str
    preemptible: bool


def still_charged(
    ledger: Ledger, placed: Iterable[Use], nominated: Callable[[], Iterable[Use]]
) -> StillCharged | None:
    """Return the first limit or quota that would be exceeded if the placed pods started now; None if there is none.

    The `placed` pods of one workload and the `nominated` pods are on the ledger. Nominated pods use no devices yet, so
    they are subtracted.
    """
    excess = {charge: amount for charge, amount in _excess(ledger, list(placed)) if amount > 0}
    if not excess:
        return None
    for use in nominated():
        for charge in excess:
            if charge.project in ledger.tree.lineage[use.project]:
                excess[charge] -= _amount_of(charge, use)
    return next((charge for charge, amount in excess.items() if amount > 0), None)


def _amount_of(charge: StillCharged, use: Use) -> int:
    """Return the part of the use that counts for the limit or quota of its project."""
    if charge.bound == "quota" and use.preemptible:
        return 0
    return use.amounts[charge.resource] if charge.model in ("", use.gpu_model) else 0


def _excess(ledger: Ledger, uses: list[Use]) -> Iterator[tuple[StillCharged, int]]:
    """Yield each limit and quota for which terminating pods count, and the amount by which the use exceeds it.

    If the amount is 0 or less, the limit or quota is kept.
    """
    if not uses:
        return
    tree = ledger.tree
    resources = [resource for resource in tree.resources if any(use.amounts[resource] for use in uses)]
    models = {use.gpu_model for use in uses if use.amounts[0]} & tree.models
    for name in tree.limited.get(uses[0].project, ()):
        for resource in resources:
            amount = ledger.terminating[name][resource]
            if amount:
                held = ledger.allocated[name][resource] + amount
                yield StillCharged(name, "limit", resource, amount), held - tree.limit[name][resource]
        for model in sorted(models):
            amount = ledger.model_terminating.get((name, model), 0)
            if amount:
                held = ledger.model_held.get((name, model), 0) + amount
                yield StillCharged(name, "limit", 0, amount, model), held - tree.model_limit[name, model]
    for name in () if uses[0].preemptible else tree.lineage.get(uses[0].project, ()):
        for resource in resources:
            amount = ledger.non_preemptible_terminating[name][resource]
            if amount:
                held = ledger.non_preemptible[name][resource] + amount
                yield StillCharged(name, "quota", resource, amount), held - tree.quota[name][resource]
