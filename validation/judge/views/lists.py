"""Judges the orchestrator's own lists, compared with the events of the API server.

The lists are JSON, an array of objects. Only the fields named here are compared. A list is correct if it shows the
state at any moment between the start and the end of the command. Projects that the run did not create are not compared.
"""

import functools
import json
import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final

import msgspec

from validation.judge import units
from validation.judge.api import containers
from validation.judge.check_verdict import Circumstances, Judgement, Window, judge_unrun, without_gaps
from validation.judge.events import AnswerSeen, CommandRun, NodeSeen, PodSeen, ProjectDeleted, ProjectSet
from validation.judge.evidence import NO_EVIDENCE, Evidence, shortfall
from validation.judge.state import State
from validation.judge.timeline import Timeline
from validation.judge.verdict import Verdict
from validation.judge.views import analytics, overview
from validation.judge.views.job_table import compare_table, presence, rows_of_table
from validation.judge.views.shown import (
    Key,
    Row,
    View,
    field_is,
    gpus_are,
    milli,
    names,
    scalar,
    short,
    spell,
    text,
    texts,
)

JOBS: Final = "jobs"
TABLE: Final = "table"
NODES: Final = "nodes"
PROJECTS: Final = "projects"
OVERVIEW: Final = "overview"
ANALYTICS: Final = "analytics"
OF_ONE_JOB: Final = "jobs/"
"""The prefix of project and name in the view of one job."""

MAX_DIFFERENCES: Final = 20
"""Maximum number of printed differences of one list; the number of others is printed too."""
MAX_COUNTED: Final = 10_000
"""Maximum number of counted differences of one list."""
MAX_PROBLEM: Final = 500
_DURATION: Final = re.compile(r"(?:([0-9]{1,6})h)?(?:([0-9]{1,6})m)?(?:([0-9]{1,9})s)?")
_JOB: Final = re.compile(rf"{OF_ONE_JOB}([a-z0-9.-]{{1,63}})/([a-z0-9.-]{{1,63}})")


@dataclass(frozen=True, slots=True)
class ViewResult:
    """The judgement on a list, its differences from the expected content, and the evidence."""

    judgement: Judgement
    differences: Sequence[str] = ()
    evidence: Evidence = NO_EVIDENCE


def judge_view(
    name: str, circumstances: Circumstances, timeline: Timeline, window: Window | None, *, least: Evidence
) -> ViewResult:
    """Return the verdict on the view in the window: FAIL if it differs from the state, or if the command failed."""
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
    judgement, differences = judge_answer(answer, timeline, window)
    if is_container(name) and judgement.verdict == Verdict.PASS:
        earlier = timeline.events[window.from_event : window.start_event]
        state = timeline.state_before(window.start_event)
        judgement = containers.judge_container(answer, during, earlier, state)
    return ViewResult(without_gaps(judgement, timeline, window), differences, evidence)


def judge_answer(answer: AnswerSeen, timeline: Timeline, window: Window) -> tuple[Judgement, Sequence[str]]:
    """Return the verdict on the output, and its differences from the state while it was made."""
    if answer.exit_code:
        problem = answer.problem or "no output"
        ended = "" if is_page(answer.view) else f" ended with exit code {answer.exit_code}"
        return Judgement(Verdict.FAIL, f"`{answer.line}`{ended}: {problem[:MAX_PROBLEM]}"), ()
    if is_container(answer.view):
        return Judgement(Verdict.PASS), ()
    view = view_of(answer.view)
    rows = rows_of(view, answer.output)
    if rows is None:
        subject = (
            "object" if view.is_one else "table with all columns" if view.is_table else "list of objects"
        )
        return Judgement(Verdict.FAIL, f"`{answer.line}` printed no {subject}"), ()
    differences = _least_differences(view, answer, rows, timeline, window)
    if not differences:
        return Judgement(Verdict.PASS), ()
    more = len(differences) - MAX_DIFFERENCES
    said = [*differences[:MAX_DIFFERENCES], *([f"and {more} more"] if more > 0 else [])]
    return Judgement(Verdict.FAIL, f"`{answer.line}` differs from the state of the cluster"), said


