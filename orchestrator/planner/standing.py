"""How well founded a request is: on the project's quota, on its fair share, or only on what nobody else wants.

The three are served in this order, over all projects. Whoever could take GPUs back by reclaim is thus served before
anybody who would have to give them back, and no decision undoes the one before it.
"""

import enum
from collections.abc import Mapping

from orchestrator.planner.ledger import Ledger
from orchestrator.planner.model import Workload


class Standing(enum.IntEnum):
    """From the best founded to the least."""

    GUARANTEED = 0
    FAIR = 1
    SURPLUS = 2


def standing(
    ledger: Ledger, shares_gpu_milli: Mapping[str, int], workload: Workload, asked_gpu_milli: int
) -> Standing:
    """Where the workload's project, and every department above it, would stand with that much more."""
    worst = Standing.GUARANTEED
    for name in ledger.tree.lineage[workload.project] if asked_gpu_milli else ():
        held = ledger.allocated_gpu_milli[name] + asked_gpu_milli
        if held > max(ledger.tree.projects[name].quota_gpu_milli, shares_gpu_milli[name]):
            return Standing.SURPLUS
        if held > ledger.tree.projects[name].quota_gpu_milli:
            worst = Standing.FAIR
    return worst
