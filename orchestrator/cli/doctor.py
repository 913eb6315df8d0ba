"""`muster doctor`: the problems of a cluster, and an archive for a report of a defect.

The archive has no commands, variables, secrets, images, users, or messages of other programs than muster. The names of
projects, jobs, pods and nodes are in it.
"""

import io
import json
import platform
import tarfile
import time
from collections import Counter
from collections.abc import Awaitable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeVar

import click
import msgspec

from orchestrator.cli.message import say, say_error
from orchestrator.cli.options import Command
from orchestrator.cli.session import run
from orchestrator.client.aio import AsyncClient
from orchestrator.client.leadership import silence
from orchestrator.client.policies_in_force import policies_in_force
from orchestrator.cluster.errors import Forbidden, Unreachable
from orchestrator.cluster.objects import Event, Project
from orchestrator.cluster.quantity import format_time, time_us
from orchestrator.cluster.resources import EVENTS
from orchestrator.control.report.audit import newest_evictions
from orchestrator.control.report.events import COMPONENT
from orchestrator.control.report.skipped import Record, recorded
from orchestrator.distribution import installed_version
from orchestrator.errors import MusterError, UsageError
from orchestrator.simulation import writer
from orchestrator.simulation.capture import capture
from orchestrator.simulation.settings import encoded, settings_in_force
from orchestrator.views.jobs import WorkloadView, event_time_us
from orchestrator.views.nodes import NodeView
from orchestrator.views.status import ERROR, STATUSES

T = TypeVar("T")

PAST_US: Final = 3_600_000_000
"""Maximum age of the events and evictions in the archive: one hour."""


@dataclass(slots=True)
class Report:
    """The problems, one line each, and the files of the archive by name."""

    now_us: int
    problems: list[str] = field(default_factory=list)
    answers: dict[str, str] = field(default_factory=dict)
    """The API server's answer for each problem.

    It names the user, so it is printed and not written into the archive.
    """
    files: dict[str, str] = field(default_factory=dict)

    async def read(self, subject: str, reading: Awaitable[T]) -> T | None:
        """Return the result; if the request is refused, note this as a problem and return None. Raises Unreachable."""
        try:
            return await reading
        except Unreachable:
            raise
        except MusterError as error:
            self.note_unread(subject, f"{type(error).__name__}", str(error))
            return None

    def note_unread(self, subject: str, kind: str, answer: str) -> None:
        """Note that `subject` cannot be read, with the kind of the error and the answer of the API server."""
        problem = f"{subject}: not read ({kind})"
        self.problems.append(problem)
        self.answers[problem] = f"{subject}: not read; {answer}"

    def add(self, name: str, content: Any) -> None:
        """Add a file with this content as JSON."""
        self.files[name] = json.dumps(msgspec.to_builtins(content), indent=2) + "\n"


@click.command("doctor", cls=Command)
@click.option(
    "--file",
    type=click.Path(path_type=Path),
    help="The archive to write; default: muster-doctor-TIME.tar.gz in the current directory.",
)
def doctor(*, file: Path | None) -> int:
    """Print the problems of the cluster, and write an archive for a report of a defect.

    The archive has versions, settings, problems, the input of the scheduler, and the events and evictions of the
    last hour. It has no commands, variables, secrets, images or users. The exit code is 1 if there is a problem.
    """
    now_us = time.time_ns() // 1000
    stamp = format_time(now_us)[:19].replace("-", "").replace(":", "")
    path = file or Path(f"muster-doctor-{stamp}Z.tar.gz")
    if path.exists():
        raise UsageError(f"--file {path}: it exists; name another file")
    report = Report(now_us)
    run(lambda client: examine(client, report))
    for problem in report.problems:
        say(report.answers.get(problem, problem))
    if report.problems:
        say_error(f"the cluster has problems: {len(report.problems)}")
    else:
        click.echo("No problem was found.")
    write_archive(path, report.files | {"problems.txt": "".join(f"{line}\n" for line in report.problems)})
    click.echo(f"Archive: {path}")
    return 1 if report.problems else 0


