"""Explains why jobs with dependencies have not started, or will never start. Pure.

WaitsForJob        another job has not reached the required state yet
DependencyFailed   another job can no longer reach this state: it ended otherwise, was deleted, or never starts
"""

from collections.abc import Iterable
from functools import cached_property
from typing import Final, NamedTuple

from orchestrator.cluster.objects import Job
from orchestrator.cluster.wire import has_condition
from orchestrator.names import AFTER_ANNOTATION
from orchestrator.submit.dependencies import ENDED, FAILED, SUCCEEDED, Dependency, dependencies_of
from orchestrator.views.status import DEPENDENCY_FAILED, PENDING

WAITS_FOR_JOB: Final = "WaitsForJob"
_GOALS: Final = {SUCCEEDED: "has succeeded", ENDED: "has ended", FAILED: "has failed"}


class Delay(NamedTuple):
    """Why a job is held back: one of the codes above, and a sentence."""

    code: str
    message: str

    @property
    def status(self) -> str:
        """The status of the job."""
        return PENDING if self.code == WAITS_FOR_JOB else self.code


class Delays:
    """The jobs that are held back by their dependencies. `is_complete`: a job that is not among `jobs` was deleted."""

    def __init__(self, jobs: Iterable[Job], *, is_complete: bool = True) -> None:
        self._jobs = {job.metadata.uid: job for job in jobs}
        self._is_complete = is_complete

    def of(self, uid: str) -> Delay | None:
        """Return why the job is held back; None if it is not."""
        return self._delays.get(uid)

    @cached_property
    def _delays(self) -> dict[str, Delay]:
        delays: dict[str, Delay] = {}
        dependents: dict[str, list[tuple[str, str]]] = {}
        for uid, job in self._jobs.items():
            if not _is_held(job):
                continue
            try:
                dependencies = dependencies_of(job.metadata)
            except ValueError as error:
                delays[uid] = _failed(job, str(error))
                continue
            delays[uid] = self._delay(job, dependencies)
            for dependency in dependencies:
                dependents.setdefault(dependency.uid, []).append((uid, dependency.job))
        failed = [uid for uid, delay in delays.items() if delay.code == DEPENDENCY_FAILED]
        for uid in failed:  # the loop appends jobs that depend on a failed job
            for dependent, name in dependents.get(uid, ()):
                if delays[dependent].code != DEPENDENCY_FAILED:
                    delays[dependent] = _failed(
                        self._jobs[dependent], f"the job {name} does not start either"
                    )
                    failed.append(dependent)
        return delays

    def _delay(self, job: Job, dependencies: Iterable[Dependency]) -> Delay:
        waits = []
        for dependency in dependencies:
            other = self._jobs.get(dependency.uid)
            if other is not None and other.metadata.namespace != job.metadata.namespace:
                other = None
            if other is None and self._is_complete:
                return _failed(job, f"the job {dependency.job} was deleted before it {_past(dependency)}")
            end = "" if other is None else end_of(other)
            if not end:
                waits.append(f"{dependency.job} {_GOALS[dependency.state]}")
            elif not dependency.is_met_by(end):
                return _failed(job, f"the job {dependency.job} {_GOALS[end]} and not {dependency.state}")
        if not waits:
            return Delay(WAITS_FOR_JOB, "its dependencies are met, and the operator starts it")
        return Delay(WAITS_FOR_JOB, f"it starts after {' and '.join(waits)}")


def end_of(job: Job) -> str:
    """Return how a Job ended, `succeeded` or `failed`; empty if it has not ended."""
    if has_condition(job.status.conditions, "Complete"):
        return SUCCEEDED
    return FAILED if has_condition(job.status.conditions, "Failed") else ""


def _is_held(job: Job) -> bool:
    metadata = job.metadata
    return (
        AFTER_ANNOTATION in metadata.annotations
        and job.spec.suspend
        and metadata.deletion_timestamp is None
        and not end_of(job)
    )


def _past(dependency: Dependency) -> str:
    return _GOALS[dependency.state].replace("has", "had")


def _failed(job: Job, why: str) -> Delay:
    name = job.metadata.name
    return Delay(
        DEPENDENCY_FAILED,
        f"{why}; 'muster resume {name}' starts it all the same, 'muster delete {name}' deletes it",
    )
