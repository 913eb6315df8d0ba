"""Judges what the orchestrator shows: its own lists, compared with what the API server said to the recorder.

The lists are JSON, an array of objects. Of a list only the fields count that are named here. A list is right if it is
that of some moment while it was made; of projects that the run did not create, nothing is compared.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Any, Final

import msgspec

from validation.judge import units
from validation.judge.check_verdict import Circumstances, Judgement, Window, judge_unrun, without_gaps
from validation.judge.events import AnswerSeen, PodSeen
from validation.judge.evidence import NO_EVIDENCE, Evidence, shortfall
from validation.judge.state import State
from validation.judge.timeline import Timeline
from validation.judge.verdict import Verdict

JOBS: Final = "jobs"
NODES: Final = "nodes"
PROJECTS: Final = "projects"

Row = Mapping[str, Any]
MAX_DIFFERENCES: Final = 20
"""Differences of one list that are said; how many there are more is said too."""


@dataclass(frozen=True, slots=True)
class View:
    """A list that the orchestrator shows: the command, what is proven, the fields that count, and how to compare."""

    line: str
    title: str
    fields: tuple[str, ...]
    compare: Callable[[State, Sequence[Row]], Iterator[str]]


@dataclass(frozen=True, slots=True)
class ViewResult:
    """The judgement on a list, what is not as it should be in it, and what the judgement rests on."""

    judgement: Judgement
    differences: Sequence[str] = ()
    evidence: Evidence = NO_EVIDENCE


def judge_view(
    name: str, circumstances: Circumstances, timeline: Timeline, window: Window | None, *, least: Evidence
) -> ViewResult:
    """The verdict on what was shown in the window: FAIL for what is not so, or if the command failed."""
    unrun = judge_unrun(circumstances)
    if unrun is not None:
        return ViewResult(unrun)
    if window is None:
        return ViewResult(Judgement(Verdict.INCONCLUSIVE, "no step of the scenario ran"))
    evidence = timeline.evidence_before(window.until_event, timeline.projects)
    missing = shortfall(least, evidence)
    if missing:
        return ViewResult(Judgement(Verdict.ERROR, missing), evidence=evidence)
    during = timeline.events[window.start_event : window.until_event]
    answer = next((e for e in during if isinstance(e, AnswerSeen) and e.view == name), None)
    if answer is None:
        return ViewResult(Judgement(Verdict.INCONCLUSIVE, "nothing was shown"), evidence=evidence)
    judgement, differences = _judge_answer(answer, timeline, window)
    return ViewResult(without_gaps(judgement, timeline, window), differences, evidence)


def _judge_answer(answer: AnswerSeen, timeline: Timeline, window: Window) -> tuple[Judgement, Sequence[str]]:
    """The verdict on what was printed, and how it differs from the state."""
    if answer.exit_code:
        reason = f"`{answer.line}` ended with exit code {answer.exit_code}: {answer.problem or 'no output'}"
        return Judgement(Verdict.FAIL, reason), ()
    rows = rows_of(answer.output)
    if rows is None:
        return Judgement(Verdict.FAIL, f"`{answer.line}` printed no list of objects"), ()
    differences = _least_differences(VIEWS[answer.view], rows, timeline, window)
    if not differences:
        return Judgement(Verdict.PASS), ()
    more = len(differences) - MAX_DIFFERENCES
    said = [*differences[:MAX_DIFFERENCES], *([f"and {more} more"] if more > 0 else [])]
    return Judgement(Verdict.FAIL, f"`{answer.line}` shows what is not so"), said


def rows_of(output: str) -> list[Row] | None:
    """The objects of a JSON array; None if it is none."""
    try:
        rows = json.loads(output)
    except (ValueError, RecursionError):
        return None
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        return None
    return rows


def only_judged(answer: AnswerSeen) -> AnswerSeen:
    """The answer with no more than what a verdict follows from; whose a job is, is nobody's business."""
    rows = rows_of(answer.output)
    if rows is None or answer.view not in VIEWS:
        return msgspec.structs.replace(answer, output="", problem="")
    fields = VIEWS[answer.view].fields
    judged = [{field: row[field] for field in fields if field in row} for row in rows]
    for row in judged:
        if isinstance(row.get("user"), str) and row["user"]:
            row["user"] = "somebody"
    return msgspec.structs.replace(answer, output=json.dumps(judged), problem="")


