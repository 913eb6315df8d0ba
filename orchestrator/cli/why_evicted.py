"""`muster why-evicted`: who took a job's GPUs, by which rule and when."""

import time
from typing import TYPE_CHECKING, Any, Final

import click

from orchestrator.cli.cluster_names import completing
from orchestrator.cli.options import Command
from orchestrator.cli.outcome import json_option
from orchestrator.cli.output import age, document, table
from orchestrator.cli.session import run
from orchestrator.cluster.quantity import format_gpu, parse_time

if TYPE_CHECKING:
    from orchestrator.client.aio import AsyncClient
    from orchestrator.control.audit import EvictionRecord

HEADER: Final = ("WHEN", "AGE", "POD", "GPUs", "FROM", "TO", "RULE", "GRACE", "BECAUSE")


@click.command("why-evicted", cls=Command, no_args_is_help=True)
@click.argument("name", shell_complete=completing("jobs"))
@json_option()
def why_evicted(*, name: str, as_json: bool | None) -> None:
    """Say who took the GPUs of a job, by which rule and when, from the record that the operator keeps.

    GRACE is how long it could go on to save its work. The record outlives the pods and the job; it holds the last
    evictions of each project.
    """
    from orchestrator.control.audit import MAX_RECORDS, evictions_in

    async def read(client: "AsyncClient") -> "tuple[str, list[EvictionRecord]]":
        scope = await client.scope()
        found = [
            each for each in await evictions_in(client.transport, scope.namespace) if each.workload == name
        ]
        if not found:
            await client.describe_job(name, project=scope)  # raises when there is no such job either
        return scope.project, found

    project, found = run(read)
    if as_json:
        click.echo(document([record(each) for each in found], "json"))
    elif not found:
        click.echo(f"{name} was not evicted (on record: the last {MAX_RECORDS} evictions of {project})")
    else:
        now_us = time.time_ns() // 1000
        click.echo(table(HEADER, [_row(each, now_us) for each in found]))


def record(each: "EvictionRecord") -> dict[str, Any]:
    """Return one eviction for programs."""
    return {
        "at": each.at,
        "project": each.project,
        "workload": each.workload,
        "pod": each.pod,
        "gpus": format_gpu(each.gpu_milli),
        "node": each.node,
        "devices": list(each.devices),
        "beneficiary": each.beneficiary,
        "beneficiaryProject": each.beneficiary_project,
        "rule": each.rule,
        "graceSeconds": each.grace_seconds,
        "message": each.message,
    }


def _row(each: "EvictionRecord", now_us: int) -> tuple[str, ...]:
    devices = f"[{','.join(map(str, each.devices))}]" if each.devices else ""
    return (
        f"{each.at[:19]}Z",
        age((now_us - parse_time(each.at)) // 1_000_000),
        each.pod,
        format_gpu(each.gpu_milli),
        f"{each.node}{devices}",
        f"{each.beneficiary_project}/{each.beneficiary}" if each.beneficiary else "",
        each.rule,
        "" if each.grace_seconds is None else f"{each.grace_seconds}s",
        each.message,
    )
