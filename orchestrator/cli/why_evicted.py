"""`muster why-evicted`: the preemptor of a job, the rule and the time."""

import time
from typing import TYPE_CHECKING, Any, Final

import click

from orchestrator.cli.cluster_names import completing
from orchestrator.cli.options import Command
from orchestrator.cli.output import age, document, json_option, table
from orchestrator.cli.session import run
from orchestrator.cluster.gpu_fraction import format_gpu
from orchestrator.cluster.quantity import parse_time

if TYPE_CHECKING:
    from orchestrator.client.aio import AsyncClient
    from orchestrator.client.jobs import Scope
    from orchestrator.control.report.audit import EvictionRecord

HEADER: Final = ("WHEN", "AGE", "POD", "GPUs", "FROM", "TO", "RULE", "GRACE", "BECAUSE")


@click.command("why-evicted", cls=Command, no_args_is_help=True)
@click.argument("name", shell_complete=completing("jobs"))
@json_option()
def why_evicted(*, name: str, as_json: bool | None) -> None:
    """Explain the evictions of a job: the workload that got the GPUs, the rule and the time.

    GRACE is the grace period for a checkpoint. The operator records the latest evictions of each project. The
    record outlives the pods and the job.
    """
    from orchestrator.control.report.audit import MAX_RECORDS

    project, evictions = run(lambda client: evictions_of(client, name))
    if as_json:
        click.echo(document([record(eviction) for eviction in evictions], "json"))
    elif not evictions:
        click.echo(f"{name} was not evicted (on record: the last {MAX_RECORDS} evictions of {project})")
    else:
        now_us = time.time_ns() // 1000
        click.echo(table(HEADER, [row(eviction, now_us) for eviction in evictions]))


async def evictions_of(
    client: "AsyncClient", name: str, project: "str | Scope | None" = None
) -> "tuple[str, list[EvictionRecord]]":
    """Return the project, and the evictions of a job of that name.

    Raises NoSuchWorkload if there is no eviction and no job of that name.
    """
    from orchestrator.control.report.audit import evictions_in

    scope = await client.scope(project)
    evictions = [
        eviction
        for eviction in await evictions_in(client.transport, scope.namespace)
        if eviction.workload == name
    ]
    if not evictions:
        await client.describe_job(name, project=scope)  # raises if there is no such job
    return scope.project, evictions


def record(eviction: "EvictionRecord") -> dict[str, Any]:
    """Return one eviction for programs."""
    return {
        "at": eviction.at,
        "project": eviction.project,
        "workload": eviction.workload,
        "pod": eviction.pod,
        "gpus": format_gpu(eviction.gpu_milli),
        "node": eviction.node,
        "devices": list(eviction.devices),
        "beneficiary": eviction.beneficiary,
        "beneficiaryProject": eviction.beneficiary_project,
        "rule": eviction.rule,
        "graceSeconds": eviction.grace_seconds,
        "message": eviction.message,
    }


def row(eviction: "EvictionRecord", now_us: int) -> tuple[str, ...]:
    """Return the cells of one eviction."""
    devices = f"[{','.join(map(str, eviction.devices))}]" if eviction.devices else ""
    return (
        f"{eviction.at[:19]}Z",
        age((now_us - parse_time(eviction.at)) // 1_000_000),
        eviction.pod,
        format_gpu(eviction.gpu_milli),
        f"{eviction.node}{devices}",
        f"{eviction.beneficiary_project}/{eviction.beneficiary}" if eviction.beneficiary else "",
        eviction.rule,
        "" if eviction.grace_seconds is None else f"{eviction.grace_seconds}s",
        eviction.message,
    )
