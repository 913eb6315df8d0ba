"""A lasting violation is reported in each scenario during which it exists, and in no scenario that begins after its
end.
"""

import pytest

from tests.validation.judge.events import CLUSTER, gone, pod
from tests.validation.judge.scheduling.test_witnesses import kubelet
from validation.judge.check_verdict import Circumstances, Window, judge_invariant
from validation.judge.events import Event, ProjectSet
from validation.judge.evidence import NO_EVIDENCE
from validation.judge.scheduling.invariants import INVARIANTS
from validation.judge.timeline import Timeline

FIRST = pod(5, "a")
SECOND = pod(6, "b")
NOTEBOOKS = [pod(5, f"n{index}", preemptible=False, priority=100, devices=(index,)) for index in range(3)]
FULL = pod(5, "full", gpu_milli=8000, devices=tuple(range(8)), project="q")
MEMBER = pod(5, "gang", min_member=2)
OVERDUE = pod(7, "late", preemptible=False, priority=100)
ELSEWHERE = pod(90_000, "later", project="q", node="n2")
"""Another event in the next scenario."""

LASTING: dict[str, list[Event]] = {
    "node-capacity": [FULL, SECOND],
    "gpu-capacity": [FIRST, SECOND],
    "interactive-within-quota": [*NOTEBOOKS],
    "gang-all-or-none": [MEMBER],
    "kubelet-agrees": [FIRST, kubelet(8, a=(6,))],
    "processes-on-own-gpus": [FIRST, kubelet(8, users="a")],
    "interactive-time-limit": [ProjectSet(4, "p", 2000, interactive_limit_ms=20_000), OVERDUE],
}
"""Events of the earlier scenario that leave a lasting violation, by invariant."""
ENDS: dict[str, Event] = {
    "node-capacity": gone(SECOND, 70_000),
    "gpu-capacity": gone(SECOND, 70_000),
    "interactive-within-quota": gone(NOTEBOOKS[0], 70_000),
    "gang-all-or-none": pod(70_000, "gang", pod="gang-1", min_member=2, devices=(1,)),
    "kubelet-agrees": kubelet(70_000, a=(0,)),
    "processes-on-own-gpus": kubelet(70_000, a=(0,)),
    "interactive-time-limit": gone(OVERDUE, 70_000),
}


def verdict(name: str, events: list[Event], started_ms: int) -> str:
    events = [*CLUSTER, *events]
    window = Window(0, 0, len(events), started_ms, 100_000)
    return judge_invariant(
        name, Circumstances(), Timeline(events), window, least=NO_EVIDENCE
    ).judgement.verdict


def test_there_is_a_case_for_every_invariant_that_can_last() -> None:
    of_moments = {
        "cordoned-node",
        "in-quota-never-evicted",
        "interactive-never-evicted",
        "node-affinity",
        "nominations-last",
        "nothing-vanishes",
    }
    assert set(LASTING) == set(ENDS) == set(INVARIANTS) - of_moments


@pytest.mark.parametrize("name", LASTING)
def test_a_lasting_state_fails_in_the_scenario_that_it_lasts_into(name: str) -> None:
    assert verdict(name, [*LASTING[name], ELSEWHERE], 0) == "FAIL"
    assert verdict(name, [*LASTING[name], ELSEWHERE], 80_000) == "FAIL"
    assert verdict(name, LASTING[name], 80_000) == "FAIL", "also where nothing else happens"


@pytest.mark.parametrize("name", LASTING)
def test_a_state_that_ended_before_a_scenario_is_no_violation_in_it(name: str) -> None:
    assert verdict(name, [*LASTING[name], ENDS[name], ELSEWHERE], 0) == "FAIL"
    assert verdict(name, [*LASTING[name], ENDS[name], ELSEWHERE], 60_000) == "FAIL"
    assert verdict(name, [*LASTING[name], ENDS[name], ELSEWHERE], 70_001) != "FAIL"


def test_a_state_that_begins_in_one_scenario_and_is_too_long_in_the_next_fails_there() -> None:
    """The state began 3 s before the scenario, and in the earlier scenario it was still within its limit."""
    events: list[Event] = [pod(77_000, "gang", min_member=2), ELSEWHERE]
    assert verdict("gang-all-or-none", events, 80_000) == "FAIL"
