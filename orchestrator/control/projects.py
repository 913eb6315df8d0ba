"""The project controller: for every project a namespace, what protects it, a role binding, and its status."""

import asyncio
import logging
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from orchestrator.cluster.errors import ClusterError
from orchestrator.cluster.objects import Condition, Namespace, Project, RoleBinding
from orchestrator.cluster.reflector import Change
from orchestrator.cluster.resources import NAMESPACES, NETWORK_POLICIES, PROJECTS, ROLE_BINDINGS
from orchestrator.cluster.transport import MERGE_PATCH, Transport
from orchestrator.control.observer import Observer
from orchestrator.control.operator_config import DEFAULT_CONFIG, OperatorConfig
from orchestrator.names import MEMBERS_BINDING, NAMESPACE_PREFIX, PROJECT_LABEL
from orchestrator.planner.accounting.ledger import capacity
from orchestrator.planner.accounting.quota import cpu_excess, memory_excess, quota_excess
from orchestrator.planner.gangs import start_chunks
from orchestrator.planner.model import Plan
from orchestrator.roles import RESEARCHER
from orchestrator.workloads import protection
from orchestrator.workloads.snapshot import Reading

logger = logging.getLogger(__name__)

FIELD_MANAGER = "muster-projects"
RETRY_SECONDS = 5.0
STATUS_SECONDS = 1.0
"""A project's figures are written at most once in this time, however often decisions change them."""


@dataclass(frozen=True, slots=True)
class _Figures:
    """What all projects' statuses are made of: counted once for a decision, however many projects there are."""

    reading: Reading
    decision: Plan
    excess: str | None
    waiting: Mapping[str, int]


