"""`muster delete`: jobs of one project."""

import asyncio
from typing import TYPE_CHECKING

import click

from orchestrator.cli.options import Command
from orchestrator.cli.session import run
from orchestrator.errors import MusterError

if TYPE_CHECKING:
    from orchestrator.client.aio import AsyncClient


@click.command("delete", cls=Command, no_args_is_help=True)
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
def delete(*, names: tuple[str, ...]) -> int:
    """Delete jobs of a project. What belongs to them follows in the background."""
    from orchestrator.cluster.errors import Unauthorized, Unreachable

    wanted = list(dict.fromkeys(names))

    async def remove(client: "AsyncClient") -> list[MusterError | None]:
        scope = await client.scope()

        async def attempt(name: str) -> MusterError | None:
            try:
                await client.delete_job(name, project=scope)
            except (Unreachable, Unauthorized):
                raise
            except MusterError as error:
                return error
            return None

        return await asyncio.gather(*map(attempt, wanted))

    failures = run(remove)
    for name, failure in zip(wanted, failures, strict=True):
        if failure is None:
            click.echo(f"The job '{name}' has been deleted successfully")
        else:
            click.echo(f"Error: {failure}", err=True)
    return int(any(failures))
