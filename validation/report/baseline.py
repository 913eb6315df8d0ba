"""Reads the baseline of a run: the figures of an earlier record of the same site."""

import functools
from pathlib import Path
from typing import Final

import msgspec

from orchestrator.distribution import installed_version
from validation.catalogue.thresholds import load_thresholds
from validation.errors import ReportError
from validation.judge.hosts.drift import Baseline
from validation.judge.hosts.host_layer import HostScope
from validation.judge.verdict import Verdict
from validation.layers.figures import measure
from validation.report import log, manifest, record
from validation.report.files import untrusted
from validation.report.verify import verify

_UNFIT: Final = frozenset({Verdict.FAIL, Verdict.ERROR})
"""The verdicts of checks of hosts that no baseline has. A run that failed elsewhere can be a baseline."""


class BaselineError(ReportError):
    """The record cannot be the baseline of a run."""

    exit_code = 2


def read_baseline(directory: Path, scope: HostScope) -> Baseline:
    """Return the figures of the record, as the baseline of a run on these hosts.

    Raises BaselineError that names the fix. The record must verify, be of this build, site and cluster, and have no
    check of hosts that is FAIL or ERROR.
    """
    baseline = _verified(directory.resolve())
    site, names = scope.site.name, {host.name for host in scope.site.hosts} | scope.site.away.keys()
    hosts = {host.name for host in baseline.hosts}
    if baseline.site != site or not names & hosts:
        there = f"{baseline.site or 'a site without a name'} with {', '.join(sorted(hosts)[:4]) or 'no host'}"
        raise BaselineError(
            f"--baseline {directory}: is of another cluster, {there}; give a record of {site or 'this site'}"
        )
    return baseline


def baseline_of(directory: Path) -> Baseline:
    """Return the figures of a record with hosts, without verifying it. Raises BaselineError, ReportError."""
    report, source = record.read(directory), log.read_log(directory)
    scope = report.scope.hosts
    if scope is msgspec.UNSET:
        raise BaselineError(f"--baseline {directory}: has no hosts; give a record that was made with --site")
    identity = report.identity or None
    return Baseline(
        run=report.volatile.run.id,
        started=report.volatile.run.started,
        version=report.tool.version,
        verdict=report.verdict,
        site=scope.site.name,
        manifest_sha256=manifest.digest(directory),
        identity_sha256=identity.sha256 if identity else "",
        kube_system_uid=identity.kube_system_uid if identity else "",
        hosts=measure(scope, source.events),
        limits=load_thresholds().drift,
    )


@functools.cache
def _verified(directory: Path) -> Baseline:
    """Return the figures of a record that verifies here as a whole. Raises BaselineError.

    The result is cached: a session needs it several times, and verifying a record takes seconds.
    """
    try:
        with untrusted(str(directory)):
            return _checked(directory)
    except BaselineError:
        raise
    except ReportError as error:
        raise BaselineError(f"--baseline {error}") from error


def _checked(directory: Path) -> Baseline:
    """Return the figures of the record. Raises BaselineError if it cannot be a baseline, ReportError."""
    result = verify(directory)
    if result.problems:
        raise BaselineError(
            f"--baseline {directory}: does not verify: {result.problems[0]}; give a record that "
            "`muster report verify` accepts"
        )
    report = record.read(directory)
    if report.tool.version != installed_version() or not result.is_compared:
        raise BaselineError(
            f"--baseline {directory}: is of another build, muster {report.tool.version}, this is "
            f"{installed_version()}; validate once with this build, and give that record"
        )
    bad = next((one for one in report.steps if one.kind == "layer" and one.verdict in _UNFIT), None)
    if bad is not None:
        raise BaselineError(
            f"--baseline {directory}: {bad.id} is {bad.verdict} in it; repair the hosts, validate without --baseline, "
            "and give that record"
        )
    if report.redacted:
        raise BaselineError(f"--baseline {directory}: is redacted; give the record from which it was made")
    return baseline_of(directory)


def problems(report: record.Report, directory: Path) -> list[str]:
    """Return a line if the record was compared with another record than the one in this directory, or if the figures
    differ.

    Raises ReportError.
    """
    scope = report.scope.hosts
    recorded = scope.baseline if scope else msgspec.UNSET
    if recorded is msgspec.UNSET:
        return [f"--baseline {directory}: the record names no baseline"]
    right = baseline_of(directory)
    if recorded.manifest_sha256 != right.manifest_sha256:
        return [f"--baseline {directory}: the baseline is another record, {recorded.run}"]
    same = recorded == msgspec.structs.replace(right, limits=recorded.limits)
    return [] if same else [f"--baseline {directory}: the record has other figures of it"]
