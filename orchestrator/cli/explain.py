"""`muster explain`: the reason of a pending job, remedies, its project, and the jobs with GPUs."""

import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from orchestrator.cli.cluster_names import completing
from orchestrator.cli.message import say
from orchestrator.cli.options import Command
from orchestrator.cli.output import document, json_option

if TYPE_CHECKING:
    from orchestrator.cli.explanation import Explanation
    from orchestrator.client.aio import AsyncClient
    from orchestrator.client.jobs import Scope
    from orchestrator.cluster.objects import Project
    from orchestrator.simulation.capture import Capture
    from orchestrator.views.jobs import WorkloadView

_UNSEEN: Final = (
    "(to show remedies and the jobs that hold the GPUs, explain needs rights to read all nodes and pods)"
)


@click.command("explain", cls=Command, no_args_is_help=True)
@click.argument("name", shell_complete=completing("jobs"))
@click.option(
    "--remedies",
    is_flag=True,
    default=None,
    help="Also try remedies, and list the jobs that hold the GPUs. This runs the rules of the scheduler.",
)
@click.option(
    "--from",
    "file",
    type=click.Path(path_type=Path),
    help="Read this file of `muster snapshot` instead of the live cluster. Implies --remedies.",
)
@json_option()
def explain(*, name: str, remedies: bool | None, file: Path | None, as_json: bool | None) -> None:
    """Explain why a job is pending: the reason that the operator wrote, and the projects that hold GPUs.

    With --remedies, the command runs the rules of the scheduler on the present state of the cluster. The command names
    only remedies that it has tried. Without --remedies, the command runs the rules too if the operator does not run or
    has written no reason yet. The command writes nothing.
    """
    if file:
        from orchestrator.cli.explain_by_plan import planned_in_file

        result = planned_in_file(file, name)
    else:
        result = _in_cluster(name, with_plan=bool(remedies))
    if as_json:
        click.echo(document({"name": name, **result.answer}, "json"))
    else:
        say("\n".join(result.lines()))


@dataclass(frozen=True, slots=True)
class Case:
    """A live job and its readable surroundings. `captured` is the whole cluster, for a plan.

    `is_decided`: the reason of the operator explains the job.
    """

    view: "WorkloadView"
    captured: "Capture | None"
    projects: "list[Project]"
    is_decided: bool = False


async def read_case(
    client: "AsyncClient", name: str, project: "str | Scope | None" = None, *, with_plan: bool = True
) -> Case:
    """Return the inputs of the explanation of a job. Raises NoSuchWorkload.

    Without `with_plan` the cluster is read only if the reason of the operator does not explain the job.
    """
    from orchestrator.cli.explanation import is_decided, pending_pods
    from orchestrator.cluster.errors import Forbidden

    view, _ = await client.describe_job(name, project=project)
    if not with_plan and is_decided(view) and not (pending_pods(view) and await _is_silent(client)):
        return Case(view, None, await _projects(client), is_decided=True)
    from orchestrator.simulation.capture import capture

    try:
        return Case(view, await capture(client.transport), [])
    except Forbidden:
        return Case(view, None, await _projects(client))


async def _is_silent(client: "AsyncClient") -> bool:
    """Return whether no operator leads, so that its reasons are outdated.

    Return false if the user may not read the Lease.
    """
    from orchestrator.client.leadership import silence
    from orchestrator.cluster.errors import Forbidden

    with suppress(Forbidden):
        return bool(await silence(client.transport, time.time_ns() // 1000))
    return False


async def _projects(client: "AsyncClient") -> "list[Project]":
    """Return the projects. The list is empty for a user who is only a member of a project."""
    from orchestrator.cluster.errors import Forbidden

    with suppress(Forbidden):
        return await client.list_projects()
    return []


def explanation(case: Case) -> "Explanation":
    """Return the explanation of a job: by a plan, or by the reason of the operator."""
    from orchestrator.cli.explanation import Explanation, as_written, of_containers, without_node, written
    from orchestrator.views.containers import last_exit, restarts, runs

    view, captured = case.view, case.captured
    answer: dict[str, Any] = {
        "project": view.project,
        "status": view.status,
        "writtenByOperator": written(view),
        "waitsBecause": view.waits_because,
        "runsOn": sorted({pod.spec.node_name for pod in view.pods if runs(pod, view.around)}),
        "lastFailure": last_exit(view.pods),
        "restarts": restarts(view.pods),
    }
    if case.is_decided:
        return as_written(view, answer, case.projects)
    if captured is None:
        return _without_rights(answer, view, case.projects)
    from orchestrator.cli.explain_by_plan import planned

    return planned(captured.snapshot, view, answer) or Explanation(
        answer, of_containers(view) or [without_node(view)]
    )


def _in_cluster(name: str, *, with_plan: bool) -> "Explanation":
    from orchestrator.cli.session import run

    case = run(lambda client: read_case(client, name, with_plan=with_plan))
    if case.captured is not None:
        from orchestrator.cli.outcome import warn

        warn(case.captured, left_out=False)
    return explanation(case)


def _without_rights(answer: dict[str, Any], view: "WorkloadView", projects: "list[Project]") -> "Explanation":
    from orchestrator.cli.explanation import Explanation, figures_of, of_containers, written

    sentences = of_containers(view) or [f"{view.name} of {view.project}: {view.status}."]
    if because := written(view):
        sentences.append(f"Written by the operator: {because}")
    rows = [figures_of(project) for project in projects]
    own = [tuple(row.values()) for row in rows if row["name"] == view.project]
    return Explanation(answer | {"projects": rows}, sentences, entitlement=[*own], closing=_UNSEEN)
