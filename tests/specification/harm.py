"""The possible victims in a tiny world, and the harm of an eviction: preemption.md and decision.md."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING

from tests.specification.entitlement import SURPLUS, Entitlement
from tests.specification.tiny import Places, moved_pods, without

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

Harm = tuple[object, ...]


def may_take(claims: Entitlement, job: int, victims: Sequence[int], now: Places) -> bool:
    """Return whether the victims' sides hold more than they may, and none of the victims is within quota.

    A side may lose what it holds beyond its fair share, or beyond its quota if the job's side stays within its own.
    """
    world, left = claims.world, without(now, victims)
    for (ours, theirs), taken in _sides(claims, job, victims).items():
        if ours is None or theirs is None:
            return False
        quota, rest = world.teams[theirs].quota, world.held(theirs, left)
        before_the_last = rest + max(world.jobs[each].size for each in taken)
        restores = world.held(ours, now) + world.jobs[job].size <= world.teams[ours].quota
        if before_the_last <= (quota if restores else claims.entitled(theirs)):
            return False
        if set(taken) & set(claims.covered(theirs, now)):
            return False
    return True


def keeps_balance(claims: Entitlement, job: int, victims: Sequence[int], now: Places) -> bool:
    """Return whether the job's side, if above its fair share, is not better served than a side that lost."""
    world, left = claims.world, without(now, victims)
    for ours, theirs in _sides(claims, job, victims):
        if ours is None or theirs is None:
            continue
        then, rest = world.held(ours, left) + world.jobs[job].size, world.held(theirs, left)
        share, other = claims.share[ours], claims.share[theirs]
        is_beyond = then > world.teams[ours].quota and then > share
        if is_beyond and other and then * other >= rest * share:
            return False
    return True


def gives_back(claims: Entitlement, job: int, lost: Iterable[int], left: Places) -> bool:
    """Return whether an evicted job is entitled to return, while the job exceeds its fair share."""
    return claims.tier(job, left) == SURPLUS and any(claims.tier(each, left) != SURPLUS for each in lost)


def below(claims: Entitlement, job: int, victims: Sequence[int], now: Places) -> tuple[int, int]:
    """Return the number of other teams and departments that fall below their quotas, and of victims within quota."""
    world, left = claims.world, without(now, victims)
    ours = world.line(world.jobs[job].team)
    teams = {team for each in victims for team in world.line(world.jobs[each].team) if team not in ours}
    return (
        sum(world.held(team, left) < world.teams[team].quota for team in teams),
        sum(each in claims.covered(world.jobs[each].team, now) for each in victims),
    )


def losses(claims: Entitlement, job: int, victims: Sequence[int], now: Places, then: Places) -> Harm:
    """Return GPUs beyond the need, whether a victim is urgent, the number of pods, ranks, and which victims stay
    evicted.
    """
    world, new = claims.world, claims.world.jobs[job]
    in_free_gpus = sum(free // new.gpus for free in world.free(now))
    needed = new.gpus * max(0, new.pods - in_free_gpus)
    beyond = max(0, sum(world.jobs[each].size for each in victims) - needed)
    pods = sum(world.jobs[each].pods for each in victims)
    ranks = sorted(_rank(claims, each, now) for each in victims)
    is_urgent = any(_is_urgent(claims, each) for each in victims)
    return beyond, is_urgent, pods, *ranks, evicted(claims, victims, then)


def evicted(claims: Entitlement, victims: Iterable[int], then: Places) -> tuple[bool, ...]:
    """Return for each victim whether it gets no other placement, the most entitled victim first."""
    left = without(then, victims)
    return tuple(then[each] is None for each in sorted(victims, key=lambda each: claims.founded(each, left)))


def packing(
    claims: Entitlement, job: int, started: Iterable[int], now: Places, then: Places
) -> tuple[int, bool]:
    """Return how many earlier started jobs are moved, and whether the pods go to other nodes than the fullest ones."""
    free, fullest = claims.world.free(without(then, [job])), []
    for _ in range(claims.world.jobs[job].pods):
        _, node = min((left, node) for node, left in enumerate(free) if left >= claims.world.jobs[job].gpus)
        free[node] -= claims.world.jobs[job].gpus
        fullest.append(node)
    return sum(then[each] != now[each] for each in started), tuple(sorted(fullest)) != then[job]


def moves(victims: Iterable[int], home: Places, then: Places) -> int:
    return sum(moved_pods(home[each], then[each]) for each in victims)


def _is_urgent(claims: Entitlement, victim: int) -> bool:
    """Return whether a less urgent, preemptible job of its team runs at the start of the decision."""
    own = claims.world.jobs[victim]
    return any(
        other.place is not None
        and not other.firm
        and other.team == own.team
        and other.priority < own.priority
        for other in claims.world.jobs
    )


def _rank(claims: Entitlement, victim: int, now: Places) -> tuple[object, ...]:
    """Return the sort key of victims: of the side furthest above its entitlement, the lowest priority, the youngest."""
    world = claims.world
    side = world.line(world.jobs[victim].team)[-1]
    held, may = world.held(side, now), claims.entitled(side)
    part = Fraction(held) / may if may else Fraction(held * 1000)
    is_over = held > claims.share[side]
    return (not is_over, world.teams[side].priority, -part, -side, world.jobs[victim].priority, -victim)


def _sides(
    claims: Entitlement, job: int, victims: Sequence[int]
) -> dict[tuple[int | None, int | None], list[int]]:
    """Return the victims by the pair of teams at which their line and the job's line divide;
    (None, None) for one team.
    """
    world = claims.world
    sides: dict[tuple[int | None, int | None], list[int]] = {}
    ours = world.line(world.jobs[job].team)[::-1]
    for victim in victims:
        theirs = world.line(world.jobs[victim].team)[::-1]
        pairs = [pair for pair in zip(ours, theirs, strict=False) if pair[0] != pair[1]]
        sides.setdefault(pairs[0] if pairs else (None, None), []).append(victim)
    return sides
