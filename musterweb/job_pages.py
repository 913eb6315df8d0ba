"""One job: `muster get`, `explain`, `why-evicted` and `logs` as pages."""

import asyncio
from collections.abc import Sequence
from contextlib import aclosing
from typing import Final

from musterweb.computing import compute
from musterweb.node_pages import old_time
from musterweb.page import Page, Visit, job_address
from musterweb.table import Table
from orchestrator.cli import job_details, why_evicted
from orchestrator.cli.explain import explanation, read_case
from orchestrator.cli.explanation import ENTITLEMENT_HEADER, HOLDERS_HEADER
from orchestrator.cli.gpus import JOB_GPU_HEADER, job_gpu_rows
from orchestrator.client.streams import LogRequest
from orchestrator.cluster.errors import Forbidden, NotFound
from orchestrator.errors import MusterError
from orchestrator.views.gpus import GpuView, gpus_of_job

LOG_LINES: Final = 500
MAX_LOG_BYTES: Final = 256 << 10
_LOG_SECONDS: Final = 10.0


async def job_page(visit: Visit) -> Page:
    """Return the page with the facts of a job, its pods and GPUs, its events, and its evictions."""
    client, name, of = visit.person.client, visit.path["name"], visit.path["project"]
    scope = await client.scope(of)
    view, events = await client.describe_job(name, project=scope)
    gpus = gpus_of_job(view.pods, visit.sight.gpus)
    tables = [
        Table(
            "pods", "Pods", job_details.PODS_HEADER,
            [job_details.pod_row(view, pod, visit.now_us) for pod in view.pods], empty="It has no pods.",
            csv=job_address(of, name, "pods.csv"),
        ),
        *([_gpus_table(visit, gpus)] if gpus else []),
        Table(
            "events", "Events", job_details.EVENTS_HEADER,
            job_details.event_rows(view, events, visit.now_us), empty="Nothing is known to have happened to it.",
            csv=job_address(of, name, "events.csv"),
        ),
        await _evictions(visit, name, of),
    ]  # fmt: skip
    content = {
        "facts": job_details.facts(view, visit.now_us, gpus),
        "tables": tables,
        "explain": job_address(of, name, "explain"),
        "logs": job_address(of, name, "logs"),
    }
    return Page(f"{name} of {of}", "job.html.j2", content, _as_files(tables))


def _as_files(tables: Sequence[Table]) -> tuple[Table, ...]:
    """Return the tables that the page offers as files. Tables that could not be read are left out."""
    return tuple(table for table in tables if table.csv)


def _gpus_table(visit: Visit, gpus: Sequence[GpuView]) -> Table:
    old = old_time(gpus, visit.now_us)
    return Table(
        "gpus", "GPUs", JOB_GPU_HEADER, job_gpu_rows(gpus),
        csv=job_address(visit.path["project"], visit.path["name"], "gpus.csv"),
        note=f"Their figures are {old}." if old else "",
    )  # fmt: skip


async def _evictions(visit: Visit, name: str, of: str) -> Table:
    title = "Evictions"
    try:
        _, evictions = await why_evicted.evictions_of(visit.person.client, name, of)
    except (Forbidden, NotFound) as error:
        return Table("evictions", title, why_evicted.HEADER, [], empty=str(error))
    rows = [why_evicted.row(eviction, visit.now_us) for eviction in evictions]
    return Table(
        "evictions", title, why_evicted.HEADER, rows, empty="It was not evicted, as far as is on record.",
        csv=job_address(of, name, "evictions.csv"),
    )  # fmt: skip


async def explain_page(visit: Visit) -> Page:
    """Return the page with the reason of a pending job, remedies, its project, and the jobs with GPUs."""
    name, of = visit.path["name"], visit.path["project"]
    case = await read_case(visit.person.client, name, of)
    result = await compute(lambda: explanation(case))
    tables = [
        Table(
            "entitlement", "Where its projects stand", ENTITLEMENT_HEADER, result.entitlement,
            csv=job_address(of, name, "entitlement.csv"),
        ),
        Table(
            "holders", "Who holds GPUs", HOLDERS_HEADER, result.holders,
            csv=job_address(of, name, "holders.csv"), note=f"and {result.more} more" if result.more else "",
        ),
    ]  # fmt: skip
    shown = [table for table in tables if table.rows]
    content = {
        "result": result,
        "doubt": case.captured.doubt if case.captured else "",
        "tables": shown,
        "job": job_address(of, name),
    }
    return Page(f"Why {name} of {of} waits", "explain.html.j2", content, _as_files(shown))


async def logs_page(visit: Visit) -> Page:
    """Return the page with the end of a job's log."""
    client, name, of = visit.person.client, visit.path["name"], visit.path["project"]
    pod = visit.query.get("pod") or None
    container = visit.query.get("container") or None
    scope = await client.scope(of)
    view, _ = await client.describe_job(name, project=scope)
    text, problem = "", ""
    try:
        async with asyncio.timeout(_LOG_SECONDS):
            text = await _end_of_log(visit, pod, container)
    except TimeoutError:
        problem = "the log did not come in time: try again"
    except MusterError as error:
        problem = str(client.with_hint(error))
    content = {
        "text": text,
        "problem": problem,
        "lines": LOG_LINES,
        "job": job_address(of, name),
        "address": job_address(of, name, "logs"),
        "pods": [pod.metadata.name for pod in view.pods],
        "pod": pod or "",
    }
    return Page(f"Log of {name} of {of}", "logs.html.j2", content)


async def _end_of_log(visit: Visit, pod: str | None, container: str | None) -> str:
    client, name = visit.person.client, visit.path["name"]
    log = client.log(
        name, project=visit.path["project"], pod=pod, container=container, request=LogRequest(tail_lines=LOG_LINES)
    )  # fmt: skip
    text = bytearray()
    async with aclosing(log) as chunks:
        async for chunk in chunks:
            text += chunk
            del text[:-MAX_LOG_BYTES]
    lines = bytes(text).decode("utf-8", "replace").splitlines()
    return "\n".join(
        "".join(character if character.isprintable() or character == "\t" else "\ufffd" for character in line)
        for line in lines
    )
