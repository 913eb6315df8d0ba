"""A history in memory: the requested GPUs, use and waits of two teams."""

from __future__ import annotations

from typing import TYPE_CHECKING

from musterweb.errors import HistoryAway
from musterweb.history_model import ClusterLines, ProjectLines, Record

if TYPE_CHECKING:
    from musterweb.history_model import Span


class Past:
    """Both teams have figures. `problems` are remarks about them; with `away` there are none."""

    source = "the tests"

    def __init__(self) -> None:
        self.problems: tuple[str, ...] = ()
        self.away = ""
        self.queries: list[frozenset[str] | None] = []
        self.names = ["team-a", "team-b"]

    async def start(self) -> None:
        return

    async def close(self) -> None:
        return

    async def read(self, span: Span, projects: frozenset[str] | None) -> Record:
        self.queries.append(projects)
        if self.away:
            raise HistoryAway(self.away)
        count = len(span.times)
        chosen = [name for name in self.names if projects is None or name in projects]
        lines = {name: _lines(count, 1 + self.names.index(name)) for name in chosen}
        cluster = None
        if projects is None:
            cluster = ClusterLines([16.0] * count, [4.0] * count, [0.25] * count)
        return Record(span, lines, cluster, float(span.end), self.problems)


def _lines(count: int, factor: int) -> ProjectLines:
    held = [factor * (1.0 + place % 3) for place in range(count)]
    gap: list[float | None] = [None if place == 5 else 0.5 / factor for place in range(count)]
    return ProjectLines(
        allocated=held,
        quota=[4.0] * count,
        pending=[8.0] * count,
        idle=[1.0] * count,
        utilization=gap,
        wait_seconds=[60.0 if place == 0 else 0.0 for place in range(count)],
        started=[2.0 if place == 0 else 0.0 for place in range(count)],
        oldest_wait=[float(place) for place in range(count)],
    )
