"""Checks that the order of a log's entries is possible: for example, times and indices of events must increase."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

from validation.judge.check_verdict import Window
from validation.judge.events import NodeSeen
from validation.judge.hosts.drift import Baseline
from validation.judge.verdict import Verdict
from validation.judge.waivers import problem as problem_of_waiver
from validation.report import log
from validation.report.origin import SIMULATED, Origin, moment
from validation.report.record import CheckResult, Report

MAX_PODS: Final = 100_000
"""Maximum number of pods of a demand.

Real scenarios have fewer, and the oracle can still handle this number in a tolerable time.
"""
CLOCKS_DIFFER: Final = timedelta(hours=1)
"""Maximum difference between the wall clock and the clock of the events: the wall clock can be set, or the machine can
sleep.
"""
_DIGEST: Final = re.compile(r"[0-9a-f]{64}", re.ASCII)
_RUN_ID: Final = re.compile(r"(\d{8}-\d{6})-(lab-real|[a-z]+)-[0-9a-f]{4}", re.ASCII)


@dataclass(slots=True)
class _Order:
    """The part of a log that was read so far."""

    report: Report
    selected: list[str]
    origin: Origin
    results: dict[str, CheckResult]
    now_ms: int = 0
    observed: int = 0
    gpus: dict[str, int] = field(default_factory=dict)
    """The number of GPUs of each node, by name."""
    began: dict[str, int] = field(default_factory=dict)
    """The time at which each check began."""
    ended: set[str] = field(default_factory=set)
    scenarios: set[str] = field(default_factory=set)
    """The scenarios that began."""
    versions: set[str] = field(default_factory=set)
    """The versions of Kubernetes that were described."""


def problems(source: log.Log) -> list[str]:
    """Return a line for the first entry that is impossible after the earlier entries, with its number. The list is
    empty for the log of a real run.
    """
    report = source.opened.report
    results = {result.id: result for result in report.steps}
    order = _Order(report, source.opened.selected, Origin(report), results)
    closed = next((n for n, entry in enumerate(source.entries) if isinstance(entry, log.Closed)), None)
    if closed is not None and (closed + 1 < len(source.entries) or source.is_cut):
        return [f"{log.NAME}: line {closed + 2} is after the end of the run"]
    for problem in _opening(order):
        return [f"{log.NAME}: line 1: {problem}"]
    for number, entry in enumerate(source.entries[1:], 2):
        for problem in _entry(order, entry):
            return [f"{log.NAME}: line {number}: {problem}"]
    return []


def endless(source: log.Log) -> list[str]:
    """Return a line for each check whose judgement would take forever because of impossible demands."""
    return [
        f"{log.NAME}: line 1: check {result.id}: a demand has more pods than can be, or less than none"
        for result in source.opened.report.steps
        for demand in (result.oracle.demands if result.oracle is not None else [])
        if not 0 <= demand.pods <= MAX_PODS or demand.gpu_milli < 0
    ]


def _opening(order: _Order) -> Iterator[str]:
    report, run = order.report, order.report.volatile.run
    if moment(run.started) is None:
        yield f"{run.started} is no time"
        return
    if report.scope.today != run.started[:10]:
        yield f"today is {report.scope.today} in a run that started at {run.started}"
    kind = _kind_of(run.id, run.started)
    if not kind or kind != report.target.get("kind"):
        yield f"the run {run.id} is not one of a {report.target.get('kind')} that started at {run.started}"
    ids = {entry.id for entry in report.requirements}
    if len(order.results) < len(report.steps) or len(ids) < len(report.requirements):
        yield "a check or a requirement is there twice"
    if len(set(order.selected)) < len(order.selected) or not order.results.keys() >= set(order.selected):
        yield "a check is selected twice, or was not asked for"
    yield from _waivers(report)
    if report.scope.hosts and report.scope.hosts.baseline:
        yield from _baseline(report.scope.hosts.baseline, report.scope.hosts.site.name, run.started)


def _kind_of(run: str, started: str) -> str:
    """Return the kind of target from the id of a run; empty if the id does not contain the time `started`."""
    named = _RUN_ID.fullmatch(run)
    day, hour = started[:10].replace("-", ""), started[11:19].replace(":", "")
    return named[2] if named is not None and named[1] == f"{day}-{hour}" else ""


def _baseline(baseline: Baseline, site: str, started: str) -> Iterator[str]:
    """Yield the reasons why the baseline cannot be an earlier record of this site."""
    if moment(baseline.started) is None or baseline.started > started:
        yield f"the baseline {baseline.run} started at {baseline.started}, after the run"
    if not _kind_of(baseline.run, baseline.started):
        yield f"the baseline {baseline.run} is no run that started at {baseline.started}"
    digests = [baseline.manifest_sha256, *filter(None, [baseline.identity_sha256])]
    if baseline.verdict not in list(Verdict) or not all(map(_DIGEST.fullmatch, digests)):
        yield f"the baseline {baseline.run} has no verdict, or no digest"
    if baseline.site != site:
        yield f"the baseline {baseline.run} is of another site"


def _waivers(report: Report) -> Iterator[str]:
    checks = {check for entry in report.requirements for check in entry.checks}
    checks |= {result.id for result in report.steps}
    waivers = report.scope.waivers
    for number, waiver in enumerate(waivers):
        if fault := problem_of_waiver(waiver, report.scope.today):
            yield f"the waiver of {waiver.id} {fault}"
        if waiver.id not in checks:
            yield f"the waiver of {waiver.id} is for a check that does not exist"
        if any((o.id, o.host, o.fact) == (waiver.id, waiver.host, waiver.fact) for o in waivers[:number]):
            yield f"{waiver.id} is waived twice"


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
            known = any(scenario.id == entry.scenario for scenario in order.report.scenarios)
            if not known or entry.scenario in order.scenarios:
                yield f"scenario {entry.scenario} begins twice, or was not asked for"
            order.scenarios.add(entry.scenario)
        case log.CheckBegan():
            yield from _began(order, entry)
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
    yield from order.origin.observed(entry)


def _described(order: _Order, entry: log.Described) -> Iterator[str]:
    kind = order.report.target.get("kind")
    if entry.target.get("kind") != kind:
        yield f"the target is a {entry.target.get('kind')}, and a {kind} was asked for"
    seen = {name: gpus for name, gpus in order.gpus.items() if gpus}
    nodes = entry.cluster.get("nodes", [])
    described = {node["name"]: node["gpus"] for node in nodes if node["gpus"]}
    is_whole = len({node["name"] for node in nodes}) == len(nodes)
    if described != seen or entry.cluster.get("gpus", 0) != sum(seen.values()) or not is_whole:
        yield "the nodes that are described are not those of the events"
    order.versions.add(entry.cluster.get("kubernetes", ""))
    if len(order.versions) > 1:
        yield f"the cluster has another version of Kubernetes than before: {entry.cluster.get('kubernetes', '')}"


def _began(order: _Order, entry: log.CheckBegan) -> Iterator[str]:
    yield from _pass(order, entry.t_ms)
    result = order.results.get(entry.check)
    if entry.check in order.began or result is None:
        yield f"check {entry.check} begins twice, or was not asked for"
    elif result.kind != "step" and entry.check not in order.selected:
        yield f"check {entry.check} was not selected"
    if order.began.keys() != order.ended:
        yield f"check {entry.check} begins before the check before it ends"
    order.began[entry.check] = entry.t_ms


def _ended(order: _Order, entry: log.CheckEnded) -> Iterator[str]:
    if entry.check in order.ended or entry.check not in order.results:
        yield f"check {entry.check} ends twice, or was not asked for"
        return
    if entry.check not in order.began:
        yield f"check {entry.check} ends, and did not begin"
        return
    order.ended.add(entry.check)
    if (entry.started_ms is None) != (entry.ended_ms is None):
        yield f"check {entry.check} has one time of two"
    if entry.ended_ms is not None:
        yield from _pass(order, entry.ended_ms)
    if entry.started_ms is not None and not order.began[entry.check] <= entry.started_ms <= order.now_ms:
        yield f"check {entry.check} ends before it begins"
    window, result = entry.window, order.results[entry.check]
    if window is not None and not _is_window(window, order):
        yield f"check {entry.check} rests on events that were not seen until then"
    if window is not None and result.kind != "layer" and result.scenario not in order.scenarios:
        yield f"check {entry.check} rests on the scenario {result.scenario}, which did not begin"
    for command in entry.commands:
        if not order.began[entry.check] <= command.started_ms <= order.now_ms or command.duration_ms < 0:
            yield f"check {entry.check} has a command at {command.started_ms} ms, and did not run then"


def _is_window(window: Window, order: _Order) -> bool:
    events = 0 <= window.from_event <= window.start_event <= window.until_event <= order.observed
    return events and 0 <= window.started_ms <= window.ended_ms <= order.now_ms


def _closed(order: _Order, entry: log.Closed) -> Iterator[str]:
    yield from _pass(order, entry.duration_ms)
    started, ended = moment(order.report.volatile.run.started), moment(entry.ended)
    if started is None or ended is None or ended < started:
        yield f"the run ends at {entry.ended}, and began at {order.report.volatile.run.started}"
    elif order.report.target.get("kind") != SIMULATED and _set(started, ended, entry) > CLOCKS_DIFFER:
        yield (
            f"the run took {entry.duration_ms / 1000:g} s, and {(ended - started).total_seconds():g} s by the "
            "wall clock: it was set, or the machine slept"
        )
    unfinished = [check for check in [*order.began, *order.selected] if check not in order.ended]
    if unfinished and not entry.interrupted:
        yield f"check {unfinished[0]} did not end, and nothing interrupted the run"
    if not order.versions and not entry.interrupted:
        yield "the target was not described"
    yield from order.origin.closed()


def _set(started: datetime, ended: datetime, entry: log.Closed) -> timedelta:
    """Return the difference between the wall clock and the clock of the events at the end of the run."""
    return abs((ended - started) - timedelta(milliseconds=entry.duration_ms))
