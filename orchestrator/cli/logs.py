"""`muster logs`: the output of a job's containers."""

import re
from contextlib import aclosing
from typing import Final

import click

from orchestrator.cli import terminal
from orchestrator.cli.cluster_names import completing
from orchestrator.cli.execute import container_options, patience, running
from orchestrator.cli.options import Command
from orchestrator.cli.session import run
from orchestrator.client.aio import AsyncClient
from orchestrator.client.streams import LogRequest
from orchestrator.cluster.quantity import parse_time
from orchestrator.durations import parse_duration_seconds
from orchestrator.errors import UsageError

_ALL: Final = -1
_NUMBER = re.compile(r"-?[0-9]{1,9}")


@click.command("logs", cls=Command, no_args_is_help=True)
@click.argument("name", metavar="JOB", shell_complete=completing("jobs"))
@click.option(
    "-f", "--follow", is_flag=True, help="Wait until the container starts, and follow its log until it ends."
)
@click.option("-t", "--tail", metavar="N", default=str(_ALL), help="Print only the last N lines.")
@click.option("--since", metavar="DURATION", help="Print only lines that are newer than this (5s, 2m, 3h).")
@click.option("--since-time", metavar="TIME", help="Print only lines after this time (2026-01-31T12:00:00Z).")
@click.option("--timestamps", is_flag=True, help="Print the time before each line.")
@click.option("--previous", is_flag=True, help="Print the log of the container before its last restart.")
@container_options("1m")
def logs(
    *,
    name: str,
    follow: bool,
    tail: str,
    since: str | None,
    since_time: str | None,
    timestamps: bool,
    previous: bool,
    pod: str | None,
    container: str | None,
    wait_timeout: str,
) -> None:
    """Print the log of a job: of its newest pod, unless another pod is named."""
    request = LogRequest(
        follow=follow,
        tail_lines=_tail(tail),
        since_seconds=_since(since),
        since_time=_since_time(since_time, since),
        timestamps=timestamps,
        previous=previous,
    )
    patience_seconds = patience(wait_timeout) if follow else 0

    async def show(client: AsyncClient) -> None:
        streams, target = await running(client, name, pod, container, patience_seconds, or_ended=True)
        async with aclosing(streams.log(target, request)) as chunks:
            async for chunk in chunks:
                terminal.write_out(chunk)

    run(show)


def _tail(text: str) -> int | None:
    if not _NUMBER.fullmatch(text) or int(text) < _ALL:
        raise UsageError(f"-t/--tail {text!r} is not possible: give a number of lines, or -1 for all")
    return None if int(text) == _ALL else int(text)


def _since(text: str | None) -> int | None:
    seconds = parse_duration_seconds("--since", text)
    if seconds == 0:
        raise UsageError(f"--since {text} is not possible: give at least one second")
    return seconds


def _since_time(text: str | None, since: str | None) -> str | None:
    if text is None:
        return None
    if since is not None:
        raise UsageError("--since and --since-time exclude each other: give one of them")
    try:
        parse_time(text)
    except ValueError as error:
        raise UsageError(
            f"--since-time {text!r} is no time: give one such as 2026-01-31T12:00:00Z"
        ) from error
    return text
