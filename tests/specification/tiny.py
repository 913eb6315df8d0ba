"""Tiny worlds in plain types: nodes with whole GPUs, teams, jobs. The index of a team or job
is its name and its age.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import combinations_with_replacement
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

Place = tuple[int, ...] | None
"""The node of each pod of a job, in order; None if the job is pending."""
Places = tuple[Place, ...]
NO_LIMIT = 99


@dataclass(frozen=True)
class Team:
    quota: int
    weight: int = 1
    parent: int | None = None
    limit: int = NO_LIMIT
    priority: int = 0


@dataclass(frozen=True)
class Job:
    """A job of which all pods run or none. A `firm` job is not preemptible."""

    team: int
    gpus: int
    pods: int = 1
    priority: int = 0
    firm: bool = False
    place: Place = None

    @property
    def size(self) -> int:
        return self.gpus * self.pods


@dataclass(frozen=True)
class World:
    nodes: tuple[int, ...]
    teams: tuple[Team, ...]
    jobs: tuple[Job, ...]

    @property
    def places(self) -> Places:
        return tuple(job.place for job in self.jobs)

    def placed(self, places: Places) -> World:
        jobs = (replace(job, place=place) for job, place in zip(self.jobs, places, strict=True))
        return replace(self, jobs=tuple(jobs))

    def line(self, team: int) -> tuple[int, ...]:
        """Return the team and all its ancestors."""
        parent = self.teams[team].parent
        return (team,) if parent is None else (team, *self.line(parent))

    def children(self, parent: int | None) -> list[int]:
        return [index for index, team in enumerate(self.teams) if team.parent == parent]

    def held(self, team: int, places: Places, *, firm: bool = False) -> int:
        """Return the GPUs that the team and all its descendants hold."""
        return sum(
            job.size
            for job, place in zip(self.jobs, places, strict=True)
            if place is not None and team in self.line(job.team) and (job.firm or not firm)
        )

    def free(self, places: Places) -> list[int]:
        free = list(self.nodes)
        for job, place in zip(self.jobs, places, strict=True):
            for node in place or ():
                free[node] -= job.gpus
        return free

    def is_legal(self) -> bool:
        """Return whether nodes, limits, and quotas for firm jobs are respected."""
        places = self.places
        return min(self.free(places)) >= 0 and all(
            self.held(index, places) <= team.limit and self.held(index, places, firm=True) <= team.quota
            for index, team in enumerate(self.teams)
        )

    def anywhere(self, job: int) -> list[Place]:
        return [*combinations_with_replacement(range(len(self.nodes)), self.jobs[job].pods)]

    def allocations(self, options: Sequence[Sequence[Place]]) -> Iterator[Places]:
        """Yield every combination of one placement for each job that respects nodes and limits."""
        for places in self._on_nodes(options, list(self.nodes), ()):
            if all(self.held(index, places) <= team.limit for index, team in enumerate(self.teams)):
                yield places

    def _on_nodes(
        self, options: Sequence[Sequence[Place]], free: list[int], places: Places
    ) -> Iterator[Places]:
        if len(places) == len(options):
            yield places
            return
        for place in options[len(places)]:
            left = list(free)
            for node in place or ():
                left[node] -= self.jobs[len(places)].gpus
            if min(left) >= 0:
                yield from self._on_nodes(options, left, (*places, place))


def without(places: Places, jobs: Iterable[int]) -> Places:
    """Return the allocation without these jobs."""
    gone = set(jobs)
    return tuple(None if job in gone else place for job, place in enumerate(places))


def moved_pods(home: Place, place: Place) -> int:
    """Return the number of pods of a job that are on another node than before."""
    left = list(place or ())
    moved = 0
    for node in home or ():
        if node in left:
            left.remove(node)
        else:
            moved += 1
    return moved
