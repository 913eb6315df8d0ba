"""`muster node`: drain a node and give it back; an installed package adds `remove`."""

import asyncio
import sys
import time
from typing import TYPE_CHECKING, Any, Final

import click

from orchestrator.cli.cluster_names import completing
from orchestrator.cli.message import agree, say, say_error
from orchestrator.cli.options import Command, OpenGroup
from orchestrator.cli.output import document, output_option, table
from orchestrator.cli.session import run
from orchestrator.cluster.gpu_fraction import format_gpu
from orchestrator.errors import MusterError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from orchestrator.client.aio import AsyncClient
    from orchestrator.client.drains import Occupants
    from orchestrator.simulation.draining import Departure

HEADER: Final = ("PROJECT", "JOB", "PODS", "GPUs", "THEN", "NODES", "BECAUSE")


@click.group("node", cls=OpenGroup, added="muster.node")
def node() -> None:
    """Take a node out of use for maintenance, and give it back; remove the host of a node from its site."""


@node.command("drain", cls=Command)
@click.argument("name", metavar="NODE", shell_complete=completing("nodes"))
@click.option(
    "--timeout",
    metavar="DURATION",
    default="30m",
    show_default=True,
    help="Maximum time until the node is empty.",
)
@click.option(
    "--force",
    is_flag=True,
    default=None,
    help="Also stop jobs that the scheduler does not migrate. They are pending again, with their age in the queue.",
)
@click.option("-y", "--yes", is_flag=True, default=None, help="Do not ask.")
@click.option(
    "--dry-run", is_flag=True, default=None, help="Print the jobs and their next nodes, and change nothing."
)
@output_option("json", "yaml")
def drain(
    *,
    name: str,
    timeout: str,
    force: bool | None,
    yes: bool | None,
    dry_run: bool | None,
    output: str | None,
) -> int:
    """Take the jobs off a node, and keep new ones away from it.

    The command shows where each job would run, asks at a terminal, and cordons the node. The scheduler migrates whole
    gangs as soon as they fit elsewhere, each after its checkpoint. A job that does not fit, or that is not preemptible,
    stays and is named. Pods of other schedulers stay too.
    """
    from orchestrator.durations import parse_duration_seconds

    seconds = parse_duration_seconds("--timeout", timeout) or 0

    async def act(client: "AsyncClient") -> int:
        affected, occupants = await _foreseen(client, name, stops=bool(force))
        if output is None:
            _show(name, affected, occupants, dry_run=bool(dry_run))
        _warn_of_stops(affected)
        problem: MusterError | None = None
        if not dry_run:
            _confirm(name, affected, yes=bool(yes), force=bool(force))
            problem = await _drained(client, name, affected, occupants, seconds, force=bool(force))
        if output is not None:
            click.echo(
                document(_record(name, affected, occupants, is_empty=_is_empty(dry_run, problem)), output)
            )
        if problem is not None:
            raise problem
        if not dry_run:
            say(f"{name} is drained; 'muster node uncordon {name}' gives it back", err=output is not None)
        return 0

    return run(act)


@node.command("uncordon", cls=Command)
@click.argument("name", metavar="NODE", shell_complete=completing("nodes"))
def uncordon(*, name: str) -> None:
    """Let jobs on a node again after a drain."""

    async def act(client: "AsyncClient") -> None:
        mark = await client.drains.uncordon(name)
        if mark:
            say(
                f"{name} is still marked unhealthy ({mark}), so no job starts there: remove the mark",
                err=True,
            )

    run(act)
    click.echo(f"Node {name} takes jobs again")


