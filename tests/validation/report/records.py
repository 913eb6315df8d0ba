"""A small record of a run in which one step failed."""

from typing import Any

from validation.judge.convergence import Convergence, ConvergenceResult
from validation.judge.scheduling.expectation import Actual, Expectation
from validation.report.record import (
    CheckResult,
    CheckTrace,
    Command,
    Coverage,
    EventFile,
    EvictionRecord,
    Oracle,
    Point,
    Report,
    RequirementResult,
    Run,
    ScenarioRecord,
    ScenarioTrace,
    Scope,
    Tool,
    Trace,
)
from validation.scenario.schema import Erratum

SCENARIO = "tr4858-4.8"


def step(name: str, verdict: str, **fields: Any) -> CheckResult:
    """Return a step of the scenario, or an invariant if `name` is the name of one."""
    kind = "invariant" if name.startswith("invariant/") else "step"
    values: dict[str, Any] = {"title": f"The step {name}", "source": "§4.8", **fields}
    return CheckResult(id=f"{SCENARIO}/{name}", scenario=SCENARIO, kind=kind, verdict=verdict, **values)


def three_steps() -> Report:
    """Return a report with a step that passed, a step that failed, and an invariant."""
    expected = Expectation(
        allocated_milli={"team-a": 4000, "team-b": 2000},
        total_milli=6000,
        running=4,
        same_gpu=(("x", "y"),),
    )
    actual = Actual(
        allocated_milli={"team-a": 4000, "team-b": 1000},
        total_milli=5000,
        pending=("b-1",),
        running=3,
        evicted=("b-1",),
        gpus_in_use=5,
        devices={"x": ("dgx1-1/0",), "y": ("dgx1-1/1",)},
    )
    oracle = Oracle(16_000, [], {"team-a": "4", "team-b": "7/3"}, {"team-a": 4000, "team-b": 2000}, [], 4)
    steps = [
        step(
            "one",
            "PASS",
            expected=expected,
            oracle=oracle,
            volatile=CheckTrace(
                started_ms=1000,
                ended_ms=5000,
                commands=[Command("muster submit a", 0, 1000, 300)],
                convergence=Convergence(ConvergenceResult.CONVERGED, 60_000, 3000, 100, 3100, 0),
            ),
        ),
        step(
            "two",
            "FAIL",
            expected=expected,
            oracle=oracle,
            actual=actual,
            differences=["team-b: expected 2 GPUs, has 1"],
            volatile=CheckTrace(
                started_ms=5000,
                ended_ms=9000,
                convergence=Convergence(ConvergenceResult.TIMED_OUT, 4000, 3000),
            ),
        ),
        step("invariant/node-capacity", "PASS", volatile=CheckTrace(started_ms=9000, ended_ms=9000)),
    ]
    message = "2 GPUs reclaimed for d-2-gg of team-d"
    return Report(
        verdict="FAIL",
        acceptance="FAIL",
        headline="FAIL: 0 of the 1 requirements asked for passed (fairness)",
        summary="Of 2 requirements 1 FAIL, 1 NOT_APPLICABLE.",
        scope=Scope("c0ffee", "lab", "A lab", ["fairness"], "2026-01-01"),
        requirements=[
            RequirementResult("fairness.full", "§4.8", "It is full.", "16", "table", "FAIL", "two is FAIL"),
            RequirementResult(
                "hardware.gpus", "§3", "GPUs are there.", "", "table", "NOT_APPLICABLE", "no hardware", False
            ),
        ],
        tool=Tool("muster", "0.1.0", "3.11", "Linux"),
        target={"kind": "lab"},
        cluster={
            "gpus": 16,
            "kubernetes": "v1.36.3",
            "nodes": [
                {"name": "dgx1-1", "gpus": 8, "product": "Tesla"},
                {"name": "dgx1-2", "gpus": 8, "product": ""},
            ],
        },
        scenarios=[
            ScenarioRecord(
                id=SCENARIO,
                title="Utilization",
                source="TR-4858 §4.8",
                file="tr4858/section-4.8.scenario.yaml",
                sha256="abc",
                quotas_milli={"team-a": 4000, "team-b": 2000},
                volatile=ScenarioTrace(1000, 9000),
            )
        ],
        steps=steps,
        coverage=Coverage(3, 3, 3, {"PASS": 2, "FAIL": 1}),
        errata=[Erratum("E3", "§4.9", "none queued", "the dashboard", "two queued", "consistent")],
        volatile=Trace(
            run=Run("r1", ["muster", "validate"], "2026-01-01T00:00:00Z", "2026-01-01T00:01:00Z", 60_000),
            evictions=[
                EvictionRecord(
                    t_ms=6000,
                    step=f"{SCENARIO}/two",
                    project="team-b",
                    workload="b-1",
                    pod="b-1-x",
                    node="dgx1-1",
                    devices=[0, 1],
                    gpu_milli=2000,
                    reason="Preemption",
                    message=message,
                )
            ],
            series=[
                Point(0, {}),
                Point(2000, {"team-a": 4000}),
                Point(3000, {"team-a": 4000, "team-b": 2000}),
            ],
            events=EventFile("events.jsonl", "abc", 1),
        ),
    )
