"""Every tiny world, by number: worlds that differ only in the names of nodes or of equal teams count once.

A grid is one cluster, one set of teams and a number of jobs. Its worlds are numbered, so that a part of them can be
made without the others. A number is skipped if its world is not legal, or equals another one under other names.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import permutations, product
from typing import TYPE_CHECKING, Final

from tests.specification.tiny import Job, Place, Team, World

if TYPE_CHECKING:
    from collections.abc import Iterator

LAYOUTS: Final = ((1,), (2,), (1, 1), (1, 1, 1), (2, 2))
SHAPES: Final = ((1, 1), (2, 1), (1, 2), (2, 2))
"""GPUs of a pod and number of pods: 1 GPU, 2 GPUs, a gang of 2, a gang of 4."""
MAX_JOBS: Final = 5


def team_sets(gpus: int) -> list[tuple[Team, ...]]:
    """Return sets of two or three teams with quotas that the cluster can satisfy. A team that
    is a parent has no jobs.
    """
    pairs = [(one, two) for one in range(gpus + 1) for two in range(one + 1) if one + two <= gpus]
    sets: list[tuple[Team, ...]] = [(Team(one), Team(two)) for one, two in pairs]
    sets += [(Team(0, weight=2), Team(0)), (Team(0), Team(0, weight=0)), (Team(1, weight=0), Team(0))]
    sets += [(Team(1, limit=max(1, gpus - 1)), Team(gpus - 1)), (Team(0, priority=1), Team(gpus // 2))]
    sets += [(Team(gpus // 2), Team(gpus // 4), Team(0)), (Team(0), Team(0), Team(0))]
    for above in {0, gpus // 2, gpus}:
        sets.append((Team(above), Team(above // 2, parent=0), Team(gpus - above)))
        sets.append((Team(above), Team(above, parent=0), Team(0, parent=0)))
    sets.append((Team(gpus // 2), Team(gpus // 2, parent=0), Team(0, parent=0), Team(gpus - gpus // 2)))
    return list(dict.fromkeys(sets))


@dataclass(frozen=True)
class Grid:
    """All worlds of one cluster and one set of teams, with this number of jobs."""

    nodes: tuple[int, ...]
    teams: tuple[Team, ...]
    count: int

    @property
    def kinds(self) -> list[Job]:
        parents = {team.parent for team in self.teams}
        leaves = [index for index in range(len(self.teams)) if index not in parents]
        jobs = [
            Job(team, gpus, pods, priority, firm)
            for team, (gpus, pods), priority, firm in product(leaves, SHAPES, (0, 1), (False, True))
            if gpus <= max(self.nodes) and gpus * pods <= sum(self.nodes)
        ]
        return [replace(job, place=place) for job in jobs for place in self._places(job)]

    def _places(self, job: Job) -> list[Place]:
        alone = World(self.nodes, self.teams, (job,))
        return [None, *(place for (place,) in alone.allocations([alone.anywhere(0)]))]

    def worlds(self, step: int = 1, first: int = 0) -> Iterator[World]:
        """Yield the worlds of every `step`th number from `first` on, unless another number has the same world."""
        kinds = self.kinds
        for number in range(first, len(kinds) ** self.count, step):
            jobs, rest = [], number
            for _ in range(self.count):
                rest, index = divmod(rest, len(kinds))
                jobs.append(kinds[index])
            world = World(self.nodes, self.teams, tuple(jobs))
            if world.is_legal() and self._is_first(world):
                yield world

    def _is_first(self, world: World) -> bool:
        """Return whether no other names of nodes, equal teams or priorities give a smaller world."""
        if not any(job.priority == 0 for job in world.jobs):
            return False
        own = _key(world.jobs)
        nodes = permutations(range(len(world.nodes)))
        return all(own <= _key(_renamed(world.jobs, *names)) for names in product(nodes, self._team_names()))

    def _team_names(self) -> list[tuple[int, ...]]:
        indices = range(len(self.teams))
        same = [
            names
            for names in permutations(indices)
            if all(self.teams[names[index]] == self.teams[index] for index in indices)
        ]
        parents = {team.parent for team in self.teams}
        return [names for names in same if all(names[each] == each for each in parents if each is not None)]


def _renamed(jobs: tuple[Job, ...], nodes: tuple[int, ...], teams: tuple[int, ...]) -> tuple[Job, ...]:
    return tuple(
        replace(
            job,
            team=teams[job.team],
            place=None if job.place is None else tuple(sorted(nodes[node] for node in job.place)),
        )
        for job in jobs
    )


def _key(jobs: tuple[Job, ...]) -> list[tuple[object, ...]]:
    return [(job.team, job.gpus, job.pods, job.priority, job.firm, job.place or ()) for job in jobs]


def grids(count: int) -> list[Grid]:
    return [Grid(nodes, teams, count) for nodes in LAYOUTS for teams in team_sets(sum(nodes))]
