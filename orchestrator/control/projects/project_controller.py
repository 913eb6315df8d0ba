"""The project controller writes the namespace, its protection, role bindings and status of each project."""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from orchestrator.cluster.device_objects import DeviceClass
from orchestrator.cluster.errors import ClusterError, Forbidden
from orchestrator.cluster.objects import (
    Namespace,
    NetworkPolicy,
    Project,
    ResourceQuota,
    RoleBinding,
)
from orchestrator.cluster.reflector import Change
from orchestrator.cluster.resources import (
    CLUSTER_ROLES,
    NAMESPACES,
    NETWORK_POLICIES,
    PROJECTS,
    RESOURCE_QUOTAS,
    ROLE_BINDINGS,
    SERVICE_ACCOUNTS,
)
from orchestrator.cluster.transport import MERGE_PATCH, Transport
from orchestrator.control.decide.observer import Observer
from orchestrator.control.operator_config import (
    DEFAULT_CONFIG,
    MAX_PROJECT_OBJECTS,
    MemoryLimitsMode,
    OperatorConfig,
)
from orchestrator.control.projects import project_status
from orchestrator.errors import MusterError
from orchestrator.names import (
    DEFAULT_ACCOUNT,
    MEMBERS_BINDING,
    OBJECTS_QUOTA,
    OPERATOR_ACCOUNT,
    OPERATOR_BINDING,
    PROJECT_LABEL,
    SYSTEM_NAMESPACE,
    WRITER_ROLE,
)
from orchestrator.observe.namespaces import is_reserved, namespace_name, objection
from orchestrator.observe.snapshot import Reading
from orchestrator.planner.model import Plan
from orchestrator.roles import RESEARCHER
from orchestrator.submit import protection
from orchestrator.submit.collisions import Granted, granted
from orchestrator.submit.network import IngressSettings

logger = logging.getLogger(__name__)

OPERATOR_SUBJECT: Final = {"kind": "ServiceAccount", "name": OPERATOR_ACCOUNT, "namespace": SYSTEM_NAMESPACE}

FIELD_MANAGER = "muster-projects"
RETRY_SECONDS = 5.0
REFUSED_SECONDS = 0.2
"""Time after which a refused request is repeated: the API server learns of a new role binding by its own watch."""
CLAIMS_PER_POD: Final = 2
"""Maximum number of ResourceClaims of a project for each pod that it may have."""
STATUS_SECONDS = 1.0
"""Minimum time between two writes of a project's status, because each decision can change it."""


def role_binding(
    namespace: str, name: str, role: str, subjects: Sequence[Mapping[str, str]]
) -> dict[str, Any]:
    """Return the RoleBinding that gives the subjects the ClusterRole `role` in the namespace."""
    return {
        "apiVersion": ROLE_BINDINGS.api_version,
        "kind": ROLE_BINDINGS.kind,
        "metadata": {"name": name, "namespace": namespace},
        "roleRef": {"apiGroup": ROLE_BINDINGS.group, "kind": CLUSTER_ROLES.kind, "name": role},
        "subjects": subjects,
    }


class NoNamespace(MusterError):
    """The project has no namespace, and the operator cannot create it; the message says why."""


