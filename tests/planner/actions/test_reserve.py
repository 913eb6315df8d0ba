"""Reservations for starving gangs: the gangs start, reserved GPUs are not left idle, and reasons explain them."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest

from orchestrator.planner import plan
from orchestrator.planner.model import Node, Plan, PodState, Project, Snapshot, Waiting, Workload
from orchestrator.planner.settings import Settings
from orchestrator.simulation.apply_plan import after_decision
from tests.planner.builders import node, project, workload

MINUTE_US = 60_000_000
NOW_US = 10**15
AFTER = Settings(reservation_after_seconds=600)
NEVER = Settings(reservation_after_seconds=None)


def running(
    new: Workload, place: str, first: int, *, minutes: int = 60, ends_in: int | None = None
) -> Workload:
    """Return the workload with its one pod running on its devices since `minutes`; it ends in `ends_in` minutes."""
    ends_by_us = 0 if ends_in is None else NOW_US + ends_in * MINUTE_US
    devices = tuple(range(first, first + new.pods[0].request.gpu_count))
    pod = replace(new.pods[0], state=PodState.ALLOCATED, node=place, devices=devices, ends_by_us=ends_by_us)
    started = NOW_US - minutes * MINUTE_US
    return replace(new, pods=(pod,), started_at_us=started, created_at_us=started)


def waiting(new: Workload, *, minutes: int, max_runtime_minutes: int | None = None) -> Workload:
    """Return the workload, pending since `minutes`. Its pods declare their maximum runtime."""
    seconds = None if max_runtime_minutes is None else max_runtime_minutes * 60
    pods = tuple(replace(pod, max_runtime_seconds=seconds) for pod in new.pods)
    return replace(new, pods=pods, created_at_us=NOW_US - minutes * MINUTE_US)


def decide(
    nodes: list[Node], projects: list[Project], work: list[Workload], settings: Settings = AFTER
) -> Plan:
    return plan(Snapshot(tuple(nodes), tuple(projects), tuple(work), NOW_US, settings))


def started(decision: Plan) -> set[str]:
    return {each.workload for each in decision.bindings}


def minute_of_the_start(
    work: dict[str, Workload],
    projects: tuple[Project, ...],
    settings: Settings,
    team: str,
    *,
    ticks: int,
    preemptible: bool,
) -> int | None:
    """Return the minute in which the gang starts, if every minute the oldest single job ends and two jobs of `team`
    arrive.
    """
    machines = tuple(node(f"node-{each}", 4) for each in range(2))
    for tick in range(ticks):
        now_us = NOW_US + tick * MINUTE_US
        held = [each for each in work.values() if each.started_at_us and each.id != "gang"]
        if held:
            del work[min(held, key=lambda each: (each.started_at_us, each.id)).id]
        for extra in range(2):
            new = workload(f"late-{tick}-{extra}", team, 1000, preemptible=preemptible)
            work[new.id] = replace(new, created_at_us=now_us)
        for _ in range(3):
            snapshot = Snapshot(machines, projects, tuple(work.values()), now_us, settings)
            after = after_decision(snapshot, plan(snapshot))
            work = {
                each.id: replace(each, started_at_us=min(each.started_at_us, now_us))
                for each in after.workloads
            }
        if all(pod.state is PodState.ALLOCATED for pod in work["gang"].pods):
            return tick
    return None


def stream(gang_team: str, settings: Settings, *, ticks: int, preemptible: bool) -> int | None:
    """Return the minute in which a gang starts, while eight single jobs of team b run and more keep arriving."""
    singles = [workload(f"job-{each}", "b", 1000, preemptible=preemptible) for each in range(8)]
    work = {
        each.id: running(each, f"node-{index // 4}", index % 4, minutes=60 - index)
        for index, each in enumerate(singles)
    }
    gang = waiting(workload("gang", gang_team, 4000, pods=2, gang=True), minutes=1)
    work["gang"] = gang
    projects = (project("a", 8000), project("b", 8000))
    return minute_of_the_start(work, projects, settings, "b", ticks=ticks, preemptible=preemptible)


@pytest.mark.parametrize("team", ["a", "b"])
@pytest.mark.parametrize("preemptible", [True, False])
def test_a_gang_starts_although_single_jobs_keep_coming(team: str, *, preemptible: bool) -> None:
    """Without a reservation, a gang of the same project starves; another project with a quota reclaims in the first
    decision.
    """
    minute = stream(team, AFTER, ticks=60, preemptible=preemptible)
    assert minute is not None
    assert minute <= 30
    without = stream(team, NEVER, ticks=60, preemptible=preemptible)
    assert without is None or team == "a"


@dataclass(frozen=True)
class Backfill:
    """A job that asks for one of three GPUs reserved for a gang of four. The fourth GPU becomes free in an hour."""

    team: str
    starts: bool
    max_runtime_minutes: int | None = None
    preemptible: bool = True
    minutes: int = 1
    priority: int = 50
    min_runtime_seconds: int | None = None
    known_end: bool = True


@pytest.mark.parametrize(
    "case",
    [
        Backfill("b", starts=False),
        Backfill("b", starts=True, max_runtime_minutes=60),
        Backfill("b", starts=False, max_runtime_minutes=61),
        Backfill("b", starts=False, max_runtime_minutes=60, known_end=False),
        Backfill("b", starts=True, max_runtime_minutes=60, preemptible=False),
        Backfill("c", starts=True),
        Backfill("c", starts=False, min_runtime_seconds=60),
        Backfill("a", starts=True),
        Backfill("a", starts=False, min_runtime_seconds=60),
        Backfill("a", starts=False, preemptible=False),
        Backfill("a", starts=True, preemptible=False, priority=100),
        Backfill("a", starts=True, preemptible=False, minutes=30),
    ],
    ids=str,
)
def test_reserved_gpus_are_used_by_pods_that_end_in_time_or_can_be_evicted(case: Backfill) -> None:
    """Team a has a quota for more than the gang, team b for one GPU, and team c borrows."""
    minimum = case.min_runtime_seconds
    projects = [
        project("a", 5000, preempt_min_runtime_seconds=minimum),
        project("b", 2000, reclaim_min_runtime_seconds=minimum),
        project("c", 0, reclaim_min_runtime_seconds=minimum),
    ]
    last = running(
        workload("last", "b", 1000, preemptible=False), "node-0", 0, ends_in=60 if case.known_end else None
    )
    gang = waiting(workload("gang", "a", 1000, pods=4, gang=True), minutes=20)
    new = waiting(
        workload("new", case.team, 1000, preemptible=case.preemptible, priority=case.priority),
        minutes=case.minutes,
        max_runtime_minutes=case.max_runtime_minutes,
    )
    decision = decide([node("node-0", 4)], projects, [last, gang, new])
    assert ("new" in started(decision)) is case.starts
    reason = decision.pending["gang"]
    assert reason.code is Waiting.RESERVED
    assert ("at the latest in 60 min" in reason.message) is case.known_end
    if not case.starts:
        assert decision.pending["new"].code is Waiting.HELD
        message = decision.pending["new"].message
        assert "held for gang of a, which has waited 20 min" in message
        helps = "starts at once if its pods declare that they end within 60 min" in message
        shorter = waiting(new, minutes=case.minutes, max_runtime_minutes=60)
        again = decide([node("node-0", 4)], projects, [last, gang, shorter])
        assert helps is ("new" in started(again))
    assert "new" in started(decide([node("node-0", 4)], projects, [last, gang, new], NEVER)), (
        "nothing else keeps it from starting"
    )


@pytest.mark.parametrize(
    ("minutes", "size", "quota", "held"),
    [(10, 4, 4, True), (9, 4, 4, False), (10, 4, 1, False), (10, 1, 4, False), (10, 8, 8, False)],
    ids=["starves", "not yet", "not entitled", "not large", "never fits"],
)
def test_gpus_are_reserved_for_starving_and_entitled_workloads(
    minutes: int, size: int, quota: int, *, held: bool
) -> None:
    projects = [project("a", quota * 1000, over_quota_weight=0), project("b", 4000)]
    busy = running(workload("busy", "b", 1000, preemptible=False), "node-0", 0)
    gang = waiting(workload("gang", "a", 1000, pods=size, gang=True), minutes=minutes)
    new = waiting(workload("new", "b", 3000), minutes=1)
    decision = decide([node("node-0", 4)], projects, [busy, gang, new])
    codes = {each: reason.code for each, reason in decision.pending.items()}
    assert (codes.get("gang") is Waiting.RESERVED) is held


def test_backfilled_workloads_are_evicted_when_the_gang_fits() -> None:
    """One job ran before, and one was backfilled while the gang starved. The gang starts when
    the first one has ended.
    """
    gang = waiting(workload("gang", "a", 1000, pods=4, gang=True), minutes=60)
    early = running(workload("early", "a", 1000), "node-0", 0, minutes=55)
    late = running(workload("late", "a", 1000), "node-0", 1, minutes=5)
    projects = [project("a", 4000)]
    assert decide([node("node-0", 4)], projects, [gang, early, late]).evictions == ()
    decision = decide([node("node-0", 4)], projects, [gang, late])
    assert [(each.workload, each.rule) for each in decision.evictions] == [("late", "reservation")]
    assert "backfilled before gang" in decision.evictions[0].message
    assert {each.workload for each in decision.nominations} == {"gang"}


def test_the_nodes_where_least_is_to_be_returned_are_kept() -> None:
    """The nodes differ in their running jobs: the node with a declared end comes first, then the one with the least
    use.
    """
    busy = [
        running(workload("long", "b", 2000, preemptible=False), "node-0", 0),
        running(workload("short", "b", 1000, preemptible=False), "node-1", 0),
        running(workload("declared", "b", 3000, preemptible=False), "node-2", 0, ends_in=30),
    ]
    gang = waiting(workload("gang", "a", 4000), minutes=60)
    projects = [project("a", 4000), project("b", 8000)]
    machines = [node(f"node-{each}", 4) for each in range(3)]
    decision = decide(machines, projects, [*busy, gang])
    assert "4 GPUs on node-2 are held for it, 3 of them are still in use" in decision.pending["gang"].message
    decision = decide(machines[:2], projects, [*busy[:2], gang])
    assert "4 GPUs on node-1 are held for it, 1 of them is still in use" in decision.pending["gang"].message


def at_the_limit(settings: Settings, *, preemptible: bool, ticks: int = 20) -> int | None:
    """Return the minute in which a gang starts, with a limit of four of eight GPUs for team a, which its own single
    jobs use.
    """
    singles = [workload(f"job-{each}", "a", 1000, preemptible=preemptible) for each in range(4)]
    work = {each.id: running(each, "node-0", index, minutes=60 - index) for index, each in enumerate(singles)}
    gang = workload("gang", "a", 2000, pods=2, gang=True, preemptible=preemptible)
    work["gang"] = waiting(gang, minutes=1)
    projects = (project("a", 4000, limit_gpu_milli=4000), project("b", 4000))
    return minute_of_the_start(work, projects, settings, "a", ticks=ticks, preemptible=preemptible)


@pytest.mark.parametrize("preemptible", [True, False])
def test_a_gang_starts_although_its_own_project_stands_at_its_limit(*, preemptible: bool) -> None:
    minute = at_the_limit(AFTER, preemptible=preemptible)
    assert minute is not None
    assert 9 <= minute <= 14, "ten minutes until it starves, then four jobs that end"
    assert at_the_limit(NEVER, preemptible=preemptible) is None


def test_a_workload_that_may_not_pass_a_gang_at_the_limit_is_told_so() -> None:
    projects = [project("a", 4000, limit_gpu_milli=4000), project("b", 4000)]
    busy = running(workload("busy", "a", 2000, preemptible=False), "node-0", 0, minutes=5)
    gang = waiting(workload("gang", "a", 1000, pods=3, gang=True), minutes=20)
    new = waiting(workload("new", "a", 1000, preemptible=False), minutes=1)
    other = waiting(workload("other", "b", 4000, preemptible=False), minutes=1)
    machines = [node(f"node-{each}", 4) for each in range(2)]
    decision = decide(machines, projects, [busy, gang, new, other])
    assert decision.pending["gang"].code is Waiting.PROJECT_LIMIT
    assert decision.pending["new"].code is Waiting.HELD
    assert "a keeps 3 GPUs of its limit for gang" in decision.pending["new"].message
    assert started(decision) == {"other"}, "no node is kept while the limit is in the way"
    assert "new" in started(decide(machines, projects, [busy, gang, new, other], NEVER))
