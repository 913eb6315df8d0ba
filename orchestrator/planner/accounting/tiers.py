"""Entitlement of a request: by the project's quota, by its fair share, or by neither.

A decision serves the tiers in this order for all projects. So workloads that could reclaim GPUs start before workloads
that would have to return them, and the next decision has nothing to undo.
"""

import enum
from collections.abc import Mapping, Sequence

from orchestrator.planner.accounting.ledger import Ledger
from orchestrator.planner.model import Amounts, Workload


class EntitlementTier(enum.IntEnum):
    """The entitlement of a request, most entitled first."""

    GUARANTEED = 0
    FAIR = 1
    OVER_SHARE = 2


def tier(
    ledger: Ledger,
    shares: Mapping[str, Amounts],
    workload: Workload,
    requested: Amounts,
    *,
    levels: int | None = None,
) -> EntitlementTier:
    """Return the worst tier of the workload's project and the departments above it with `requested` more.

    If `levels` is 1, only the project counts.
    """
    worst = EntitlementTier.GUARANTEED
    for name in ledger.tree.lineage[workload.project][:levels]:
        held, quota, share = ledger.allocated[name], ledger.tree.quota[name], shares[name]
        for resource in ledger.tree.resources:
            if not requested[resource]:
                continue
            then = held[resource] + requested[resource]
            if then > max(quota[resource], share[resource]):
                return EntitlementTier.OVER_SHARE
            if then > quota[resource]:
                worst = EntitlementTier.FAIR
    return worst


def tier_with_model(
    ledger: Ledger,
    model_shares: Mapping[tuple[str, str], int],
    total: EntitlementTier,
    *,
    lineage: Sequence[str],
    gpu_milli: int,
    model: str,
) -> EntitlementTier:
    """Return the tier of a workload that is bound to a GPU model; `total` is its tier without regard to models.

    Beyond the quota for the model, the tier is at best FAIR. If `total` is FAIR and the workload is also beyond the
    fair share of the model, the tier is OVER_SHARE.
    """
    if model not in ledger.tree.models_with_quota or total is EntitlementTier.OVER_SHARE:
        return total
    worst = total
    for name in lineage:
        then = ledger.model_held.get((name, model), 0) + gpu_milli
        if then <= ledger.tree.model_quota[name, model]:
            continue
        if total is EntitlementTier.FAIR and then > model_shares.get((name, model), 0):
            return EntitlementTier.OVER_SHARE
        worst = EntitlementTier.FAIR
    return worst
