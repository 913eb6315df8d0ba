"""Each remedy in a reason is true: a test carries it out, and the workload runs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.planner import plan
from orchestrator.planner.model import Binding, PendingReason, Snapshot, Waiting, Workload
from orchestrator.simulation.reader import load
from orchestrator.simulation.run import settle
from tests.planner.builders import node, project, workload
from tests.world.scenes import saturated
from tests.world.words import false_eviction, false_facts, false_waits, remedies, untrue

REGRESSIONS = Path(__file__).parents[1] / "planner" / "regressions"
WAITS_FOR_ITS_AFFINITY = "first-of-a-group-beside-its-victim"
NOT_MENDED = pytest.mark.xfail(strict=True, reason="docs/explanation/guarantees.md, known gaps")
WORLDS = [
    pytest.param(path, id=path.stem, marks=NOT_MENDED if path.stem == WAITS_FOR_ITS_AFFINITY else ())
    for path in sorted(REGRESSIONS.glob("*.yaml"))
]


@pytest.mark.parametrize("trees", [False, True], ids=["flat", "tree"])
@pytest.mark.parametrize("seed", [*range(150), 721, 1239])
def test_a_remedy_that_is_named_helps_and_the_figures_are_true(seed: int, trees: bool) -> None:
    run = settle(saturated(seed, trees=trees), max_decisions=30)
    evictions = {eviction.message for step in run.steps for eviction in step.evictions}
    assert not set(filter(false_eviction, evictions))
    assert not [
        line
        for before, step in zip(run.snapshots, run.steps, strict=True)
        for line in false_waits(before, step)
    ]
    if run.is_stable:
        wrong = {
            f"{name}: {words!r} in {reason.message!r}"
            for name, reason in run.last.pending.items()
            for words in (*untrue(run.after, name, reason), *false_facts(run.after, reason))
        }
        assert wrong == set()


# 1 is between the two others, and found no more than they do
@pytest.mark.parametrize("grace_decisions", [0, pytest.param(1, marks=pytest.mark.rare), 5])
@pytest.mark.parametrize("world", WORLDS)
def test_a_workload_said_to_wait_for_terminating_pods_does(world: Path, grace_decisions: int) -> None:
    run = settle(load(world), max_decisions=30, grace_decisions=grace_decisions)
    steps = enumerate(zip(run.snapshots, run.steps, strict=True), start=1)
    assert [f"decision {number}: {line}" for number, step in steps for line in false_waits(*step)] == []


def test_remedies_are_said_at_all() -> None:
    """Enough of the same clusters have reasons with remedies, so that the test above checks something."""
    runs = [
        settle(saturated(seed, trees=trees), max_decisions=30)
        for seed in range(60)
        for trees in (False, True)
    ]
    words = [
        word
        for run in runs
        if run.is_stable
        for reason in run.last.pending.values()
        for word in remedies(reason)
    ]
    assert sum("preemptible" in word for word in words) >= 5
    assert any("only the limit" in word for word in words)


FULL = workload("b", "b", 2000)


def untrue_words(message: str, *work: Workload, limit: int | None = None, gpus: int = 2) -> list[str]:
    """Return the false statements in a message about the first workload."""
    teams = (project("a", 0, limit_gpu_milli=limit), project("b", 4000))
    snapshot = settle(Snapshot((node("n", gpus),), teams, work)).after
    return list(untrue(snapshot, work[0].id, PendingReason(Waiting.CLUSTER_FULL, message)))


@pytest.mark.parametrize(
    ("message", "work", "limit", "wrong"),
    [
        ("fits when others return 2", (workload("a", "a", 2000, age=9), FULL), None, []),
        (
            "fits when others return 2",
            (workload("a", "a", 3000, age=9), FULL),
            None,
            ["fits when others return 2"],
        ),
        (
            "fits when a returns 1, or with a higher limit",
            (workload("a", "a", 2000),),
            1000,
            ["fits when a returns 1"],
        ),
        ("fits when 2 are returned", (workload("a", "a", 2000, age=9), FULL), None, []),
        ("so many, or with a higher quota", (workload("a", "a", 3000),), None, ["or with a higher quota"]),
        ("-19.24 of them on n002 are held for it", (workload("a", "a", 1000),), None, ["-1"]),
        ("holds 2 GPUs", (workload("a", "a", 1000),), None, []),
    ],
)
def test_untrue_words_are_noticed(
    message: str, work: tuple[Workload, ...], limit: int | None, wrong: list[str]
) -> None:
    assert untrue_words(message, *work, limit=limit) == wrong


def test_remedies_are_read_off_a_message() -> None:
    reason = PendingReason(Waiting.PROJECT_LIMIT, "a holds 2: fits when a returns 1, or with a higher limit")
    assert remedies(reason) == ["fits when a returns 1", "fits when a returns 1, or with a higher limit"]


@pytest.mark.parametrize(
    ("message", "wrong"),
    [
        (
            "asks for 2 GPUs; 1 is free and b holds 2 (quota 4, fair share 3): at least 1 more has to come free",
            0,
        ),
        (
            "asks for 2 GPUs; 1 is free and b holds 3 (quota 4, fair share 3): at least 1 more has to come free",
            1,
        ),
        (
            "asks for 2 GPUs; 1 is free and b holds 2 (quota 4, fair share 3): at least 2 more have to come free",
            1,
        ),
        ("asks for 2 GPUs; 0 are free and b holds 2 (quota 4, fair share 3, with this request 4): x", 0),
        ("asks for 2 GPUs; 0 are free and b holds 2 (quota 4, fair share 3, with this request 5): x", 1),
        ("asks for 2 GPUs; 0 are free and b holds 2 (quota 4, fair share 4, with this request 4): x", 1),
    ],
)
def test_false_facts_are_noticed(message: str, wrong: int) -> None:
    teams = (project("a", 0), project("b", 4000))
    snapshot = settle(Snapshot((node("n", 2),), teams, (FULL,))).after
    assert len(list(false_facts(snapshot, PendingReason(Waiting.CLUSTER_FULL, message)))) == wrong


@pytest.mark.parametrize(
    ("message", "wrong"),
    [
        ("b holds 4 GPUs, over its quota of 2 GPUs; a is within its own", False),
        ("b holds 2 GPUs, over its quota of 8; a is within its own", True),
        ("b holds 2 GPUs, over its quota of 2 GPUs", True),
        ("b holds 2 GiB, over its fair share of 512 MiB", False),
        ("b holds 4 GPUs of V100, over its quota of 2 for that model", False),
        ("b, over its quota", True),
        ("migrated to other hardware", False),
    ],
)
def test_false_evictions_are_noticed(message: str, wrong: bool) -> None:
    assert false_eviction(message) is wrong


def test_false_waits_are_noticed() -> None:
    teams = (project("a", 2000), project("b", 0, over_quota_weight=1))
    lent = settle(Snapshot((node("n", 2),), teams, (FULL,))).after
    snapshot = replace(lent, workloads=(*lent.workloads, workload("a", "a", 2000)))
    decision = plan(snapshot)
    (message,) = (reason.message for reason in decision.pending.values())
    assert message == "is nominated to node n with 2 GPUs; terminating pods still hold them"
    assert list(false_waits(snapshot, decision)) == []

    (nobody_goes,) = false_waits(snapshot, replace(decision, evictions=()))
    assert nobody_goes == f"a: no pod on them goes: {message}"
    larger = replace(snapshot, nodes=(node("n", 4),))
    on_free_ones = replace(decision, nominations=(Binding("a-0", "a", "n", (2, 3)),))
    assert list(false_waits(larger, on_free_ones)) == [f"a: nobody holds them: {message}"]
    (elsewhere,) = false_waits(snapshot, replace(decision, nominations=()))
    assert elsewhere == f"a: its pods are nominated to []: {message}"
    other_words = {"a": PendingReason(Waiting.RELEASING, "is nominated to something")}
    assert list(false_waits(snapshot, replace(decision, pending=other_words))) == [
        "a: not understood: is nominated to something"
    ]


@pytest.mark.parametrize(
    ("charged", "held"),
    [
        ("limit of b: 2 GPUs are", None),
        ("limit of b: 1 GPU is", 2000),
        ("limit of a: 2 GPUs are", 0),
        ("quota of b: 2 GPUs are", 0),
        ("limit of b: 2 GPUs of A100 are", 0),
        ("limit of b: 2 CPUs are", 0),
        ("limit of b: 2 GiB are", 0),
    ],
)
def test_false_waits_for_a_limit_or_quota_are_noticed(charged: str, held: int | None) -> None:
    """Two GPUs of project b, in preemptible pods, are terminating."""
    teams = (project("a", 2000), project("b", 0, over_quota_weight=1))
    lent = settle(Snapshot((node("n", 2),), teams, (FULL,))).after
    snapshot = replace(lent, workloads=(*lent.workloads, workload("a", "a", 2000)))
    message = f"is nominated to node n with 2 GPUs; {charged} still held by terminating pods"
    decision = replace(plan(snapshot), pending={"a": PendingReason(Waiting.RELEASING, message)})
    wrong = [] if held is None else [f"a: terminating pods hold {held}: {message}"]
    assert list(false_waits(snapshot, decision)) == wrong
