"""`muster list`: jobs, and the other things that a cluster has."""

import time
from typing import TYPE_CHECKING, Final

import click

from orchestrator.cli.gpus import devices_text
from orchestrator.cli.job_table import HEADER, WIDE_HEADER, row
from orchestrator.cli.options import Command
from orchestrator.cli.output import no_headers_option, output_option, show
from orchestrator.errors import UsageError

if TYPE_CHECKING:
    from orchestrator.client.aio import AsyncClient
    from orchestrator.views.gpus import GpuView
    from orchestrator.views.jobs import WorkloadView

KINDS: Final = {
    "job": "jobs",
    "project": "projects",
    "node": "nodes",
    "cluster": "clusters",
    "template": "templates",
}


@click.command("list", cls=Command)
@click.argument(
    "kind",
    default="jobs",
    type=click.Choice([*KINDS.values(), *KINDS]),
    metavar="[jobs|projects|nodes|clusters|templates]",
)
@click.option("-A", "--all-projects", is_flag=True, default=None, help="List the jobs of all projects.")
@no_headers_option()
@click.option(
    "-w", "--watch", is_flag=True, default=None, help="Keep running and print each job that changes."
)
@output_option()
def list_things(
    *, kind: str, all_projects: bool | None, no_headers: bool | None, watch: bool | None, output: str | None
) -> None:
    """List the jobs of a project, pending jobs first, then the newest. Or list projects, nodes, clusters (the
    contexts of the kubeconfig) or templates.
    """
    kind = KINDS.get(kind, kind)
    if kind == "jobs":
        _list_jobs(bool(all_projects), no_headers, output, watch=bool(watch))
        return
    for flag, is_set in (("-A/--all-projects", all_projects), ("-w/--watch", watch)):
        if is_set:
            raise UsageError(f"{flag} goes with jobs only, not with {kind}")
    _lister(kind)(output=output, no_headers=no_headers)


def _list_jobs(all_projects: bool, no_headers: bool | None, output: str | None, *, watch: bool) -> None:
    from orchestrator.cli.session import run

    if watch:
        from orchestrator.cli.watching import watch_jobs

        run(lambda client: watch_jobs(client, all_projects, no_headers=bool(no_headers), output=output))
        return

    with_devices = output in ("wide", "json", "yaml")

    async def read(
        client: "AsyncClient",
    ) -> "tuple[str, list[WorkloadView], dict[str, tuple[GpuView, ...]]]":
        gpus = await client.list_gpus() if with_devices else {}
        if all_projects:
            return "", await client.list_jobs(all_projects=True), gpus
        scope = await client.scope()
        return scope.project, await client.list_jobs(project=scope), gpus

    from orchestrator.views.gpus import gpus_of_job
    from orchestrator.views.jobs import record

    project, views, by_node = run(read)
    devices = [gpus_of_job(view.pods, by_node) for view in views]
    now_us = time.time_ns() // 1000
    wide = output == "wide"
    show(
        WIDE_HEADER if wide else HEADER,
        [
            row(view, now_us, wide=wide, devices=devices_text(gpus))
            for view, gpus in zip(views, devices, strict=True)
        ],
        output=output,
        no_headers=no_headers,
        records=lambda: [
            {**record(view, now_us), "gpuDevices": [gpu.uuid for gpu in gpus]}
            for view, gpus in zip(views, devices, strict=True)
        ],
        names=[view.name for view in views],
        title=f"Showing jobs for project {project}" if project else "",
    )


def _lister(kind: str) -> "Lister":
    if kind == "projects":
        from orchestrator.cli.project import show_projects

        return show_projects
    if kind == "nodes":
        from orchestrator.cli.nodes import show_nodes

        return show_nodes
    if kind == "clusters":
        from orchestrator.cli.cluster import show_clusters

        return show_clusters
    from orchestrator.cli.template import show_templates

    return show_templates


if TYPE_CHECKING:
    from typing import Protocol

    class Lister(Protocol):
        """Prints a list."""

        def __call__(self, *, output: str | None, no_headers: bool | None) -> None:
            """Print it in the form that was asked for."""
