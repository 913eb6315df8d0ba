"""Says in which order the entries of a log can stand: times, versions and bounds of checks rise together."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from validation.judge.check_verdict import Window
from validation.judge.events import ClusterSeen, NodeSeen, PodSeen, WatchSeen
from validation.report import log
from validation.report.record import Report

CLOCKS_APART = timedelta(days=1)
"""At most so far apart are the clocks of the machine that validates and of the API server."""
MAX_PODS = 100_000
"""A demand of a scenario has fewer, and is divided in a time that can be waited for."""
_KINDS = {"pods": PodSeen, "nodes": NodeSeen}


@dataclass(slots=True)
class _Order:
    """The part of a log that was read so far."""

    report: Report
    now_ms: int = 0
    observed: int = 0
    gpus: dict[str, int] = field(default_factory=dict)
    """By name, how many GPUs each node has."""
    clusters: set[str] = field(default_factory=set)
    began: set[str] = field(default_factory=set)
    ended: set[str] = field(default_factory=set)
    versions: dict[tuple[type, str], tuple[int, str]] = field(default_factory=dict)
    """By kind and object, the version that was seen last, and the API server's time of it."""


def problems(source: log.Log) -> list[str]:
    """Return a line for the first entry that cannot stand where it does, with its number; none for a log of a run."""
    order = _Order(source.opened.report)
    closed = next((n for n, entry in enumerate(source.entries) if isinstance(entry, log.Closed)), None)
    if closed is not None and (closed + 1 < len(source.entries) or source.is_cut):
        return [f"{log.NAME}: line {closed + 2} is after the end of the run"]
    for problem in _opening(order.report):
        return [f"{log.NAME}: line 1: {problem}"]
    for number, entry in enumerate(source.entries[1:], 2):
        for problem in _entry(order, entry):
            return [f"{log.NAME}: line {number}: {problem}"]
    return []


def endless(source: log.Log) -> list[str]:
    """Return a line for each check that would be judged for ever: of demands that no scenario has."""
    return [
        f"{log.NAME}: line 1: check {result.id}: a demand has more pods than can be, or less than none"
        for result in source.opened.report.steps
        for demand in (result.oracle.demands if result.oracle is not None else [])
        if not 0 <= demand.pods <= MAX_PODS or demand.gpu_milli < 0
    ]


def _opening(report: Report) -> Iterator[str]:
    started = _moment(report.volatile.run.started)
    if started is None:
        yield f"{report.volatile.run.started} is no time"
    elif report.scope.today != report.volatile.run.started[:10]:
        yield f"today is {report.scope.today} in a run that started at {report.volatile.run.started}"
    ids = [result.id for result in report.steps]
    if len(set(ids)) < len(ids) or len({entry.id for entry in report.requirements}) < len(
        report.requirements
    ):
        yield "a check or a requirement is there twice"


def _entry(order: _Order, entry: log.Entry) -> Iterator[str]:
    match entry:
        case log.Opened():
            yield "the run begins again"
        case log.Observed():
            yield from _observed(order, entry)
        case log.Described():
            yield from _described(order, entry)
        case log.ScenarioBegan():
            yield from _pass(order, entry.t_ms)
            if all(scenario.id != entry.scenario for scenario in order.report.scenarios):
                yield f"scenario {entry.scenario} was not asked for"
        case log.CheckBegan():
            yield from _pass(order, entry.t_ms)
            if entry.check in order.began or all(result.id != entry.check for result in order.report.steps):
                yield f"check {entry.check} begins twice, or was not asked for"
            order.began.add(entry.check)
        case log.CheckEnded():
            yield from _ended(order, entry)
        case log.Closed():
            yield from _closed(order, entry)


def _pass(order: _Order, t_ms: int) -> Iterator[str]:
    if t_ms < order.now_ms:
        yield f"its time is {t_ms} ms, after {order.now_ms} ms"
    order.now_ms = t_ms


def _observed(order: _Order, entry: log.Observed) -> Iterator[str]:
    event = entry.event
    yield from _pass(order, event.t_ms)
    order.observed += 1
    if isinstance(event, NodeSeen):
        order.gpus[event.node] = event.gpus
    if isinstance(event, ClusterSeen):
        order.clusters.add(event.kube_system_uid)
        if len(order.clusters) > 1 and order.report.target.get("kind") == "cluster":
            yield "it is of another cluster than events before it"
    if isinstance(event, WatchSeen):
        kind = _KINDS.get(event.kind)
        for key in [key for key in order.versions if key[0] is kind]:
            del order.versions[key]
    if isinstance(event, PodSeen | NodeSeen) and event.uid:
        yield from _version(order, entry, (type(event), event.uid))


def _version(order: _Order, entry: log.Observed, key: tuple[type, str]) -> Iterator[str]:
    """An object never goes back to an earlier version, nor the API server to an earlier time."""
    if not entry.resource_version.isdecimal() or len(entry.resource_version) > 20:
        return
    version, server_time = int(entry.resource_version), entry.server_time
    before = order.versions.get(key, (0, ""))
    order.versions[key] = version, server_time
    if version < before[0]:
        yield f"{key[1]} is of version {version}, after {before[0]}"
    moment = _moment(server_time)
    if server_time and moment is None:
        yield f"{server_time} is no time"
    started = _moment(order.report.volatile.run.started)
    if moment is not None and started is not None:
        now = started + timedelta(milliseconds=order.now_ms)
        early = key[0] is PodSeen and moment < started - CLOCKS_APART
        if early or moment > now + CLOCKS_APART:
            yield f"{key[1]} was changed at {server_time} in a run of {order.report.volatile.run.started}"


def _described(order: _Order, entry: log.Described) -> Iterator[str]:
    kind = order.report.target.get("kind")
    if entry.target.get("kind") != kind:
        yield f"the target is a {entry.target.get('kind')}, and a {kind} was asked for"
    seen = {name: gpus for name, gpus in order.gpus.items() if gpus}
    described = {node["name"]: node["gpus"] for node in entry.cluster.get("nodes", []) if node["gpus"]}
    if described != seen or entry.cluster.get("gpus", 0) != sum(seen.values()):
        yield "the nodes that are described are not those of the events"


def _ended(order: _Order, entry: log.CheckEnded) -> Iterator[str]:
    if entry.check in order.ended or all(result.id != entry.check for result in order.report.steps):
        yield f"check {entry.check} ends twice, or was not asked for"
    order.ended.add(entry.check)
    if entry.ended_ms is not None:
        yield from _pass(order, entry.ended_ms)
    if entry.started_ms is not None and not 0 <= entry.started_ms <= order.now_ms:
        yield f"check {entry.check} ends before it begins"
    window = entry.window
    if window is not None and not _is_window(window, order):
        yield f"check {entry.check} rests on events that were not seen until then"


def _is_window(window: Window, order: _Order) -> bool:
    events = 0 <= window.from_event <= window.start_event <= window.until_event <= order.observed
    return events and 0 <= window.started_ms <= window.ended_ms <= order.now_ms


def _closed(order: _Order, entry: log.Closed) -> Iterator[str]:
    yield from _pass(order, entry.duration_ms)
    started, ended = _moment(order.report.volatile.run.started), _moment(entry.ended)
    if ended is None or (started is not None and ended < started):
        yield f"the run ends at {entry.ended}, and began at {order.report.volatile.run.started}"


def _moment(text: str) -> datetime | None:
    """The time with its zone; None if the text is no time."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return moment.astimezone(UTC) if moment.tzinfo is not None else None
