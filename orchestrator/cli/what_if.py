"""`muster what-if`: apply changes to a copy of the cluster, and print the scheduler's decisions."""

import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import click

from orchestrator.cli.options import Command
from orchestrator.cli.outcome import show, warn
from orchestrator.cli.output import json_option
from orchestrator.cli.settings import Settings
from orchestrator.errors import UsageError

if TYPE_CHECKING:
    from orchestrator.client.aio import AsyncClient
    from orchestrator.planner.model import Snapshot
    from orchestrator.submit.submission import Submission


@click.command("what-if", cls=Command, no_args_is_help=True)
@click.option(
    "--submit",
    "submissions",
    multiple=True,
    metavar="ARGUMENTS",
    help="Add a job: the arguments of `muster submit` as one word; -i is optional.",
)
@click.option(
    "--delete", "deletions", multiple=True, metavar="NAME", help="Remove a job: NAME or PROJECT/NAME."
)
@click.option(
    "--quota", "quotas", multiple=True, metavar="PROJECT=GPUS", help="Change the quota of a project."
)
@click.option(
    "--from",
    "file",
    type=click.Path(path_type=Path),
    help="Read this file of `muster snapshot` instead of the live cluster.",
)
@json_option()
def what_if(
    *,
    submissions: tuple[str, ...],
    deletions: tuple[str, ...],
    quotas: tuple[str, ...],
    file: Path | None,
    as_json: bool | None,
) -> None:
    """Show bindings, evictions and pending jobs after a change of jobs or quotas, and write nothing.

    The command applies all changes before the first decision: quotas first, then deletions, then submissions. It
    compares the result with the state that the cluster would reach without the changes.
    """
    from orchestrator.simulation import change
    from orchestrator.simulation.outcome import compare

    if not (submissions or deletions or quotas):
        raise UsageError("no change is given: give --submit, --delete or --quota")
    requests = [_submission(submission) for submission in submissions]
    new_quotas = [_quota(quota) for quota in quotas]
    snapshot, project = _snapshot(file)

    def changed(after: "Snapshot") -> "Snapshot":
        for name, quota in new_quotas:
            after = change.set_quota(after, name, quota)
        for deletion in deletions:
            of, slash, name = deletion.rpartition("/")
            after = change.delete(after, of if slash else _known(project, f"--delete {deletion}"), name)
        for submission, of_submission in requests:
            after = change.submit(after, submission, of_submission or _known(project, submission.name))
        return after

    result, decisions_before = compare(snapshot, changed)
    if decisions_before:
        click.echo(unsettled(decisions_before), err=True)
    show(result, as_json=bool(as_json), more={"decisionsBefore": decisions_before})


def unsettled(decisions: int) -> str:
    """Return the note for a cluster that is not stable before the user's changes.

    It has the number of decisions until it is stable.
    """
    return f"Note: the cluster is not at rest; compared with the result of {decisions} more decisions"


def _snapshot(file: Path | None) -> "tuple[Snapshot, str | None]":
    """Return the snapshot and the default project."""
    from orchestrator.cli.session import run
    from orchestrator.client.projects import NoProject
    from orchestrator.simulation.capture import Capture, capture
    from orchestrator.simulation.reader import load

    settings = click.get_current_context().ensure_object(Settings)
    if file is not None:
        return load(file), settings.project

    async def read(client: "AsyncClient") -> tuple[Capture, str | None]:
        project = settings.project
        if project is None:
            try:
                project = (await client.scope()).project
            except NoProject:
                project = None  # then every job has to name its project
        return await capture(client.transport), project

    captured, project = run(read)
    warn(captured)
    return captured.snapshot, project


def _submission(text: str) -> "tuple[Submission, str | None]":
    """Return the request in the words after `submit`, and the project that they name."""
    from orchestrator.cli.submit_line import read_submission

    try:
        words = shlex.split(text)
    except ValueError as error:
        raise UsageError(f"--submit {text!r} cannot be read: {error}") from error
    if not words:
        raise UsageError("--submit is empty: give the arguments of 'muster submit'")
    return read_submission(words)


def _quota(text: str) -> tuple[str, int]:
    """Return the project and its quota in thousandths of a GPU.

    Example: `_quota("team-a=2.5")` returns `('team-a', 2500)`.
    """
    from orchestrator.cluster.gpu_fraction import gpu_milli

    name, equals, amount = text.partition("=")
    if not equals:
        raise UsageError(f"--quota {text} is not possible: give PROJECT=GPUS")
    if amount.startswith(("+", "-")):
        raise UsageError(f"--quota {text} is not possible: give the new quota, not the difference")
    try:
        return name, gpu_milli(amount)
    except ValueError as error:
        raise UsageError(f"--quota {text} is not possible: {error}") from error


def _known(project: str | None, subject: str) -> str:
    if project is None:
        raise UsageError(f"{subject}: the project is missing; give it with -p")
    return project
