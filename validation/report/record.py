"""report.json, the record of a run. All other files of the report are rendered from it alone."""

from pathlib import Path
from typing import Any

import msgspec

from validation.errors import ReportError
from validation.judge.convergence import Convergence
from validation.judge.events import Event
from validation.judge.expectation import Actual, Expectation
from validation.scenario.schema import Erratum

SCHEMA_VERSION = 1


class _Record(msgspec.Struct, rename="camel"):
    """Keys in camelCase, as Kubernetes writes them."""


class Command(_Record):
    """A command line as it was run; `started_ms` since the run began."""

    line: str
    exit_code: int
    started_ms: int
    duration_ms: int
    stdout: str = ""
    stderr: str = ""


class Oracle(_Record):
    """What quotas and weights alone lead to: fair shares in GPUs as exact fractions, and the resulting
    allocation.
    """

    fair_share_gpus: dict[str, str]
    allocated_milli: dict[str, int]
    pending: list[str]
    running: int


class Violation(_Record):
    """An invariant that did not hold at `t_ms`."""

    t_ms: int
    message: str


class CheckResult(_Record):
    """A check of the run and its verdict: a step of a scenario, or an invariant over a whole scenario."""

    id: str
    scenario: str
    kind: str
    title: str
    source: str
    verdict: str
    required: bool = True
    reason: str = ""
    started_ms: int | None = None
    ended_ms: int | None = None
    commands: list[Command] = []
    expected: Expectation | None = None
    oracle: Oracle | None = None
    oracle_differences: list[str] = []
    actual: Actual | None = None
    differences: list[str] = []
    convergence: Convergence | None = None
    violations: list[Violation] = []
    errata: list[str] = []

    @property
    def reasons(self) -> list[str]:
        """Why the verdict is not PASS, a line each: the reason, differences, violations."""
        return [
            *([self.reason] if self.reason else []),
            *self.differences,
            *(violation.message for violation in self.violations),
        ]


class ScenarioRecord(_Record):
    """A scenario that was selected, with the digest of its file."""

    id: str
    title: str
    source: str
    file: str
    sha256: str
    description: str = ""
    continues: str = ""
    quotas_milli: dict[str, int] = {}
    started_ms: int | None = None
    ended_ms: int | None = None


class EvictionRecord(_Record):
    """Who lost which GPUs, and by which rule: `message` is what the scheduler wrote on the pod."""

    t_ms: int
    step: str
    project: str
    workload: str
    pod: str
    node: str
    devices: list[int]
    gpu_milli: int
    reason: str
    message: str


class Point(_Record):
    """From `t_ms` on, each project held this many thousandths of a GPU."""

    t_ms: int
    allocated_milli: dict[str, int]


class Tool(_Record):
    """What ran the scenarios."""

    name: str
    version: str
    python: str
    platform: str


class Run(_Record):
    """When and how the run was started. Times of the wall clock are UTC, RFC 3339."""

    id: str
    argv: list[str]
    started: str
    ended: str
    duration_ms: int
    interrupted: str = ""


class Coverage(_Record):
    """How many steps there are, how many were executed, and how many have each verdict."""

    steps: int
    required: int
    executed: int
    by_verdict: dict[str, int]


class Report(_Record):
    """The whole record."""

    verdict: str
    summary: str
    tool: Tool
    run: Run
    target: dict[str, Any]
    cluster: dict[str, Any]
    scenarios: list[ScenarioRecord]
    steps: list[CheckResult]
    coverage: Coverage
    evictions: list[EvictionRecord]
    errata: list[Erratum]
    series: list[Point]
    timeline: list[Event]
    schema_version: int = SCHEMA_VERSION


def encode(report: Report) -> bytes:
    """The record as indented JSON."""
    return msgspec.json.format(msgspec.json.encode(report), indent=1) + b"\n"


def read(directory: Path) -> Report:
    """The record of a report directory. Raises ReportError."""
    path = directory / "report.json"
    try:
        return msgspec.json.decode(path.read_bytes(), type=Report)
    except OSError as error:
        raise ReportError(f"{path}: cannot be read: {error.strerror}") from error
    except msgspec.MsgspecError as error:
        raise ReportError(f"{path}: is not a report of version {SCHEMA_VERSION}: {error}") from error
