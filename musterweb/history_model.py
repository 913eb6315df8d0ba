"""The figures of a history, their projects, and their possible problems."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

OTHERS: Final = "_other"
"""The name of the sum of all projects without figures of their own. No project can have this name."""
CURRENT_SECONDS: Final = 300
"""Maximum age of the newest figure of a history that counts as current."""
POINTS: Final = 400
"""Maximum number of points of a line."""
STEPS: Final = (60, 300, 1800, 7200, 86400)
"""The possible distances between points, in seconds."""

Values = Sequence[float | None]


@dataclass(frozen=True, slots=True)
class Span:
    """Begin and end in seconds since the epoch, and the seconds between points. Both are multiples of `step`."""

    start: int
    end: int
    step: int

    @classmethod
    def last(cls, hours: int, now: float) -> "Span":
        """Return the span of the last hours, with the smallest step that gives at most `POINTS` points."""
        step = next((step for step in STEPS if hours * 3600 // step <= POINTS), STEPS[-1])
        end = int(now) // step * step
        return cls(end - hours * 3600 // step * step, end, step)

    @property
    def times(self) -> range:
        """The times of the points."""
        return range(self.start, self.end + 1, self.step)


@dataclass(frozen=True, slots=True)
class ProjectLines:
    """The values of one project at each time: GPUs, seconds, fractions of one. None means unknown.

    `started` is the number of jobs that started since the previous point. `wait_seconds` is the sum of their waiting
    times.
    """

    allocated: Values
    quota: Values
    pending: Values
    idle: Values
    utilization: Values
    wait_seconds: Values
    started: Values
    oldest_wait: Values


PROJECT_LINES: Final = tuple(ProjectLines.__dataclass_fields__)


@dataclass(frozen=True, slots=True)
class ClusterLines:
    """Figures of the whole cluster at each time: GPUs, GPUs in use, and their utilization."""

    total: Values
    allocated: Values
    utilization: Values


@dataclass(frozen=True, slots=True)
class Record:
    """The known figures of a span. `as_of` is the time of the newest figure; `problems` are sentences."""

    span: Span
    projects: Mapping[str, ProjectLines]
    cluster: ClusterLines | None
    as_of: float | None
    problems: tuple[str, ...] = field(default=())


class History(Protocol):
    """A source of figures of the past. The page shows `source` as the name of the history."""

    source: str

    async def read(self, span: Span, projects: frozenset[str] | None) -> Record:
        """Return the figures of these projects. None means all projects and the cluster. Raises HistoryAway."""
        ...

    async def start(self) -> None:
        """Start the background tasks."""
        ...

    async def close(self) -> None:
        """Release all resources."""
        ...
