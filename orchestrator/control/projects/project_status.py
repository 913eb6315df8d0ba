"""The status of a project: its amounts in the last decision, and its conditions."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from orchestrator.cluster.objects import Condition, Project
from orchestrator.control.report.waiting import waiting_workloads
from orchestrator.observe.snapshot import Reading
from orchestrator.planner.accounting.ledger import capacity
from orchestrator.planner.accounting.quota import cpu_excess, memory_excess, quota_excess
from orchestrator.planner.model import Plan
from orchestrator.submit.collisions import Granted


@dataclass(frozen=True, slots=True)
class Figures:
    """The inputs of all projects' statuses, computed once for a decision."""

    reading: Reading
    decision: Plan
    excess: str | None
    waiting: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class _Ready:
    """Whether a project accepts workloads. If it does, `problem` is "". If it does not, `otherwise` is the reason of
    the condition.
    """

    otherwise: str
    problem: str


def figures_of(reading: Reading, decision: Plan) -> Figures:
    """Return the inputs of all projects' statuses from one decision."""
    snapshot = reading.snapshot
    quotas = {project.name: (project.parent, project.quota_gpu_milli) for project in snapshot.projects}
    cpu = {project.name: (project.parent, project.quota_cpu_milli) for project in snapshot.projects}
    memory = {project.name: (project.parent, project.quota_memory_bytes) for project in snapshot.projects}
    there = capacity(snapshot.nodes)
    return Figures(
        reading,
        decision,
        excess=quota_excess(quotas, there[0]) or cpu_excess(cpu, there[1]) or memory_excess(memory, there[2]),
        waiting=Counter(workload.project for workload in waiting_workloads(snapshot, decision)),
    )


def status(
    project: Project, namespace: str, figures: Figures | None, allowed: Granted, no_namespace: str
) -> dict[str, Any]:
    """Return the status of a project. Before the first decision, `figures` is None and the status has only the
    namespace.

    `no_namespace` is the reason why the project has no namespace, or "".
    """
    name = project.metadata.name
    if figures is None:
        return {"namespace": namespace}
    problem = figures.reading.unreadable_projects.get(name)
    ready = _Ready("NoNamespace", no_namespace) if no_namespace else _Ready("Unreadable", problem or "")
    return {
        "namespace": namespace,
        "allocatedGpu": _gpus(figures.decision.allocated_gpu_milli, name),
        "fairShareGpu": _gpus(figures.decision.shares_gpu_milli, name),
        "pendingWorkloads": figures.waiting.get(name, 0),
        "conditions": _conditions(
            project.status.conditions, ready, figures.excess, "; ".join(allowed.problems)
        ),
    }


def _gpus(by_project: Mapping[str, int], name: str) -> float:
    return float(Decimal(by_project.get(name, 0)) / 1000)


def _conditions(
    before: list[Condition], ready: _Ready, excess: str | None, collisions: str
) -> list[dict[str, str]]:
    words = ready.problem or "the project takes workloads"
    return [
        _condition(before, "Ready", not ready.problem, ready.otherwise, words),
        _condition(
            before, "QuotaFits", excess is None, "QuotasExceedCluster", excess or "all quotas can be kept"
        ),
        _condition(
            before,
            "SecurityGranted",
            not collisions,
            "Collides",
            f"not granted: {collisions}"
            if collisions
            else "nothing in spec.security collides with another project or the site's domain",
        ),
    ]


def _condition(
    before: list[Condition], kind: str, holds: bool, otherwise: str, message: str
) -> dict[str, str]:
    status = "True" if holds else "False"
    known = next(
        (condition for condition in before if condition.type == kind and condition.status == status), None
    )
    changed = known.last_transition_time if known and known.last_transition_time else _now()
    return {
        "type": kind,
        "status": status,
        "reason": "AsExpected" if holds else otherwise,
        "message": message,
        "lastTransitionTime": changed,
    }


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