async def examine(client: AsyncClient, report: Report) -> None:
    """Read the cluster into the report."""
    transport = client.transport
    version = await report.read("version of Kubernetes", transport.get("/version", dict)) or {}
    report.add(
        "versions.json",
        {
            "muster": installed_version(),
            "python": platform.python_version(),
            "platform": platform.platform(),
            "kubernetes": version.get("gitVersion", ""),
        },
    )
    policies = await report.read("policies", policies_in_force(transport))
    if policies is not None and policies.in_force is None:
        report.note_unread("policies", Forbidden.__name__, "; ".join(policies.problems))
    elif policies is not None and not policies.in_force:
        report.problems.append(policies.sentence())
    silent = await report.read("operator", silence(transport, report.now_us))
    report.problems += [silent] if silent else []
    settings = await report.read("settings", settings_in_force(transport))
    if settings is not None:
        report.files["settings.yaml"] = encoded(settings)
    skipped = await report.read("skipped objects", recorded(transport))
    if skipped is not None:
        report.add("skipped.json", skipped)
        report.problems += skipped_problems(skipped)
    captured = await report.read("input of the scheduler", capture(transport))
    if captured is not None:
        report.files["snapshot.yaml"] = writer.dump(captured.snapshot)
    nodes = await report.read("nodes", client.list_nodes())
    report.problems += node_problems(nodes.views if nodes else ())
    report.problems += project_problems(await report.read("projects", client.list_projects()) or ())
    report.problems += job_problems(await report.read("jobs", client.list_jobs(all_projects=True)) or ())
    since_us = report.now_us - PAST_US
    events = await report.read("events", transport.list(EVENTS.path(), Event))
    if events is not None:
        report.add("events.json", [_event(one) for one in events.items if event_time_us(one) >= since_us])
    evictions = await report.read("evictions", newest_evictions(transport, (None,)))
    if evictions is not None:
        report.add("evictions.json", [one for one in evictions if time_us(one.at) >= since_us])


def skipped_problems(record: Record) -> list[str]:
    """Return a line for each object that the scheduler skips.

    One more line has the number of skipped objects that the record does not name. Another line has the number of
    workloads that the last decision did not reach.
    """
    more = [f"{record.more} more objects are skipped"] if record.more else []
    left = [f"{record.left_over} workloads were not reached by the last decision"] if record.left_over else []
    return [*(f"{entry.kind} {entry.path}: {entry.why}" for entry in record.objects), *more, *left]


def node_problems(nodes: Iterable[NodeView]) -> list[str]:
    """Return a line for each node that takes no pods, or has GPUs that must not be used."""
    return [
        f"node {node.name}: {node.unhealthy or _fault_text(node) or node.status}; see 'muster get node {node.name}'"
        for node in nodes
        if not node.is_ready
        or node.is_cordoned
        or node.unhealthy
        or node.host_fault
        or node.gpu_unhealthy_milli
    ]


def _fault_text(node: NodeView) -> str:
    return f"it reports a host fault: {node.host_fault}" if node.host_fault else ""


def project_problems(projects: Iterable[Project]) -> list[str]:
    """Return a line for each condition of a project whose status is not True."""
    return [
        f"project {project.metadata.name}: {condition.type} is {condition.status}; {condition.message}"
        for project in projects
        for condition in project.status.conditions
        if condition.status != "True"
    ]


def job_problems(jobs: Iterable[WorkloadView]) -> list[str]:
    """Return a line for each status that is Error or comes from Kubernetes, such as ImagePullBackOff."""
    counts = Counter(job.status for job in jobs if job.status == ERROR or job.status not in STATUSES)
    return [
        f"jobs: {count} with {status}; see 'muster list -A --status {status}'"
        for status, count in counts.items()
    ]


def _event(event: Event) -> Mapping[str, Any]:
    about = event.involved_object
    return {
        "at": format_time(event_time_us(event)),
        "kind": about.kind,
        "namespace": about.namespace,
        "name": about.name,
        "type": event.type,
        "reason": event.reason,
        "count": event.count or 1,
        "by": event.reporting_component,
        "message": event.message if event.reporting_component == COMPONENT else "",
    }


def write_archive(path: Path, files: Mapping[str, str]) -> None:
    """Write the files as a new archive that its owner alone may read. Raises UsageError."""
    try:
        path.touch(mode=0o600, exist_ok=False)
        with tarfile.open(path, "w:gz") as archive:
            for name, text in sorted(files.items()):
                content = text.encode()
                entry = tarfile.TarInfo(name)
                entry.size = len(content)
                archive.addfile(entry, io.BytesIO(content))
    except OSError as error:
        raise UsageError(f"--file {path}: cannot be written; {error.strerror}") from error
