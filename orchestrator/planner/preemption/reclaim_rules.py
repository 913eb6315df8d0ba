"""When one project may take from another: the rules on figures alone, for GPUs, CPU and memory.

A project reclaims for a workload if with it the project stays within its fair share. At the level where the two
lineages part, one of two rules must hold before each victim:
- `fair-share`: the victim's side holds more than it may while others want it (its fair share, or its quota);
- `quota`: the reclaiming side stays within its quota, and the victim's side is above its own.

Afterwards nobody who took may be better served than a sibling that lost: otherwise the sibling would take it back.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from orchestrator.planner.model import UNLIMITED, Amounts


class Figures(NamedTuple):
    """Where a project or department stands: what it is guaranteed, may hold at most, should hold, and holds."""

    quota: Amounts
    limit: Amounts
    share: Amounts
    held: Amounts


def plus(first: Amounts, second: Amounts) -> Amounts:
    """The sum, resource by resource."""
    return (first[0] + second[0], first[1] + second[1], first[2] + second[2])


def minus(first: Amounts, second: Amounts) -> Amounts:
    """The difference, resource by resource."""
    return (first[0] - second[0], first[1] - second[1], first[2] - second[2])


def exceeds_somewhere(amounts: Amounts, bounds: Amounts) -> bool:
    """Whether some resource exceeds its bound."""
    return amounts[0] > bounds[0] or amounts[1] > bounds[1] or amounts[2] > bounds[2]


def exceeds_where_requested(amounts: Amounts, bounds: Amounts, requested: Amounts) -> bool:
    """Whether some resource that is asked for exceeds its bound: a claim on CPUs alone is not one on GPUs."""
    return bool(
        (requested[0] and amounts[0] > bounds[0])
        or (requested[1] and amounts[1] > bounds[1])
        or (requested[2] and amounts[2] > bounds[2])
    )


def entitled(quota: int, limit: int, share: int) -> int:
    """What a project may hold of a resource while others want it too: its quota or fair share, within its limit."""
    return limit if quota >= UNLIMITED else min(limit, max(quota, share))


def entitled_amounts(figures: Figures) -> Amounts:
    """`entitled` for every resource."""
    quota, limit, share = figures.quota, figures.limit, figures.share
    return (
        entitled(quota[0], limit[0], share[0]),
        entitled(quota[1], limit[1], share[1]),
        entitled(quota[2], limit[2], share[2]),
    )


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
