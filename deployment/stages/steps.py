"""The step from an installed release to the release in the site file, and whether it can be undone."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from packaging.version import Version

from deployment.site import Place


@dataclass(frozen=True)
class Step:
    """The change of a component's release.

    `irreversible` is the reason if the step cannot be undone, `problem` the reason if it is refused.
    """

    stage: str
    subject: str
    before: str
    after: str
    irreversible: str = ""
    problem: str = ""
    place: Place = ()

    def line(self) -> str:
        """Return the step as a line for people."""
        change = f"{self.subject} {self.before} -> {self.after}"
        if self.problem:
            return f"{change}, refused: {self.problem}"
        return f"{change}, cannot be undone: {self.irreversible}" if self.irreversible else change

    def record(self) -> dict[str, Any]:
        """Return the step as data for `--json`."""
        return {key: value for key, value in asdict(self).items() if key != "place"}


def component_steps(
    stage: str, subject: str, before: str, after: str, *, no_way_back: str, minor: int
) -> Iterator[Step]:
    """Yield the step of a component, if its release changes.

    A step that changes only numbers after the first `minor` ones can be undone.
    """
    if not before or not after or version_of(before) == version_of(after):
        return
    old, new = version_of(before).release[:minor], version_of(after).release[:minor]
    problem = f"{subject} does not go back from {before} to {after}: {no_way_back}" if new < old else ""
    yield Step(
        stage, subject, before, after, no_way_back if new > old else "", problem, ("versions", stage)
    )  # fmt: skip


def version_of(release: str) -> Version:
    """Return a release without its patches (9.16.1P2) and its suffix (1.35.4-gke.1, 1.35.4+k3s1).

    Example: `str(version_of("1.35.4-gke.1"))` returns `'1.35.4'`.
    """
    return Version(release.partition("P")[0].partition("-")[0].partition("+")[0])
