"""A reference scheduler for tiny worlds: it tries every allocation, and takes the best by the documented order of aims.

It shares no code with the planner. `Cycle.decide` is the order of aims in scheduling.md. It serves one job after the
other, and chooses for each the allocation with the least harm. `GAPS` are the differences of the planner.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tests.specification.entitlement import FAIR, GUARANTEED, SURPLUS, Entitlement
from tests.specification.harm import (
    Harm,
    below,
    evicted,
    gives_back,
    keeps_balance,
    losses,
    may_take,
    moves,
    packing,
)
from tests.specification.tiny import Place, Places, World, without

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

FREE, MOVES, EVICTIONS, BOTH = range(4)

PLACED: Final = (
    "who got a place by an eviction gets no other place so that another eviction makes enough room"
)
MADE: Final = (
    "room that is made for less urgent jobs of a team is not given to an urgent one in the same decision"
)
FIRST: Final = "if the set of victims with the least harm is refused, the next is not tried"
GAPS: Final = (PLACED, MADE, FIRST)


class Cycle:
    """One decision. `now` is the allocation so far, `won` are the jobs that start, `started` those on free GPUs."""

    def __init__(self, world: World, gaps: Iterable[str] = ()) -> None:
        self.world, self.jobs, self.gaps = world, world.jobs, frozenset(gaps)
        self.claims = Entitlement(world)
        self.home = self.now = world.places
        self.won: list[int] = []
        self.started: list[int] = []

    def decide(self) -> Places:
        """Return the allocation by the order of aims; aim 2, no eviction within quota for a team, is `may_take`."""
        # 1. entitled jobs are served: on free GPUs, then by migrations and evictions
        for tier in (GUARANTEED, FAIR):
            self.in_turn(tier, FREE)
            self.in_turn(tier, BOTH)
        # 3. the rest is lent in queue order, and within a team by age
        self.in_turn(SURPLUS, FREE)
        self.prefer_older()
        self.in_turn(SURPLUS, MOVES)
        self.prefer_urgent()
        # 4. jobs that can keep their placement keep it
        self.spare()
        return self.now

    def waiting(self) -> list[int]:
        return [job for job, at in enumerate(self.now) if at is None and self.home[job] is None]

    def turns(self, tier: int, *, alone: bool = False) -> Iterator[int]:
        """Yield every pending job once, while its entitlement is at least the tier."""
        tried: set[int] = set()
        while ready := [
            job
            for job in self.waiting()
            if job not in tried and self.claims.tier(job, self.now, alone=alone) <= tier
        ]:
            job = self.claims.next(ready, self.now)
            assert job is not None
            tried.add(job)
            yield job

    def in_turn(self, tier: int, most: int) -> None:
        for job in self.turns(tier, alone=most == BOTH):
            self.serve(job, most)

    def prefer_older(self) -> None:
        """Ensure that within a team no younger job starts in the decision instead of an older one."""
        for job in sorted(self.waiting(), key=self.claims.rank):
            mine = self.mine(job, self.started)
            later = [each for each in mine if self.claims.rank(each) > self.claims.rank(job)]
            if later and not self.has_rival(job):
                self.serve(job, FREE, later)

    def prefer_urgent(self) -> None:
        """Let urgent jobs of a team replace less urgent ones, of the lowest sufficient priority."""
        for job in self.turns(SURPLUS):
            given = self.mine(job, self.started if MADE in self.gaps else self.won)
            lower = [each for each in given if self.jobs[each].priority < self.jobs[job].priority]
            self.serve(job, EVICTIONS, lower, urgent=True)

    def mine(self, job: int, jobs: Iterable[int]) -> list[int]:
        return [each for each in jobs if self.jobs[each].team == self.jobs[job].team]

    def has_rival(self, job: int, gone: Iterable[int] = ()) -> bool:
        """Return whether another team is more entitled to the team's new GPUs, if the jobs in `gone` end."""
        left = without(self.now, [*self.mine(job, self.won), *gone])
        tier = self.claims.tier(job, left)
        return tier != GUARANTEED and any(
            self.claims.tier(rival, left) <= tier
            and self.claims.founded(rival, left) < self.claims.founded(job, left)
            and self.fits(rival, left)
            for rival, at in enumerate(left)
            if at is None and self.jobs[rival].team != self.jobs[job].team
        )

    def fits(self, job: int, places: Places) -> bool:
        """Return whether the job fits on free GPUs, and limits and quotas allow it."""
        new = self.jobs[job]
        then = [(team, self.world.held(team, places) + new.size) for team in self.world.line(new.team)]
        return (
            self.keeps_quota(job, places)
            and all(amount <= self.world.teams[team].limit for team, amount in then)
            and sum(left // new.gpus for left in self.world.free(places)) >= new.pods
        )

    def keeps_quota(self, job: int, places: Places) -> bool:
        """Return whether the job is preemptible, or its team's firm jobs stay within the quota with it."""
        new, world = self.jobs[job], self.world
        return not new.firm or all(
            world.held(team, places, firm=True) + new.size <= world.teams[team].quota
            for team in world.line(new.team)
        )

    def serve(self, job: int, most: int, dropped: Sequence[int] = (), *, urgent: bool = False) -> None:
        """Start the job with the least harm, by means up to `most`, and the dropped jobs where they fit."""
        if not self.keeps_quota(job, self.now):
            return
        ways: list[tuple[Harm, list[tuple[int, ...]], Places]] = []
        for places in self.world.allocations(self.options(job, dropped)):
            harm = self.urgency(job, places) if urgent else self.harm(job, places)
            if harm is None or harm[0] > most:  # type: ignore[operator]
                continue
            placed = [each for each in self.won if each not in dropped and places[each] != self.now[each]]
            if PLACED in self.gaps and not set(placed) <= set(self.started) and (harm[0] != FREE or dropped):
                continue
            if FIRST in self.gaps or self.lasts(job, harm, places, dropped, urgent=urgent):
                ways.append((harm, [place or () for place in places], places))
        best = min(ways, default=None)
        if best is not None and best[0][0] == EVICTIONS:
            fewer = [
                way for way in ways if way[0][0] == BOTH and set() < self.lost(way[2]) < self.lost(best[2])
            ]
            best = min(fewer, default=best)
        if best is None or not self.lasts(job, best[0], best[2], dropped, urgent=urgent):
            return
        self.now = best[2]
        self.won = [*(each for each in self.won if each not in dropped), job]
        moved = [each for each, home in enumerate(self.home) if home not in (None, self.now[each])]
        self.started += [job] if best[0][0] == FREE and not moved else []
        for other in sorted(dropped, key=self.claims.rank):
            self.serve(other, FREE)

    def options(self, new: int | None, dropped: Iterable[int] = ()) -> list[list[Place]]:
        """Return the placements of each job: started ones start unless dropped, and firm jobs stay."""
        options: list[list[Place]] = []
        for index, job in enumerate(self.jobs):
            if index == new or (index in self.won and index not in dropped):
                options.append(self.world.anywhere(index))
            elif self.now[index] is None or index in dropped:
                options.append([None])
            else:
                options.append([job.place] if job.firm else [None, *self.world.anywhere(index)])
        return options

    def lost(self, places: Places) -> set[int]:
        return {job for job in self.touched(places) if places[job] is None}

    def touched(self, places: Places) -> list[int]:
        """Return the running jobs that would be migrated or evicted."""
        ways = enumerate(zip(self.home, self.now, places, strict=True))
        return [
            job
            for job, (home, now, then) in ways
            if home is not None and now is not None and then != now and (now == home or then is None)
        ]

    def harm(self, job: int, places: Places) -> Harm | None:
        """Return the means and its harm; None if the job may not start that way."""
        claims, now, touched = self.claims, self.now, self.touched(places)
        lost = [each for each in touched if places[each] is None]
        last = moves(touched, self.home, places), *packing(claims, job, self.won, now, places)
        if not touched:
            return FREE, *last
        rest = [each for each in self.mine(job, self.waiting()) if claims.rank(each) >= claims.rank(job)]
        if not lost and any(not self.jobs[each].firm for each in rest):
            return MOVES, sum(self.jobs[each].size for each in touched), *last
        for means, victims, tier in (
            (EVICTIONS, touched, claims.tier(job, now, alone=True)),
            (BOTH, lost, claims.tier(job, now)),
        ):
            if tier <= (FAIR if means == EVICTIONS else GUARANTEED) and may_take(claims, job, victims, now):
                lossy = losses(claims, job, victims, now, places)
                return means, *below(claims, job, victims, now), *lossy, *last
        return None

    def urgency(self, job: int, places: Places) -> Harm | None:
        """Return the same for an urgent job, which only evicts less urgent jobs of its team."""
        touched = self.touched(places)
        highest = max((self.jobs[each].priority for each in touched), default=-1)
        is_new = any(places[each] is None for each in self.won)
        if (
            self.mine(job, touched) != touched
            or highest >= self.jobs[job].priority
            or not (touched or is_new)
        ):
            return None
        last = moves(touched, self.home, places), *packing(self.claims, job, self.won, self.now, places)
        return EVICTIONS, highest, *losses(self.claims, job, touched, self.now, places), *last

    def lasts(self, job: int, harm: Harm, places: Places, dropped: Iterable[int], *, urgent: bool) -> bool:
        """Return whether the victims will not reclaim their GPUs."""
        touched = self.touched(places)
        lost = self.lost(places)
        if urgent:
            left = without(places, [*touched, job])
            is_due = bool(list(dropped)) and self.has_rival(job, touched)
            return not is_due and not gives_back(self.claims, job, lost, left)
        victims = {EVICTIONS: touched, BOTH: lost}.get(harm[0], [])  # type: ignore[call-overload]
        return keeps_balance(self.claims, job, victims, self.now)

    def spare(self) -> None:
        """Let each victim keep its placement, or return, if that is possible."""
        pairs = enumerate(zip(self.home, self.now, strict=True))
        gone = [job for job, (home, now) in pairs if home is not None and home != now]
        if not gone:
            return
        decided = self.now
        lost = [job for job in gone if decided[job] is None]
        self.now = tuple(self.home[job] if job in gone else at for job, at in enumerate(decided))
        ways = [
            (
                sum(self.jobs[job].size for job in gone if places[job] is None),
                evicted(self.claims, gone, places),
                moves(gone, self.home, places),
                sum(places[job] != decided[job] for job in self.won),
                [place or () for place in places],
                places,
            )
            for places in self.world.allocations(self.options(None))
            if set(self.touched(places)) <= set(gone)
            and all(places[job] is not None or job in lost for job in gone)
        ]
        self.now = min(ways)[-1]


def rest(world: World, gaps: Iterable[str] = ()) -> World:
    """Return the world in which decisions change nothing. Evicted jobs are pending like all others."""
    for _ in range(20):
        after = world.placed(Cycle(world, gaps).decide())
        if after == world:
            return world
        world = after
    raise AssertionError(f"the reference goes in circles: {world}")
