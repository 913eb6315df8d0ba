"""Single steps of a decision with constraints between pods; whole runs are in tests/simulation."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from orchestrator.planner import plan
from orchestrator.simulation.reader import load

CASES: Final = Path(__file__).parents[1] / "simulation" / "kubernetes"


def test_a_gang_with_affinity_starts_in_the_zone_that_takes_all_of_it() -> None:
    decision = plan(load(CASES / "03-gang-in-one-zone.yaml"), ["allocate"])
    assert sorted(binding.node for binding in decision.bindings) == ["n2", "n2", "n3", "n3"]


def test_only_the_pods_that_an_anti_affinity_names_are_evicted_without_a_move() -> None:
    decision = plan(load(CASES / "03-victim-takes-its-anti-affinity-away.yaml"), ["allocate", "reclaim"])
    assert sorted(eviction.pod for eviction in decision.evictions) == ["b/borrowed/0", "b/second/0"]
    assert [nomination.pod for nomination in decision.nominations] == ["a/want/0"]