def _least_differences(view: View, rows: Sequence[Row], timeline: Timeline, window: Window) -> list[str]:
    """How the list differs from what was true, at the moment while it was made at which it differs least."""
    state = timeline.state_before(window.start_event)
    best = list(view.compare(state, rows))
    for event in timeline.events[window.start_event : window.until_event]:
        if not best:
            break
        state.apply(event)
        best = min(best, list(view.compare(state, rows)), key=len)
    return best


def _jobs(state: State, rows: Sequence[Row]) -> Iterator[str]:
    """Every job with its project, type and user, whether it runs, its nodes, GPUs and pods, and for how long."""
    pods = {key: members for key, members in state.by_workload().items() if key[0] in state.quotas}
    known = {*pods, *(key for key in state.expected if key[0] in state.quotas)}
    running, pending = state.running(), state.pending()
    ours = state.quotas.keys() | state.deleted_projects
    shown = [(row.get("project"), row.get("name")) for row in rows if _text(row.get("project")) in ours]
    yield from _names("job", [f"{project}/{name}" for project, name in shown], [f"{p}/{n}" for p, n in known])
    for row in rows:
        key = (str(row.get("project")), str(row.get("name")))
        if key not in known:
            continue
        members = pods.get(key, [])
        word = "Running" if key in running else "Pending" if key in pending else row.get("status")
        held = [pod for pod in members if pod.holds]
        nodes = sorted({pod.node for pod in held})
        yield from _field(key, row, "status", word)
        yield from _gpus(key, row, "gpusAllocated", sum(pod.gpu_milli for pod in held))
        yield from _gpus(key, row, "gpus", sum(pod.gpu_milli for pod in members if not pod.finished))
        shown_nodes = row.get("nodes")
        if not isinstance(shown_nodes, list) or sorted(map(str, shown_nodes)) != nodes:
            yield f"{_spell(key)}: nodes is {_short(shown_nodes)}, not {_short(nodes)}"
        if any(not pod.preemptible for pod in members):
            yield from _field(key, row, "type", "Interactive")
        if not (isinstance(row.get("user"), str) and row["user"]):
            yield f"{_spell(key)}: there is no user"
        seconds = row.get("durationSeconds")
        if not isinstance(seconds, int) or isinstance(seconds, bool) or seconds < 0:
            yield f"{_spell(key)}: durationSeconds is {_short(seconds)}"
        yield from _pods_of_job(key, row, members)


def _pods_of_job(key: tuple[str, str], row: Row, members: Sequence[PodSeen]) -> Iterator[str]:
    instances = row.get("instances")
    shown = {
        str(pod.get("name")): (str(pod.get("node") or ""), str(pod.get("gpuDevices") or ""))
        for pod in (instances if isinstance(instances, list) else [])
        if isinstance(pod, dict)
    }
    for pod in members:
        devices = ",".join(map(str, pod.devices))
        if shown.get(pod.pod) != (pod.node, devices):
            where = f"on {pod.node} with GPUs {devices or 'none'}" if pod.node else "without a node"
            yield f"{_spell(key)}: pod {pod.pod} is {_short(shown.get(pod.pod))}, not {where}"


