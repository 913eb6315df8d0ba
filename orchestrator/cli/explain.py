"""`muster explain`: the reason of a pending job, remedies, its project, and the jobs with GPUs."""

import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from orchestrator.cli.cluster_names import completing
from orchestrator.cli.message import say
from orchestrator.cli.options import Command
from orchestrator.cli.outcome import gpus, json_option, place_record, warn
from orchestrator.cli.output import age, document, table
from orchestrator.cli.settings import Settings
from orchestrator.errors import UsageError

if TYPE_CHECKING:
    from orchestrator.client.aio import AsyncClient
    from orchestrator.client.jobs import Scope
    from orchestrator.cluster.objects import Project
    from orchestrator.planner.model import Snapshot
    from orchestrator.simulation.capture import Capture
    from orchestrator.simulation.diagnosis import Diagnosis
    from orchestrator.views.jobs import WorkloadView

ENTITLEMENT_HEADER: Final = ("PROJECT", "QUOTA", "LIMIT", "HELD", "FAIR SHARE")
HOLDERS_HEADER: Final = ("PROJECT", "WORKLOAD", "GPUs", "SINCE", "PREEMPTIBLE", "NODES")
MAX_HOLDERS: Final = 30
MAX_CHANGED: Final = 3
_UNSEEN: Final = (
    "(to show remedies and the jobs that hold the GPUs, explain needs rights to read all nodes and pods)"
)


@click.command("explain", cls=Command, no_args_is_help=True)
@click.argument("name", shell_complete=completing("jobs"))
@click.option(
    "--from",
    "file",
    type=click.Path(path_type=Path),
    help="Read this file of `muster snapshot` instead of the live cluster.",
)
@json_option()
def explain(*, name: str, file: Path | None, as_json: bool | None) -> None:
    """Explain why a job is pending, name remedies, and show its project and the jobs that hold the GPUs.

    The command runs the scheduler's rules on the present state of the cluster and writes nothing. It tries
    each remedy in the same way before it names it.
    """
    result = _in_file(file, name) if file else _in_cluster(name)
    if as_json:
        click.echo(document({"name": name, **result.answer}, "json"))
    else:
        say("\n".join(result.lines()))


def record(result: "Diagnosis") -> dict[str, Any]:
    """Return a diagnosis for programs; GPUs are decimal text."""
    return {
        "project": result.project,
        "waiting": {"pods": result.pods, "gpus": gpus(result.gpu_milli)},
        "reason": result.code,
        "message": result.message,
        "endangered": result.endangered,
        "runs": [place_record(place) for place in result.places],
        "starts": [place_record(start) for start in result.starts],
        "evicts": [{"rule": evict.rule, "message": evict.message} for evict in result.evicts],
        "wouldFit": [{"what": remedy.subject, "evicts": list(remedy.evicts)} for remedy in result.remedies],
        "projects": [
            {
                "name": level.name,
                "quota": gpus(level.quota),
                "limit": gpus(level.limit),
                "held": gpus(level.held),
                "fairShare": gpus(level.share),
            }
            for level in result.lineage
        ],
        "gpusFree": gpus(result.free_gpu_milli),
        "gpusFreeAfterDecision": gpus(result.free_after_gpu_milli),
        "startsOthers": list(result.starts_others),
        "evictsFrom": list(result.evicts_from),
        "gpusTotal": gpus(result.total_gpu_milli),
        "holders": [
            {
                **{
                    key: value
                    for key, value in asdict(holder).items()
                    if key in {"project", "name", "preemptible"}
                },
                "gpus": gpus(holder.gpu_milli),
                "nodes": list(holder.nodes),
                "startedAtUs": holder.started_at_us,
            }
            for holder in result.holders
        ],
    }


@dataclass(frozen=True, slots=True)
class Explanation:
    """The explanation of a job: sentences, its project, the jobs with GPUs; `answer` is for programs.

    `remedies` are changes that start the job. `holders` are rows of jobs with GPUs; `more` such jobs have no row.
    """

    answer: dict[str, Any]
    sentences: list[str]
    remedies: list[str] = field(default_factory=list)
    entitlement: list[Sequence[str]] = field(default_factory=list)
    closing: str = ""
    holders: list[Sequence[str]] = field(default_factory=list)
    more: int = 0

    def lines(self) -> list[str]:
        """Return the text for a terminal."""
        lines = [*self.sentences]
        if self.remedies:
            lines += ["", "It would run", *(f"- {remedy}" for remedy in self.remedies)]
        lines += ["", table(ENTITLEMENT_HEADER, self.entitlement)] if self.entitlement else []
        held_by = "GPUs" if self.answer.get("gpusTotal") == "0" else "The others"
        lead = f" {held_by} are held by" if self.holders else ""
        lines += ["", f"{self.closing}{lead}"] if self.closing else []
        lines += [table(HOLDERS_HEADER, self.holders)] if self.holders else []
        return [*lines, *([f"and {self.more} more: --json shows all"] if self.more > 0 else [])]