async def _foreseen(client: "AsyncClient", name: str, *, stops: bool) -> "tuple[list[Departure], Occupants]":
    """Return the jobs on the node with their outcome in a simulated decision, and the pods on the node."""
    from orchestrator.client.leadership import silence
    from orchestrator.cluster.errors import ClusterError
    from orchestrator.simulation.capture import capture
    from orchestrator.simulation.draining import departures

    occupants = await client.drains.occupants(name)
    if because := await silence(client.transport, time.time_ns() // 1000):
        raise ClusterError(f"{because}; without it no job leaves {name}")
    captured = await capture(client.transport)
    return departures(captured.snapshot, name, stops=stops), occupants


def _show(name: str, affected: "Sequence[Departure]", occupants: "Occupants", *, dry_run: bool) -> None:
    rows = [
        (
            job.project,
            job.name,
            str(len(job.pods)),
            format_gpu(job.gpu_milli),
            job.outcome,
            ",".join(job.nodes),
            job.reason,
        )
        for job in affected
    ]
    say(table(HEADER, rows) if rows else f"No job is on {name}.", err=not dry_run)
    if occupants.others:
        say(
            f"Pods of other schedulers stay on {name} ({occupants.others}): 'kubectl drain' evicts them",
            err=True,
        )


def _warn_of_stops(affected: "Sequence[Departure]") -> None:
    """Name the jobs that --force stops: the table has the nodes of the other jobs without regard to them."""
    from orchestrator.simulation.draining import STOPS

    stopped = [job.name for job in affected if job.outcome == STOPS]
    if stopped and len(stopped) < len(affected):
        say(
            f"{', '.join(stopped)}: stopped, and pending with the present age in the queue. The oldest job is placed "
            "first, so a stopped job may get a node that is shown for another job",
            err=True,
        )


def _confirm(name: str, affected: "Sequence[Departure]", *, yes: bool, force: bool) -> None:
    """Return after the person at the terminal has agreed. Raises Abort if the person refuses."""
    if not affected or yes or not sys.stdin.isatty():
        return
    jobs = "1 job" if len(affected) == 1 else f"{len(affected)} jobs"
    stop = ", and those that would not move are stopped" if force else ""
    agree(f"{jobs} will leave {name}{stop}. Continue?")


async def _drained(
    client: "AsyncClient",
    name: str,
    affected: "Sequence[Departure]",
    occupants: "Occupants",
    seconds: int,
    *,
    force: bool,
) -> MusterError | None:
    """Drain the node; return the error that names the jobs which stay, None if the node is empty."""
    from orchestrator.client.drains import NotDrained
    from orchestrator.simulation.draining import REMAINS, STOPS

    jobs = {pod: f"{job.name} of {job.project}" for job in affected for pod in job.pods}
    reasons = {
        f"{job.name} of {job.project}": job.reason for job in affected if job.outcome in (REMAINS, STOPS)
    }
    try:
        await client.drains.mark(name)
        if force:
            await _stop(client, affected, occupants)
        await client.drains.until_empty(
            name,
            timeout_seconds=seconds,
            names=jobs,
            reasons=reasons,
            report=lambda line: say(line, err=True),
        )
    except NotDrained as error:
        return error
    except asyncio.CancelledError:
        say(
            f"{name} is cordoned, and its jobs leave as soon as they can. 'muster node drain {name}' waits for them "
            f"again, and 'muster node uncordon {name}' ends the drain",
            err=True,
        )
        raise
    return None


async def _stop(client: "AsyncClient", affected: "Sequence[Departure]", occupants: "Occupants") -> None:
    """Stop the jobs that the scheduler would not migrate. Print the names of jobs that cannot be stopped."""
    from orchestrator.client.jobs import Scope
    from orchestrator.simulation.draining import STOPS

    namespaces = {pod.metadata.uid: pod.metadata.namespace for pod in occupants.pods}
    for job in affected:
        namespace = next((namespaces[pod] for pod in job.pods if pod in namespaces), None)
        if job.outcome != STOPS or namespace is None:
            continue
        try:
            await client.restart_job(job.name, project=Scope(job.project, namespace))
        except MusterError as error:
            say_error(str(client.with_hint(error)))


def _is_empty(dry_run: bool | None, problem: MusterError | None) -> bool | None:
    return None if dry_run else problem is None


def _record(
    name: str, affected: "Sequence[Departure]", occupants: "Occupants", *, is_empty: bool | None
) -> dict[str, Any]:
    """Return the drain for programs; `drained` is null after a dry run."""
    return {
        "node": name,
        "drained": is_empty,
        "otherPods": occupants.others,
        "jobs": [
            {
                "project": job.project,
                "name": job.name,
                "pods": len(job.pods),
                "gpus": format_gpu(job.gpu_milli),
                "outcome": job.outcome,
                "nodes": list(job.nodes),
                "reason": job.reason,
            }
            for job in affected
        ],
    }
