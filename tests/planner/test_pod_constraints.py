"""Single steps of a decision with constraints between pods; whole runs are in tests/simulation."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from orchestrator.labels import LabelRequirement
from orchestrator.planner import Planner, plan
from orchestrator.planner.model import PodState, Snapshot
from orchestrator.planner.traits import PodSelector, PodTerm, PodTraits
from orchestrator.simulation.reader import load
from tests.planner.builders import node, project, workload

if TYPE_CHECKING:
    from orchestrator.planner.model import Workload

CASES: Final = Path(__file__).parents[1] / "simulation" / "kubernetes"


def test_a_gang_with_affinity_starts_in_the_zone_that_takes_all_of_it() -> None:
    decision = plan(load(CASES / "03-gang-in-one-zone.yaml"), ["allocate"])
    assert sorted(binding.node for binding in decision.bindings) == ["n2", "n2", "n3", "n3"]


def test_only_the_pods_that_an_anti_affinity_names_are_evicted_without_a_move() -> None:
    decision = plan(load(CASES / "03-victim-takes-its-anti-affinity-away.yaml"), ["allocate", "reclaim"])
    assert sorted(eviction.pod for eviction in decision.evictions) == ["b/borrowed/0", "b/second/0"]
    assert [nomination.pod for nomination in decision.nominations] == ["a/want/0"]


def test_the_reason_of_a_pending_pod_does_not_depend_on_earlier_decisions() -> None:
    """Two running pods exclude the pending pod, and earlier a third pod excluded it too. The order of earlier
    decisions does not matter.
    """

    def beside(name: str, key: str, *labels: tuple[str, str]) -> Workload:
        one = workload(name, "a", 1000, age=len(name))
        term = PodTerm(PodSelector(None, (LabelRequirement("app", "In", ("want",)),)), key)
        own = PodTraits("muster-a", labels, anti_affinity=(term,) if key else ())
        pod = replace(one.pods[0], traits=own)
        return replace(one, pods=(pod if not key else pod.placed(PodState.ALLOCATED, "n", (len(name),)),))

    want = beside("w", "", ("app", "want"))
    by_host, by_zone = beside("by", "kubernetes.io/hostname"), beside("by-zone", "zone")
    nodes, projects = (node("n", labels={"zone": "x", "rack": "y"}),), (project("a", 8000),)
    first, *rest = (
        Snapshot(nodes, projects, others)
        for others in ((want, by_host, beside("rack", "rack")), (by_zone, by_host, want), (by_zone, want))
    )
    planner = Planner()
    planner.plan(first)
    assert [planner.plan(each).pending for each in rest] == [plan(each).pending for each in rest]