@dataclass(frozen=True, slots=True)
class Case:
    """A live job and its readable surroundings: the whole cluster, or at most the projects."""

    view: "WorkloadView"
    captured: "Capture | None"
    projects: "list[Project]"


async def read_case(client: "AsyncClient", name: str, project: "str | Scope | None" = None) -> Case:
    """Return the inputs of the explanation of a job. Raises NoSuchWorkload."""
    from orchestrator.cluster.errors import Forbidden
    from orchestrator.simulation.capture import capture

    view, _ = await client.describe_job(name, project=project)
    try:
        return Case(view, await capture(client.transport), [])
    except Forbidden:
        with suppress(Forbidden):  # a member without other roles sees no quotas
            return Case(view, None, await client.list_projects())
        return Case(view, None, [])


def explanation(case: Case) -> Explanation:
    """Return the explanation of a pending job; without the right to read the whole cluster, with the operator's
    reason.
    """
    from orchestrator.simulation.diagnosis import diagnose
    from orchestrator.views.containers import last_exit, restarts, runs

    view, captured = case.view, case.captured
    answer: dict[str, Any] = {
        "project": view.project,
        "status": view.status,
        "writtenByOperator": _written(view),
        "waitsBecause": view.waits_because,
        "runsOn": sorted({pod.spec.node_name for pod in view.pods if runs(pod, view.around)}),
        "lastFailure": last_exit(view.pods),
        "restarts": restarts(view.pods),
    }
    if captured is None:
        answer |= {"projects": [_status(project) for project in case.projects]}
        return _without_rights(answer, view, case.projects)
    snapshot = captured.snapshot
    workload = next((workload for workload in snapshot.workloads if workload.id == view.uid), None) or next(
        (
            workload
            for workload in snapshot.workloads
            if (workload.project, workload.name) == (view.project, view.name)
        ),
        None,
    )
    if workload is None:
        return Explanation(answer, _of_containers(view) or [_without_node(view)])
    result = diagnose(snapshot, workload)
    return _explained(result, answer | record(result), view)


def _in_file(file: Path, name: str) -> Explanation:
    """The explanation of a workload in a file."""
    from orchestrator.simulation.change import find
    from orchestrator.simulation.diagnosis import diagnose
    from orchestrator.simulation.reader import load

    snapshot = load(file)
    result = diagnose(snapshot, find(snapshot, _project_of(snapshot, name), name))
    return _explained(result, record(result))


def _in_cluster(name: str) -> Explanation:
    from orchestrator.cli.session import run

    case = run(lambda client: read_case(client, name))
    if case.captured is not None:
        warn(case.captured, left_out=False)
    return explanation(case)


def _project_of(snapshot: "Snapshot", name: str) -> str:
    project = click.get_current_context().ensure_object(Settings).project
    if project is not None:
        return project
    projects = sorted({workload.project for workload in snapshot.workloads if workload.name == name})
    if len(projects) != 1:
        raise UsageError(
            f"{name}: several projects have a workload of this name; give the project with -p"
            if projects
            else f"the file has no workload {name}"
        )
    return projects[0]


