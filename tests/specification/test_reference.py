"""The reference checked by hand: one world for each aim, in the order of scheduling.md, and the worlds that count as
one.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.specification.comparing import result
from tests.specification.planner_driver import settle, snapshot_of
from tests.specification.reference import rest
from tests.specification.tiny import Job, Team, World
from tests.specification.worlds import Grid, grids

MODULE = Path(__file__).with_name("reference.py")


@dataclass(frozen=True)
class Aim:
    says: str
    world: World
    runs: tuple[bool, ...]


AIMS: tuple[Aim, ...] = (
    Aim(
        "a claim within the quota is served, by evicting what another team borrows",
        World((2,), (Team(1), Team(1)), (Job(0, 1, place=(0,)), Job(0, 1, place=(0,)), Job(1, 1))),
        (True, False, True),
    ),
    Aim(
        "nobody loses what a quota covers to another team",
        World((2,), (Team(1), Team(1)), (Job(0, 1, place=(0,)), Job(1, 1, place=(0,)), Job(0, 1))),
        (True, True, False),
    ),
    Aim(
        "what is left over is divided by weight",
        World((2,), (Team(0), Team(0)), (Job(0, 1), Job(0, 1), Job(1, 1))),
        (True, False, True),
    ),
    Aim(
        "the smallest set of victims goes, and of equal ones the youngest",
        World(
            (2, 2),
            (Team(4), Team(0)),
            (Job(1, 2, place=(0,)), Job(1, 1, place=(1,)), Job(1, 1, place=(1,)), Job(0, 1)),
        ),
        (True, True, False, True),
    ),
    Aim(
        "an older job is not overtaken by a younger one of its team where the limit has room for one of them",
        World((2, 2), (Team(2, limit=3), Team(0)), (Job(0, 2), Job(0, 1), Job(0, 1, firm=True, place=(1,)))),
        (True, False, True),
    ),
    Aim(
        "at the limit of its team an urgent job takes the place of the smallest job that will do, covered or not",
        World(
            (2, 2),
            (Team(0), Team(1, weight=2, limit=3)),
            (
                Job(1, 1, place=(0,)),
                Job(1, 1, priority=1),
                Job(1, 1, 2, place=(1, 1)),
                Job(0, 2, 2, firm=True),
            ),
        ),
        (False, True, True, False),
    ),
    Aim(
        "a job that starts in the same decision gets another place so that an eviction makes enough room",
        World(
            (2, 2),
            (Team(2), Team(2)),
            (Job(0, 1, 2, firm=True), Job(1, 2, priority=1, firm=True), Job(1, 1, place=(0,))),
        ),
        (True, True, False),
    ),
    Aim(
        "an older job gets the place of a younger one, beside others that start in other places",
        World((2, 2), (Team(1), Team(1)), (Job(0, 2), Job(0, 1), Job(1, 1, 2))),
        (True, False, True),
    ),
)


@pytest.mark.parametrize("aim", AIMS, ids=lambda aim: aim.says)
def test_an_aim_holds_of_the_reference_and_of_the_planner(aim: Aim) -> None:
    world = aim.world
    assert result(world, rest(world).places)[0] == aim.runs
    assert result(world, settle(world, snapshot_of(world)).places)[0] == aim.runs


def test_the_reference_is_small_and_does_not_know_the_planner() -> None:
    parts = [
        MODULE.with_name(f"{name}.py").read_text() for name in ("reference", "entitlement", "harm", "tiny")
    ]
    assert len(MODULE.read_text().splitlines()) <= 265
    assert not any(re.search(r"^\s*(from|import) (orchestrator|tests\.world)", part, re.M) for part in parts)


def test_worlds_that_differ_by_names_only_count_once() -> None:
    """One job on two nodes with two equal teams is pending, firm or not, or runs on the first node."""
    grid = Grid((1, 1), (Team(0), Team(0)), 1)
    found = {
        (job.team, job.priority, job.pods, job.firm, job.place)
        for world in grid.worlds()
        for job in world.jobs
    }
    waiting = {(0, 0, pods, firm, None) for pods in (1, 2) for firm in (False, True)}
    assert found == waiting | {(0, 0, 1, False, (0,)), (0, 0, 2, False, (0, 1))}


@pytest.mark.parametrize(("jobs", "worlds"), [(1, 1_487)])
def test_every_world_of_a_size_is_counted(jobs: int, worlds: int) -> None:
    assert sum(1 for grid in grids(jobs) for _ in grid.worlds()) == worlds


def test_every_part_of_a_grid_numbers_its_worlds_alike() -> None:
    grid = Grid((2,), (Team(1), Team(1)), 2)
    parts = [world for first in range(3) for world in grid.worlds(3, first)]
    whole = list(grid.worlds())
    assert len(parts) == len(whole)
    assert set(parts) == set(whole)
