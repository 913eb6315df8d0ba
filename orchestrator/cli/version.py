"""`muster version`."""

import platform

import click

from orchestrator.cli.options import Command
from orchestrator.distribution import installed_version


@click.command("version", cls=Command)
@click.option("--short", is_flag=True, default=None, help="Print only the first line.")
def version(*, short: bool | None) -> None:
    """Print the version."""
    click.echo(f"Version: {installed_version()}")
    if not short:
        click.echo(f"Python: {platform.python_version()}")
        click.echo(f"Platform: {platform.platform()}")
