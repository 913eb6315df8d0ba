"""`muster data workspace`: notebooks on clones of volumes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import click

from orchestrator.cli.cluster_names import completing
from orchestrator.cli.data_output import in_scope, show_views
from orchestrator.cli.message import say
from orchestrator.cli.options import Command, Group
from orchestrator.cli.output import json_option, no_headers_option

if TYPE_CHECKING:
    from collections.abc import Sequence

    from orchestrator.client.workspaces import Workspace

WORKSPACE_HEADER: Final = ("NAME", "STATUS", "CLONE OF", "NODE", "SERVICE URL")
NOTEBOOK_PATH: Final = "/home/jovyan/work"
"""The directory for people's files in Jupyter's notebook images (docker-stacks)."""


@click.group("workspace", cls=Group, no_args_is_help=True)
def workspace() -> None:
    """Create, list and delete workspaces: Jupyter notebooks on a clone of a volume."""


@workspace.command("create", cls=Command, no_args_is_help=True)
@click.argument("name")
@click.option(
    "--clone-of",
    required=True,
    metavar="VOLUME",
    help="Volume to clone.",
    shell_complete=completing("volumes"),
)
@click.option("--path", default=NOTEBOOK_PATH, metavar="PATH", help=f"Where it is; default: {NOTEBOOK_PATH}.")
@click.option("-i", "--image", help="The container image; default: that of submit --jupyter.")
@click.option("-g", "--gpu", metavar="GPUS", help="Number of GPUs (2), or a GPU fraction (0.5).")
@click.option("--dry-run", is_flag=True, default=None, help="Print the objects and create nothing.")
@click.pass_context
def create_workspace(
    ctx: click.Context,
    /,
    *,
    name: str,
    clone_of: str,
    path: str,
    image: str | None,
    gpu: str | None,
    dry_run: bool | None,
) -> int:
    """Start a notebook on a clone of a volume, behind an Ingress; print its token and its URL.

    The same as `muster submit --jupyter --clone-of VOLUME:PATH -s ingress`.
    """
    from orchestrator.cli.submit import submit

    words = [name, "--jupyter", "--clone-of", f"{clone_of}:{path}", "--service-type", "ingress"]
    for flag, value in (("--image", image), ("--gpu", gpu)):
        words += [flag, value] if value else []
    words += ["--dry-run"] if dry_run else []
    with submit.make_context("submit", words, parent=ctx.find_root()) as submission:
        code: int = submit.invoke(submission)
    if not dry_run and not code:
        view, _ = in_scope(lambda client, scope: client.get_job(name, project=scope))
        say(f"Workspace {name}: {' '.join(view.urls) or 'it has no URL yet'}")
    return code


@workspace.command("list", cls=Command)
@no_headers_option()
@json_option()
def list_workspaces(*, no_headers: bool | None, as_json: bool | None) -> None:
    """List the workspaces of the project with their URLs: the interactive jobs that have a clone."""
    from orchestrator.client.workspaces import workspaces

    views, scope = in_scope(workspaces)
    show_views(views, scope, WORKSPACE_HEADER, _row, no_headers=no_headers, as_json=as_json)


@workspace.command("delete", cls=Command, no_args_is_help=True)
@click.argument("name", shell_complete=completing("jobs"))
def delete_workspace(*, name: str) -> None:
    """Delete a workspace and its clone. The cloned volume is kept."""
    from orchestrator.client.workspaces import delete_workspace

    in_scope(lambda client, scope: delete_workspace(client, scope, name))
    click.echo(f"Workspace {name} has been deleted")


def _row(view: Workspace) -> Sequence[str]:
    return view.name, view.status, view.clone_of, view.node, " ".join(view.urls)
