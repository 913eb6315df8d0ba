"""Compares the newest releases of other projects with muster, and prints the changes that muster has to follow.

It runs the contract tests of this folder on these releases. So the names that muster uses are known in one place.
"""

import contextlib
import io
import json
import os
import re
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import click
import pytest
import yaml
from packaging.version import VERSION_PATTERN, Version

from deployment.matrix import tables, within
from deployment.vulnerabilities import affecting
from musterlab.build import NEWEST_KUBERNETES
from tests.upstream import facts
from tests.upstream.kubernetes_sources import CHECKOUT
from tests.upstream.names import ROOT, found

SOFTWARE = {
    "kubernetes": CHECKOUT,
    "driver": "open-gpu-kernel-modules-0.0.0",
    "container_toolkit": "nvidia-container-toolkit-v0.0.0",
    "gpu_operator": "gpu-operator-v0.0.0",
}
"""Software whose release alone is compared, with a name in the form of its checkout."""

_OF_OPERATOR = {"driver": "driver", "container_toolkit": "toolkit"}
_RELEASE = re.compile(VERSION_PATTERN, re.VERBOSE | re.IGNORECASE)
_NAMES_IN_A_LINE = 12
_FOLLOW, _NOT_READ = 1, 2


@dataclass(frozen=True)
class Finding:
    """A difference. Its kind is `name`, `version` or `fault`."""

    kind: str
    projects: tuple[str, ...]
    subject: str
    """The name that muster uses, or the release; empty for a comparison of whole lists."""
    differing: tuple[str, ...]
    """The names or releases that only one of the two lists has."""
    text: str
    source: str


