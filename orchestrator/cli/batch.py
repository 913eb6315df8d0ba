"""`muster delete`, `suspend` and `resume`: jobs of one project, several at a time."""

from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from orchestrator.cli.cluster_names import completing
from orchestrator.cli.message import Progress, say_error
from orchestrator.cli.options import Command
from orchestrator.cli.session import run
from orchestrator.errors import MusterError, UsageError

if TYPE_CHECKING:
    from orchestrator.client import AsyncClient, Scope

    Action = Callable[[AsyncClient, str, Scope], Coroutine[Any, Any, None]]

SITE_GROUP: Final = "muster.site"
KIND_WORDS: Final = frozenset({"job", "jobs"})
AT_ONCE: Final = 32


def _names_and_all(function: Callable[..., Any]) -> Callable[..., Any]:
    function = click.option(
        "-A", "--all", "every", is_flag=True, default=None, help="All jobs of the project."
    )(function)
    return click.argument("names", nargs=-1, metavar="[job] NAME...", shell_complete=completing("jobs"))(
        function
    )


@click.command("delete", cls=Command, no_args_is_help=True)
@_names_and_all
def delete(*, names: tuple[str, ...], every: bool | None) -> int:
    """Delete jobs of a project. The cluster deletes their pods and other dependents in the background.

    The exit code is 1 if a job could not be deleted. The command deletes the other jobs all the same.
    """
    return _on_each(
        names, every, "deleted", lambda client, name, scope: client.delete_job(name, project=scope)
    )


@click.command("suspend", cls=Command, no_args_is_help=True)
@_names_and_all
def suspend(*, names: tuple[str, ...], every: bool | None) -> int:
    """Suspend jobs of a project: their pods end and release their GPUs, until `muster resume`."""
    return _on_each(
        names, every, "suspended", lambda client, name, scope: client.suspend_job(name, project=scope)
    )


@click.command("resume", cls=Command)
@_names_and_all
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
def resume(
    *, names: tuple[str, ...], every: bool | None, inventory: Path | None, state_dir: Path | None
) -> int:
    """Return suspended jobs of a project to the queue; or continue the installation of a site (-i)."""
    if inventory is not None:
        if names or every:
            raise UsageError("jobs and a site are given: give the jobs, or the site with -i")
        return _resume_site(inventory, state_dir)
    if state_dir is not None:
        raise UsageError("--state-dir needs a site: give the site with -i")
    if not names and not every:
        raise UsageError("no job is given: give the jobs, --all, or a site with -i")
    return _on_each(
        names, every, "resumed", lambda client, name, scope: client.resume_job(name, project=scope)
    )


def _resume_site(inventory: Path, state_dir: Path | None) -> int:
    """Leave it to the installer, which this package does not import."""
    from importlib.metadata import entry_points

    (resume,) = entry_points(group=SITE_GROUP, name="resume")
    resume.load()(inventory=inventory, state_dir=state_dir)
    return 0


def _on_each(names: Sequence[str], every: bool | None, done: str, action: "Action") -> int:
    """Run the action on every job, and print each result; return the exit code."""
    import asyncio

    job_names = _wanted(names, every)

    async def act(client: "AsyncClient") -> list[tuple[str, MusterError | None]]:
        scope = await client.scope()
        chosen = await _all_names(client, scope, done) if every else job_names
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
            click.echo(f"The job '{name}' has been {done} successfully")
        else:
            say_error(str(failure))
    if every and not outcomes:
        click.echo(f"There is no job to be {done}")
    return int(any(failure for _, failure in outcomes))


def _wanted(names: Sequence[str], every: bool | None) -> list[str]:
    job_names = list(names[1:] if names and names[0] in KIND_WORDS else names)
    if bool(job_names) == bool(every):
        raise UsageError("give either the jobs or --all")
    return list(dict.fromkeys(job_names))


async def _all_names(client: "AsyncClient", scope: "Scope", done: str) -> list[str]:
    """Return the jobs to which it can be done: those that have ended are neither suspended nor resumed."""
    from orchestrator.views.status import FINAL, SUSPENDED

    views = await client.list_jobs(project=scope)
    if done == "suspended":
        views = [view for view in views if view.status not in FINAL and view.kind != "Pod"]
    elif done == "resumed":
        views = [view for view in views if view.status == SUSPENDED]
    return [view.name for view in views]
