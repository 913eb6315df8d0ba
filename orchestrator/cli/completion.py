"""`muster completion`: the script by which a shell completes commands, flags, and names in the cluster."""

from typing import Final

import click

from orchestrator.cli.options import Command

VARIABLE: Final = "_MUSTER_COMPLETE"
"""The environment variable that the completion script sets when it runs `muster`. `main` reads it first."""


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

    kind = get_completion_class(shell)
    if kind is None:
        raise click.UsageError(f"there is no completion for {shell}")
    muster = click.get_current_context().find_root().command
    script = kind(muster, {}, "muster", VARIABLE)
    click.echo(script.source_template % script.source_vars())
