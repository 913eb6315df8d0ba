"""The certificate of a run, the first page of its report. Every statement is derived from the record, and is signed."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import msgspec

from validation.judge.verdict import Verdict, gravest
from validation.judge.waivers import Waiver
from validation.report.record import NodeIdentity, NodeRecord, Report, RequirementResult


class _Part(msgspec.Struct, rename="camel"):
    """A part of the document."""


class CertifiedHost(_Part):
    """A host or node with GPUs: its ids, its driver, and the serial numbers or UUIDs of its GPUs."""

    name: str
    uid: str
    system_uuid: str
    driver: str
    gpu_model: str
    gpus: list[str]


class LayerVerdict(_Part):
    """A part of the catalogue: its gravest verdict, and the number of requirements with each verdict."""

    layer: str
    verdict: str
    in_part: bool
    counts: dict[str, int]


class Limit(_Part):
    """Requirements that were not applied, and why."""

    reason: str
    requirements: list[str]


class CertifiedBaseline(_Part):
    """The earlier record with which the hosts were compared."""

    run: str
    started: str
    verdict: str
    manifest_sha256: str
    identity_sha256: str


class Certificate(_Part):
    """The statements of the page.

    `verdict` is the verdict on the chosen parts of the catalogue, `acceptance` the verdict on the whole catalogue.
    """

    acceptance: str
    verdict: str
    headline: str
    summary: str
    site: str
    target: str
    profile: str
    profile_title: str
    parts: list[str]
    catalogue_sha256: str
    day: str
    run: str
    started: str
    ended: str
    muster: str
    kubernetes: str
    gpus: int
    identity_sha256: str
    kube_system_uid: str
    ca_sha256: str
    hosts: list[CertifiedHost]
    layers: list[LayerVerdict]
    limits: list[Limit]
    waivers: list[Waiver]
    deviations: list[str]
    interrupted: str
    redacted: str
    checks_executed: int
    checks_required: int
    baseline: CertifiedBaseline | msgspec.UnsetType = msgspec.UNSET
    """The key is absent without --baseline."""


def certificate(report: Report) -> Certificate:
    """Return the certificate of the record."""
    scope, run, identity = report.scope, report.volatile.run, report.identity or None
    return Certificate(
        acceptance=report.acceptance,
        verdict=report.verdict,
        headline=report.headline,
        summary=report.summary,
        site=scope.hosts.site.name if scope.hosts else "",
        target=report.target.get("kind", "unknown"),
        profile=scope.profile,
        profile_title=scope.profile_title,
        parts=scope.parts,
        catalogue_sha256=scope.catalogue_sha256,
        day=scope.today,
        run=run.id,
        started=run.started,
        ended=run.ended,
        muster=report.tool.version,
        kubernetes=report.cluster.get("kubernetes", "unknown"),
        gpus=report.cluster.get("gpus", 0),
        identity_sha256=identity.sha256 if identity else "",
        kube_system_uid=identity.kube_system_uid if identity else "",
        ca_sha256=identity.ca_sha256 if identity else "",
        hosts=_hosts(report),
        layers=_layers(report.requirements),
        limits=_limits(report.requirements),
        waivers=list(scope.waivers),
        deviations=list(scope.deviations),
        interrupted=report.interrupted,
        redacted=report.redacted,
        checks_executed=report.coverage.executed,
        checks_required=report.coverage.required,
        baseline=_baseline(report),
    )


def _baseline(report: Report) -> CertifiedBaseline | msgspec.UnsetType:
    one = report.scope.hosts.baseline if report.scope.hosts else msgspec.UNSET
    if one is msgspec.UNSET:
        return msgspec.UNSET
    return CertifiedBaseline(one.run, one.started, one.verdict, one.manifest_sha256, one.identity_sha256)


def predicate(report: Report) -> dict[str, Any]:
    """Return the certificate in the form that is signed."""
    content: dict[str, Any] = msgspec.to_builtins(certificate(report))
    return content


def _hosts(report: Report) -> list[CertifiedHost]:
    """Return the hosts and nodes of the record's identity; without an identity, the nodes of the simulation."""
    rows = {row.host: row for row in report.hosts or []}
    described = {node["name"]: node for node in report.cluster.get("nodes", [])}
    nodes = list(report.identity.nodes) if report.identity else []
    known = {node.node for node in nodes}
    nodes += [NodeIdentity(name) for name, node in described.items() if node["gpus"] and name not in known]
    hosts = []
    for node in nodes:
        row = rows.get(node.node)
        models = Counter(gpu.get("model", "") for gpu in row.gpus) if row is not None else Counter[str]()
        model = ", ".join(f"{number} x {name}" for name, number in models.items())
        seen = described.get(node.node, NodeRecord(name=node.node, gpus=0, product=""))
        hosts.append(
            CertifiedHost(
                node.node,
                node.uid,
                node.system_uuid,
                row.driver if row is not None else "",
                model or f"{seen['gpus']} x {seen['product'] or 'GPU'}",
                [gpu.serial or gpu.uuid for gpu in node.gpus],
            )
        )
    return hosts


def _layers(requirements: Sequence[RequirementResult]) -> list[LayerVerdict]:
    parts: dict[str, list[RequirementResult]] = {}
    for entry in requirements:
        parts.setdefault(entry.id.partition(".")[0], []).append(entry)
    return [
        LayerVerdict(
            part,
            _verdict(entries),
            any(entry.in_part for entry in entries),
            dict(Counter(entry.verdict for entry in entries)),
        )
        for part, entries in parts.items()
    ]


def _verdict(entries: Sequence[RequirementResult]) -> str:
    applying = [Verdict(entry.verdict) for entry in entries if not entry.not_applicable]
    return gravest(applying) if applying else Verdict.NOT_APPLICABLE


def _limits(requirements: Sequence[RequirementResult]) -> list[Limit]:
    reasons: dict[str, list[str]] = {}
    for entry in requirements:
        if entry.not_applicable:
            reasons.setdefault(entry.not_applicable, []).append(entry.id)
    return [Limit(reason, ids) for reason, ids in reasons.items()]
