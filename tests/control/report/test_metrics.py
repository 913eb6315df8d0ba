"""The operator's page for Prometheus: its format, its names, its maximum size, and its values."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st

from orchestrator.cli.metrics_reference import reference
from orchestrator.control.report import metrics as operator
from orchestrator.control.report.metrics import (
    FAILURES,
    MAX_PROJECTS,
    OTHERS,
    RULES,
    WAIT_BUCKETS,
    OperatorMetrics,
)
from orchestrator.exposition import Distribution, Exposition
from orchestrator.observe.snapshot import Reading
from orchestrator.observe.stuck_pods import PodProblem
from orchestrator.planner import plan
from orchestrator.planner.model import Eviction, Request, Snapshot
from tests.cluster.waiting import ManualClock
from tests.planner.builders import node, project, workload

if TYPE_CHECKING:
    from collections.abc import Iterable

    from orchestrator.planner.model import Project, Workload

ROOT = Path(__file__).resolve().parents[3]
SECOND_US = 1_000_000
NOW = 1_700_000_000
SAMPLE = re.compile(
    r'(?P<name>[a-z_]+)(\{(?P<labels>[a-z_]+="([^"\\\n]|\\.)*"(,[a-z_]+="([^"\\\n]|\\.)*")*)\})? (?P<value>\S+)'
)
UNITS = ("_bytes", "_seconds", "_total", "_info", "_gpus", "_workloads", "_objects", "_nodes", "_pods")


def clock_at(seconds: float) -> ManualClock:
    clock = ManualClock()
    clock.now = seconds
    return clock


def reading(projects: Iterable[Project], workloads: Iterable[Workload] = (), gpus: int = 8) -> Reading:
    snapshot = Snapshot((node("n1", gpus),), tuple(projects), tuple(workloads), now_us=NOW * SECOND_US)
    return Reading(snapshot, {}, {})


def decided(metrics: OperatorMetrics, read: Reading) -> None:
    metrics.decided(read, plan(read.snapshot), 0.02, 0)


def values(text: str) -> dict[str, float]:
    page: dict[str, float] = {}
    for line in text.split("\n")[:-1]:
        if not line.startswith("#"):
            match = SAMPLE.fullmatch(line)
            assert match, line
            page[line.rpartition(" ")[0]] = float(match["value"])
    return page


def leader(read: Reading, clock: ManualClock | None = None) -> OperatorMetrics:
    metrics = OperatorMetrics(clock or clock_at(NOW))
    metrics.leading({})
    decided(metrics, read)
    return metrics


def test_memory_of_a_gpu_that_is_waited_for_counts_as_quotas_count_it() -> None:
    waits = workload("a1", "team-a", 1000)
    pod = replace(waits.pods[0], request=Request(gpu_memory_mib=8192, shared_devices=2))
    nodes = (node("n1", 0, gpu_memory_mib=16_384), node("n2", 0, gpu_memory_mib=32_768))
    read = reading((project("team-a", 3000),), (replace(waits, pods=(pod,)),))
    read = replace(read, snapshot=replace(read.snapshot, nodes=nodes))
    assert values(leader(read).page().text)['muster_project_pending_gpus{project="team-a"}'] == 1


def test_projects_have_the_figures_of_the_decision_in_gpus() -> None:
    jobs = (
        workload("a1", "team-a", 2000, age=(NOW - 100) * SECOND_US),
        workload("a2", "team-a", 500, age=(NOW - 50) * SECOND_US),
        workload("b1", "team-b", 16000, age=(NOW - 700) * SECOND_US),
    )
    read = reading((project("team-a", 3000), replace(project("team-b", 5000), quota_gpu_milli=None)), jobs)
    page = values(leader(read).page().text)
    assert page['muster_project_quota_gpus{project="team-a"}'] == 3
    assert 'muster_project_quota_gpus{project="team-b"}' not in page, "unlimited"
    assert page['muster_project_pending_gpus{project="team-b"}'] == 16
    assert page['muster_project_pending_workloads{project="team-b"}'] == 1
    assert page['muster_project_oldest_pending_seconds{project="team-b"}'] == 700
    assert page['muster_project_pending_gpus{project="team-a"}'] == 0
    assert page['muster_operator_pending_workloads{reason="LargerThanAnyNode"}'] == 1
    assert page["muster_cluster_gpus"] == page["muster_cluster_capacity_gpus"] == 8
    assert page['muster_cluster_nodes{state="ready"}'] == 1
    decision = plan(read.snapshot)
    for name in ("team-a", "team-b"):
        held = page[f'muster_project_allocated_gpus{{project="{name}"}}']
        assert held * 1000 == decision.allocated_gpu_milli[name]
        assert (
            page[f'muster_project_fair_share_gpus{{project="{name}"}}'] * 1000
            == decision.shares_gpu_milli[name]
        )


def test_a_wait_is_counted_once_for_a_workload_and_when_its_first_pod_is_bound() -> None:
    clock = clock_at(NOW)
    gang = workload("a1", "team-a", 1000, pods=3, gang=True, age=(NOW - 100) * SECOND_US)
    metrics = leader(reading((project("team-a", 8000),), (gang,)), clock)
    assert values(metrics.page().text)['muster_project_wait_seconds_count{project="team-a"}'] == 0
    clock.now += 25
    for pod in gang.pods:
        metrics.bound(pod.id)
    page = values(metrics.page().text)
    assert page["muster_operator_bindings_total"] == 3
    assert page['muster_project_wait_seconds_count{project="team-a"}'] == 1
    assert page['muster_project_wait_seconds_sum{project="team-a"}'] == 125
    assert page['muster_project_wait_seconds_bucket{project="team-a",le="120"}'] == 0
    assert page['muster_project_wait_seconds_bucket{project="team-a",le="600"}'] == 1
    assert page['muster_project_wait_seconds_bucket{project="team-a",le="+Inf"}'] == 1


def test_evictions_and_failures_have_every_word_from_the_beginning_and_no_other() -> None:
    metrics = OperatorMetrics()
    metrics.evicted(Eviction("pod", "workload", "", "fair-share", ""))
    metrics.evicted(Eviction("pod", "workload", "", 'a rule\n"of tomorrow"', ""))
    metrics.request_failed("budget")
    page = values(metrics.page().text)
    rules = {rule: page[f'muster_operator_evictions_total{{rule="{rule}"}}'] for rule in RULES}
    assert {rule: count for rule, count in rules.items() if count} == {"fair-share": 1, "other": 1}
    reasons = {
        reason: page[f'muster_operator_request_failures_total{{reason="{reason}"}}'] for reason in FAILURES
    }
    assert {reason for reason, count in reasons.items() if count} == {"budget"}


def test_a_standby_replica_has_no_figures_of_projects_or_of_the_cluster() -> None:
    metrics = leader(reading((project("team-a", 3000),)))
    assert values(metrics.page().text)["muster_operator_leader"] == 1
    metrics.on_standby()
    page = values(metrics.page().text)
    assert page["muster_operator_leader"] == 0
    assert not [name for name in page if name.startswith(("muster_project", "muster_cluster"))]
    assert "muster_operator_last_decision_timestamp_seconds" not in page


def test_departments_have_figures_of_their_own_and_are_counted_in_no_sum_twice() -> None:
    teams = (project("dep", 8000), project("a", 3000, parent="dep"), project("b", 5000, parent="dep"))
    page = values(leader(reading(teams, (workload("a1", "a", 2000),))).page().text)
    assert page['muster_department_quota_gpus{department="dep"}'] == 8
    assert 'muster_project_quota_gpus{project="dep"}' not in page
    held = sum(value for name, value in page.items() if name.startswith("muster_project_allocated_gpus{"))
    assert held == page["muster_cluster_allocated_gpus"]
    assert held == page['muster_department_allocated_gpus{department="dep"}']


def test_however_many_projects_there_are_so_many_are_named_and_no_gpu_is_left_out() -> None:
    many = [project(f"p{number:05d}", 1000, created_at_us=number) for number in range(MAX_PROJECTS + 700)]
    jobs = [workload(f"w{each.name}", each.name, 16000, age=(NOW - 9) * SECOND_US) for each in many]
    metrics = leader(reading(many, jobs))
    at_first = values(metrics.page().text)
    assert at_first[f'muster_project_wait_seconds_count{{project="{OTHERS}"}}'] == 0
    for each in many:
        metrics._starting[each.name] = (each.name, (NOW - 10) * SECOND_US)
        metrics.bound(each.name)
    page = values(metrics.page().text)
    quotas = {name: value for name, value in page.items() if name.startswith("muster_project_quota_gpus")}
    assert len(quotas) == MAX_PROJECTS + 1
    assert quotas[f'muster_project_quota_gpus{{project="{OTHERS}"}}'] == 700
    assert page[f'muster_project_pending_gpus{{project="{OTHERS}"}}'] == 700 * 16
    counts = {name: value for name, value in page.items() if "wait_seconds_count" in name}
    assert sum(counts.values()) == len(many)
    assert len(page) < (MAX_PROJECTS + 1) * (8 + len(WAIT_BUCKETS) + 3) + 200
    again = leader(reading([*many, project("p99999", 0, created_at_us=10**9)]))
    assert 'muster_project_quota_gpus{project="p00000"}' in values(again.page().text), "the oldest stay"


def test_a_deleted_project_takes_its_series_with_it() -> None:
    job = workload("a1", "team-a", 1000, age=(NOW - 100) * SECOND_US)
    metrics = leader(reading((project("team-a", 8000),), (job,)))
    metrics.bound("a1-0")
    assert 'project="team-a"' in metrics.page().text
    decided(metrics, reading((project("team-b", 8000),)))
    assert "team-a" not in metrics.page().text


@given(st.text())
def test_no_name_breaks_a_line(name: str) -> None:
    page = Exposition()
    page.add(operator.PROJECT_QUOTA, [((name,), 1)])
    page.add_histogram(operator.PROJECT_WAIT, [((name,), Distribution((1.0,)))])
    lines = page.text().split("\n")
    assert len(lines) == 2 + 1 + 2 + 4 + 1, "two that describe each, the values, and the end"
    assert all(SAMPLE.fullmatch(line) for line in lines[:-1] if not line.startswith("#"))


def test_each_metric_is_declared_described_once_and_called_as_prometheus_asks() -> None:
    job = workload("a1", "team-a", 1000, age=(NOW - 100) * SECOND_US)
    dep = (project("dep", 8000), project("team-a", 3000, parent="dep", limit_gpu_milli=4000))
    metrics = leader(reading(dep, (job,)))
    metrics.bound("a1-0")
    read = replace(reading(dep, (job,)), problems={"uid": PodProblem("Stuck", "n1", "it does not end")})
    metrics.decided(read, replace(plan(read.snapshot), avoided={"n1": "two pods failed"}), 0.02, 0)
    declared = {metric.name: metric for metric in operator.METRICS}
    assert len(declared) == len(operator.METRICS)
    described = re.findall(r"^# TYPE (\S+) (\S+)$", metrics.page().text, re.MULTILINE)
    names = [name for name, _ in described]
    assert len(names) == len(set(names))
    assert set(declared) - set(names) == {"muster_project_info"}, "that needs projects of the API server"
    for name, kind in described:
        assert declared[name].kind == kind
        assert (kind == "counter") == name.endswith("_total")
        assert name.endswith(UNITS) or name in ("muster_operator_leader",), name
    series = {series for metric in operator.METRICS for series in metric.series}
    assert {re.split(r"[{ ]", name)[0] for name in values(metrics.page().text)} <= series


def test_the_document_lists_every_metric() -> None:
    written = (ROOT / "docs" / "reference" / "metrics.md").read_text(encoding="utf-8")
    assert written == reference(), "make docs"
