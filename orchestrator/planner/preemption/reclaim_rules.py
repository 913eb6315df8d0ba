"""When one project may take from another: the rules on figures alone, for GPUs, CPU and memory.

A project reclaims for a workload if with it the project stays within its fair share. At the level where the two
lineages part, one of two rules must hold before each victim:
- `fair-share`: the victim's side holds more than it may while others want it (its fair share, or its quota);
- `quota`: the reclaiming side stays within its quota, and the victim's side is above its own.

Afterwards nobody who took may be better served than a sibling that lost: otherwise the sibling would take it back.
"""

from collections.abc import Iterable, Sequence

from orchestrator.planner.accounting.amounts import Figures, exceeds_somewhere, exceeds_where_requested, plus
from orchestrator.planner.model import Amounts


def restores_quota(reclaimer: Figures, requested: Amounts, victim: Figures, held: Amounts) -> bool:
    """The rule `quota`; `held` is what the victim's side holds before this victim is taken."""
    leaves_quota = exceeds_where_requested(plus(reclaimer.held, requested), reclaimer.quota, requested)
    return not leaves_quota and exceeds_somewhere(held, victim.quota)


def is_better_served(
    taker: Figures, held: Amounts, loser: Figures, remaining: Amounts, involved: Iterable[int]
) -> bool:
    """Whether the taker, above its fair share with `held`, is served no worse than a sibling that keeps `remaining`."""
    for resource in involved:
        share, sibling = taker.share[resource], loser.share[resource]
        if sibling <= 0:
            continue
        above = held[resource] > share
        if above and held[resource] * sibling >= remaining[resource] * share:
            return True
    return False


def divergence_point(ours: Sequence[str], theirs: Sequence[str]) -> tuple[str | None, str | None]:
    """The first pair of ancestors, from the top, that differ: the level at which two projects compete."""
    for our_side, their_side in zip(reversed(ours), reversed(theirs), strict=False):
        if our_side != their_side:
            return our_side, their_side
    return None, None
