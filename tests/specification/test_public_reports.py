"""Public reports of preemption loops in another scheduler, Kueue, as worlds: the planner comes to rest without a loop.

Each world follows the description in the report. Numbers that a report lacks are chosen here. A cohort becomes a
department, a ClusterQueue a project, and its nominal quota the quota.
"""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from tests.specification.planner_driver import Rest, settle, snapshot_of, submitted
from tests.specification.tiny import Job, Team, World

MAX_MOVES = 2


@dataclass(frozen=True)
class Report:
    """A reported case. `says` is the description in the report. Each of `arrivals` comes after
    the cluster is at rest.
    """

    issue: int
    says: str
    world: World
    arrivals: tuple[Job, ...]
    runs: tuple[bool, ...]
    """Whether each job runs in the end, the arrivals last."""


REPORTS = (
    Report(
        3779,
        "A pod of a guaranteed tenant evicts a best-effort pod; its Deployment replaces it, and it is admitted first.",
        World(
            (6,),
            (Team(6), Team(0, parent=0), Team(0), Team(0)),
            (
                Job(2, 2, place=(0,)),
                Job(2, 2, place=(0,)),
                Job(3, 1, place=(0,)),
                Job(3, 1, place=(0,)),
            ),
        ),
        (Job(1, 1, priority=1), Job(1, 2, priority=1)),
        (True, False, True, False, True, True),
    ),
    Report(
        4030,
        "A tenant above its quota evicts best-effort work, which has the smaller share and is admitted in front of it.",
        World((6,), (Team(3), Team(3), Team(0)), (Job(0, 5, place=(0,)), Job(2, 1, place=(0,)))),
        (Job(0, 1),),
        (True, True, False),
    ),
    Report(
        2821,
        "Urgent work of a queue above its quota evicts less urgent work of another queue, which is older.",
        World((4,), (Team(2), Team(2)), (Job(1, 2, priority=1, place=(0,)), Job(0, 2, place=(0,)))),
        (Job(1, 2, priority=1),),
        (True, True, False),
    ),
    Report(
        8975,
        "Two queues have the weight 0 in one cohort, and each takes from the other without end.",
        World((8,), (Team(0, weight=0), Team(0, weight=0)), tuple(Job(0, 2, place=(0,)) for _ in range(4))),
        (Job(1, 2), Job(1, 2)),
        (True, True, True, True, False, False),
    ),
    Report(
        12541,
        "A queue without a cohort preempts its own work, and the search for victims does not end.",
        World((4,), (Team(4),), (Job(0, 2, place=(0,)), Job(0, 2, place=(0,)))),
        (Job(0, 4, priority=1),),
        (False, False, True),
    ),
    Report(
        14543,
        "Victims of its own queue lower the preemptor's share; some are kept after all, and others went unlawfully.",
        World(
            (4,),
            (Team(1), Team(1)),
            (
                Job(0, 1, place=(0,)),
                Job(0, 1, place=(0,)),
                Job(0, 1, place=(0,)),
                Job(1, 1, place=(0,)),
            ),
        ),
        (Job(1, 2, priority=1), Job(1, 1, priority=1)),
        (True, True, False, True, False, True),
    ),
)


@pytest.mark.parametrize("report", REPORTS, ids=lambda report: f"kueue-{report.issue}")
def test_a_reported_loop_comes_to_rest_after_two_moves_at_most(report: Report) -> None:
    found = settle(report.world, snapshot_of(report.world))
    for job in report.arrivals:
        found = settle(report.world, submitted(found.snapshot, job))
        assert found.faults == ()
        assert found.moves <= MAX_MOVES
    assert running(found) == report.runs


def running(found: Rest) -> tuple[bool, ...]:
    return tuple(place is not None for place in found.places)
