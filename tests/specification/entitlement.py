"""The entitlements and the queue order of teams in a tiny world: "Fair share" in sharing.md."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tests.specification.tiny import Places, World

GUARANTEED, FAIR, SURPLUS = range(3)


class Entitlement:
    """The fair shares of a world. The allocation is an argument, because a decision also asks about possible ones."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.share: dict[int, Fraction] = {}
        self._divide(None, sum(world.nodes))

    def _demand(self, team: int) -> int:
        """Return the team's request, without jobs that can never start or exceed the limit."""
        world = self.world
        own = sum(
            job.size
            for job in world.jobs
            if job.team == team and job.gpus <= max(world.nodes) and job.size <= sum(world.nodes)
        )
        below = sum(self._demand(child) for child in world.children(team))
        return min(own + below, world.teams[team].limit, sum(world.nodes))

    def _divide(self, parent: int | None, total: int) -> None:
        """Divide the total: first the quotas, then the rest by priority and by weight."""
        teams = self.world.teams
        want = {team: self._demand(team) for team in self.world.children(parent)}
        got = {team: min(want[team], teams[team].quota) for team in want}
        left = max(0, total - sum(got.values()))
        for priority in sorted({teams[team].priority for team in want}, reverse=True):
            hungry = [team for team in want if teams[team].priority == priority and teams[team].weight]
            more = self._by_weight({team: want[team] - got[team] for team in hungry}, left)
            for team, part in more.items():
                got[team] += part
                left -= part
        self.share |= {team: Fraction(part) for team, part in got.items()}
        for team, part in got.items():
            self._divide(team, part)

    def _by_weight(self, missing: dict[int, int], amount: int) -> dict[int, int]:
        """Return whole GPUs by weight. Remaining GPUs go to the largest remainders, then to the older team."""
        parts: dict[int, int] = {}
        while missing:
            weights = sum(self.world.teams[team].weight for team in missing)
            exact = {team: Fraction(amount * self.world.teams[team].weight, weights) for team in missing}
            full = [team for team in missing if missing[team] <= exact[team]]
            if full:
                parts |= {team: missing.pop(team) for team in full}
                amount -= sum(parts[team] for team in full)
                continue
            parts |= {team: int(exact[team]) for team in missing}
            left = amount - sum(parts[team] for team in missing)
            for team in sorted(missing, key=lambda each: (int(exact[each]) - exact[each], each))[:left]:
                parts[team] += 1
            break
        return parts

    def entitled(self, team: int) -> Fraction:
        quota, limit = self.world.teams[team].quota, self.world.teams[team].limit
        return min(Fraction(limit), max(Fraction(quota), self.share[team]))

    def tier(self, job: int, places: Places, *, alone: bool = False) -> int:
        """Return GUARANTEED, FAIR or SURPLUS: the worst of the team and all above it, with `alone` only of the team."""
        new = self.world.jobs[job]
        line = self.world.line(new.team)
        then = {team: self.world.held(team, places) + new.size for team in (line[:1] if alone else line)}
        if all(amount <= self.world.teams[team].quota for team, amount in then.items()):
            return GUARANTEED
        return FAIR if all(amount <= self.entitled(team) for team, amount in then.items()) else SURPLUS

    def rank(self, job: int) -> tuple[int, int]:
        """Return the sort key within a team: priority, then age."""
        return (-self.world.jobs[job].priority, job)

    def covered(self, team: int, places: Places) -> list[int]:
        """Return the jobs within the quota: jobs that are not preemptible (firm) first, then by priority and age.

        A preemptible job that does not fit is skipped.

        A department's quota is filled first with the jobs within its teams' quotas, then with those within their
        shares.
        """
        world = self.world
        mine = [
            job
            for job, at in enumerate(places)
            if at is not None and team in world.line(world.jobs[job].team)
        ]
        inside: list[int] = []
        fair: list[int] = []
        for child in world.children(team):
            own = self.covered(child, places)
            rest = [job for job in mine if job not in own and child in world.line(world.jobs[job].team)]
            fair += self._fill([*own, *sorted(rest, key=self._filling)], self.share[child])
            inside += own
        ordered = sorted(mine, key=lambda job: (job not in inside, job not in fair, *self._filling(job)))
        return self._fill(ordered, Fraction(world.teams[team].quota))

    def _filling(self, job: int) -> tuple[bool, int, int]:
        return (not self.world.jobs[job].firm, *self.rank(job))

    def _fill(self, jobs: Iterable[int], amount: Fraction) -> list[int]:
        filled: list[int] = []
        for job in jobs:
            if self.world.jobs[job].size <= amount or self.world.jobs[job].firm:
                amount -= self.world.jobs[job].size
                filled.append(job)
        return filled

    def turn(self, team: int, job: int, places: Places) -> tuple[object, ...]:
        """Return a team's sort key: first teams not above their share, then within quota, priority, held portion."""
        held, may = self.world.held(team, places), self.entitled(team)
        then = held + self.world.jobs[job].size
        parts = [Fraction(amount) / may if may else Fraction(amount * 1000) for amount in (then, held)]
        project = self.world.teams[team]
        return (held > self.share[team], then > project.quota, -project.priority, not may, *parts, may, team)

    def next(self, waiting: Sequence[int], places: Places, parent: int | None = None) -> int | None:
        """Return the next job in queue order, level by level; None if no job below `parent` is waiting."""
        own = [job for job in waiting if self.world.jobs[job].team == parent]
        if own:
            return min(own, key=self.rank)
        heads = {team: self.next(waiting, places, team) for team in self.world.children(parent)}
        ready = [(self.turn(team, job, places), job) for team, job in heads.items() if job is not None]
        return min(ready)[1] if ready else None

    def founded(self, job: int, places: Places) -> tuple[object, ...]:
        """Return the sort key of jobs; the job that would be served first has the smallest key."""
        line = reversed(self.world.line(self.world.jobs[job].team))
        return (self.tier(job, places), *(self.turn(team, job, places) for team in line), *self.rank(job))
