"""`muster logs`: the output of a job's containers."""

import asyncio
import re
from contextlib import aclosing
from typing import Final

import click

from orchestrator.cli import terminal
from orchestrator.cli.cluster_names import completing
from orchestrator.cli.execute import container_options, patience, running
from orchestrator.cli.message import say, say_error
from orchestrator.cli.options import Command
from orchestrator.cli.session import run
from orchestrator.client.aio import AsyncClient
from orchestrator.client.streams import LogRequest
from orchestrator.client.targets import Target
from orchestrator.cluster.quantity import parse_time
from orchestrator.durations import parse_duration_seconds
from orchestrator.errors import MusterError, UsageError

MAX_FOLLOWED: Final = 50
"""Maximum number of logs that one command follows: each is a connection to the API server and from there to a
kubelet.
"""
MAX_LINE_BYTES: Final = 64 << 10
"""Longer lines are printed in parts. Example: a progress bar with carriage returns is one endless line."""
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
@click.option("--index", type=click.IntRange(0), metavar="N", help="Print the log of this index of a sweep.")
@click.option(
    "--all-pods", is_flag=True, help="Print the logs of all pods, each line with the name of its pod."
)
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
    index: int | None,
    all_pods: bool,
    pod: str | None,
    container: str | None,
    wait_timeout: str,
) -> int:
    """Print the log of a job: of its newest pod, of the named pod, of one index, or of all pods."""
    request = LogRequest(
        follow=follow,
        tail_lines=_tail(tail),
        since_seconds=_since(since),
        since_time=_since_time(since_time, since),
        timestamps=timestamps,
        previous=previous,
    )
    patience_seconds = patience(wait_timeout) if follow else 0
    if (pod is not None) + (index is not None) + all_pods > 1:
        raise UsageError("--pod, --index and --all-pods exclude each other: give one of them")

    async def show(client: AsyncClient) -> int:
        if all_pods:
            return await _all_logs(client, name, container, request)
        streams, target = await running(
            client, name, pod, container, patience_seconds, or_ended=True, index=index
        )
        if target.pods > 1 and pod is None and index is None:
            say(f"The log of pod {target.pod.metadata.name}, one of {target.pods}; see --all-pods", err=True)
        async with aclosing(streams.log(target, request)) as chunks:
            async for chunk in chunks:
                terminal.write_out(chunk)
        return 0

    return run(show)


async def _all_logs(client: AsyncClient, name: str, container: str | None, request: LogRequest) -> int:
    """Print the logs of all pods whose container has started: one after another, or, if followed, as they come.

    Return 1 if a log cannot be read.
    """
    targets = await client.streams.targets(await client.scope(), name, container)
    started = [target for target in targets if target.runs or target.terminated is not None]
    if silent := len(targets) - len(started):
        say(f"{silent} of {len(targets)} pods have not started", err=True)
    if request.follow and len(started) > MAX_FOLLOWED:
        raise UsageError(
            f"--follow: {len(started)} pods run; at most {MAX_FOLLOWED} can be followed at the same time, so name "
            "one by --pod or --index"
        )
    if request.follow:
        results = await asyncio.gather(*(_log_lines(client, target, request) for target in started))
    else:
        results = [await _log_lines(client, target, request) for target in started]
    return 0 if all(results) else 1


async def _log_lines(client: AsyncClient, target: Target, request: LogRequest) -> bool:
    """Print the lines of one log with the pod before each; return whether it could be read to its end."""
    prefix = f"[pod/{target.pod.metadata.name}/{target.container}] ".encode()
    rest = b""
    try:
        async with aclosing(client.streams.log(target, request)) as chunks:
            async for chunk in chunks:
                *lines, rest = (rest + chunk).split(b"\n")
                if len(rest) > MAX_LINE_BYTES:
                    lines, rest = [*lines, rest], b""
                terminal.write_out(b"".join(prefix + line + b"\n" for line in lines))
    except MusterError as error:
        say_error(f"pod {target.pod.metadata.name}: {error}")
        return False
    finally:
        if rest:
            terminal.write_out(prefix + rest + b"\n")
    return True


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
