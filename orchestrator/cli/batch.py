"""`muster delete`, `suspend`, `resume` and `requeue`: jobs of one project, several at a time."""

from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from orchestrator.cli.cluster_names import completing
from orchestrator.cli.message import Progress, agree, say, say_error
from orchestrator.cli.options import Command
from orchestrator.cli.selecting import SHOWN_NAMES, Choice, check_nodes, selecting
from orchestrator.cli.session import run
from orchestrator.errors import MusterError, UsageError
from orchestrator.progress import printable

if TYPE_CHECKING:
    from orchestrator.client import AsyncClient, Scope
    from orchestrator.views.selection import Selection

    Action = Callable[[AsyncClient, str, Scope], Coroutine[Any, Any, None]]

SITE_GROUP: Final = "muster.site"
KIND_WORDS: Final = frozenset({"job", "jobs"})
AT_ONCE: Final = 32


def _jobs(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the argument and the options that choose jobs. The function gets their values as `wanted`."""

    @wraps(function)
    def call(
        *,
        names: tuple[str, ...],
        every: bool | None,
        all_users: bool | None,
        yes: bool | None,
        choice: Choice,
        **values: Any,
    ) -> Any:
        return function(wanted=_Wanted(names, bool(every), bool(all_users), bool(yes), choice), **values)

    call = selecting(call)
    for option in (
        click.option("-y", "--yes", is_flag=True, default=None, help="Do not ask before several jobs are changed."),
        click.option(
            "--all-users", is_flag=True, default=None,
            help="Also jobs of other users; with --all, --status, -l, --node or --since.",
        ),
        click.option(
            "-A", "--all", "every", is_flag=True, default=None,
            help="All your jobs of the project. In list and top, -A is --all-projects.",
        ),
        click.argument("names", nargs=-1, metavar="[job] NAME...", shell_complete=completing("jobs")),
    ):  # fmt: skip
        call = option(call)
    return call


@dataclass(frozen=True, slots=True)
class _Wanted:
    """The jobs of a command: named jobs, all jobs, or those that meet a choice."""

    names: Sequence[str]
    every: bool
    all_users: bool
    yes: bool
    choice: Choice

    @property
    def is_empty(self) -> bool:
        """Whether the command line has neither a job, nor --all, nor a choice."""
        return not self.names and not self.every and self.choice.is_empty

    @property
    def job_names(self) -> list[str]:
        """The named jobs, each once."""
        names = self.names[1:] if self.names and self.names[0] in KIND_WORDS else self.names
        return list(dict.fromkeys(names))

    def check(self) -> None:
        """Raise UsageError if the command line chooses jobs in two ways, or chooses no jobs."""
        is_chosen = self.every or not self.choice.is_empty
        if bool(self.job_names) == is_chosen:
            raise UsageError("give either the jobs, or --all, or a choice such as --status Failed")
        if self.all_users and (self.job_names or self.choice.user):
            raise UsageError("--all-users goes with --all or with a choice that names no user")


@click.command("delete", cls=Command, no_args_is_help=True)
@_jobs
@click.option(
    "--dry-run", is_flag=True, default=None, help="Name the jobs that would be deleted, and delete nothing."
)
def delete(*, wanted: "_Wanted", dry_run: bool | None) -> int:
    """Delete jobs of a project. The cluster deletes the jobs' pods and other dependents in the background. With --all,
    or with an option such as --status Failed, only your own jobs are deleted. At a terminal, the command asks first.
    The exit code is 1 if a job could not be deleted. The other jobs are deleted nevertheless.
    """
    return _on_each(
        wanted,
        "deleted",
        lambda client, name, scope: client.delete_job(name, project=scope, dry_run=bool(dry_run)),
        dry_run=bool(dry_run),
    )


@click.command("suspend", cls=Command, no_args_is_help=True)
@_jobs
def suspend(*, wanted: "_Wanted") -> int:
    """Suspend jobs of a project: their pods end and release their GPUs, until `muster resume`."""
    return _on_each(wanted, "suspended", lambda client, name, scope: client.suspend_job(name, project=scope))


@click.command("resume", cls=Command)
@_jobs
@click.option(
    "-i", "--inventory", type=click.Path(path_type=Path, exists=True), metavar="SITE",
    help="Directory of a site, instead of jobs: continue the install, upgrade or teardown that was "
    "interrupted.",
)  # fmt: skip
@click.option(
    "--state-dir",
    type=click.Path(path_type=Path, file_okay=False),
    help="Directory of the journals, with -i.",
)
def resume(*, wanted: "_Wanted", inventory: Path | None, state_dir: Path | None) -> int:
    """Return suspended jobs of a project to the queue; or continue the installation of a site (-i)."""
    if inventory is not None:
        if not wanted.is_empty:
            raise UsageError("jobs and a site are given: give the jobs, or the site with -i")
        return _resume_site(inventory, state_dir)
    if state_dir is not None:
        raise UsageError("--state-dir needs a site: give the site with -i")
    if wanted.is_empty:
        raise UsageError("no job is given: give the jobs, --all, or a site with -i")
    return _on_each(wanted, "resumed", lambda client, name, scope: client.resume_job(name, project=scope))


@click.command("requeue", cls=Command, no_args_is_help=True)
@_jobs
def requeue(*, wanted: "_Wanted") -> int:
    """Return jobs to the end of their project's queue: their pods end and release their GPUs.

    A job starts again from its beginning or its last checkpoint. Jobs of the same priority that were submitted before
    this moment come first. The command waits until the pods are told to end. If it is interrupted, the job can stay
    suspended, and `muster resume` returns it to the queue.
    """
    return _on_each(wanted, "requeued", lambda client, name, scope: client.requeue_job(name, project=scope))


def _resume_site(inventory: Path, state_dir: Path | None) -> int:
    """Continue the installation by the installer's `resume`.

    It is found by an entry point, because this package must not import the installer.
    """
    from importlib.metadata import entry_points

    (resume,) = entry_points(group=SITE_GROUP, name="resume")
    resume.load()(inventory=inventory, state_dir=state_dir)
    return 0


def _on_each(wanted: _Wanted, done: str, action: "Action", *, dry_run: bool = False) -> int:
    """Run the action on every job, and print each result; return the exit code. A dry run asks no question."""
    import asyncio

    wanted.check()
    selection = wanted.choice.selection()

    async def act(client: "AsyncClient") -> list[tuple[str, MusterError | None]]:
        scope = await client.scope()
        chosen = wanted.job_names
        if not chosen:
            chosen = await _chosen(client, scope, wanted, selection, done)
            chosen = chosen if dry_run else _agreed(chosen, wanted, scope, done)
        slots = asyncio.Semaphore(AT_ONCE)
        progress = Progress(len(chosen), f"jobs {done}")

        async def attempt(name: str) -> tuple[str, MusterError | None]:
            from orchestrator.cluster.errors import Unauthorized, Unreachable

            try:
                async with slots:
                    await action(client, name, scope)
                    progress.one_more()
            except (Unreachable, Unauthorized):
                raise
            except MusterError as error:
                return name, client.with_hint(error)
            return name, None

        return await asyncio.gather(*map(attempt, chosen))

    outcomes = run(act)
    for name, failure in outcomes:
        if failure is None:
            click.echo(
                f"The job '{name}' would be {done}"
                if dry_run
                else f"The job '{name}' has been {done} successfully"
            )
        else:
            say_error(str(failure))
    if not outcomes:
        click.echo(f"There is no job to be {done}")
    return int(any(failure for _, failure in outcomes))


async def _chosen(
    client: "AsyncClient", scope: "Scope", wanted: _Wanted, selection: "Selection", done: str
) -> list[str]:
    """Return the jobs that meet the choice and allow the action; for example, an ended job cannot be suspended.

    Unless the choice includes other users, their jobs are left out, and the number of these jobs is printed.
    """
    from orchestrator.cli.submit_request import operating_system_user
    from orchestrator.views.status import SUSPENDED

    present = await client.list_jobs(project=scope)
    await check_nodes(client, selection, present)
    views = selection.of(present)
    if done == "suspended":
        views = [view for view in views if not (view.is_final or view.delay) and view.kind != "Pod"]
    elif done == "requeued":
        unended = (view for view in views if not (view.is_final or view.delay) and view.kind != "Pod")
        views = [view for view in unended if view.status != SUSPENDED]
    elif done == "resumed":
        views = [view for view in views if view.status == SUSPENDED]
    if wanted.all_users or wanted.choice.user:
        return [view.name for view in views]
    user = operating_system_user()
    own = [view.name for view in views if view.user == user]
    if others := len(views) - len(own):
        say(
            f"{others} {'job' if others == 1 else 'jobs'} of other users not {done}: add --all-users",
            err=True,
        )
    return own


def _agreed(names: list[str], wanted: _Wanted, scope: "Scope", done: str) -> list[str]:
    """Return the names after the person at the terminal has agreed. Raises Abort if the person refuses."""
    import sys

    if names and not wanted.yes and sys.stdin.isatty():
        shown = ", ".join(map(printable, names[:SHOWN_NAMES])) + (", …" if len(names) > SHOWN_NAMES else "")
        jobs = "1 job" if len(names) == 1 else f"{len(names)} jobs"
        agree(f"{jobs} of {printable(scope.project)} will be {done}: {shown}. Continue?")
    return names
