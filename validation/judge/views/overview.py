"""Judges the overview page: its figures and tables, compared with the events of the API server.

A page is an array of objects. The key `of` is `state`, `figure`, `share` (of a project), or the table of a row:
`waiting`, `holding` or `nodes`. The other keys of a row are the titles of its columns.
"""

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Final

from validation.judge import units
from validation.judge.events import PodSeen
from validation.judge.state import State
from validation.judge.views.shown import (
    Key,
    Row,
    View,
    gpus_are,
    milli,
    names,
    plain,
    scalar,
    short,
    spell,
    text,
)

ROWS: Final = 12
"""Maximum number of jobs in a table of the overview. The page of jobs has the others."""
AGE_SECONDS: Final = 15
"""Maximum difference between a shown and a real age: pages have whole seconds, and change only with the cluster."""
UNMEASURED: Final = "-"
"""Shown instead of a figure if no agent reports GPUs."""
CLOSED: Final = "Not ready or cordoned"
"""The figure of the GPUs that no pod has on nodes that take no new pods."""
_ALLOCATED: Final = re.compile(r"([0-9.]{1,19}) \(([0-9]{1,3})%\)")
_PERCENT: Final = re.compile(r"(100|[0-9]{1,2})%")
_SHARE: Final = re.compile(r"([0-9.]{1,19}) of ([0-9.]{1,19})(, over its quota)?(?:, ([0-9]{1,9}) waiting)?")
_AGE: Final = re.compile(r"([0-9]{1,9})([smhdy])")
_UNITS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86400, "y": 365 * 86400}


def compare(state: State, rows: Sequence[Row]) -> Iterator[str]:
    """Yield the differences between the page and the state."""
    of: dict[str, list[Row]] = {}
    for row in rows:
        of.setdefault(text(row, "of"), []).append(row)
    at = _one(of.get("state", []))
    if text(at, "current") != "yes":
        yield "the page does not say that it is current"
    jobs = _Jobs(state)
    figures = {text(row, "figure"): text(row, "value") for row in of.get("figure", [])}
    yield from _figures(state, jobs, figures)
    yield from _shares(state, jobs, of.get("share", []))
    yield from _holding(state, jobs, of.get("holding", []))
    yield from _waiting(state, jobs, of.get("waiting", []), at)
    yield from _nodes(state, of.get("nodes", []))


class _Jobs:
    """The jobs of the state: the held GPUs of each, and the jobs that must or may be shown as waiting."""

    def __init__(self, state: State) -> None:
        members = {key: pods for key, pods in state.by_workload().items() if key not in state.deleted}
        running = state.running()
        self.members = members
        self.held_milli: dict[Key, int] = {}
        for pod in state.holding():
            key = pod.project, pod.workload
            self.held_milli[key] = self.held_milli.get(key, 0) + pod.gpu_milli
        self.waiting = {
            key
            for key in state.pending() & members.keys()
            if not any(pod.finished or pod.terminating for pod in members[key])
        }
        self.may_wait = {key for key in state.expected | members.keys() if key not in running}

    def requested_milli(self, key: Key) -> int:
        """Return the GPUs that the unfinished pods of the job request, in thousandths."""
        return sum(pod.gpu_milli for pod in self.members.get(key, ()) if not pod.finished)


def _figures(state: State, jobs: _Jobs, figures: Mapping[str, str]) -> Iterator[str]:
    """Yield the differences in the figures at the top."""
    gpus_milli = sum(state.nodes.values()) * 1000
    held_milli = sum(jobs.held_milli.values())
    total, unhealthy = milli(figures.get("GPUs")), milli(figures.get("Unhealthy"))
    if total is None or unhealthy is None or not total - unhealthy <= gpus_milli <= total:
        yield f"GPUs is {short(figures.get('GPUs'))}, not {units.gpus(gpus_milli)}"
        return
    allocated = _ALLOCATED.fullmatch(figures.get("Allocated", ""))
    percent = held_milli * 100 // total if total else 0
    if allocated is None or (milli(allocated[1]), int(allocated[2])) != (held_milli, percent):
        shown = short(figures.get("Allocated"))
        yield f"Allocated is {shown}, not {units.gpus(held_milli)} ({percent}%)"
    unused_milli = sum(_unused_milli(state, name) for name in state.closed)
    closed_milli = milli(figures.get(CLOSED, "0"))
    if closed_milli is None or not unused_milli - unhealthy <= closed_milli <= unused_milli:
        yield f"{CLOSED} is {short(figures.get(CLOSED))}, not {units.gpus(unused_milli)}"
        return
    free_milli = max(0, total - unhealthy - closed_milli - held_milli)
    if milli(figures.get("Free")) != free_milli:
        yield f"Free is {short(figures.get('Free'))}, not {units.gpus(free_milli)}"
    yield from _measured(state, figures, held_milli)
    with_gpus = sum(1 for gpus in state.nodes.values() if gpus)
    yield from _count(figures, "Nodes", with_gpus, len(state.nodes))
    yield from _count(figures, "Jobs that hold GPUs", len(jobs.held_milli), len(jobs.held_milli))
    yield from _count(figures, "Jobs that wait", len(jobs.waiting), len(jobs.may_wait))


