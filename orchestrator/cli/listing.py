"""`muster list`: jobs, projects, nodes, clusters and templates."""

import time
from typing import TYPE_CHECKING, Final

import click

from orchestrator.cli.gpus import devices_text
from orchestrator.cli.job_table import Form, form_of
from orchestrator.cli.options import Command
from orchestrator.cli.output import no_headers_option, output_option, show
from orchestrator.cli.selecting import check_nodes, selecting
from orchestrator.errors import UsageError

if TYPE_CHECKING:
    from orchestrator.cli.selecting import Choice
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
@click.option(
    "--sort",
    metavar="FIELD",
    help="Order the jobs: name, status, age, node, project, user, gpus or "
    "priority; -FIELD reverses the order.",
)
@click.option("--columns", metavar="NAME,…", help="Print only these columns, in this order.")
@click.option("--limit", type=click.IntRange(1), metavar="N", help="Print at most N jobs.")
@selecting
@output_option()
def list_things(
    *,
    kind: str,
    all_projects: bool | None,
    no_headers: bool | None,
    watch: bool | None,
    output: str | None,
    choice: "Choice",
    sort: str | None,
    columns: str | None,
    limit: int | None,
) -> None:
    """List the jobs of a project, pending jobs first, then the newest. Or list projects, nodes, clusters (the
    contexts of the kubeconfig) or templates.
    """
    kind = KINDS.get(kind, kind)
    if kind == "jobs":
        form = form_of(output, no_headers, columns)
        if watch:
            if sort or limit:
                raise UsageError("--sort and --limit go with a list that ends, not with -w/--watch")
            _watch_jobs(bool(all_projects), choice, form)
        else:
            _list_jobs(bool(all_projects), choice, form, sort=sort, limit=limit)
        return
    for flag, is_set in (
        ("-A/--all-projects", all_projects),
        ("-w/--watch", watch),
        ("--sort, --columns and --limit", sort or columns or limit),
        ("a choice by status, label, user, node or age", not choice.is_empty),
    ):
        if is_set:
            raise UsageError(f"{flag} goes with jobs only, not with {kind}")
    _lister(kind)(output=output, no_headers=no_headers)


def _watch_jobs(all_projects: bool, choice: "Choice", form: Form) -> None:
    from orchestrator.cli.session import run
    from orchestrator.cli.watching import watch_jobs

    selection = choice.selection()
    run(lambda client: watch_jobs(client, all_projects, selection, form))


def _list_jobs(
    all_projects: bool, choice: "Choice", form: Form, *, sort: str | None, limit: int | None
) -> None:
    from orchestrator.cli.session import run
    from orchestrator.views.gpus import gpus_of_job
    from orchestrator.views.job_record import job_record
    from orchestrator.views.selection import parse_order

    selection = choice.selection()
    ordered = parse_order(sort) if sort else list

    async def read(
        client: "AsyncClient",
    ) -> "tuple[str, list[WorkloadView], dict[str, tuple[GpuView, ...]]]":
        gpus = await client.list_gpus() if form.has_devices else {}
        scope = None if all_projects else await client.scope()
        views = await client.list_jobs(project=scope, all_projects=all_projects)
        await check_nodes(client, selection, views)
        return scope.project if scope else "", views, gpus

    project, views, by_node = run(read)
    views = ordered(selection.of(views))[:limit]
    if form.output in (None, "wide"):
        _warn_of_missing_gpus(views)
    devices = [gpus_of_job(view.pods, by_node) for view in views]
    now_us = time.time_ns() // 1000
    show(
        form.header,
        [
            form.row(view, now_us, devices=devices_text(view, gpus))
            for view, gpus in zip(views, devices, strict=True)
        ],
        output=form.output,
        no_headers=form.no_headers,
        records=lambda: [
            job_record(view, now_us, gpus=gpus) for view, gpus in zip(views, devices, strict=True)
        ],
        names=[view.name for view in views],
        title=f"Showing jobs for project {project}" if project else "",
    )


def _warn_of_missing_gpus(views: "list[WorkloadView]") -> None:
    """Name, on the standard error, the jobs whose status is Running although a pod has no GPU."""
    from orchestrator.cli.message import say
    from orchestrator.views.containers import without_gpu

    without = [view.name for view in views if any(map(without_gpu, view.pods))]
    if without:
        more = f" and {len(without) - 3} more" if len(without) > 3 else ""
        say(
            f"Without the GPU of their fraction: {', '.join(without[:3])}{more}; see muster explain", err=True
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
            """Print the list in the requested form."""
