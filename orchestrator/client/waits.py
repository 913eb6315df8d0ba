"""Waits for jobs: until they run, have ended, have succeeded or have failed, with a time limit."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import TYPE_CHECKING, Final

from orchestrator.client.jobs import missing_job
from orchestrator.client.watching import watch_jobs
from orchestrator.errors import MusterError, TimedOut, UsageError
from orchestrator.views.containers import last_exit
from orchestrator.views.status import DEPENDENCY_FAILED, RUNNING, SUCCEEDED

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from orchestrator.client.jobs import Scope
    from orchestrator.cluster.transport import Transport
    from orchestrator.views.jobs import WorkloadView

GOALS: Final = ("running", "ended", "succeeded", "failed")


class WaitTimeout(TimedOut):
    """The time limit of a wait passed before each job had reached the goal."""


class NotReached(MusterError):
    """A job can no longer reach the goal: it failed, or it was deleted.

    `reason` says how its last pod failed, or why the job does not start; it is empty if that is unknown.
    """

    def __init__(self, message: str, reason: str = "") -> None:
        super().__init__(message)
        self.reason = reason


async def wait_for_jobs(
    transport: Transport,
    scope: Scope,
    names: Sequence[str],
    *,
    goal: str,
    timeout_seconds: float | None,
    report: Callable[[str], None],
) -> list[WorkloadView]:
    """Return the jobs, in the order of `names`, as soon as each of them has reached the goal.

    `running`: the job runs, or has succeeded. `ended`: it does not run again. `succeeded`: it ended without a failure.
    `failed`: it ended with one. `report` gets a line for each new status. Raises NoSuchWorkload, WaitTimeout, and
    NotReached for the first job that can no longer reach the goal.
    """
    if goal not in GOALS:
        raise UsageError(f"{goal!r} is not a goal of a wait: give one of {', '.join(GOALS)}")
    last: dict[str, WorkloadView] = {}
    try:
        async with asyncio.timeout(timeout_seconds), aclosing(watch_jobs(transport, scope)) as states:
            async for views in states:
                found = {view.name: view for view in views if view.name in names}
                _check_existence(names, found, last, scope)
                _report_changes(found, last, report)
                last = found
                if all(_has_reached(found[name], goal) for name in names):
                    return [found[name] for name in names]
    except TimeoutError:
        waiting = [view for view in last.values() if not _has_reached(view, goal)]
        states_text = (
            ", ".join(f"{view.name} is {_words(view)}" for view in waiting) or "no answer of the cluster"
        )
        # `from None`: the traceback of the cancelled look-up would hide this message
        raise WaitTimeout(f"not {goal} after {timeout_seconds:g} s: {states_text}") from None
    raise NotReached("the watch of the jobs ended")


def _check_existence(
    names: Sequence[str],
    found: Mapping[str, WorkloadView],
    last: Mapping[str, WorkloadView],
    scope: Scope,
) -> None:
    """Raise the error for the first job that does not exist, or that was replaced by another job of the same name."""
    for name in names:
        if name not in found and name not in last:
            raise missing_job(name, scope)
        if name not in found or (name in last and found[name].uid != last[name].uid):
            raise NotReached(f"{name} was deleted while it was waited for")


def _report_changes(
    found: Mapping[str, WorkloadView], last: Mapping[str, WorkloadView], report: Callable[[str], None]
) -> None:
    for name, view in found.items():
        if name not in last or _words(last[name]) != _words(view):
            report(f"{name}: {_words(view)}")


def _words(view: WorkloadView) -> str:
    because = view.waits_because
    return f"{view.status}: {because}" if because else view.status


def _has_reached(view: WorkloadView, goal: str) -> bool:
    """Return whether the job has reached the goal. Raises NotReached if it no longer can."""
    if goal == "ended" and view.is_final:
        return True
    if goal == "failed":
        if view.status == SUCCEEDED:
            raise NotReached(f"{view.name} has succeeded")
        if view.is_final:
            return True
    elif view.status == SUCCEEDED:
        return True
    elif view.is_final:
        reason = last_exit(view.pods)
        because = f" ({reason})" if reason else ""
        raise NotReached(
            f"{view.name} is {view.status}{because}; see 'muster logs {view.name}' and 'muster get {view.name}'",
            reason,
        )
    if view.status == DEPENDENCY_FAILED:
        raise NotReached(f"{view.name} does not start: {view.waits_because}", view.waits_because)
    return goal == "running" and view.status == RUNNING