def _unused_milli(state: State, node: str) -> int:
    """Return the GPUs of a node that no pod has, in thousandths."""
    held = sum(pod.gpu_milli for pod in state.holding() if pod.node == node)
    return max(0, state.nodes.get(node, 0) * 1000 - held)


def _measured(state: State, figures: Mapping[str, str], held_milli: int) -> Iterator[str]:
    """Yield the differences in the figures that agents measure.

    The page shows these figures only if an agent reports GPUs. The idle GPUs cannot exceed the allocated GPUs.
    """
    idle, use = figures.get("Allocated, but idle", ""), figures.get("Utilization", "")
    if UNMEASURED in (idle, use) and idle == use:
        if any(seen.gpus for seen in state.witnesses.values()):
            yield "no GPU is said to be measured, and agents speak of some"
        return
    idle_milli = milli(idle)
    if idle_milli is None or idle_milli > held_milli:
        yield f"Allocated, but idle is {short(idle)}, and {units.gpus(held_milli)} are held"
    if use != UNMEASURED and not _PERCENT.fullmatch(use):
        yield f"Utilization is {short(use)}"


def _count(figures: Mapping[str, str], figure: str, least: int, most: int) -> Iterator[str]:
    shown = figures.get(figure, "")
    if not re.fullmatch(r"[0-9]{1,9}", shown) or not least <= int(shown) <= most:
        yield f"{figure} is {short(shown)}, not {least if least == most else f'{least} to {most}'}"


def _shares(state: State, jobs: _Jobs, rows: Sequence[Row]) -> Iterator[str]:
    """Yield the differences in the GPUs of each project, in its quota, and in its number of waiting jobs."""
    projects = state.quotas.keys() | state.deleted_projects
    ours = [row for row in rows if text(row, "project") in projects]
    yield from names("project", [text(row, "project") for row in ours], list(state.quotas))
    held = state.allocated_milli()
    for row in ours:
        name = text(row, "project")
        if name not in state.quotas:
            continue
        quota_milli = state.quotas[name]
        match = _SHARE.fullmatch(text(row, "value"))
        shown = (milli(match[1]), milli(match[2]), bool(match[3])) if match else None
        least, most = (sum(key[0] == name for key in keys) for keys in (jobs.waiting, jobs.may_wait))
        waits = match is not None and least <= int(match[4] or 0) <= most
        if shown != (held[name], quota_milli, held[name] > quota_milli) or not waits:
            instead = f"{units.gpus(held[name])} of {units.gpus(quota_milli)}, {least} waiting"
            yield f"{name}: its share is {short(row.get('value'))}, not {instead}"


def _holding(state: State, jobs: _Jobs, rows: Sequence[Row]) -> Iterator[str]:
    """Yield the differences in the jobs that hold GPUs: the requested GPUs, the node, and the duration."""
    yield from _listed(state, "job that holds GPUs", rows, jobs.held_milli, jobs.held_milli)
    for row in rows:
        key = text(row, "project"), text(row, "name")
        if key not in jobs.held_milli or not jobs.members.get(key):
            continue
        yield from gpus_are(key, row, "GPUs", jobs.requested_milli(key))
        nodes = sorted({pod.node for pod in jobs.members[key] if pod.holds})
        if text(row, "node") != (nodes[0] if len(nodes) == 1 else "<multiple>"):
            yield f"{spell(key)}: node is {short(row.get('node'))}, not {short(nodes)}"
        if not _AGE.fullmatch(text(row, "DURATION")):
            yield f"{spell(key)}: DURATION is {short(row.get('DURATION'))}"
        yield from _person(state, key, row, jobs.members[key])


def _waiting(state: State, jobs: _Jobs, rows: Sequence[Row], at: Row) -> Iterator[str]:
    """Yield the differences in the waiting jobs: the requested GPUs, the reason, and the age."""
    yield from _listed(state, "job that waits", rows, jobs.waiting, jobs.may_wait)
    now = at.get("at")
    for row in rows:
        key = text(row, "project"), text(row, "name")
        if key not in jobs.waiting:
            continue
        yield from gpus_are(key, row, "GPUs", jobs.requested_milli(key))
        if text(row, "WAITS BECAUSE") in ("", UNMEASURED):
            yield f"{spell(key)}: the reason why it is pending is missing"
        submitted_us = min(pod.submitted_us for pod in jobs.members[key])
        waits = now - submitted_us // 1_000_000 if isinstance(now, int) else None
        if waits is None or not _is_about(text(row, "AGE"), waits):
            yield f"{spell(key)}: AGE is {short(row.get('AGE'))}, not {waits}s"
        yield from _person(state, key, row, jobs.members[key])