def _explained(
    result: "Diagnosis", answer: dict[str, Any], view: "WorkloadView | None" = None
) -> Explanation:
    now_us = time.time_ns() // 1000
    workload_text = f"{result.name} of {result.project}"
    lines = []
    if view is not None:
        lines += _of_containers(view)
    elif result.places:
        lines.append(f"{workload_text} runs on {', '.join(sorted({place.node for place in result.places}))}.")
    if result.endangered:
        lines.append(f"In danger: {result.endangered}.")
    if result.pods:
        lines.append(
            f"{workload_text} waits: {gpus(result.gpu_milli)} {_gpu_word(result.gpu_milli)} "
            f"in {result.pods} pod{'s' * (result.pods > 1)}."
        )
    if result.starts:
        lines.append(f"It starts now, on {', '.join(sorted({start.node for start in result.starts}))}.")
    reason = f"{result.code}: {result.message}" if result.code else ""
    if reason:
        lines.append(reason)
    changes = result.starts_others or result.evicts_from
    if reason and changes:
        lines.append(_after_decision(result))
    lines += [f"For it: {evict.message}" for evict in result.evicts]
    written = "" if view is None else _written(view)
    if written and written != reason:
        lines.append(f"Written by the operator: {written}")
    remedies = [
        remedy.subject + (f", which evicts {', '.join(remedy.evicts)}" if remedy.evicts else "")
        for remedy in result.remedies
    ]
    entitlement: list[Sequence[str]] = [
        (level.name, gpus(level.quota), gpus(level.limit), gpus(level.held), gpus(level.share))
        for level in result.lineage
    ]
    holders: list[Sequence[str]] = [
        (
            holder.project,
            holder.name,
            gpus(holder.gpu_milli),
            age((now_us - holder.started_at_us) // 1_000_000) if view and holder.started_at_us else "",
            "yes" if holder.preemptible else "no",
            ",".join(holder.nodes),
        )
        for holder in result.holders
    ]
    return Explanation(
        answer,
        lines,
        remedies,
        entitlement,
        _free(result, is_now=bool(changes)),
        holders[:MAX_HOLDERS],
        max(0, len(holders) - MAX_HOLDERS),
    )


def _written(view: "WorkloadView") -> str:
    """Return the operator's reason on a pod that has no node."""
    from orchestrator.views.containers import not_scheduled

    return next(filter(None, map(not_scheduled, view.pods)), "")


def _of_containers(view: "WorkloadView") -> list[str]:
    """Return sentences about the pods that have a node."""
    from orchestrator.views.containers import activity

    return activity(f"{view.name} of {view.project}", view.pods, view.around)


def _without_node(view: "WorkloadView") -> str:
    """Return the sentence about a job that no decision names and whose pods have no node."""
    from orchestrator.views.containers import last_exit

    if written := _written(view) or (": ".join(view.delay) if view.delay else ""):
        return f"{view.name} of {view.project} is pending: {written.rstrip('.')}."
    because = view.waits_because or last_exit(view.pods)
    end = f": {because}" if because else ""
    return f"{view.name} of {view.project} has no pending or running pod: its status is {view.status}{end}."


def _free(result: "Diagnosis", *, is_now: bool) -> str:
    """Return the sentence about the number of free GPUs, or that no node that takes pods has GPUs."""
    if not result.total_gpu_milli:
        return "No node that takes pods has GPUs."
    return f"Free{' now' if is_now else ''}: {gpus(result.free_gpu_milli)} of {gpus(result.total_gpu_milli)} GPUs."


def _after_decision(result: "Diagnosis") -> str:
    """Return the sentence that says why the figures of the reason differ from the present figures."""
    changes = [
        f"{verb} {_first_of(names)}"
        for verb, names in (("starts", result.starts_others), ("evicts", result.evicts_from))
        if names
    ]
    return (
        f"That is after the next decision, which {' and '.join(changes)}; the rest shows the present state."
    )


def _first_of(names: Sequence[str]) -> str:
    more = len(names) - MAX_CHANGED
    return ", ".join(names[:MAX_CHANGED]) + (f" and {more} more" if more > 0 else "")


def _gpu_word(gpu_milli: int) -> str:
    return "GPU" if gpu_milli <= 1000 else "GPUs"


def _without_rights(answer: dict[str, Any], view: "WorkloadView", projects: "list[Project]") -> Explanation:
    sentences = _of_containers(view) or [f"{view.name} of {view.project}: {view.status}."]
    if written := _written(view):
        sentences.append(f"Written by the operator: {written}")
    entitlement: list[Sequence[str]] = [
        tuple(_status(project)[key] for key in ("name", "quota", "limit", "held", "fairShare"))
        for project in projects
        if project.metadata.name == view.project
    ]
    return Explanation(answer, sentences, entitlement=entitlement, closing=_UNSEEN)


def _status(project: "Project") -> dict[str, str]:
    """The operator's conditions on the project."""
    spec, status = project.spec.gpu, project.status
    return {
        "name": project.metadata.name,
        "quota": str(spec.quota),
        "limit": "unlimited" if spec.limit is None else str(spec.limit),
        "held": str(status.allocated_gpu),
        "fairShare": str(status.fair_share_gpu),
    }