def _nodes(state: State, rows: Sequence[Row]) -> Iterator[str]:
    """Every node with GPUs, how many, and how many of them are allocated."""
    gpus = {name: count for name, count in state.nodes.items() if count}
    held = dict.fromkeys(gpus, 0)
    for pod in state.holding():
        held[pod.node] = held.get(pod.node, 0) + pod.gpu_milli
    shown = [row for row in rows if _milli(row.get("gpus"))]
    yield from _names("node with GPUs", [str(row.get("name")) for row in shown], list(gpus))
    for row in shown:
        name = str(row.get("name"))
        if name in gpus:
            yield from _gpus((name,), row, "gpus", gpus[name] * 1000)
            yield from _gpus((name,), row, "gpusAllocated", held[name])


def _projects(state: State, rows: Sequence[Row]) -> Iterator[str]:
    """Every project with its quota, when it was created, and its node affinities: the run asks for none."""
    shown = {str(row.get("name")): row for row in rows}
    ours = state.quotas.keys() | state.deleted_projects
    yield from _names("project", [name for name in shown if name in ours], list(state.quotas))
    if len(shown) != len(rows):
        yield "a project is there twice"
    for name, quota_milli in state.quotas.items():
        row = shown.get(name)
        if row is None:
            continue
        spec = row.get("spec")
        spec = spec if isinstance(spec, dict) else {}
        gpu = spec.get("gpu")
        yield from _gpus((name,), gpu if isinstance(gpu, dict) else {}, "quota", quota_milli)
        if not (isinstance(row.get("created"), str) and row["created"]):
            yield f"{name}: there is no time of its creation"
        affinity = spec.get("nodeAffinity")
        if not isinstance(affinity, dict) or any(affinity.values()):
            yield f"{name}: nodeAffinity is {_short(affinity)}, and none was asked for"


def _names(noun: str, shown: Sequence[str], actual: Sequence[str]) -> Iterator[str]:
    """Which are missing, which are not there, and which are there twice."""
    yield from (f"{noun} {name} is missing" for name in sorted(set(actual) - set(shown)))
    yield from (f"there is no {noun} {name}" for name in sorted(set(shown) - set(actual)))
    yield from (f"{noun} {name} is there twice" for name in sorted({n for n in shown if shown.count(n) > 1}))


def _field(key: tuple[str, ...], row: Row, field: str, actual: object) -> Iterator[str]:
    if row.get(field) != actual:
        yield f"{_spell(key)}: {field} is {_short(row.get(field))}, not {_short(actual)}"


def _gpus(key: tuple[str, ...], row: Row, field: str, actual_milli: int) -> Iterator[str]:
    if _milli(row.get(field)) != actual_milli:
        yield f"{_spell(key)}: {field} is {_short(row.get(field))}, not {units.gpus(actual_milli)}"


def _milli(gpus: object) -> int | None:
    """Thousandths of a number of GPUs, exactly; None if it is none."""
    if isinstance(gpus, bool) or not isinstance(gpus, str | int):
        return None
    try:
        milli = Decimal(gpus) * 1000
        return int(milli) if milli == milli.to_integral_value() else None
    except (InvalidOperation, OverflowError, ValueError):
        return None


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _spell(key: tuple[str, ...]) -> str:
    return "/".join(key)


def _short(value: object) -> str:
    text = json.dumps(value)
    return text if len(text) <= 80 else f"{text[:79]}\N{HORIZONTAL ELLIPSIS}"


VIEWS: Final[Mapping[str, View]] = {
    JOBS: View(
        "muster list jobs -A -o json",
        "The list of jobs shows every job with its user, type, node, GPUs and run time, and whether it waits",
        (
            "project",
            "name",
            "status",
            "gpus",
            "gpusAllocated",
            "nodes",
            "type",
            "user",
            "durationSeconds",
            "instances",
        ),
        _jobs,
    ),
    NODES: View(
        "muster top node -o json",
        "The list of nodes shows every node with GPUs, how many it has, and how many are allocated",
        ("name", "gpus", "gpusAllocated"),
        _nodes,
    ),
    PROJECTS: View(
        "muster list projects -o json",
        "The list of projects shows every project with its quota, when it was created, and its node affinities",
        ("name", "created", "spec"),
        _projects,
    ),
}