def rows_of(view: View, output: str) -> list[Row] | None:
    """Return the objects of a JSON array, the one object, or the rows of a table; None if the output has another form.

    A redacted record has the judged cells of a table as JSON.
    """
    if view.is_table and (table := rows_of_table(output)) is not None:
        return table
    try:
        rows = json.loads(output, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return None
    rows = [rows] if view.is_one else rows
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        return None
    return rows


def only_judged(answer: AnswerSeen, projects: Collection[str]) -> AnswerSeen:
    """Return the answer with only the fields that the verdict on these projects uses. The owners of jobs are left
    out.

    Values with another nesting than expected are left out too: a missing value fails in the same way.
    """
    if is_container(answer.view):
        return msgspec.structs.replace(answer, output=containers.only_judged(answer), problem="")
    view = view_of(answer.view) if is_view(answer.view) else None
    rows = rows_of(view, answer.output) if view is not None else None
    if rows is None or view is None:
        return msgspec.structs.replace(answer, output="", problem="")
    if view.keep is not None:
        return msgspec.structs.replace(answer, output=json.dumps(view.keep(rows, projects)), problem="")
    ours = rows if view.project is None else [row for row in rows if text(row, view.project) in projects]
    judged = [
        {field: view.judged[field](row[field]) for field in view.judged if field in row} for row in ours
    ]
    output = json.dumps(judged if not view.is_one else judged[0] if judged else {})
    return msgspec.structs.replace(answer, output=output, problem="")


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")


def _least_differences(
    view: View, answer: AnswerSeen, rows: Sequence[Row], timeline: Timeline, window: Window
) -> list[str]:
    """Return the differences from the state at one moment while the list was made: the moment with the fewest
    differences.
    """
    state = timeline.state_before(window.start_event)
    if view.past is not None:
        events = timeline.events[: window.until_event]
        return list(islice(view.past(events, answer, state, rows), MAX_COUNTED))
    best = _compare(view, state, rows)
    for event in timeline.events[window.start_event : window.until_event]:
        if not best:
            break
        state.apply(event)
        if isinstance(event, PodSeen | NodeSeen | ProjectSet | ProjectDeleted | CommandRun):
            best = min(best, _compare(view, state, rows), key=len)
    return best


def _compare(view: View, state: State, rows: Sequence[Row]) -> list[str]:
    return list(islice(view.compare(state, rows), MAX_COUNTED))


def _jobs(state: State, rows: Sequence[Row]) -> Iterator[str]:
    """Yield the differences of all jobs: project, type, user, status, nodes, GPUs, pods and run time."""
    pods = {key: members for key, members in state.by_workload().items() if key[0] in state.quotas}
    known = {*pods, *(key for key in state.expected if key[0] in state.quotas)}
    projects = state.quotas.keys() | state.deleted_projects
    ours = [row for row in rows if text(row, "project") in projects]
    shown = [f"{text(row, 'project')}/{text(row, 'name')}" for row in ours]
    yield from names("job", shown, [f"{project}/{name}" for project, name in known])
    running, pending = state.running() - state.deleted, state.pending()
    for row in ours:
        key = (text(row, "project"), text(row, "name"))
        if key in known:
            is_submitted = key in state.expected
            yield from _status(key, row, pods.get(key, []), runs=key in running, waits=key in pending)
            yield from _rest_of_job(key, row, pods.get(key, []), is_submitted=is_submitted)


def _one_job(state: State, rows: Sequence[Row], key: Key) -> Iterator[str]:
    """Yield the differences of the job of this project and name, as for the list of all jobs."""
    members = state.by_workload().get(key, [])
    shown = [(text(row, "project"), text(row, "name")) for row in rows]
    if shown != [key]:
        yield f"the answer does not show {spell(key)}"
    elif not members and key not in state.expected:
        yield f"there is no job {spell(key)}"
    else:
        runs, waits = key in state.running() - state.deleted, key in state.pending()
        yield from _status(key, rows[0], members, runs=runs, waits=waits)
        yield from _rest_of_job(key, rows[0], members, is_submitted=key in state.expected)


def _no_list(_state: State, _rows: Sequence[Row]) -> Iterator[str]:
    """Yield nothing: the output of a container is not a list of objects."""
    yield from ()


def _rest_of_job(key: Key, row: Row, members: Sequence[PodSeen], *, is_submitted: bool) -> Iterator[str]:
    """Yield the differences of a job except those of its status."""
    yield from _gpus_of_job(key, row, members)
    yield from _run_of_job(key, row, members, is_submitted=is_submitted)
    yield from _pods_of_job(key, row, members)


def _status(key: Key, row: Row, members: Sequence[PodSeen], *, runs: bool, waits: bool) -> Iterator[str]:
    """Yield the difference in the status.

    A job has one status for all its pods. A problem of one pod has precedence over `Running`.
    """
    is_amiss = any(pod.phase == "Failed" or (pod.node and pod.cause is not None) for pod in members)
    if runs and not is_amiss:
        yield from field_is(key, row, "status", "Running")
    elif waits and members and not any(pod.finished or pod.terminating for pod in members):
        yield from field_is(key, row, "status", "Pending")
    elif text(row, "status") == ("Pending" if runs else "Running" if waits else None):
        yield f"{spell(key)}: status is {short(row.get('status'))}, and it {'runs' if runs else 'waits'}"


def _gpus_of_job(key: Key, row: Row, members: Sequence[PodSeen]) -> Iterator[str]:
    """Yield the differences in the GPUs that a job holds, on which nodes, and in the GPUs that it requests.

    The requested GPUs include those of pods that do not exist yet, and of pods that do not exist any more.
    """
    held = [pod for pod in members if pod.holds]
    yield from gpus_are(key, row, "gpusAllocated", sum(pod.gpu_milli for pod in held))
    active = [pod for pod in members if not (pod.finished or pod.terminating)]
    requested_milli, shown_milli = sum(pod.gpu_milli for pod in active), milli(row.get("gpus"))
    if len(active) == len(members) > 0:
        yield from gpus_are(key, row, "gpus", requested_milli)
    elif shown_milli is None or shown_milli < requested_milli:
        yield f"{spell(key)}: gpus is {short(row.get('gpus'))}, not {units.gpus(requested_milli)} or more"
    yield from _nodes_of_job(key, row.get("nodes"), members)


def _nodes_of_job(key: Key, shown: object, members: Sequence[PodSeen]) -> Iterator[str]:
    nodes = sorted({pod.node for pod in members if pod.holds})
    if not isinstance(shown, list) or not all(isinstance(node, str) for node in shown):
        yield f"{spell(key)}: nodes is {short(shown)}"
    elif sorted(shown) != nodes and (
        nodes or Counter(shown) - Counter({pod.node for pod in members if pod.node})
    ):
        yield f"{spell(key)}: nodes is {short(shown)}, not {short(nodes)}"


def _run_of_job(key: Key, row: Row, members: Sequence[PodSeen], *, is_submitted: bool) -> Iterator[str]:
    """Yield the differences in type, user and run time. Only jobs that the command submitted must have a user."""
    can_be_preempted = all(pod.preemptible for pod in members)
    if any(pod.interactive for pod in members):
        yield from field_is(key, row, "type", "Interactive")
    elif (
        is_submitted and members and text(row, "type") in ({"", "Interactive"} if can_be_preempted else {""})
    ):
        yield f"{spell(key)}: type is {short(row.get('type'))}"
    if is_submitted and not text(row, "user"):
        yield f"{spell(key)}: there is no user"
    seconds = row.get("durationSeconds")
    if not isinstance(seconds, int) or isinstance(seconds, bool) or seconds < 0:
        yield f"{spell(key)}: durationSeconds is {short(seconds)}"
    elif seconds and not any(pod.node for pod in members):
        yield f"{spell(key)}: durationSeconds is {short(seconds)}, and it has not run"


def _pods_of_job(key: Key, row: Row, members: Sequence[PodSeen]) -> Iterator[str]:
    """Yield the differences in the pods. A difference has no names of pods, because these change with each run."""
    instances = row.get("instances")
    pods = [pod for pod in (instances if isinstance(instances, list) else []) if isinstance(pod, dict)]
    shown = {text(pod, "name"): (text(pod, "node"), text(pod, "gpuDevices")) for pod in pods}
    for pod in members:
        devices = ",".join(map(str, pod.devices))
        if shown.get(pod.pod) != (pod.node, devices):
            where = f"on {pod.node} with GPUs {devices or 'none'}" if pod.node else "without a node"
            yield f"{spell(key)}: a pod {where} is not shown so"
    if len(pods) > len(members):
        yield f"{spell(key)}: {len(pods)} pods are shown, not {len(members)}"


def _nodes(state: State, rows: Sequence[Row]) -> Iterator[str]:
    """Yield the differences of each node with GPUs: the number of its GPUs, with or without unhealthy ones, and the
    allocated GPUs.
    """
    gpus = {name: count for name, count in state.nodes.items() if count}
    held = dict.fromkeys(gpus, 0)
    for pod in state.holding():
        held[pod.node] = held.get(pod.node, 0) + pod.gpu_milli
    shown = [row for row in rows if text(row, "name") in gpus or _has_healthy_gpus(row)]
    yield from names("node with GPUs", [text(row, "name") for row in shown], list(gpus))
    for row in shown:
        name = text(row, "name")
        if name not in gpus:
            continue
        total, unhealthy = milli(row.get("gpus")), milli(row.get("gpusUnhealthy", "0"))
        if total is None or unhealthy is None or not total - max(0, unhealthy) <= gpus[name] * 1000 <= total:
            yield f"{name}: gpus is {short(row.get('gpus'))}, not {gpus[name]}"
        yield from gpus_are((name,), row, "gpusAllocated", held[name])


def _has_healthy_gpus(row: Row) -> bool:
    """Return whether the row shows GPUs that pods could use. A value that is not a number counts as 0."""
    total, unhealthy = milli(row.get("gpus")), milli(row.get("gpusUnhealthy", "0"))
    return total is not None and total > max(0, unhealthy or 0)


def _projects(state: State, rows: Sequence[Row]) -> Iterator[str]:
    """Yield the differences of each project: quota, limit of its interactive jobs, creation, and node affinities."""
    projects = state.quotas.keys() | state.deleted_projects
    ours = [row for row in rows if text(row, "name") in projects]
    yield from names("project", [text(row, "name") for row in ours], list(state.quotas))
    for row in ours:
        name = text(row, "name")
        if name not in state.quotas:
            continue
        spec = row.get("spec")
        spec = spec if isinstance(spec, dict) else {}
        gpu = spec.get("gpu")
        yield from gpus_are((name,), gpu if isinstance(gpu, dict) else {}, "quota", state.quotas[name])
        if not text(row, "created"):
            yield f"{name}: there is no time of its creation"
        yield from _limits(name, spec, state.projects[name])


def _limits(name: str, spec: Row, project: ProjectSet) -> Iterator[str]:
    """Yield the differences in the time limit of interactive jobs, and in the groups of nodes of the jobs."""
    limit_ms = _milliseconds(spec.get("interactiveTimeLimit"))
    if limit_ms != project.interactive_limit_ms:
        shown = short(spec.get("interactiveTimeLimit"))
        yield f"{name}: interactiveTimeLimit is {shown}, not {project.interactive_limit_ms // 1000}s"
    affinity = spec.get("nodeAffinity")
    types = {"train": list(project.train_node_types), "interactive": list(project.interactive_node_types)}
    expected = {key: value for key, value in types.items() if value}
    if not isinstance(affinity, dict) or {key: value for key, value in affinity.items() if value} != expected:
        instead = f"not {short(expected)}" if expected else "and none was asked for"
        yield f"{name}: nodeAffinity is {short(affinity)}, {instead}"


def _milliseconds(duration: object) -> int | None:
    """Return the milliseconds of `15s`, `2m` or `1h30m`; 0 without a duration, None if the text is not a duration.

    Example: `_milliseconds("1h30m")` returns `5400000`.
    """
    if duration is None or duration == "":
        return 0
    match = _DURATION.fullmatch(duration) if isinstance(duration, str) else None
    if match is None:
        return None
    hours, minutes, seconds = (int(part or 0) for part in match.groups())
    return (hours * 3600 + minutes * 60 + seconds) * 1000


def _has_user(user: object) -> object:
    return "somebody" if isinstance(user, str) and user else None


def _instances(pods: object) -> object:
    fields = ("name", "node", "gpuDevices")
    return [
        {field: scalar(pod[field]) for field in fields if field in pod}
        for pod in (pods if isinstance(pods, list) else [])
        if isinstance(pod, dict)
    ]


def _quota(spec: object) -> object:
    """Return the quota and the limits of a project, without its members."""
    judged: dict[str, object] = {}
    if isinstance(spec, dict):
        gpu, affinity = spec.get("gpu"), spec.get("nodeAffinity")
        if isinstance(gpu, dict):
            judged["gpu"] = {"quota": scalar(gpu.get("quota"))}
        if isinstance(affinity, dict):
            judged["nodeAffinity"] = {key: texts(value) or "none" for key, value in affinity.items() if value}
        if spec.get("interactiveTimeLimit") not in (None, ""):
            judged["interactiveTimeLimit"] = text(spec, "interactiveTimeLimit") or "none"
    return judged


VIEWS: Final[Mapping[str, View]] = {
    JOBS: View(
        "muster list jobs -A -o json",
        "The list of jobs shows every job with its user, type, node, GPUs and run time, and whether it waits",
        _jobs,
        {
            **dict.fromkeys(("project", "name", "status", "gpus", "gpusAllocated"), scalar),
            **dict.fromkeys(("type", "durationSeconds"), scalar),
            "nodes": texts,
            "user": _has_user,
            "instances": _instances,
        },
        project="project",
    ),
    NODES: View(
        "muster top node -o json",
        "The list of nodes shows every node with GPUs, how many it has, and how many are allocated",
        _nodes,
        dict.fromkeys(("name", "gpus", "gpusUnhealthy", "gpusAllocated"), scalar),
    ),
    PROJECTS: View(
        "muster list projects -o json",
        "The list of projects shows every project with its quota, when it was created, and its node affinities",
        _projects,
        {**dict.fromkeys(("name", "created"), scalar), "spec": _quota},
        project="name",
    ),
    TABLE: View(
        "muster list jobs -A",
        "The table of jobs has the columns of the paper, and a row for each job with its status, node, type and GPUs",
        compare_table,
        {
            **dict.fromkeys(("name", "status", "node", "type", "project", "gpus", "created by cli"), scalar),
            **dict.fromkeys(("age", "image", "user", "service url(s)"), presence),
        },
        project="project",
        is_table=True,
    ),
    OVERVIEW: overview.VIEW,
    ANALYTICS: analytics.VIEW,
}


def is_page(name: str) -> bool:
    """Return whether the view is a page for browsers, and not the output of a command."""
    return name in VIEWS and VIEWS[name].page != ""


def is_container(name: str) -> bool:
    """Return whether the view is about a container, and not a list."""
    return containers.kind_of(name) != ""


def is_view(name: str) -> bool:
    """Return whether the name is the name of a list, or of the view of one job."""
    return name in VIEWS or _JOB.fullmatch(name) is not None or is_container(name)


def job_of(name: str) -> Key | None:
    """Return the project and the name of the job that a view is about; None for lists."""
    match = _JOB.fullmatch(name)
    if match is not None:
        return match[1], match[2]
    return containers.job_of(name) if is_container(name) else None


def view_of(name: str) -> View:
    """Return the list of that name, or the view of the job or container that it names. Raises KeyError."""
    key = job_of(name)
    if key is None:
        return VIEWS[name]
    project, workload = key
    if is_container(name):
        kind = containers.kind_of(name)
        line = containers.LINES[kind].format(project=project, name=workload)
        return View(line, containers.TITLES[kind].format(name=workload), _no_list, {})
    return View(
        f"muster get {workload} -p {project} -o json",
        f"{workload} is described with its user, type, node, GPUs and run time, and whether it waits",
        functools.partial(_one_job, key=(project, workload)),
        VIEWS[JOBS].judged,
        project=VIEWS[JOBS].project,
        is_one=True,
    )
