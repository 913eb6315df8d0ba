"""How well founded a request is: on the project's quota, on its fair share, or only on what nobody else wants.

The three are served in this order, over all projects. Whoever could take GPUs back by reclaim is thus served before
anybody who would have to give them back, and no decision undoes the one before it.
"""

import enum
from collections.abc import Mapping

from orchestrator.planner.ledger import Ledger
from orchestrator.planner.model import Amounts, Workload


class Standing(enum.IntEnum):
    """From the best founded to the least."""

    GUARANTEED = 0
    FAIR = 1
    SURPLUS = 2


def standing(
    ledger: Ledger,
    shares: Mapping[str, Amounts],
    workload: Workload,
    asked: Amounts,
    *,
    levels: int | None = None,
) -> Standing:
    """Where the workload's project, and every department above it, would stand with that much more.

    `levels` 1 looks at the project alone.
    """
    worst = Standing.GUARANTEED
    for name in ledger.tree.lineage[workload.project][:levels]:
        held, quota, share = ledger.allocated[name], ledger.tree.quota[name], shares[name]
        for resource in ledger.tree.resources:
            if not asked[resource]:
                continue
            then = held[resource] + asked[resource]
            if then > max(quota[resource], share[resource]):
                return Standing.SURPLUS
            if then > quota[resource]:
                worst = Standing.FAIR
    return worst
