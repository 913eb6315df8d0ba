"""Rules by which muster deliberately decides otherwise than the peer, each with its reason and its condition."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from orchestrator.planner.accounting.coverage import coverage, filling_order
from orchestrator.planner.accounting.quota import ProjectTree
from tests.peer.scenarios import World

Case = Mapping[str, Any]

EVICTED = ("Releasing", "Pending", "Pipelined")


@dataclass(frozen=True)
class Difference:
    """A rule of muster, its reason, and a function that says whether a case is about the rule."""

    rule: str
    reason: str
    applies: Callable[[Case], bool]


def expected_to_go(case: Case) -> set[str]:
    """Return the jobs that run at the start and are expected not to run at the end."""
    expected = case["expected"].get("jobs") or {}
    return {
        job["name"]
        for job in case["jobs"]
        if job["name"] in expected
        and expected[job["name"]]["status"] in EVICTED
        and all(task["status"] == "Running" for task in job["tasks"])
    }


def takes_what_a_quota_covers(case: Case) -> bool:
    """Return whether the peer reclaims a job that the quota of its own project covers as a whole."""
    if "reclaim" not in case["actions"]:
        return False
    snapshot = World(case).snapshot()
    tree = ProjectTree(snapshot.projects)
    for name in tree.projects:
        mine = [each for each in snapshot.workloads if each.project == name]
        covered = coverage(filling_order(mine), tree.quota[name], tree.resources).covered
        if expected_to_go(case) & {candidate.workload.id for candidate in covered}:
            return True
    return False


def priority_shields_who_is_over_its_share(case: Case) -> bool:
    """Return whether the case reclaims between projects of different priorities."""
    return "reclaim" in case["actions"] and len({queue["priority"] for queue in case["queues"]}) > 1


DIFFERENCES = (
    Difference(
        "in-quota work is never evicted for another project",
        "a quota that covers a running job is a promise to that job; a larger job that the quota does not cover is "
        "borrowed, however old it is, and goes first",
        takes_what_a_quota_covers,
    ),
    Difference(
        "who is over its fair share gives first, whatever the priority of its project",
        "taking from a project at its fair share makes it take from the one above its share right away: two evictions "
        "where one does",
        priority_shields_who_is_over_its_share,
    ),
)