def _is_about(age: str, seconds: int) -> bool:
    """Return whether the shown age matches an age in seconds. A shown age has one unit of time.

    Example: `_is_about("3m", 200)` returns `True`.
    """
    match = _AGE.fullmatch(age)
    if match is None:
        return False
    unit = _UNITS[match[2]]
    least = int(match[1]) * unit
    return least - AGE_SECONDS <= seconds < least + unit + AGE_SECONDS


def _person(state: State, key: Key, row: Row, members: Sequence[PodSeen]) -> Iterator[str]:
    """Yield the differences in the type and the user of a job, if the run submitted the job."""
    if key not in state.expected:
        return
    is_interactive = any(pod.interactive for pod in members)
    if (text(row, "TYPE") == "Interactive") != is_interactive or text(row, "TYPE") in ("", UNMEASURED):
        yield f"{spell(key)}: TYPE is {short(row.get('TYPE'))}"
    if text(row, "USER") in ("", UNMEASURED):
        yield f"{spell(key)}: there is no user"


def _listed(
    state: State, noun: str, rows: Sequence[Row], must: Collection[Key], may: Collection[Key]
) -> Iterator[str]:
    """Yield the jobs that must not be in the table and, unless it is full, the jobs that are missing."""
    projects = state.quotas.keys() | state.deleted_projects
    shown = [(text(row, "project"), text(row, "name")) for row in rows]
    ours = [key for key in shown if key[0] in projects]
    wrong = sorted({key for key in ours if key not in may})
    yield from (f"{plain(spell(key))} is no {noun}" for key in wrong)
    yield from (f"{plain(spell(key))} is there twice" for key in sorted(set(ours)) if ours.count(key) > 1)
    if len(rows) > ROWS:
        yield f"{len(rows)} rows are shown where {ROWS} are the most"
    elif len(rows) < ROWS:
        missing = sorted({key for key in must if key[0] in projects} - set(ours))
        yield from (f"{noun} {spell(key)} is missing" for key in missing)


def _nodes(state: State, rows: Sequence[Row]) -> Iterator[str]:
    """Yield the differences in the nodes with GPUs: the number of all, allocated and free GPUs of each."""
    gpus = {name: count for name, count in state.nodes.items() if count}
    held = dict.fromkeys(gpus, 0)
    for pod in state.holding():
        held[pod.node] = held.get(pod.node, 0) + pod.gpu_milli
    shown = [row for row in rows if text(row, "name") in gpus or milli(row.get("GPUs"))]
    yield from names("node with GPUs", [text(row, "name") for row in shown], list(gpus))
    for row in shown:
        name = text(row, "name")
        if name not in gpus:
            continue
        total, unhealthy = milli(row.get("GPUs")), milli(row.get("UNHEALTHY"))
        if total is None or unhealthy is None or not total - unhealthy <= gpus[name] * 1000 <= total:
            yield f"{name}: GPUs is {short(row.get('GPUs'))}, not {gpus[name]}"
            continue
        yield from gpus_are((name,), row, "ALLOCATED", held[name])
        free_milli = 0 if name in state.closed else max(0, total - unhealthy - held[name])
        yield from gpus_are((name,), row, "FREE", free_milli)


def _one(rows: Sequence[Row]) -> Row:
    return rows[0] if len(rows) == 1 else {}


_JUDGED: Final[Mapping[str, Mapping[str, Callable[[object], object]]]] = {
    "state": dict.fromkeys(("current", "at"), scalar),
    "figure": dict.fromkeys(("figure", "value"), scalar),
    "share": dict.fromkeys(("project", "value"), scalar),
    "waiting": dict.fromkeys(("project", "name", "GPUs", "AGE", "TYPE"), scalar),
    "holding": dict.fromkeys(("project", "name", "node", "GPUs", "DURATION", "TYPE"), scalar),
    "nodes": dict.fromkeys(("name", "GPUs", "ALLOCATED", "FREE", "UNHEALTHY"), scalar),
}
_HIDDEN: Final = ("USER", "WAITS BECAUSE")
"""The columns of which only the presence of a value is compared."""


def keep(rows: Sequence[Row], projects: Collection[str]) -> list[dict[str, object]]:
    """Return the rows with only their judged cells. A row of another job or project has no cells."""
    return [_judged_row(row, projects) for row in rows]


def _judged_row(row: Row, projects: Collection[str]) -> dict[str, object]:
    part = text(row, "of")
    judged_row: dict[str, object] = {"of": part if part in _JUDGED else ""}
    if part in ("share", "waiting", "holding") and text(row, "project") not in projects:
        return judged_row
    judged_row |= {key: judged(row[key]) for key, judged in _JUDGED.get(part, {}).items() if key in row}
    if part in ("waiting", "holding"):
        judged_row |= {key: "said" for key in _HIDDEN if text(row, key) not in ("", UNMEASURED)}
    return judged_row


VIEW: Final = View(
    "GET / of muster web",
    "The overview shows nodes, GPUs in all and allocated, running jobs, those that wait and for how long, and each "
    "project's GPUs",
    compare,
    {},
    page="/",
    keep=keep,
)
