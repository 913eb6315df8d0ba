"""The log of a very long run: in every step, a job of sixteen pods is created, runs and is deleted."""

from collections.abc import Iterator
from pathlib import Path

import msgspec

from tests.validation.report.records import SCENARIO, three_steps
from validation.judge.check_verdict import Circumstances, Window
from validation.judge.events import CommandRun, Event, NodeSeen, PodSeen, ProjectSet
from validation.judge.evidence import Evidence
from validation.judge.scheduling.expectation import Expectation
from validation.judge.scheduling.invariants import INVARIANTS, OF_LIMITED_PROJECTS
from validation.judge.scheduling.oracle import Demand, Project
from validation.report import log
from validation.report.record import CheckResult, RequirementResult, Run, ScenarioRecord
from validation.report.rejudge import oracle_record

PODS = 16
PROJECT = "team-a"
QUOTAS_MILLI = {PROJECT: 16_000}
STEP_MS = 4000


def write_log(directory: Path, *, steps: int, changes: int) -> int:
    """Write the log of this many steps with this many changes of each pod, and return the number of its events."""
    directory.mkdir(parents=True)
    names = [f"{SCENARIO}/step-{number:05}" for number in range(steps)]
    invariants = [f"{SCENARIO}/invariant/{name}" for name in INVARIANTS if name not in OF_LIMITED_PROJECTS]
    encode, events = msgspec.json.Encoder(order="sorted").encode, 0
    with (directory / log.NAME).open("wb") as file:
        for entry in _entries(names, invariants, changes):
            events += isinstance(entry, log.Observed)
            file.write(encode(entry) + b"\n")
    return events


def _entries(names: list[str], invariants: list[str], changes: int) -> Iterator[log.Entry]:
    yield _opened(names, invariants)
    start: list[Event] = [ProjectSet(0, PROJECT, 16_000), NodeSeen(0, "dgx1-1", 8), NodeSeen(0, "dgx1-2", 8)]
    yield from (log.Observed(event) for event in start)
    yield log.ScenarioBegan(SCENARIO, 0)
    number = len(start)
    for index, name in enumerate(names):
        now_ms = index * STEP_MS
        yield log.CheckBegan(name, now_ms)
        before = _end_of_step(index - 1, now_ms) if index else []
        first = len(before) + 1
        during = [
            *before,
            CommandRun(now_ms, "submit", PROJECT, (f"job-{index}",)),
            *_step(index, now_ms, changes),
        ]
        yield from (log.Observed(event, "1", "2026-01-01T00:00:00Z") for event in during)
        window = Window(number, number + first, number + len(during), now_ms + 10, now_ms + STEP_MS - 10)
        yield log.CheckEnded(name, Circumstances(), now_ms, now_ms + STEP_MS, window=window)
        number += len(during)
    end_ms = len(names) * STEP_MS
    for name in invariants:
        yield log.CheckBegan(name, end_ms)
        yield log.CheckEnded(name, Circumstances(), end_ms, end_ms, window=Window(0, 0, number, 0, end_ms))
    yield log.Closed("2026-01-01T11:00:00Z", end_ms, {})


def _opened(names: list[str], invariants: list[str]) -> log.Opened:
    demands = [Demand(PROJECT, "job", 1000, preemptible=True, priority=50, pods=PODS, min_member=PODS)]
    steps = [
        CheckResult(
            id=name,
            scenario=SCENARIO,
            kind="step",
            title="A job of sixteen pods uses every GPU",
            source="§4.8",
            verdict="INCONCLUSIVE",
            least=Evidence(2, 16, PODS, PODS),
            within_ms=3000,
            hold_ms=500,
            expected=Expectation({PROJECT: 16_000}, total_milli=16_000, running=1),
            oracle=oracle_record(16_000, [Project(PROJECT, 16_000)], demands),
        )
        for name in names
    ]
    steps += [
        CheckResult(
            id=name, scenario=SCENARIO, kind="invariant", title=name, source="", verdict="INCONCLUSIVE"
        )
        for name in invariants
    ]
    report = three_steps()
    report.steps = steps
    report.requirements = [
        RequirementResult(
            "fairness.full",
            "§4.8",
            "It is full.",
            "16",
            "table",
            "INCONCLUSIVE",
            checks=[*names, *invariants],
        )
    ]
    report.scenarios = [
        ScenarioRecord(
            SCENARIO, "Utilization", "§4.8", "long.scenario.yaml", "abc", quotas_milli=QUOTAS_MILLI
        )
    ]
    report.volatile.run = Run("long", ["muster", "validate"], "2026-01-01T00:00:00Z", "", 0)
    return log.Opened(report, [*names, *invariants])


def _step(index: int, now_ms: int, changes: int) -> Iterator[Event]:
    """Yield the events of a step: its pods are created, bound and run; their other changes are changes of priority."""
    for change in range(changes - 1):
        for pod in range(PODS):
            yield _pod(index, pod, now_ms + 10 + change * 50 + pod, change)


def _end_of_step(index: int, now_ms: int) -> list[Event]:
    gone = [_pod(index, pod, now_ms, 3, "deleted") for pod in range(PODS)]
    return [CommandRun(now_ms, "delete", PROJECT, (f"job-{index}",)), *gone]


def _pod(index: int, pod: int, t_ms: int, change: int, what: str = "modified") -> PodSeen:
    return PodSeen(
        t_ms=t_ms,
        change=what if change else "added",
        uid=f"{index:08x}-6a52-4c64-9ae1-0000000000{pod:02x}",
        namespace=f"muster-{PROJECT}",
        project=PROJECT,
        workload=f"job-{index}",
        pod=f"job-{index}-{pod}",
        phase="Running" if change > 1 else "Pending",
        node=f"dgx1-{1 + pod // 8}" if change else "",
        devices=(pod % 8,) if change else (),
        gpu_milli=1000,
        priority=max(0, change - 2),
        submitted_us=index,
        min_member=PODS,
    )
