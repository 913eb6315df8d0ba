"""The trend of a site: each figure of its hosts and GPUs over its records."""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import msgspec

from orchestrator.errors import MusterError
from validation.errors import ReportError
from validation.judge.hosts.drift import MeasuredHost
from validation.judge.hosts.host_compare import median
from validation.layers.figures import RISING, UNITS, measure
from validation.report import log, record
from validation.report.files import untrusted
from validation.report.verify import verify


class _Part(msgspec.Struct, rename="camel"):
    """A part of the trend."""


class TrendRun(_Part):
    """A record of the site."""

    record: str
    run: str
    started: str
    version: str
    verdict: str


class Series(_Part):
    """The values of a figure of a host, or of its GPU, one for each run.

    The value is null if a run did not measure it.
    """

    host: str
    gpu: str
    values: list[int | None]

    @property
    def name(self) -> str:
        """The name of the host, and the UUID of the GPU."""
        return f"{self.host} {self.gpu}".strip()

    @property
    def ends(self) -> tuple[int, int]:
        """The first and the last measured value."""
        known = [value for value in self.values if value is not None]
        return known[0], known[-1]


class FigureTrend(_Part):
    """A figure in its unit, with the series of all hosts or GPUs, the worst first."""

    figure: str
    unit: str
    series: list[Series]

    def medians(self) -> list[int | None]:
        """Return the median of each run; None if no host measured the figure."""
        columns = zip(*(one.values for one in self.series), strict=True)
        known = [[value for value in column if value is not None] for column in columns]
        return [median(values) if values else None for values in known]


class Change(_Part):
    """A fact of a host or GPU that differs from the previous record."""

    run: str
    host: str
    gpu: str
    fact: str
    before: str
    now: str


class SiteTrend(_Part):
    """The records of one cluster, in the order of time, and the figures and changes between them."""

    site: str
    kube_system_uid: str
    runs: list[TrendRun]
    figures: list[FigureTrend]
    changes: list[Change]


class Unread(_Part):
    """A directory that is left out, and the reason."""

    record: str
    problem: str


class Trend(_Part):
    """The trends of all sites in a directory, and the directories that are left out."""

    sites: list[SiteTrend]
    unread: list[Unread]


class _Measured(msgspec.Struct):
    """A record with the figures of its hosts."""

    run: TrendRun
    site: str
    uid: str
    hosts: list[MeasuredHost]


def trend_of(directory: Path, progress: Callable[[str], None]) -> Trend:
    """Return the trend of the records in the directories below this one. Raises ReportError if there is none.

    Each record is verified. Records that do not verify or have no hosts are listed in `unread`.
    """
    try:
        found = sorted(p for p in directory.iterdir() if p.is_dir() and not p.name.startswith("."))
    except OSError as error:
        raise ReportError(f"{directory}: cannot be read: {error.strerror}") from error
    if not found:
        raise ReportError(f"{directory}: has no directory of a report; name the directory above the reports")
    measured, unread, runs = list[_Measured](), list[Unread](), set[str]()
    for number, path in enumerate(found, 1):
        progress(f"record {number} of {len(found)}: {path.name}")
        try:
            with untrusted("its record"):
                one = _measured(path)
        except MusterError as error:
            unread.append(Unread(path.name, str(error)))
            continue
        if one.run.run in runs:
            unread.append(Unread(path.name, f"is another copy of the run {one.run.run}"))
            continue
        runs.add(one.run.run)
        measured.append(one)
    return Trend([_site(records) for records in _by_cluster(measured)], unread)


def _measured(directory: Path) -> _Measured:
    """Return the figures of a record that verifies. Raises MusterError."""
    if problems := verify(directory).problems:
        raise ReportError(f"does not verify: {problems[0]}")
    report = record.read(directory)
    scope, run = report.scope.hosts, report.volatile.run
    if scope is msgspec.UNSET:
        raise ReportError("has no hosts: it was made without --site")
    hosts = measure(scope, log.read_log(directory).events)
    uid = report.identity.kube_system_uid if report.identity else ""
    row = TrendRun(directory.name, run.id, run.started, report.tool.version, report.verdict)
    return _Measured(row, scope.site.name, uid, hosts)


def _by_cluster(records: Sequence[_Measured]) -> list[list[_Measured]]:
    """Return the records by name of the site and uid of the cluster.

    A record without a uid belongs to the cluster of its site, if there is only one.
    """
    uids: dict[str, set[str]] = {}
    for one in records:
        uids.setdefault(one.site, set()).update({one.uid} - {""})
    groups: dict[tuple[str, str], list[_Measured]] = {}
    for one in sorted(records, key=lambda one: (one.run.started, one.run.run)):
        of_site = uids[one.site]
        uid = one.uid or (next(iter(of_site)) if len(of_site) == 1 else "")
        groups.setdefault((one.site, uid), []).append(one)
    return [groups[key] for key in sorted(groups)]


def _site(records: Sequence[_Measured]) -> SiteTrend:
    values: dict[str, dict[tuple[str, str], list[int | None]]] = {}
    facts: dict[tuple[str, str], dict[str, str]] = {}
    changes = []
    for number, one in enumerate(records):
        for host, gpu, figures, said in _parts(one.hosts):
            for figure, value in figures.items():
                series = values.setdefault(figure, {}).setdefault((host, gpu), [None] * len(records))
                series[number] = value
            before = facts.get((host, gpu), said)
            changes += [
                Change(one.run.run, host, gpu, name, before.get(name, ""), said.get(name, ""))
                for name in sorted(before.keys() | said.keys())
                if before.get(name) != said.get(name)
            ]
            facts[host, gpu] = said
    return SiteTrend(
        records[-1].site,
        next((one.uid for one in records if one.uid), ""),
        [one.run for one in records],
        [_figure(name, unit, values[name]) for name, unit in UNITS.items() if name in values],
        changes,
    )


def _parts(hosts: Iterable[MeasuredHost]) -> list[tuple[str, str, dict[str, int], dict[str, str]]]:
    parts = []
    for host in hosts:
        parts.append((host.name, "", host.figures, host.facts))
        parts += [(host.name, gpu.uuid, gpu.figures, gpu.facts) for gpu in host.gpus]
    return parts


def _figure(name: str, unit: str, values: dict[tuple[str, str], list[int | None]]) -> FigureTrend:
    series = [Series(host, gpu, of_part) for (host, gpu), of_part in sorted(values.items())]
    return FigureTrend(name, unit, sorted(series, key=lambda one: decline(name, one), reverse=True))


def decline(figure: str, series: Series) -> int:
    """Return the relative decline of the figure since its first value, in thousandths. Negative if it became better."""
    first, last = series.ends
    worse = last - first if figure in RISING else first - last
    return worse * 1000 // max(abs(first), 1)
