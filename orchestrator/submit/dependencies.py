"""The jobs that a job depends on: the value of `--after`, and the annotation that keeps it.

A job with dependencies is a suspended Job with the annotation `muster.dev/after`. The operator removes each dependency
that is met, and starts the Job when it removes the last one. No other object stores them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from orchestrator.errors import InvalidField
from orchestrator.names import AFTER_ANNOTATION
from orchestrator.submit.name_rules import is_object_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from orchestrator.cluster.wire import Metadata

SUCCEEDED: Final = "succeeded"
ENDED: Final = "ended"
FAILED: Final = "failed"
STATES: Final = (SUCCEEDED, ENDED, FAILED)
MAX_DEPENDENCIES: Final = 100
"""Maximum number of dependencies of a job, because one annotation has all of them."""

_RULE: Final = "{after} {text!r} is not possible: write JOB or JOB:STATE, where STATE is one of {states}"


@dataclass(frozen=True, slots=True)
class Dependency:
    """A job of the same project and the state that it must reach, one of STATES.

    The submission fills in `uid`, the job's uid at that time, because a later job can have the same name.
    """

    job: str
    state: str = SUCCEEDED
    uid: str = ""

    def is_met_by(self, end: str) -> bool:
        """Return whether the end of the job, `succeeded`, `failed` or empty, is the state."""
        return bool(end) and self.state in (ENDED, end)


def parse_dependency(text: str) -> Dependency:
    """Return the dependency of a text `JOB[:succeeded|ended|failed]`.

    Example: `parse_dependency("prepare")` returns `Dependency("prepare", "succeeded")`.
    """
    job, _, state = text.partition(":")
    if is_object_name(job) and (state in STATES or text == job):
        return Dependency(job, state or SUCCEEDED)
    raise InvalidField(_RULE, text=text, states=", ".join(STATES))


def dependency_problem(dependencies: Sequence[Dependency], *, interactive: bool) -> InvalidField | None:
    """Return why a job cannot have these dependencies; None if it can."""
    if dependencies and interactive:
        return InvalidField("{after} does not go with {interactive}: only training jobs can depend on others")
    if len(dependencies) > MAX_DEPENDENCIES:
        return InvalidField(
            "{after} is given {count} times: give it at most {most} times",
            count=len(dependencies),
            most=MAX_DEPENDENCIES,
        )
    jobs = [dependency.job for dependency in dependencies]
    twice = next((job for job in jobs if jobs.count(job) > 1), None)
    if twice is not None:
        return InvalidField("{after} {job} is given twice: give each job once", job=twice)
    for dependency in dependencies:
        if dependency.state not in STATES or not is_object_name(dependency.job):
            text = f"{dependency.job}:{dependency.state}"
            return InvalidField(_RULE, text=text, states=", ".join(STATES))
    return None


def annotation_of(dependencies: Iterable[Dependency]) -> str:
    """Return the value of the annotation."""
    return ",".join(f"{each.job}:{each.state}:{each.uid}" for each in dependencies)


def dependencies_of(metadata: Metadata) -> tuple[Dependency, ...]:
    """Return the unmet dependencies that a Job is annotated with. Raises ValueError if they cannot be read."""
    text = metadata.annotations.get(AFTER_ANNOTATION)
    return () if text is None else tuple(map(_read, text.split(",")))


def _read(text: str) -> Dependency:
    parts = text.split(":")
    if len(parts) != 3 or parts[1] not in STATES or not all(parts):
        raise ValueError(f"the annotation {AFTER_ANNOTATION} has {text!r}, which is not JOB:STATE:UID")
    return Dependency(*parts)
