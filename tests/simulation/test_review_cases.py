"""Clusters for which the planner once decided wrongly, with the required end state for several grace periods of evicted
pods.

The files are in `tests/planner/regressions`. If the folder that `MUSTER_PEER_SCHEDULER` names, by default
`../shared/peer/scheduler` beside the checkout, has files of the same names, they are run too.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from orchestrator.planner import plan
from orchestrator.planner.model import PodState
from orchestrator.simulation.outcome import held_gpu_milli
from orchestrator.simulation.reader import load
from orchestrator.simulation.run import settle
from tests.world.step_checks import shuffled

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

ROOT = Path(__file__).parents[2]
OURS = ROOT / "tests" / "planner" / "regressions"
THEIRS = Path(os.environ.get("MUSTER_PEER_SCHEDULER", ROOT.parent / "shared" / "peer" / "scheduler"))


@dataclass(frozen=True)
class Expectation:
    """The required end state: workloads that run, with their node or None for any, workloads that wait, and the least
    GPUs of projects.

    `evictions` is the largest number of evictions until then.
    """

    evictions: int
    runs: Mapping[str, str | None] = field(default_factory=dict)
    waits: tuple[str, ...] = ()
    holds_gpu_milli: Mapping[str, int] = field(default_factory=dict)


EXPECTED = {
    "borrowed-gpus-beside-work-without-any": Expectation(
        0, runs={"w010": None, "w011": None, "w013": None}, waits=("w012", "w015")
    ),
    "crash-reservation": Expectation(0, runs={"other": "n1"}, waits=("gang",)),
    "devices-of-a-node-are-not-alike": Expectation(
        3, runs={"big": "n0", "w0": "n0", "w1": "n1", "w9": "n1"}, waits=("w3", "w6")
    ),
    "fragmented-over-quota": Expectation(
        1, runs={"r0": "node0", "r1": "node0", "r2": "node1", "p0": "node1"}
    ),
    "loop-gang-while-leaving": Expectation(2, runs={"urgent": None}, waits=("a1", "a2", "a3")),
    "loop-move-while-leaving": Expectation(1, runs={"s1": "n2", "s2": "n2", "big": "n1"}),
    "loop-of-three-rules": Expectation(0, runs={"w004": "n0", "w008": "n0", "w011": None}, waits=("w005",)),
    "loop-quota-rule": Expectation(
        8, runs={"j0071": None, "j0060": None, "j0097": None, "j0079": None, "j0081": None, "j0082": None}
    ),
    "loop-quota-rule-2": Expectation(
        8, runs={"j0062": None, "j0060": None, "j0097": None, "j0045": None, "j0072": None}, waits=("j0071",)
    ),
    "moved-for-the-less-urgent-first": Expectation(
        4, runs={"w010": None, "w015": None, "w016": None, "w017": None, "w022": None}
    ),
    "pod-slots-need-a-swap": Expectation(2, runs={"w004": None, "w006": None, "w008": None, "w014": None}),
    "pod-slots-need-two-moves": Expectation(
        3, runs={"w006": None, "w007": "n1", "w009": "n1", "w010": "n2"}, waits=("w008",)
    ),
    "promise-goes-to-a-victim": Expectation(3, runs={"w010": None, "w011": None}, waits=("w016",)),
    "quota-lost-piece-by-piece": Expectation(0, runs={"w004": "n0", "w006": "n2"}, waits=("w005",)),
    "quota-needs-a-chain-of-moves": Expectation(
        4, runs={"w007": "n2", "w009": "n2", "w011": "n2", "w012": None, "w014": None}
    ),
    "quota-needs-a-move-and-an-eviction": Expectation(
        2, runs={"r0": "node0", "r1": "node0", "p1": "node1"}, waits=("r2", "p0")
    ),
    "reservation-depends-on-order": Expectation(3),
    "starved-within-quota-flat": Expectation(8, holds_gpu_milli={"p3": 700}),
    "starved-within-quota-in-a-tree": Expectation(
        2, runs={"d1-1": "n1", "e-1": "n1"}, holds_gpu_milli={"d": 3000, "e": 1000}
    ),
    "victims-that-leave-idle-gpus": Expectation(
        # The quotas cover b and c, but not a: docs/decisions/pods-within-quota.md.
        2,
        runs={"b": "node0", "c": "node0", "d": "node0"},
        waits=("a",),
        holds_gpu_milli={"q0": 2000, "q1": 3000},
    ),
}


def cases() -> Iterator[object]:
    for folder, owner in ((OURS, "ours"), (THEIRS, "theirs")):
        for name in sorted(EXPECTED):
            path = folder / f"{name}.yaml"
            if owner == "ours" or path.is_file():
                yield pytest.param(path, EXPECTED[name], id=f"{owner}-{name}")


@pytest.mark.parametrize("late", [False, True], ids=["at-once", "late"])
@pytest.mark.parametrize("grace", [0, 1, 5])
@pytest.mark.parametrize(("path", "expected"), list(cases()))
def test_a_cluster_comes_to_rest_with_the_required_workloads(
    path: Path, expected: Expectation, grace: int, late: bool
) -> None:
    run = settle(load(path), max_decisions=20 + 2 * grace, grace_decisions=grace, late_successors=late)
    assert run.is_stable, "the plan never came to rest"
    places = {
        each.name: [pod.node for pod in each.pods if pod.state is PodState.ALLOCATED]
        for each in run.after.workloads
    }
    sizes = {each.name: len(each.pods) for each in run.after.workloads}
    for name, node in expected.runs.items():
        assert len(places[name]) == sizes[name], f"{name} has to run: {places}"
        assert node is None or set(places[name]) == {node}, f"{name} has to run on {node}: {places}"
    for name in expected.waits:
        assert len(places[name]) < sizes[name], f"{name} has to wait: {places}"
    held = held_gpu_milli(run.after)
    for name, least in expected.holds_gpu_milli.items():
        assert held[name] >= least, f"{name} has to hold {least}: {held}"
    assert sum(len(step.evictions) for step in run.steps) <= expected.evictions


@pytest.mark.parametrize(("path", "expected"), list(cases()))
def test_the_order_of_a_file_does_not_matter(path: Path, expected: Expectation) -> None:
    snapshot = load(path)
    first = plan(snapshot)
    for seed in range(5):
        assert plan(shuffled(snapshot, seed)) == first
