"""When one project may take from another: the rules on figures alone, for GPUs, processors and memory.

A project reclaims for a workload if with it the project stays within its fair share. At the level where the two
lineages part, one of two rules must hold before each victim:
- `fair-share`: the victim's side holds more than it may while others want it (its fair share, or its quota);
- `quota`: the reclaiming side stays within its quota, and the victim's side is above its own.

Afterwards nobody who took may be better served than a sibling that lost: otherwise the sibling would take it back.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from orchestrator.planner.model import UNLIMITED, Amounts

NOTHING: Amounts = (0, 0, 0)


@dataclass(frozen=True, slots=True)
class Figures:
    """Where a project or department stands: what it is guaranteed, may hold at most, should hold, and holds."""

    quota: Amounts
    limit: Amounts
    share: Amounts
    held: Amounts
    held_non_preemptible: Amounts = NOTHING


def plus(first: Amounts, second: Amounts) -> Amounts:
    """The sum, resource by resource."""
    return (first[0] + second[0], first[1] + second[1], first[2] + second[2])


def minus(first: Amounts, second: Amounts) -> Amounts:
    """The difference, resource by resource."""
    return (first[0] - second[0], first[1] - second[1], first[2] - second[2])


def within(amounts: Amounts, bounds: Amounts) -> bool:
    """Whether no resource exceeds its bound."""
    return amounts[0] <= bounds[0] and amounts[1] <= bounds[1] and amounts[2] <= bounds[2]


def exceeds_somewhere(amounts: Amounts, bounds: Amounts) -> bool:
    """Whether some resource exceeds its bound."""
    return not within(amounts, bounds)


def exceeds_where_requested(amounts: Amounts, bounds: Amounts, requested: Amounts) -> bool:
    """Whether some resource that is asked for exceeds its bound: a claim on CPUs alone is not one on GPUs."""
    return any(amounts[resource] > bounds[resource] for resource in range(3) if requested[resource])


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


def may_reclaim(figures: Figures, requested: Amounts, *, preemptible: bool) -> bool:
    """Whether the project stays within its fair share, and within its quota for what cannot be taken back."""
    if not preemptible and not within(plus(figures.held_non_preemptible, requested), figures.quota):
        return False
    return within(plus(figures.held, requested), figures.share)


def may_lose(figures: Figures, requested: Amounts, reclaimer: Figures | None = None) -> bool:
    """Whether a side can lose anything lawfully for what is asked.

    By the rule `quota`, it holds more than its quota of one resource that is asked for, or its whole quota of all of
    them; a quota without a bound is neither above nor below. Where the `reclaimer` leaves its own quota, only the rule
    `fair-share` is left.
    """
    if reclaimer is not None and not within(plus(reclaimer.held, requested), reclaimer.quota):
        return holds_more_than_entitled(figures, figures.held)
    bounded = [
        (held, quota)
        for amount, held, quota in zip(requested, figures.held, figures.quota, strict=True)
        if amount and quota < UNLIMITED
    ]
    return any(held > quota for held, quota in bounded) or all(held >= quota for held, quota in bounded)


def holds_more_than_entitled(victim: Figures, held: Amounts) -> bool:
    """The rule `fair-share`; `held` is what the victim's side holds before this victim is taken."""
    return exceeds_somewhere(held, entitled_amounts(victim))


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


def reclaim_is_allowed(
    figures: Mapping[str, Figures],
    lineages: Mapping[str, Sequence[str]],
    reclaimer: str,
    requested: Amounts,
    victims: Mapping[str, Sequence[Amounts]],
    *,
    preemptible: bool,
) -> bool:
    """Whether the whole set of victims, by project and in the order of taking, may be taken for `requested`.

    `lineages` maps a project to itself and its departments, nearest first.
    """
    held = {name: figures[name].held for name in figures}
    involved = {resource for resource in range(3) if requested[resource]}
    for project, chunks in victims.items():
        ours, theirs = divergence_point(lineages[reclaimer], lineages[project])
        if ours is None or theirs is None:
            return False
        for chunk in chunks:
            involved |= {resource for resource in range(3) if chunk[resource]}
            is_allowed = holds_more_than_entitled(figures[theirs], held[theirs]) or restores_quota(
                figures[ours], requested, figures[theirs], held[theirs]
            )
            if not is_allowed:
                return False
            for name in lineages[project]:
                held[name] = minus(held[name], chunk)
    for depth, name in enumerate(lineages[reclaimer]):
        parent = lineages[reclaimer][depth + 1 : depth + 2]
        if not preemptible and not within(
            plus(figures[name].held_non_preemptible, requested), figures[name].quota
        ):
            return False
        for sibling, after in held.items():
            if sibling == name or after == figures[sibling].held or lineages[sibling][1:2] != parent:
                continue
            if is_better_served(
                figures[name], plus(held[name], requested), figures[sibling], after, sorted(involved)
            ):
                return False
    return True


def divergence_point(ours: Sequence[str], theirs: Sequence[str]) -> tuple[str | None, str | None]:
    """The first pair of ancestors, from the top, that differ: the level at which two projects compete."""
    for our_side, their_side in zip(reversed(ours), reversed(theirs), strict=False):
        if our_side != their_side:
            return our_side, their_side
    return None, None