@dataclass
class Comparison:
    """All differences, the releases that were read, and the reasons for those that were not."""

    releases: dict[str, str] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)
    not_read: dict[str, int] = field(default_factory=dict)
    """Each reason with the number of comparisons that it prevents."""

    def miss(self, reason: str) -> None:
        """Count a comparison that is not possible."""
        self.not_read[reason] = self.not_read.get(reason, 0) + 1

    def read_projects(self) -> None:
        """Find the releases that can be read."""
        for project in facts.PROJECTS:
            path = facts.place(facts.NEWEST, project)
            if path is None or not path.exists():
                continue
            # each comparison with an unreadable project is counted as such
            with contextlib.suppress(facts.Unreadable, KeyError, ValueError):
                facts.read(facts.NEWEST, project)
                self.releases[project] = str(path)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Take the result of a contract test from pytest."""
        properties = [(str(name), str(value)) for name, value in report.user_properties]
        projects = tuple(value for name, value in properties if name == "project")
        values = dict(properties)
        if report.skipped:
            reason = str(report.longrepr[2]) if isinstance(report.longrepr, tuple) else str(report.longrepr)
            if "empty parameter set" not in reason:
                self.miss(f"{', '.join(projects)}: {reason.removeprefix('Skipped: ')}")
        elif report.failed:
            crash = getattr(report.longrepr, "reprcrash", None)
            message = str(getattr(crash, "message", report.longrepr))
            if report.when != "call":
                self.miss(f"{', '.join(projects)}: {message.splitlines()[-1]}")
                return
            path, _, name = report.nodeid.partition("::")
            sentence = name.partition("[")[0].removeprefix("test_").replace("_", " ")
            differs = tuple(differing(message))
            subject = values["subject"] or ("" if differs else message.splitlines()[0])
            text = f"no longer true: {sentence}"
            self.findings.append(Finding(values["kind"], projects, subject, differs, text, path))


def differing(message: str) -> Iterator[str]:
    """Yield the differing names in the message of a failed comparison of lists."""
    found_names = re.findall(r"(?m)^\s*'([^']+)'$|^\s*[-+]\s+'([^']+)'", message)
    yield from sorted({extra or changed for extra, changed in found_names})


def compare() -> Comparison:
    """Run the contract tests on the releases in the folders that the environment names, and compare versions."""
    comparison = Comparison()
    comparison.read_projects()
    said = io.StringIO()
    paths = sorted(str(path) for path in Path(__file__).parent.glob("test_*_contract.py"))
    left_out = ("doubles", "rehearsal")
    command = [path for path in paths if not any(name in path for name in left_out)]
    command += [
        "-q",
        "-vv",
        "-p",
        "no:cacheprovider",
        "--rootdir",
        str(ROOT),
        "-c",
        str(ROOT / "pyproject.toml"),
    ]
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        ended = pytest.main(command, plugins=[comparison])
    if ended not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
        comparison.miss(f"the contract tests ended with {ended}: {said.getvalue()[-2000:]}")
    comparison.findings += _outside(dict(_versions(comparison)), comparison)
    comparison.findings += _faults(comparison)
    return comparison


def _versions(comparison: Comparison) -> Iterator[tuple[str, str]]:
    """Yield the newest release of each software, from the file, its checkout, or the GPU operator."""
    directory, trees = facts.folder(facts.FACTS_VARIABLE), facts.folder(facts.TREES_VARIABLE)
    listed = _entries(directory / facts.RELEASES, comparison) if directory else {}
    operator = facts.newest(trees, SOFTWARE["gpu_operator"]) if trees else None
    values = operator / "deployments" / "gpu-operator" / "values.yaml" if operator else None
    chart = _entries(values, comparison) if values else {}
    for software, known in SOFTWARE.items():
        known_to: list[tuple[str, str]] = []
        if software in listed:
            known_to.append((str(listed[software]), str(directory and directory / facts.RELEASES)))
        if (
            trees
            and (checkout := facts.newest(trees, known)).is_dir()
            and (release := facts.release_text(checkout))
        ):
            known_to.append((release, str(checkout)))
        if key := _OF_OPERATOR.get(software):
            entry = chart.get(key)
            known_to += [(str(entry.get("version")), str(values))] if isinstance(entry, dict) else []
        unread = [each for each in known_to if not _RELEASE.fullmatch(each[0])]
        for text, place in unread:
            comparison.miss(f"{software}: {place}: `{text}` is no release")
        known_to = [(text.removeprefix("v"), place) for text, place in known_to if _RELEASE.fullmatch(text)]
        if not known_to:
            comparison.miss(
                f"{software}: not at hand: {known.rpartition('-')[0]}-RELEASE, or {facts.RELEASES}"
            )
            continue
        release, place = max(known_to, key=lambda each: Version(each[0]))
        comparison.releases[software] = f"{release}, {place}"
        yield software, release


def _entries(path: Path, comparison: Comparison) -> dict[str, Any]:
    """Return the entries of a file in YAML or JSON; empty if it does not exist or cannot be read."""
    if not path.is_file():
        return {}
    try:
        entries = yaml.safe_load(path.read_text())
    except (OSError, ValueError, yaml.YAMLError):
        entries = None
    if not isinstance(entries, dict):
        comparison.miss(f"{path}: it is no mapping in YAML or JSON")
        return {}
    return entries


def _outside(versions: dict[str, str], comparison: Comparison) -> Iterator[Finding]:
    """Yield each version that the matrix, the site files, DeepOps or the lab does not have."""
    for software, release in versions.items():
        for table in ("refused", "warned"):
            for row in affecting(table, software, release):
                yield _version(software, release, f"{table}: {', '.join(row['cve'])} ({row['source']})")
    if kubernetes := versions.get("kubernetes"):
        yield from _of_kubernetes(kubernetes)
    if driver := versions.get("driver"):
        branches = sorted({branch for row in tables()["hosts"] for branch in row["driver"]})
        if driver.partition(".")[0] not in branches:
            text = f"no row of hosts has its branch; they have {', '.join(branches)}"
            yield _version("driver", driver, text)
    if toolkit := versions.get("container_toolkit"):
        named = found(r"container_toolkit: \"([\d.]+)\"")
        if older := [name for name in named if Version(name) < Version(toolkit)]:
            yield _version(
                "container_toolkit", toolkit, f"files of muster name {', '.join(older)}", named[older[0]]
            )
    operator, deepops = versions.get("gpu_operator"), comparison.releases.get("deepops")
    if operator and deepops:
        role = facts.read(facts.NEWEST, "deepops")["roles"]["nvidia-gpu-operator"]["variables"]
        installed = role["defaults/main.yml"]["gpu_operator_chart_version"]
        if installed.removeprefix("v") != operator:
            yield _version("gpu_operator", operator, f"DeepOps installs {installed}", deepops)


def _version(software: str, release: str, text: str, source: str = "deployment/data/matrix.yaml") -> Finding:
    return Finding("version", (software,), release, (), text, source)


def _of_kubernetes(release: str) -> Iterator[Finding]:
    for table in ("deepops", "trident"):
        rows = [spec for row in tables()[table] for spec in _as_list(row["kubernetes"])]
        if not any(within(release, spec) for spec in rows):
            yield _version("kubernetes", release, f"no row of {table} has it; they have {'; '.join(rows)}")
    if Version(release).release[:2] > Version(NEWEST_KUBERNETES).release[:2]:
        yield _version("kubernetes", release, f"the lab has {NEWEST_KUBERNETES}", "musterlab/newest/go.mod")


def _as_list(value: str | list[str]) -> list[str]:
    return [value] if isinstance(value, str) else value


def _faults(comparison: Comparison) -> Iterator[Finding]:
    """Yield the faults of the matrix that the newest release of a project still has."""
    for project in sorted({row["software"] for row in tables()["faults"]} & comparison.releases.keys()):
        newest = max(facts.read(facts.NEWEST, project)["sources"], key=Version)
        for row in tables()["faults"]:
            below = row.get("below", "")
            has_it = Version(row["from"]) <= Version(newest) < Version(below or "9999")
            if row["software"] == project and has_it:
                fixed = f"fixed in {below}" if below else "no fix is known"
                text = f"with {row['driver']} since {row['from']}, {fixed}: {row['fault']}"
                yield Finding("fault", (project,), newest, (), text, row["source"])


def exit_code(comparison: Comparison) -> int:
    """Return the exit code of the command."""
    if any(finding.kind != "fault" for finding in comparison.findings):
        return _FOLLOW
    return _NOT_READ if comparison.not_read else 0


def text_of(comparison: Comparison) -> Iterator[str]:
    """Yield the lines for a terminal."""
    for project, release in comparison.releases.items():
        yield f"read: {project} {release}"
    same: dict[tuple[str, tuple[str, ...], str, str], list[str]] = {}
    for each in comparison.findings:
        same.setdefault((each.kind, each.projects, each.text, each.source), []).append(_subject(each))
    for (kind, projects, text, source), subjects in same.items():
        yield f"{kind}: {', '.join(projects)}: {'; '.join(subjects)}: {text} ({source})"
    for reason, count in comparison.not_read.items():
        yield f"not read: {reason} ({count} comparisons)"
    kinds = [finding.kind for finding in comparison.findings]
    yield (
        f"{kinds.count('name')} names and {kinds.count('version')} versions to follow, {kinds.count('fault')} known "
        f"faults, {sum(comparison.not_read.values())} comparisons not possible"
    )


def _subject(finding: Finding) -> str:
    """Return the subject and the first of the differing names."""
    names = finding.differing
    more = f" and {len(names) - _NAMES_IN_A_LINE} more" if len(names) > _NAMES_IN_A_LINE else ""
    return ": ".join(part for part in (finding.subject, ", ".join(names[:_NAMES_IN_A_LINE]) + more) if part)


@click.command()
@click.option(
    "--upstream", envvar=facts.TREES_VARIABLE, type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Folder with plain checkouts, such as kubespray-v2.32.0.",
)  # fmt: skip
@click.option(
    "--facts", "known", envvar=facts.FACTS_VARIABLE, type=click.Path(exists=True, file_okay=False, path_type=Path),
    required=True, help=f"Folder with facts of releases. {facts.RELEASES} there names further releases.",
)  # fmt: skip
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True)
def main(upstream: Path | None, known: Path, output: str) -> None:
    """Print the changes in the newest releases of other projects that muster has to follow. It reads files alone.

    Exit codes: 0 if everything was read and there is nothing to follow, 1 if there are names or versions to follow,
    2 if there are none and something was not read, or an option is wrong. Known faults do not change the exit code.
    """
    os.environ |= {facts.NEWEST_VARIABLE: "1", facts.FACTS_VARIABLE: str(known)}
    if upstream:
        os.environ[facts.TREES_VARIABLE] = str(upstream)
    comparison = compare()
    if output == "json":
        click.echo(json.dumps(asdict(comparison), indent=1))
    else:
        for line in text_of(comparison):
            click.echo(line)
    sys.exit(exit_code(comparison))


if __name__ == "__main__":
    main()
