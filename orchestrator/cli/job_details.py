"""One job on the command line: its facts, its pods, and its events."""

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import click

from orchestrator.cli.gpus import JOB_GPU_HEADER, devices_text, job_gpu_rows
from orchestrator.cli.job_table import WIDE_HEADER, row
from orchestrator.cli.output import age, document, fact_lines, table
from orchestrator.cli.session import run
from orchestrator.cluster.objects import Event, Pod
from orchestrator.cluster.quantity import time_us
from orchestrator.views.containers import last_exit, not_scheduled, restarts
from orchestrator.views.gpus import GpuView, gpus_of_job
from orchestrator.views.job_record import job_record
from orchestrator.views.jobs import (
    WorkloadView,
    duration_seconds,
    event_time_us,
)
from orchestrator.views.status import pod_status

if TYPE_CHECKING:
    from orchestrator.client.aio import AsyncClient

PODS_HEADER: Final = ("POD", "STATUS", "TRAINER", "AGE", "NODE")
EVENTS_HEADER: Final = ("SOURCE", "TYPE", "AGE", "MESSAGE")


def show_job(name: str, *, output: str | None) -> None:
    """Print one job."""

    async def read(client: "AsyncClient") -> tuple[WorkloadView, Sequence[Event], list[GpuView], list[str]]:
        view, events = await client.describe_job(name)
        by_node = await client.list_gpus() if view.nodes else {}
        claims = [] if output else await client.mounted_claims(view)
        return view, events, gpus_of_job(view.pods, by_node), claims

    view, events, gpus, claims = run(read)
    now_us = time.time_ns() // 1000
    if output in ("json", "yaml"):
        happened = event_rows(view, events, now_us)
        click.echo(document(job_record(view, now_us, gpus=gpus, events=happened), output))
    elif output == "name":
        click.echo(view.name)
    elif output == "wide":
        click.echo(table(WIDE_HEADER, [row(view, now_us, wide=True, devices=devices_text(view, gpus))]))
    else:
        click.echo(details_text(view, events, now_us, gpus, claims))


def details_text(
    view: WorkloadView,
    events: Sequence[Event],
    now_us: int,
    gpus: Sequence[GpuView] = (),
    claims: Sequence[str] = (),
) -> str:
    """Return the blocks that `get` prints."""
    pods = [pod_row(view, pod, now_us) for pod in view.pods]
    happened = event_rows(view, events, now_us)
    dashes = ["-" * len(title) for title in EVENTS_HEADER]
    blocks = [
        fact_lines(facts(view, now_us, gpus, claims)),
        "Pods:\n" + table(PODS_HEADER, pods),
        *(["GPUs:\n" + table(JOB_GPU_HEADER, job_gpu_rows(gpus))] if gpus else []),
        "Events:\n" + table(EVENTS_HEADER, [dashes, *happened]),
    ]
    return "\n\n".join(blocks)


def facts(
    view: WorkloadView, now_us: int, gpus: Sequence[GpuView], claims: Sequence[str] = ()
) -> dict[str, str]:
    """Return the facts of the job, by their titles."""
    known = {
        "NAME": view.name,
        "TYPE": view.type,
        "STATUS": view.status,
        "NAMESPACE": view.namespace,
        "PRIORITY": view.priority_class,
        "TRAINING DURATION": _duration(view, now_us),
        "PROJECT": view.project,
        "USER": view.user,
        "IMAGE": view.image,
        "GPUS": "" if view.gpu_memory else view.gpus,
        "GPU MEMORY": view.gpus if view.gpu_memory else "",
        "ALLOCATED GPUS": "" if view.gpu_memory else view.held_gpus,
        "ALLOCATED GPU MEMORY": view.held_gpus if view.gpu_memory else "",
        "GPU DEVICES": devices_text(view, gpus),
        "VOLUMES": ", ".join(claims),
        "INDEXES": str(view.indexes or ""),
        **_pod_counts(view),
        "RESTARTS": restarts(view.pods),
        "LAST FAILURE": last_exit(view.pods),
        "CREATED BY CLI": str(view.created_by_cli).lower(),
        "SERVICE URL(S)": ",".join(view.urls),
        "COMMAND LINE": view.command_line,
        "SNAPSHOTS": ",".join(view.snapshots),
        "WAITS BECAUSE": view.waits_because,
    }
    return {title: fact for title, fact in known.items() if fact}


def _duration(view: WorkloadView, now_us: int) -> str:
    seconds = duration_seconds(view, now_us)
    return "" if seconds is None else age(seconds)


def _pod_counts(view: WorkloadView) -> dict[str, str]:
    phases = [pod.status.phase or "Pending" for pod in view.pods]
    counts = {phase: phases.count(phase) for phase in ("Running", "Pending", "Succeeded", "Failed")}
    return {f"{phase.upper()} PODS": str(count) for phase, count in counts.items() if count}


def pod_row(view: WorkloadView, pod: Pod, now_us: int) -> Sequence[str]:
    """Return the cells of one pod of the job."""
    seconds = (now_us - time_us(pod.metadata.creation_timestamp)) // 1_000_000
    host = pod.spec.node_name
    node = f"{host}/{pod.status.host_ip}" if host and pod.status.host_ip else host or "N/A"
    return (pod.metadata.name, pod_status(pod).upper(), view.kind.upper(), age(seconds), node)


def event_rows(view: WorkloadView, events: Sequence[Event], now_us: int) -> list[Sequence[str]]:
    """Return the rows of the events; the reason of a pending pod is always among them."""
    rows: list[Sequence[str]] = []
    for event in events:
        about = event.involved_object
        source = f"{about.kind.lower()}/{about.name}"
        seconds = (now_us - event_time_us(event)) // 1_000_000
        rows.append((source, event.type or "-", age(seconds), f"[{event.reason}] {event.message}"))
    event_messages = {event.message for event in events}
    for pod in view.pods:
        reason = not_scheduled(pod)
        if reason and reason not in event_messages:
            since = next(
                condition.last_transition_time
                for condition in pod.status.conditions
                if condition.type == "PodScheduled"
            )
            seconds = (now_us - (time_us(since) or view.created_us)) // 1_000_000
            rows.append((f"pod/{pod.metadata.name}", "Warning", age(seconds), f"[Unschedulable] {reason}"))
    return rows