class ProjectController:
    """Reconciles projects with the cluster. It writes only what differs, and only while this replica leads."""

    def __init__(
        self, transport: Transport, observer: Observer, config: OperatorConfig = DEFAULT_CONFIG
    ) -> None:
        self._transport = transport
        self._observer = observer
        self._config = config
        self._changed = asyncio.Event()
        self._changed.set()
        self._latest: tuple[Reading, Plan] | None = None
        self._figures: _Figures | None = None
        self._written: dict[str, Any] = {}
        self._status_due: dict[str, float] = {}
        observer.listen(self._listen)

    def note(self, reading: Reading, decision: Plan) -> None:
        """Take the figures of a decision for the next status."""
        self._latest, self._figures = (reading, decision), None
        self._changed.set()

    async def run(self) -> None:
        """Reconcile until cancelled."""
        while True:
            try:
                async with asyncio.timeout(RETRY_SECONDS):
                    await self._changed.wait()
            except TimeoutError:
                logger.debug("projects: reconciling without a change")
            self._changed.clear()
            for project in list(self._observer.projects.objects.values()):
                await self._reconcile(project)

    def _listen(self, change: Change[Any]) -> None:
        if isinstance(change.object, Project | Namespace):
            self._changed.set()
        elif isinstance(change.object, RoleBinding) and change.type != "added":
            self._forget_members(change.object.metadata.namespace)

    def _forget_members(self, namespace: str) -> None:
        """Somebody changed or deleted the RoleBinding: it is to be written again. Writing the same changes nothing."""
        for key, known in list(self._written.items()):
            if key.startswith("members/") and known[0] == namespace:
                del self._written[key]
                self._changed.set()

    async def _reconcile(self, project: Project) -> None:
        try:
            namespace = self._namespace_of(project)
            if namespace is None:
                namespace = await self._make_namespace(project)
            await self._protect(project, namespace)
            await self._bind_members(project, namespace)
            await self._write_status(project, namespace)
        except ClusterError as error:
            logger.warning("project %s: %s", project.metadata.name, error)

    def _namespace_of(self, project: Project) -> str | None:
        """The namespace whose label names the project: the label decides, not the namespace's name."""
        names = sorted(
            namespace.metadata.name
            for namespace in self._observer.namespaces.objects.values()
            if namespace.metadata.labels.get(PROJECT_LABEL) == project.metadata.name
            and namespace.metadata.deletion_timestamp is None
        )
        return names[0] if names else None

    async def _make_namespace(self, project: Project) -> str:
        name = NAMESPACE_PREFIX + project.metadata.name
        body = {
            "apiVersion": NAMESPACES.api_version,
            "kind": NAMESPACES.kind,
            "metadata": {
                "name": name,
                "labels": {
                    PROJECT_LABEL: project.metadata.name,
                    **protection.labels(project.spec, self._config.policies),
                },
                "annotations": protection.annotations(project.spec),
                "ownerReferences": [_owner(project)],
            },
        }
        await self._transport.create(NAMESPACES.path(), body)
        logger.info("project %s: made namespace %s", project.metadata.name, name)
        return name

    async def _protect(self, project: Project, namespace: str) -> None:
        """Keep what the policies go by on the namespace, and its NetworkPolicies in it."""
        for known in self._observer.namespaces.objects.values():
            if known.metadata.name == namespace:
                patch = protection.metadata_patch(project.spec, self._config.policies, known.metadata)
                if patch:
                    path = NAMESPACES.path(None, namespace)
                    await self._transport.patch(path, patch, content_type=MERGE_PATCH)
        key = f"network/{project.metadata.uid}"
        if not self._config.network_policy or self._written.get(key) == namespace:
            return
        for policy in protection.network_policies(namespace):
            path = NETWORK_POLICIES.path(namespace, policy["metadata"]["name"])
            await self._transport.apply(path, policy, field_manager=FIELD_MANAGER)
        self._written[key] = namespace

    async def _bind_members(self, project: Project, namespace: str) -> None:
        subjects = [
            {"kind": member.kind, "name": member.name, "apiGroup": "rbac.authorization.k8s.io"}
            for member in project.spec.members
        ]
        key = f"members/{project.metadata.uid}"
        if self._written.get(key) == (namespace, subjects):
            return
        body = {
            "apiVersion": ROLE_BINDINGS.api_version,
            "kind": ROLE_BINDINGS.kind,
            "metadata": {"name": MEMBERS_BINDING, "namespace": namespace},
            "roleRef": {
                "apiGroup": "rbac.authorization.k8s.io",
                "kind": "ClusterRole",
                "name": RESEARCHER,
            },
            "subjects": subjects,
        }
        await self._transport.apply(
            ROLE_BINDINGS.path(namespace, MEMBERS_BINDING), body, field_manager=FIELD_MANAGER
        )
        self._written[key] = (namespace, subjects)

    async def _write_status(self, project: Project, namespace: str) -> None:
        key = f"status/{project.metadata.uid}"
        loop = asyncio.get_running_loop()
        due = self._status_due.get(key, 0.0)
        if loop.time() < due:
            loop.call_at(due, self._changed.set)
            return
        self._status_due[key] = loop.time() + STATUS_SECONDS
        status = self._status(project, namespace)
        if self._written.get(key) == status:
            return
        path = PROJECTS.path(None, project.metadata.name, "status")
        await self._transport.patch(path, {"status": status}, content_type=MERGE_PATCH)
        self._written[key] = status

    def _status(self, project: Project, namespace: str) -> dict[str, Any]:
        name = project.metadata.name
        status: dict[str, Any] = {"namespace": namespace}
        if self._figures is None:
            self._figures = None if self._latest is None else _counted(*self._latest)
        figures = self._figures
        if figures is None:
            return status
        problem = figures.reading.unreadable_projects.get(name)
        status |= {
            "allocatedGpu": _gpus(figures.decision.allocated_gpu_milli, name),
            "fairShareGpu": _gpus(figures.decision.shares_gpu_milli, name),
            "pendingWorkloads": figures.waiting.get(name, 0),
            "conditions": _conditions(project.status.conditions, problem, figures.excess),
        }
        return status


def _counted(reading: Reading, decision: Plan) -> _Figures:
    snapshot = reading.snapshot
    quotas = {project.name: (project.parent, project.quota_gpu_milli) for project in snapshot.projects}
    cpu = {project.name: (project.parent, project.quota_cpu_milli) for project in snapshot.projects}
    memory = {project.name: (project.parent, project.quota_memory_bytes) for project in snapshot.projects}
    there = capacity(snapshot.nodes)
    bound = {binding.workload for binding in decision.bindings}
    return _Figures(
        reading,
        decision,
        excess=quota_excess(quotas, there[0]) or cpu_excess(cpu, there[1]) or memory_excess(memory, there[2]),
        waiting=Counter(
            workload.project
            for workload in snapshot.workloads
            if workload.id not in bound and start_chunks(workload)
        ),
    )


def _gpus(by_project: Mapping[str, int], name: str) -> float:
    return float(Decimal(by_project.get(name, 0)) / 1000)


def _conditions(before: list[Condition], problem: str | None, excess: str | None) -> list[dict[str, str]]:
    return [
        _condition(before, "Ready", problem is None, "Unreadable", problem or "the project takes workloads"),
        _condition(
            before, "QuotaFits", excess is None, "QuotasExceedCluster", excess or "all quotas can be kept"
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


def _owner(project: Project) -> dict[str, Any]:
    return {
        "apiVersion": PROJECTS.api_version,
        "kind": PROJECTS.kind,
        "name": project.metadata.name,
        "uid": project.metadata.uid,
    }
