"""Judges the table of jobs that `muster list` prints: the columns of TR-4858, and a row for each job."""

import re
from collections.abc import Iterator, Sequence
from typing import Final

from validation.judge.events import PodSeen
from validation.judge.state import State
from validation.judge.views.shown import Key, Row, field_is, gpus_are, names, short, spell, text

COLUMNS: Final = (
    "NAME", "STATUS", "AGE", "NODE", "IMAGE", "TYPE", "PROJECT", "USER", "GPUs", "CREATED BY CLI", "SERVICE URL(S)",
)  # fmt: skip
"""The columns in the paper's figure of `runai list -A`, in its order."""
FIELDS: Final = tuple(column.lower() for column in COLUMNS)
_MAY_BE_EMPTY: Final = frozenset({"node", "user", "service url(s)"})
_NOTHING: Final = frozenset({"", "-"})


def rows_of_table(output: str) -> list[Row] | None:
    """Return the rows by column in lower case. Return None without a line with these columns, or for a row with other
    cells.
    """
    lines = [_cells(line) for line in output.splitlines() if line.strip()]
    start = next((number for number, cells in enumerate(lines, 1) if tuple(cells) == COLUMNS), None)
    if start is None or any(len(cells) not in {len(COLUMNS) - 1, len(COLUMNS)} for cells in lines[start:]):
        return None
    return [dict(zip(FIELDS, [*cells, ""], strict=False)) for cells in lines[start:]]


def _cells(line: str) -> list[str]:
    return re.split(" {2,}", line.strip())


def compare_table(state: State, rows: Sequence[Row]) -> Iterator[str]:
    """Yield the differences of all jobs in the table."""
    pods = {key: members for key, members in state.by_workload().items() if key[0] in state.quotas}
    known = {*pods, *(key for key in state.expected if key[0] in state.quotas)}
    ours = [row for row in rows if text(row, "project") in state.quotas.keys() | state.deleted_projects]
    shown = [f"{text(row, 'project')}/{text(row, 'name')}" for row in ours]
    yield from names("job", shown, [f"{project}/{name}" for project, name in known])
    running, pending = state.running() - state.deleted, state.pending()
    for row in ours:
        key = (text(row, "project"), text(row, "name"))
        members = pods.get(key, [])
        if members and key not in state.deleted:
            status = "Running" if key in running else "Pending" if key in pending else ""
            yield from _row(key, row, members, status)
            if key in state.expected:
                yield from field_is(key, row, "created by cli", "true")
                yield from _filled(key, row, "user")


def _row(key: Key, row: Row, members: Sequence[PodSeen], status: str) -> Iterator[str]:
    """Yield the differences of a job with pods. While a pod has a problem or ends, its status is not compared."""
    for field in FIELDS:
        if field not in _MAY_BE_EMPTY:
            yield from _filled(key, row, field)
    if status and not any(pod.cause or pod.finished or pod.terminating for pod in members):
        yield from field_is(key, row, "status", status)
    if not any(pod.finished or pod.terminating for pod in members):
        yield from gpus_are(key, row, "gpus", sum(pod.gpu_milli for pod in members))
    held = {pod.node for pod in members if pod.holds}
    if len(held) == 1:
        yield from field_is(key, row, "node", *held)
    if any(pod.interactive for pod in members):
        yield from field_is(key, row, "type", "Interactive")
    elif all(pod.preemptible for pod in members) and text(row, "type") == "Interactive":
        yield f"{spell(key)}: type is Interactive, and it can be preempted"


def _filled(key: Key, row: Row, field: str) -> Iterator[str]:
    if text(row, field) in _NOTHING:
        yield f"{spell(key)}: {field} is {short(row.get(field))}"


def presence(value: object) -> object:
    """Return a fixed text in place of a value of which only the presence is judged."""
    return "present" if isinstance(value, str) and value not in _NOTHING else ""
