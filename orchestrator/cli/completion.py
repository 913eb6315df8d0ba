"""`muster completion`: the script by which a shell completes commands, flags, and names in the cluster."""

from typing import Final

import click

from orchestrator.cli.options import Command, Settings

VARIABLE: Final = "_MUSTER_COMPLETE"
"""The script sets it when it asks; `main` looks at it before anything else."""


@click.command("completion", cls=Command, no_args_is_help=True)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(*, shell: str) -> None:
    """Print the completion script of a shell.

    \b
    bash:  source <(muster completion bash)
    zsh:   source <(muster completion zsh)
    fish:  muster completion fish | source
    """
    from click.shell_completion import get_completion_class

    from orchestrator.cli.main import muster

    kind = get_completion_class(shell)
    if kind is None:
        raise click.UsageError(f"there is no completion for {shell}")
    made = kind(muster, {}, "muster", VARIABLE)
    click.echo(made.source_template % made.source_vars())


def names_of(kind: str, ctx: click.Context, incomplete: str) -> list[str]:
    """Return the names of a kind that begin like the word; none when the cluster does not answer."""
    from http.client import HTTPException

    from orchestrator.errors import MusterError

    settings = ctx.ensure_object(Settings)
    try:
        found = _contexts(settings) if kind == "contexts" else _asked(kind, settings)
    except (MusterError, OSError, HTTPException, ValueError, KeyError):
        return []  # a shell that completes has no place for an error
    return sorted({name for name in found if name.startswith(incomplete)})


def _contexts(settings: Settings) -> list[str]:
    from orchestrator.cluster.contexts import contexts

    return [each.name for each in contexts(settings.kubeconfig)]


def _asked(kind: str, settings: Settings) -> list[str]:
    from orchestrator.client.names import Names
    from orchestrator.cluster.kubeconfig import load_access

    access = load_access(
        settings.kubeconfig, settings.context, as_user=settings.as_user, as_groups=settings.as_groups
    )
    with Names(access) as names:
        if kind == "jobs":
            return names.jobs(settings.project)
        if kind == "templates":
            return names.templates(settings.project)
        return names.projects() if kind == "projects" else names.nodes()
