"""The planner gives the reference's result on tiny worlds, except for the known gaps, which guarantees.md lists.

All worlds of one and two jobs are compared, and a part of those of three, four and five, chosen by number: each run
compares the same ones. The usual lane compares a smaller part, and none of two jobs. The number of
worlds with a gap may only fall.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import islice
from typing import TYPE_CHECKING

import pytest

from orchestrator.planner import plan
from tests.specification.comparing import OTHER, SAME, classified, compare, result
from tests.specification.orders import faults_of_orders
from tests.specification.planner_driver import place_of, settle, snapshot_of
from tests.specification.reference import FIRST, GAPS, MADE, PLACED
from tests.specification.tiny import Job, Team, World
from tests.specification.worlds import grids

if TYPE_CHECKING:
    from collections.abc import Iterator

    from orchestrator.planner.model import Plan, Snapshot


@dataclass(frozen=True)
class Part:
    """Every `step`th number of worlds with this many jobs. `most`: the maximum number of worlds with a known gap."""

    jobs: int
    step: int
    worlds: int
    most: dict[str, int] = field(default_factory=dict)

    def all(self) -> Iterator[World]:
        return (world for grid in grids(self.jobs) for world in grid.worlds(self.step))

    def __str__(self) -> str:
        return f"{self.worlds}-worlds-of-{self.jobs}"


USUAL = (
    Part(1, 1, 1_487),
    Part(3, 2_003, 2_637),
    Part(4, 200_003, 1_383),
    Part(5, 10_000_019, 1_417, {MADE: 1}),
)
WHOLE = (
    Part(2, 1, 91_194),
    Part(3, 503, 9_379),
    Part(4, 50_021, 4_901, {MADE: 1, OTHER: 1}),
    Part(5, 2_500_009, 5_234, {PLACED: 3, MADE: 1, OTHER: 4}),
)

EXAMPLES: dict[str, World] = {
    PLACED: World(
        (2, 2),
        (Team(2), Team(1), Team(0)),
        (
            Job(1, 2),
            Job(2, 1, 2, priority=1, place=(0, 1)),
            Job(0, 1, 2),
            Job(2, 1, 2, priority=1, place=(0, 1)),
        ),
    ),
    MADE: World(
        (1, 1),
        (Team(0), Team(0, parent=0), Team(2)),
        (Job(1, 1, place=(0,)), Job(2, 1, 2, priority=1), Job(2, 1, firm=True), Job(2, 1, firm=True)),
    ),
    FIRST: World(
        (2, 2),
        (Team(3), Team(2, parent=0), Team(1, parent=0), Team(1)),
        (Job(2, 1, 2, place=(1, 1)), Job(3, 2, place=(0,)), Job(1, 1, 2)),
    ),
    OTHER: World(
        (2, 2),
        (Team(2, weight=2), Team(2, weight=0, limit=3), Team(0, weight=2)),
        (
            Job(2, 1, priority=1, place=(1,)),
            Job(2, 1, priority=1, place=(1,)),
            Job(0, 1, 2),
            Job(2, 1, 2, place=(0, 0)),
        ),
    ),
}
"""One world for each known gap."""

DEPARTMENTS = (Team(2), Team(2, parent=0), Team(0, parent=0), Team(2))
OTHERS: dict[str, World] = {
    "two nominated workloads do not change places so that a victim stays": World(
        (2, 2),
        (Team(2), Team(1), Team(0)),
        (
            Job(2, 2, place=(0,)),
            Job(2, 1, priority=1),
            Job(1, 2, priority=1),
            Job(2, 1, place=(1,)),
        ),
    ),
    "a pod of a gang does not leave its node so that a victim stays": World(
        (2, 2),
        DEPARTMENTS,
        (Job(2, 1, priority=1, place=(0,)), Job(3, 1, place=(0,)), Job(3, 2, place=(1,)), Job(1, 1, 2)),
    ),
    "a younger workload keeps its GPUs beside those that a later eviction frees": World(
        (2, 2),
        DEPARTMENTS,
        (
            Job(3, 2, priority=1),
            Job(2, 1, 2, place=(0, 1)),
            Job(1, 2, firm=True),
            Job(3, 1, 2, priority=1, firm=True),
        ),
    ),
    "a migrated victim keeps its new node when it is evicted for another": World(
        (2, 2),
        DEPARTMENTS,
        (
            Job(3, 2, priority=1, firm=True),
            Job(1, 2, priority=1),
            Job(1, 1, 2, place=(0, 1)),
            Job(1, 1, priority=1),
        ),
    ),
}
"""One world for each cause of the differences in `WHOLE` without a class."""


def check(part: Part) -> None:
    comparison = compare(part.all())
    counts = dict(comparison.counts)
    assert comparison.faults == []
    assert counts.pop(SAME) + sum(counts.values()) == part.worlds
    more = {
        kind: (count, comparison.examples[kind])
        for kind, count in counts.items()
        if count > part.most.get(kind, 0)
    }
    assert more == {}


@pytest.mark.parametrize("part", USUAL, ids=str)
def test_the_planner_serves_the_same_jobs_with_the_same_harm(part: Part) -> None:
    check(part)


@pytest.mark.rare
@pytest.mark.parametrize("part", WHOLE, ids=str)
def test_the_planner_serves_the_same_jobs_with_the_same_harm_on_all_small_worlds(part: Part) -> None:
    check(part)


def test_every_gap_has_an_example() -> None:
    assert set(EXAMPLES) == {*GAPS, OTHER}


@pytest.mark.parametrize("gap", EXAMPLES)
def test_a_known_gap_is_still_there(gap: str) -> None:
    """A gap that no longer exists must be removed from the table, and from docs/explanation/guarantees.md."""
    world = EXAMPLES[gap]
    assert classified(world, result(world, settle(world, snapshot_of(world)).places)) == gap


@pytest.mark.parametrize("cause", OTHERS)
def test_the_cause_of_a_difference_without_a_class_is_still_there(cause: str) -> None:
    """Each cause is a known gap in docs/explanation/guarantees.md."""
    world = OTHERS[cause]
    assert classified(world, result(world, settle(world, snapshot_of(world)).places)) == OTHER


def rested(jobs: int, step: int, most: int) -> Iterator[World]:
    part = Part(jobs, step, 0)
    return islice((world for world in part.all() if any(job.place for job in world.jobs)), most)


def test_every_order_of_two_arrivals_and_ends_comes_to_rest() -> None:
    """No state returns, no pod is evicted within quota for another team, and no gang runs in parts."""
    worlds = list(rested(3, 40_009, 60))
    assert len(worlds) > 30
    assert [found for world in worlds for found in faults_of_orders(world)] == []


@pytest.mark.rare
def test_every_order_of_two_arrivals_and_ends_comes_to_rest_on_many_worlds() -> None:
    worlds = [*rested(2, 503, 500), *rested(3, 10_007, 800), *rested(4, 1_000_003, 300)]
    assert [found for world in worlds for found in faults_of_orders(world)] == []


def test_a_planner_without_evictions_is_noticed() -> None:
    def idle(snapshot: Snapshot) -> Plan:
        return replace(plan(snapshot), bindings=(), evictions=(), nominations=())

    world = World((1,), (Team(1), Team(0)), (Job(1, 1, place=(0,)), Job(0, 1)))
    found = settle(world, snapshot_of(world), decider=idle)
    assert classified(world, result(world, found.places)) == OTHER


def test_evictions_without_end_and_within_a_quota_are_noticed() -> None:
    """The job that holds the GPU has no quota when the planner decides."""
    world = World((1,), (Team(1), Team(0)), (Job(0, 1, place=(0,)), Job(1, 1)))

    def unsteady(snapshot: Snapshot) -> Plan:
        holders = {each.project for each in snapshot.workloads if place_of(each) is not None}
        projects = tuple(
            replace(each, quota_gpu_milli=0 if each.name in holders else 1000) for each in snapshot.projects
        )
        return plan(replace(snapshot, projects=projects))

    faults = settle(world, snapshot_of(world), decider=unsteady).faults
    assert "job-0 is evicted within the quota of its team" in faults
    assert {"a state returns", "no rest"} & set(faults)


def test_a_gang_in_parts_is_noticed() -> None:
    def partly(snapshot: Snapshot) -> Plan:
        decision = plan(snapshot)
        return replace(decision, bindings=decision.bindings[:1] if len(decision.bindings) > 1 else ())

    world = World((2,), (Team(2),), (Job(0, 1, 2),))
    assert settle(world, snapshot_of(world), decider=partly).faults == ("job-0 runs in parts",)
