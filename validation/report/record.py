"""report.json, the record of a run: canonical JSON (RFC 8785). All pages of a report are rendered from it alone.

The record contains the name and digest of the file with the events, but not the events: they can be a thousand times as
large.

All values that differ between two equal runs are below keys named `volatile`.
"""

import json
import re
from pathlib import Path
from typing import Final, TypedDict

import msgspec
import rfc8785

from validation.errors import ReportError
from validation.judge.check_verdict import Circumstances, Window
from validation.judge.convergence import Convergence
from validation.judge.evidence import Evidence
from validation.judge.hosts.host_layer import HostScope
from validation.judge.scheduling.expectation import Actual, Expectation
from validation.judge.scheduling.history import Violation
from validation.judge.scheduling.oracle import Demand
from validation.judge.training.training_job import TrainingJob
from validation.judge.use.utilization import Standard, Utilization
from validation.judge.waivers import Waiver
from validation.report import files
from validation.scenario.schema import Erratum

SCHEMA_VERSION = 3
MAX_BYTES: Final = 32 << 20
_BEYOND_BMP = re.compile(rb"[\xf0-\xf7]")


class _Record(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    """Base of the parts of the record. Keys are in camelCase, as in Kubernetes."""


class Command(_Record):
    """A command line as it was run. `started_ms` counts from the start of the run."""

    line: str
    exit_code: int
    started_ms: int
    duration_ms: int
    stdout: str = ""
    stderr: str = ""


class Oracle(_Record):
    """The oracle's allocation of the `demands` after a step, from quotas and weights alone, on `capacity_milli` of
    GPUs.

    Fair shares are in GPUs, as exact fractions.
    """

    capacity_milli: int
    demands: list[Demand]
    fair_share_gpus: dict[str, str]
    allocated_milli: dict[str, int]
    pending: list[str]
    running: int


class CheckTrace(_Record):
    """The values of a check that differ from run to run. Times are milliseconds since the run began.

    `causes` say why pods do not run, in the words of Kubernetes, or why a node has no values. `utilization` has the
    measured values of GPUs. Both keys are absent if they are empty, as in records of older versions.
    """

    started_ms: int | None = None
    ended_ms: int | None = None
    commands: list[Command] = []
    window: Window | None = None
    convergence: Convergence | None = None
    evidence: Evidence = Evidence()
    subjects: int = 0
    violations: list[Violation] = []
    causes: list[str] | msgspec.UnsetType = msgspec.UNSET
    utilization: Utilization | msgspec.UnsetType = msgspec.UNSET


class CheckResult(_Record):
    """A check of the run and its verdict. It is one of these:

    - a step of a scenario
    - a list or page of the orchestrator
    - the result of its `job`
    - the use of GPUs by the standard of `utilization` (a key that other checks do not have)
    - an invariant
    - a layer of the hosts
    - an answer of the API server

    A check that is not `required` does not count, such as an invariant without a subject. `least` is the minimum of
    evidence for a verdict. `oracle_differences` are the differences from the oracle that no erratum excuses.
    """

    id: str
    scenario: str
    kind: str
    title: str
    source: str
    verdict: str
    required: bool = True
    reason: str = ""
    requirements: list[str] = []
    circumstances: Circumstances = Circumstances()
    least: Evidence = Evidence()
    within_ms: int = 0
    hold_ms: int = 0
    expected: Expectation | None = None
    oracle: Oracle | None = None
    oracle_differences: list[str] = []
    actual: Actual | None = None
    job: TrainingJob | None = None
    utilization: Standard | msgspec.UnsetType = msgspec.UNSET
    differences: list[str] = []
    errata: list[str] = []
    excused: list[str] = []
    volatile: CheckTrace = msgspec.field(default_factory=CheckTrace)

    @property
    def name(self) -> str:
        """The id without the scenario."""
        return self.id.removeprefix(f"{self.scenario}/")

    @property
    def said(self) -> list[str]:
        """The sentences that describe the failure, without the reason."""
        return [*self.differences, *(violation.message for violation in self.volatile.violations)]

    @property
    def reasons(self) -> list[str]:
        """The lines that explain a verdict other than PASS: the reason, differences, causes of pods that do not run,
        and violations.
        """
        return [
            *([self.reason] if self.reason else []),
            *self.differences,
            *(self.volatile.causes or ()),
            *(violation.message for violation in self.volatile.violations),
        ]


class RequirementResult(_Record):
    """A requirement of the catalogue and its verdict. `in_part`: the requirement is in a chosen part of the catalogue.

    `checks` are all checks that prove it, whether they ran or not. `not_applicable` is the reason of the profile.
    """

    id: str
    section: str
    claim: str
    number: str
    source: str
    verdict: str
    reason: str = ""
    in_part: bool = True
    not_applicable: str = ""
    checks: list[str] = []


class Scope(_Record):
    """The scope of the run: the catalogue, by the digest of its file, a profile, and the chosen parts; none: all parts.

    `deviations` say why the run cannot be an acceptance. `waivers` were accepted before the run, `today` is the day of
    the run. `hosts` has the references for the layers below Kubernetes. The key is absent if no site file named hosts.
    """

    catalogue_sha256: str
    profile: str
    profile_title: str
    parts: list[str]
    today: str
    patience_percent: int = 100
    fail_fast: bool = False
    deviations: list[str] = []
    waivers: list[Waiver] = []
    hosts: HostScope | msgspec.UnsetType = msgspec.UNSET


class ScenarioTrace(_Record):
    """Start and end of the scenario, in milliseconds since the run began."""

    started_ms: int | None = None
    ended_ms: int | None = None


class ScenarioRecord(_Record):
    """A selected scenario, with the digest of its file. `shipped`: the scenario ships with muster."""

    id: str
    title: str
    source: str
    file: str
    sha256: str
    shipped: bool = True
    description: str = ""
    continues: str = ""
    quotas_milli: dict[str, int] = {}
    weights_milli: dict[str, int] | msgspec.UnsetType = msgspec.UNSET
    """The weights that differ from the quotas; the key is absent if there is none."""
    size: str | msgspec.UnsetType = msgspec.UNSET
    """The size of the site for which the scenario was scaled, such as `8x8`; the key is absent if it was not scaled."""
    volatile: ScenarioTrace = msgspec.field(default_factory=ScenarioTrace)


class EvictionRecord(_Record):
    """An evicted pod, its GPUs, and the rule: `message` is the text that the scheduler wrote on the pod."""

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


class ImageRecord(_Record):
    """An image that a node pulled before the first measurement: its name in scenarios, its digest and the duration of
    the pull.

    If the pull failed, it has the `problem`.
    """

    node: str
    name: str
    image: str
    digest: str
    took_ms: int
    problem: str = ""


class Point(_Record):
    """The thousandths of a GPU that each project held from `t_ms` on."""

    t_ms: int
    allocated_milli: dict[str, int]


class NodeRecord(TypedDict):
    """A node of the cluster, and the number of its GPUs."""

    name: str
    gpus: int
    product: str


class ClusterRecord(TypedDict, total=False):
    """The version of the API server, and the nodes from the events; empty before the run."""

    kubernetes: str
    gpus: int
    nodes: list[NodeRecord]


class GpuIdentity(_Record):
    """A GPU by its UUID and, if a tool of its host printed it, its serial number."""

    uuid: str
    serial: str = ""


class NodeIdentity(_Record):
    """A node by the uid of the API server, and by the system UUID that its kubelet reads."""

    node: str
    uid: str = ""
    system_uuid: str = ""
    gpus: list[GpuIdentity] = []


class Identity(_Record):
    """The identity of the run's cluster.

    `kube_system_uid` is the uid of its namespace kube-system, `ca_sha256` the digest of its API server's certificate
    authority. `sha256` is the digest of the whole identity; a redacted report has the same digest.
    """

    sha256: str
    kube_system_uid: str
    ca_sha256: str
    nodes: list[NodeIdentity]


class Tool(_Record):
    """The program that ran the scenarios."""

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
    timings: dict[str, str] = {}


class MutantRecord(_Record):
    """A defect that a test injected before this run, and the checks of this run that detect it."""

    name: str
    defect: str
    killers: list[str]


class Coverage(_Record):
    """The number of checks, of required checks, of executed required checks, and of those with each verdict."""

    steps: int
    required: int
    executed: int
    by_verdict: dict[str, int]


class EventFile(_Record):
    """The file with all events, from which every verdict follows: its number of events and its digest."""

    file: str
    sha256: str
    events: int


class Trace(_Record):
    """The values that differ from run to run: the clock, the events, and the values that follow from them.

    `series` has fewer points than the events if these are very many. `images` is absent if no image was pulled before
    the first measurement.
    """

    run: Run
    events: EventFile
    evictions: list[EvictionRecord]
    series: list[Point]
    images: list[ImageRecord] | msgspec.UnsetType = msgspec.UNSET


class HostCell(_Record):
    """The verdict of a layer on one host; `words` has the fault or the measurement."""

    verdict: str
    words: str = ""
    required: bool = True


class HostRow(_Record):
    """A host of the site: the verdict of each layer, and the facts that nvidia-smi printed about each GPU."""

    host: str
    model: str
    driver: str = ""
    layers: dict[str, HostCell] = {}
    gpus: list[dict[str, str]] = []


class Report(_Record):
    """The whole record.

    `verdict` is the verdict on the chosen parts of the catalogue, `acceptance` on the whole catalogue.
    """

    verdict: str
    acceptance: str
    headline: str
    summary: str
    scope: Scope
    requirements: list[RequirementResult]
    tool: Tool
    target: dict[str, str]
    cluster: ClusterRecord
    scenarios: list[ScenarioRecord]
    steps: list[CheckResult]
    coverage: Coverage
    errata: list[Erratum]
    volatile: Trace
    mutants: list[MutantRecord] = []
    interrupted: str = ""
    identity: Identity | msgspec.UnsetType = msgspec.UNSET
    """The key is absent if neither an API server nor a host answered, and in older records."""
    hosts: list[HostRow] | msgspec.UnsetType = msgspec.UNSET
    """The hosts of the site file; the key is absent without a site file."""
    redacted: str = ""
    """If this report is redacted: the digest of the original report's manifest."""
    schema_version: int = SCHEMA_VERSION


def encode(report: Report) -> bytes:
    """Return the record as canonical JSON, which has one form for each content."""
    content = msgspec.json.encode(report, order="sorted")
    if _BEYOND_BMP.search(content):
        return rfc8785.dumps(json.loads(content))
    # Without characters beyond the BMP and without floats, msgspec writes the form of RFC 8785.
    return content


def decode(content: bytes) -> Report:
    """Return the record of these bytes. Raises ValueError if they are no record in canonical form."""
    report = msgspec.json.decode(content, type=Report)
    if report.schema_version != SCHEMA_VERSION:
        raise ValueError(f"version {report.schema_version}, not {SCHEMA_VERSION}")
    if encode(report) != content:
        raise ValueError("it is not in canonical form")
    return report


def read(directory: Path) -> Report:
    """Return the record of a report directory. Raises ReportError."""
    path = directory / "report.json"
    content = files.read(path, MAX_BYTES)
    try:
        return decode(content)
    except (ValueError, RecursionError) as error:
        raise ReportError(f"{path}: is not a report of version {SCHEMA_VERSION}: {error}") from error
