"""`muster list`: the jobs of a project, or of all projects."""

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import click

from orchestrator.cli.options import Command
from orchestrator.cli.output import age, document, output_option, table
from orchestrator.cli.session import run
from orchestrator.cluster.quantity import format_gpu
from orchestrator.workloads.view import WorkloadView, record

if TYPE_CHECKING:
    from orchestrator.client.aio import AsyncClient

HEADER: Final = (
    "NAME",
    "STATUS",
    "AGE",
    "NODE",
    "IMAGE",
    "TYPE",
    "PROJECT",
    "USER",
    "GPUs",
    "CREATED BY CLI",
    "SERVICE URL(S)",
)
WIDE_HEADER: Final = (*HEADER[:-1], "NAMESPACE", "PODS", HEADER[-1], "WAITS BECAUSE")


@click.command("list", cls=Command)
@click.option("-A", "--all-projects", is_flag=True, default=None, help="The jobs of all projects.")
@click.option("--no-headers", is_flag=True, default=None, help="Only the rows.")
@output_option()
def list_jobs(*, all_projects: bool | None, no_headers: bool | None, output: str | None) -> None:
    """List the jobs of a project: those that wait on top, then the newest first."""

    async def read(client: "AsyncClient") -> tuple[str | None, list[WorkloadView]]:
        if all_projects:
            return None, await client.list_jobs(all_projects=True)
        scope = await client.scope()
        return scope.project, await client.list_jobs(project=scope)

    project, views = run(read)
    now_us = time.time_ns() // 1000
    if output in ("json", "yaml"):
        click.echo(document([record(view, now_us) for view in views], output))
    elif output == "name":
        click.echo("".join(f"{view.name}\n" for view in views), nl=False)
    else:
        if project is not None and not no_headers:
            click.echo(f"Showing jobs for project {project}")
        wide = output == "wide"
        rows = [row(view, now_us, wide=wide) for view in views]
        text = table(WIDE_HEADER if wide else HEADER, rows, with_header=not no_headers)
        click.echo(f"{text}\n" if text else "", nl=False)


def row(view: WorkloadView, now_us: int, *, wide: bool = False) -> Sequence[str]:
    """Return the cells of one job."""
    cells = (
        view.name,
        view.status,
        age((now_us - view.created_us) // 1_000_000),
        view.node,
        view.image,
        view.type,
        view.project,
        view.user,
        format_gpu(view.gpu_milli),
        str(view.created_by_cli).lower(),
    )
    urls = ",".join(view.urls)
    if not wide:
        return (*cells, urls)
    return (*cells, view.namespace, str(len(view.pods)), urls, view.waits_because)
