"""One decision does a bounded amount of work. Workloads that it does not reach come first in the next decision."""

from orchestrator.planner import plan
from orchestrator.planner.model import Plan, Snapshot, Workload
from orchestrator.planner.settings import Settings, work_of_decision
from tests.planner.builders import node, project, workload
from tests.planner.test_better import running

TEAMS = (project("a", 16_000), project("b", 0))


def decide(lent: int, claims: int, *, max_work: int | None = 0, left_over: tuple[str, ...] = ()) -> Plan:
    """Decide on this number of workloads within quota, on a node full of borrowed jobs of one GPU."""
    work: list[Workload] = [
        running(workload(f"lent-{index}", "b", 1000), "n1", index, started=index + 1) for index in range(lent)
    ]
    work += [workload(f"new-{index:02}", "a", 1000, age=index) for index in range(claims)]
    settings = Settings(max_work=max_work)
    return plan(Snapshot((node("n1", lent),), TEAMS, tuple(work), 0, settings, left_over=left_over))


def test_without_any_allowed_work_the_first_few_workloads_are_still_served() -> None:
    decision = decide(lent=4, claims=4)
    assert len(decision.evictions) == 4
    assert decision.left_over == ()


def test_an_unreached_workload_is_named_and_none_is_left_over_without_a_bound() -> None:
    decision = decide(lent=16, claims=16)
    served = {place.workload for place in decision.nominations}
    assert 0 < len(served) < 16
    assert {*served, *decision.left_over} == {f"new-{index:02}" for index in range(16)}
    assert decide(lent=16, claims=16, max_work=None).left_over == ()


def test_a_left_over_workload_is_first_in_the_next_decision() -> None:
    decision = decide(lent=1, claims=3, left_over=("new-02",))
    assert [place.workload for place in decision.nominations] == ["new-02"]


def test_from_500_to_1000_nodes_the_bound_doubles() -> None:
    bounds = [work_of_decision(1000, nodes) for nodes in (1, 500, 750, 1000, 4000)]
    assert bounds == [1000, 1000, 1500, 2000, 2000]
    assert work_of_decision(None, 4000) is None
