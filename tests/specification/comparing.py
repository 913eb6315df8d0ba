"""Compares the worlds in which the planner and the reference come to rest, and classifies the differences."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from itertools import combinations
from typing import TYPE_CHECKING, Final

from orchestrator.planner import plan
from tests.specification.planner_driver import settle, snapshot_of
from tests.specification.reference import GAPS, rest
from tests.specification.tiny import Places, World, moved_pods

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tests.specification.planner_driver import Decider

SAME: Final = "same"
OTHER: Final = "other"

Result = tuple[tuple[bool, ...], int, int, int]


@dataclass
class Comparison:
    """The number of worlds in each class, with the first world of each."""

    counts: Counter[str] = field(default_factory=Counter)
    examples: dict[str, World] = field(default_factory=dict)
    faults: list[tuple[str, World]] = field(default_factory=list)

    def add(self, world: World, *, decider: Decider = plan) -> None:
        found = settle(world, snapshot_of(world), decider=decider)
        self.faults += [(fault, world) for fault in found.faults]
        kind = classified(world, result(world, found.places))
        self.counts[kind] += 1
        if len(world.jobs) < len(self.examples.get(kind, world).jobs) or kind not in self.examples:
            self.examples[kind] = world

    @property
    def share_same(self) -> float:
        return self.counts[SAME] / self.counts.total()


def result(world: World, places: Places) -> Result:
    """Return the running jobs, the GPUs and jobs that were evicted for good, and the migrated pods."""
    pairs = [(job, place) for job, place in zip(world.jobs, places, strict=True) if job.place is not None]
    lost = [job.size for job, place in pairs if place is None]
    moved = sum(moved_pods(job.place, place) for job, place in pairs if place is not None)
    return tuple(place is not None for place in places), sum(lost), len(lost), moved


def classified(world: World, found: Result) -> str:
    """Return `SAME`, or the gaps with which the reference gives the planner's result, else `OTHER`."""
    if result(world, rest(world).places) == found:
        return SAME
    for count in range(1, len(GAPS) + 1):
        for gaps in combinations(GAPS, count):
            if result(world, rest(world, gaps).places) == found:
                return "; ".join(gaps)
    return OTHER


def compare(worlds: Iterable[World]) -> Comparison:
    comparison = Comparison()
    for world in worlds:
        comparison.add(world)
    return comparison
