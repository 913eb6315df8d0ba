"""`muster explain`: why a job waits, what would make it fit, where its project stands, and who holds the GPUs."""

import time
from contextlib import suppress
from dataclasses import asdict
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
    from orchestrator.cluster.objects import Project
    from orchestrator.planner.model import Snapshot
    from orchestrator.simulation.capture import Capture
    from orchestrator.simulation.diagnosis import Diagnosis
    from orchestrator.workloads.view import WorkloadView

STANDING_HEADER: Final = ("PROJECT", "QUOTA", "LIMIT", "HELD", "FAIR SHARE")
HOLDERS_HEADER: Final = ("PROJECT", "WORKLOAD", "GPUs", "SINCE", "PREEMPTIBLE", "NODES")
MAX_HOLDERS: Final = 30
_UNSEEN: Final = (
    "(with rights to read all nodes and pods, it would also say who holds the GPUs and what would help)"
)


@click.command("explain", cls=Command, no_args_is_help=True)
@click.argument("name", shell_complete=completing("jobs"))
@click.option(
    "--from",
    "file",
    type=click.Path(path_type=Path),
    help="A file of 'muster snapshot' instead of the live cluster.",
)
@json_option()
def explain(*, name: str, file: Path | None, as_json: bool | None) -> None:
    """Say why a job waits, what would make it fit, where its project stands, and who holds the GPUs.

    The scheduler's own rules are run on the cluster as it is now; nothing is written. Every remedy that is named was
    tried that way.
    """
    answer, lines = _in_file(file, name) if file else _in_cluster(name)
    if as_json:
        click.echo(document({"name": name, **answer}, "json"))
    else:
        say("\n".join(lines))


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
        "wouldFit": [{"what": remedy.what, "evicts": list(remedy.evicts)} for remedy in result.remedies],
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


def _in_file(file: Path, name: str) -> tuple[dict[str, Any], list[str]]:
    """What to say of a workload of a file: to programs, and to people."""
    from orchestrator.simulation.change import find
    from orchestrator.simulation.diagnosis import diagnose
    from orchestrator.simulation.reader import load

    snapshot = load(file)
    result = diagnose(snapshot, find(snapshot, _project_of(snapshot, name), name))
    return record(result), _lines(result)


def _in_cluster(name: str) -> tuple[dict[str, Any], list[str]]:
    """What to say of a live workload; without the right to read the whole cluster, what the operator has written."""
    from orchestrator.cli.session import run
    from orchestrator.cluster.errors import Forbidden
    from orchestrator.simulation.capture import capture
    from orchestrator.simulation.diagnosis import diagnose

    async def read(client: "AsyncClient") -> "tuple[WorkloadView, Capture | None, list[Project]]":
        view, _ = await client.describe_job(name)
        try:
            return view, await capture(client.transport), []
        except Forbidden:
            with suppress(Forbidden):  # who is a member and nothing more sees no quotas
                return view, None, await client.list_projects()
            return view, None, []

    view, captured, projects = run(read)
    answer = {"project": view.project, "status": view.status, "writtenByOperator": view.waits_because}
    if captured is None:
        return answer | {"projects": [_status(project) for project in projects]}, _without_rights(
            view, projects
        )
    warn(captured, left_out=False)
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
        return answer, [
            f"{name} of {view.project} has no pod that waits or runs: its status is {view.status}."
        ]
    result = diagnose(snapshot, workload)
    return answer | record(result), _lines(result, view)


def _project_of(snapshot: "Snapshot", name: str) -> str:
    project = click.get_current_context().ensure_object(Settings).project
    if project is not None:
        return project
    projects = sorted({workload.project for workload in snapshot.workloads if workload.name == name})
    if len(projects) != 1:
        raise UsageError(
            f"of which project is {name}? name it with -p" if projects else f"the file has no workload {name}"
        )
    return projects[0]


def _lines(result: "Diagnosis", view: "WorkloadView | None" = None) -> list[str]:
    now_us = time.time_ns() // 1000
    who = f"{result.name} of {result.project}"
    lines = []
    if result.places:
        lines.append(f"{who} runs on {', '.join(sorted({place.node for place in result.places}))}.")
    if result.endangered:
        lines.append(f"In danger: {result.endangered}.")
    if result.pods:
        lines.append(
            f"{who} waits: {gpus(result.gpu_milli)} {_gpu_word(result.gpu_milli)} "
            f"in {result.pods} pod{'s' * (result.pods > 1)}."
        )
    if result.starts:
        lines.append(f"It starts now, on {', '.join(sorted({start.node for start in result.starts}))}.")
    if result.code:
        lines.append(f"{result.code}: {result.message}")
    lines += [f"For it: {evict.message}" for evict in result.evicts]
    if view is not None and view.waits_because:
        lines.append(f"Written by the operator: {view.waits_because}")
    if result.remedies:
        lines += ["", "It would run"]
        lines += [
            f"- {remedy.what}" + (f", which evicts {', '.join(remedy.evicts)}" if remedy.evicts else "")
            for remedy in result.remedies
        ]
    standing = [
        (level.name, gpus(level.quota), gpus(level.limit), gpus(level.held), gpus(level.share))
        for level in result.lineage
    ]
    holders = [
        (
            holder.project,
            holder.name,
            gpus(holder.gpu_milli),
            age((now_us - holder.started_at_us) // 1_000_000) if view is not None else "",
            "yes" if holder.preemptible else "no",
            ",".join(holder.nodes),
        )
        for holder in result.holders
    ]
    more = len(holders) - MAX_HOLDERS
    lines += ["", table(STANDING_HEADER, standing)]
    free = (
        f"Free: {gpus(result.free_gpu_milli)} of {gpus(result.total_gpu_milli)} GPUs. The others are held by"
    )
    lines += ["", free if holders else free.partition(" The")[0]]
    lines += [table(HOLDERS_HEADER, holders[:MAX_HOLDERS])] if holders else []
    lines += [f"and {more} more: --json shows all"] if more > 0 else []
    return lines


def _gpu_word(gpu_milli: int) -> str:
    return "GPU" if gpu_milli <= 1000 else "GPUs"


def _without_rights(view: "WorkloadView", projects: "list[Project]") -> list[str]:
    lines = [f"{view.name} of {view.project}: {view.status}."]
    if view.waits_because:
        lines.append(f"Written by the operator: {view.waits_because}")
    rows = [
        tuple(_status(project)[key] for key in ("name", "quota", "limit", "held", "fairShare"))
        for project in projects
        if project.metadata.name == view.project
    ]
    standing = ["", table(STANDING_HEADER, rows)] if rows else []
    return [*lines, *standing, "", _UNSEEN]


def _status(project: "Project") -> dict[str, str]:
    """What the operator wrote about the project."""
    spec, status = project.spec.gpu, project.status
    return {
        "name": project.metadata.name,
        "quota": str(spec.quota),
        "limit": "unlimited" if spec.limit is None else str(spec.limit),
        "held": str(status.allocated_gpu),
        "fairShare": str(status.fair_share_gpu),
    }