class ProjectController:
    """Reconciles projects with the cluster. It writes differences only, and only while `is_leader()`."""

    def __init__(
        self,
        transport: Transport,
        observer: Observer,
        config: OperatorConfig = DEFAULT_CONFIG,
        *,
        is_leader: Callable[[], bool],
    ) -> None:
        self._transport = transport
        self._observer = observer
        self._config = config
        self._limits = config.gpu_memory_limits is MemoryLimitsMode.ENFORCE
        self._is_leader = is_leader
        self._changed = asyncio.Event()
        self._changed.set()
        self._latest: tuple[Reading, Plan] | None = None
        self._figures: project_status.Figures | None = None
        self._written: dict[str, Any] = {}
        self._status_due: dict[str, float] = {}
        self._mistakes: dict[str, str] = {}
        observer.listen(self._listen)

    def note(self, reading: Reading, decision: Plan) -> None:
        """Store the last decision for the next status."""
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
        known = change.object
        if isinstance(known, Project | Namespace | DeviceClass):
            self._changed.set()
        elif isinstance(known, RoleBinding | NetworkPolicy | ResourceQuota) and _is_meddled(change):
            self._forget(known)

    def _forget(self, written: RoleBinding | NetworkPolicy | ResourceQuota) -> None:
        """Note that an object of the operator was changed or deleted, so that it is written again.

        A write of an unchanged object has no effect.
        """
        key = f"{written.metadata.namespace}/{written.metadata.name}"
        if self._written.pop(key, None) is not None:
            self._changed.set()

    async def _reconcile(self, project: Project) -> None:
        if not self._is_leader():
            return
        try:
            allowed = granted(project, self._observer.projects.objects.values(), self._config.ingress_domain)
            try:
                namespace = await self._namespace_of(project, allowed)
                await self._bind(namespace, OPERATOR_BINDING, WRITER_ROLE, [OPERATOR_SUBJECT])
                await self._label(project, namespace)
                await self._protect(namespace, allowed)
                await self._bound_objects(project, namespace)
                await self._name_pull_secrets(project, namespace)
                # bind the members last, so that all restrictions exist before they get access
                await self._bind(namespace, MEMBERS_BINDING, RESEARCHER, _members(project))
            except NoNamespace as error:
                await self._write_status(project, "", allowed, str(error))
            else:
                await self._write_status(project, namespace, allowed)
        except Forbidden as error:
            logger.info("project %s: not yet allowed: %s", project.metadata.name, error)
            asyncio.get_running_loop().call_later(REFUSED_SECONDS, self._changed.set)
        except ClusterError as error:
            logger.warning("project %s: %s", project.metadata.name, error)
        except Exception as error:  # a defect of muster that concerns one project must not stop the others
            why = f"{type(error).__name__}: {error}"
            if self._mistakes.get(project.metadata.uid) != why:
                self._mistakes[project.metadata.uid] = why
                logger.exception("project %s: it cannot be reconciled", project.metadata.name)

    async def _namespace_of(self, project: Project, allowed: Granted) -> str:
        """Return the project's namespace, which is created if it is missing. Raises NoNamespace."""
        name = namespace_name(project)
        if is_reserved(name):
            raise NoNamespace(f"the namespace {name} is reserved: create the project with another name")
        namespace = self._known_namespace(name)
        if namespace is None:
            if project.spec.namespace:
                raise NoNamespace(
                    f"there is no namespace {name}: create it, with the label {PROJECT_LABEL}={project.metadata.name}"
                )
            await self._make_namespace(project, name, allowed)
        elif namespace.metadata.deletion_timestamp is not None:
            raise NoNamespace(
                f"the namespace {name} is being deleted: the project has another one after that"
            )
        elif why := objection(namespace, project):
            raise NoNamespace(why)
        return name

    def _known_namespace(self, name: str) -> Namespace | None:
        namespaces = self._observer.namespaces.objects.values()
        return next((namespace for namespace in namespaces if namespace.metadata.name == name), None)

    async def _label(self, project: Project, name: str) -> None:
        """If the label that selects the namespace was removed, restore it."""
        namespace = self._known_namespace(name)
        if namespace is None or namespace.metadata.labels.get(PROJECT_LABEL) == project.metadata.name:
            return
        metadata = {"uid": namespace.metadata.uid, "labels": {PROJECT_LABEL: project.metadata.name}}
        await self._transport.patch(
            NAMESPACES.path(None, name), {"metadata": metadata}, content_type=MERGE_PATCH
        )
        logger.warning("the namespace %s had lost its label %s; restored", name, PROJECT_LABEL)

    async def _make_namespace(self, project: Project, name: str, allowed: Granted) -> None:
        body = {
            "apiVersion": NAMESPACES.api_version,
            "kind": NAMESPACES.kind,
            "metadata": {
                "name": name,
                "labels": {
                    PROJECT_LABEL: project.metadata.name,
                    **protection.labels(allowed.spec, self._config.policies, limits_gpu_memory=self._limits),
                },
                "annotations": protection.annotations(
                    allowed.spec,
                    allowed.closed,
                    limits_gpu_memory=self._limits,
                    ingress=self._ingress(allowed),
                    device_resources=self._observer.device_resources(),
                ),
                "ownerReferences": [_owner(project)],
            },
        }
        await self._transport.create(NAMESPACES.path(), body)
        logger.info("project %s: made namespace %s", project.metadata.name, name)

    def _ingress(self, allowed: Granted) -> IngressSettings:
        """Return the settings for Ingresses of the project's jobs. They have a domain only if the site has one."""
        domain = allowed.spec.security.ingress_domain if self._config.ingress_domain else None
        return IngressSettings(self._config.ingress_class, domain or "")

    async def _protect(self, namespace: str, allowed: Granted) -> None:
        """Write the inputs of the policies on the namespace, and the NetworkPolicies into it."""
        for known in self._observer.namespaces.objects.values():
            if known.metadata.name == namespace:
                patch = protection.metadata_patch(
                    allowed.spec,
                    self._config.policies,
                    known.metadata,
                    allowed.closed,
                    limits_gpu_memory=self._limits,
                    ingress=self._ingress(allowed),
                    device_resources=self._observer.device_resources(),
                )
                if patch:
                    path = NAMESPACES.path(None, namespace)
                    await self._transport.patch(path, patch, content_type=MERGE_PATCH)
        for policy in protection.network_policies(namespace) if self._config.network_policy else ():
            name = policy["metadata"]["name"]
            if self._written.get(key := f"{namespace}/{name}") != policy:
                path = NETWORK_POLICIES.path(namespace, name)
                await self._transport.apply(path, policy, field_manager=FIELD_MANAGER)
                self._written[key] = policy

    async def _bind(self, namespace: str, name: str, role: str, subjects: list[dict[str, str]]) -> None:
        """Write the RoleBinding that gives exactly these subjects the role in the namespace."""
        key = f"{namespace}/{name}"
        if self._written.get(key) == subjects:
            return
        body = role_binding(namespace, name, role, subjects)
        await self._transport.apply(ROLE_BINDINGS.path(namespace, name), body, field_manager=FIELD_MANAGER)
        self._written[key] = subjects

    async def _bound_objects(self, project: Project, namespace: str) -> None:
        """Write the ResourceQuota for pods, Jobs, ResourceClaims and storage, with the project's maximums or the
        defaults.
        """
        key, counts = f"{namespace}/{OBJECTS_QUOTA}", project.spec.objects
        hard = {
            name: str(MAX_PROJECT_OBJECTS if count is None else count)
            for name, count in (("count/pods", counts.pods), ("count/jobs.batch", counts.jobs))
        }
        hard["count/resourceclaims.resource.k8s.io"] = str(CLAIMS_PER_POD * int(hard["count/pods"]))
        if project.spec.storage is not None:
            hard["requests.storage"] = str(project.spec.storage)
        if self._written.get(key) == hard:
            return
        body = {
            "apiVersion": RESOURCE_QUOTAS.api_version,
            "kind": RESOURCE_QUOTAS.kind,
            "metadata": {"name": OBJECTS_QUOTA, "namespace": namespace},
            "spec": {"hard": hard},
        }
        await self._transport.apply(
            RESOURCE_QUOTAS.path(namespace, OBJECTS_QUOTA), body, field_manager=FIELD_MANAGER
        )
        self._written[key] = hard

    async def _name_pull_secrets(self, project: Project, namespace: str) -> None:
        """Write the project's image pull secrets on the default account. If the project has none, other secrets
        there stay.
        """
        key, secrets = f"{namespace}/{DEFAULT_ACCOUNT}", project.spec.image_pull_secrets
        if self._written.get(key) != secrets:
            named = {"imagePullSecrets": [{"name": name} for name in secrets]} if secrets else {}
            account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": DEFAULT_ACCOUNT}}
            path = SERVICE_ACCOUNTS.path(namespace, DEFAULT_ACCOUNT)
            try:
                await self._transport.apply(path, account | named, field_manager=FIELD_MANAGER)
            except Forbidden:
                if secrets:
                    raise
                # the installed manifests are older and lack this right, so there is nothing to remove
            self._written[key] = secrets

    async def _write_status(
        self, project: Project, namespace: str, allowed: Granted, no_namespace: str = ""
    ) -> None:
        """Write the status. `no_namespace` is the reason why the project has no namespace, or ""."""
        key = f"status/{project.metadata.uid}"
        loop = asyncio.get_running_loop()
        due = self._status_due.get(key, 0.0)
        if loop.time() < due:
            loop.call_at(due, self._changed.set)
            return
        self._status_due[key] = loop.time() + STATUS_SECONDS
        if self._figures is None and self._latest is not None:
            self._figures = project_status.figures_of(*self._latest)
        status = project_status.status(project, namespace, self._figures, allowed, no_namespace)
        if self._written.get(key) == status:
            return
        path = PROJECTS.path(None, project.metadata.name, "status")
        await self._transport.patch(path, {"status": status}, content_type=MERGE_PATCH)
        self._written[key] = status


def _is_meddled(change: Change[Any]) -> bool:
    """Return whether the change modified or deleted an object that the operator writes.

    Of a ResourceQuota, only `spec` counts: the use in its status changes with each pod.
    """
    if change.type != "modified" or not isinstance(change.object, ResourceQuota):
        return change.type != "added"
    return change.previous is None or change.previous.spec != change.object.spec


def _members(project: Project) -> list[dict[str, str]]:
    return [
        {"kind": member.kind, "name": member.name, "apiGroup": "rbac.authorization.k8s.io"}
        for member in project.spec.members
    ]


def _owner(project: Project) -> dict[str, Any]:
    return {
        "apiVersion": PROJECTS.api_version,
        "kind": PROJECTS.kind,
        "name": project.metadata.name,
        "uid": project.metadata.uid,
    }
