"""`muster wait`: until jobs run, have ended, have succeeded or have failed."""

from typing import TYPE_CHECKING

import click

from orchestrator.cli.cluster_names import completing
from orchestrator.cli.message import say
from orchestrator.cli.options import Command
from orchestrator.cli.session import run

if TYPE_CHECKING:
    from orchestrator.client.aio import AsyncClient


@click.command("wait", cls=Command, no_args_is_help=True)
@click.argument("names", nargs=-1, required=True, metavar="JOB...", shell_complete=completing("jobs"))
@click.option(
    "--for",
    "goal",
    type=click.Choice(("running", "ended", "succeeded", "failed")),
    default="ended",
    show_default=True,
    help="The state to wait for.",
)
@click.option("--timeout", metavar="DURATION", help="Maximum time to wait (30s, 10m, 3h); default: no limit.")
def wait(*, names: tuple[str, ...], goal: str, timeout: str | None) -> None:
    """Wait until each job is running, has ended, has succeeded or has failed.

    Each new status is printed on the standard error. The exit code is 124 if the time is over. It is 1 if a job was
    deleted, or can no longer reach the state. Example: with --for running, a job failed before it ran.
    """
    from orchestrator.durations import parse_duration_seconds

    timeout_seconds = parse_duration_seconds("--timeout", timeout)

    async def act(client: "AsyncClient") -> None:
        await client.wait_for_jobs(
            *dict.fromkeys(names),
            until=goal,
            timeout_seconds=timeout_seconds,
            report=lambda line: say(line, err=True),
        )

    run(act)
