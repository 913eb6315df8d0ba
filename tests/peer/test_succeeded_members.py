"""The adapter of the peer's cases shrinks a gang by its succeeded pods as the operator does."""

from __future__ import annotations

from collections import Counter

import pytest

from orchestrator.observe.controllers import Gang, Part
from orchestrator.observe.gangs import required
from orchestrator.observe.owners import Chain
from orchestrator.observe.snapshot import planner_pod
from orchestrator.planner.model import Request, SubGroup
from tests.observe import objects
from tests.peer.scenarios import Case, World, without_succeeded

PARTS = ("a", "b")


def product(minimums: tuple[int, ...], present: Counter[str], done: Counter[str]) -> dict[str, int | None]:
    """Return the minimum of each part as the operator reads it, for pods that run. A gang of one part has no
    sub-groups.
    """
    parts = tuple(Part(name, minimum, name) for name, minimum in zip(PARTS, minimums, strict=False))
    gang = Gang(minimums[0]) if len(minimums) == 1 else Gang(1, "part", parts)
    there = [
        objects.pod(f"{name}{n}", labels={"part": name}, node="n1")
        for name in PARTS
        for n in range(present[name])
    ]
    gone = [objects.pod(f"{name}-{n}", labels={"part": name}) for name in PARTS for n in range(done[name])]
    pods = [(pod, planner_pod(pod, Request())) for pod in there]
    members, tree = required(Chain("j", "j", "Job", gang=gang), pods, gone, ())
    if tree is None:
        return {PARTS[0]: members}
    return {child.name: child.minimum for child in tree.children}


@pytest.mark.parametrize(
    ("minimums", "present", "done"),
    [
        ((3,), (2,), (1,)),
        ((3,), (1,), (1,)),
        ((2,), (4,), (3,)),
        ((2, 1), (1, 1), (1, 0)),
        ((2, 1), (2, 1), (0, 1)),
        ((4, 2), (1, 2), (2, 0)),
        ((1, 2), (0, 2), (1, 1)),
    ],
)
def test_the_adapter_and_the_product_ask_for_the_same_members(
    minimums: tuple[int, ...], present: tuple[int, ...], done: tuple[int, ...]
) -> None:
    there, gone = (Counter(dict(zip(PARTS, counts, strict=False))) for counts in (present, done))
    leaves = tuple(SubGroup(name, minimum) for name, minimum in zip(PARTS, minimums, strict=False))
    shrunk = without_succeeded(SubGroup("root", None, leaves), there, gone)
    assert {child.name: child.minimum for child in shrunk.children} == product(minimums, there, gone)


@pytest.mark.parametrize(("last", "evicted"), [("Succeeded", 0), ("Failed", 1)])
def test_a_gang_is_not_stale_because_a_member_has_succeeded(last: str, evicted: int) -> None:
    """If a pod of the gang fails instead, the rest of the gang is evicted after its grace period."""
    task = {"gpus": 1, "cpus": 1, "memory_bytes": 1 << 30, "node": "n1"}
    amounts = {"deserved": None, "limit": None, "over_quota_weight": 1}
    case: Case = {
        "id": "own",
        "nodes": [{"name": "n1", "gpus": 4, "cpus": 64, "memory_bytes": 1 << 40}],
        "queues": [
            {"name": "q", "priority": 100, "gpu": amounts, "cpu_milli": amounts, "memory_mb": amounts}
        ],
        "settings": {},
        "actions": ["stalegangeviction"],
        "jobs": [
            {
                "name": "j",
                "queue": "q",
                "priority": 50,
                "preemptible": True,
                "age_minutes": 60,
                "started_minutes_ago": 50,
                "stale_for_s": 600,
                "pod_group": {"group": "root", "children": [{"pod_set": "default", "min_available": 2}]},
                "tasks": [
                    {"name": "j-0", "status": "Running", "sub_group": "default", **task},
                    {"name": "j-1", "status": last, "sub_group": "default", **task},
                ],
            }
        ],
    }
    assert len(World(case).decide().evictions) == evicted
