"""Checks that the cluster has the objects that a submission names, before anything is created.

Missing     a PVC, a secret, a storage class or a node type does not exist
NotAllowed  the policies of the project refuse the pods of the submission
"""

import asyncio
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from orchestrator.client.fitting import unfitting
from orchestrator.client.jobs import Scope
from orchestrator.cluster.errors import Forbidden, NotFound
from orchestrator.cluster.objects import Namespace, Node, Object, Project, Wire
from orchestrator.cluster.resources import (
    CLAIMS,
    NAMESPACES,
    NODES,
    PROJECTS,
    SECRETS,
    STORAGE_CLASSES,
    VOLUME_SNAPSHOT_CLASSES,
    VOLUME_SNAPSHOTS,
    Resource,
)
from orchestrator.cluster.transport import Transport
from orchestrator.errors import FieldProblem
from orchestrator.names import INTERACTIVE, NODE_TYPE_LABEL
from orchestrator.submit import protection
from orchestrator.submit.network import DEFAULT_INGRESS, IngressSettings
from orchestrator.submit.submission import Submission

PULL_SECRET_KEYS: Final = (".dockerconfigjson", ".dockercfg")
"""The keys of secrets of the types `kubernetes.io/dockerconfigjson` and `kubernetes.io/dockercfg`."""

_MAX_NAMES: Final = 8


class Missing(FieldProblem):
    """The cluster lacks something that the submission names."""


class _Secret(Wire, frozen=True):
    """The keys of a secret, without their values."""

    data: dict[str, msgspec.Raw] = {}


@dataclass(frozen=True, slots=True)
class Preflight:
    """A warning for each check that was not possible, and the requirements of the namespace on pods, mounts and
    Ingresses.
    """

    warnings: list[str]
    is_restricted: bool
    limits_gpu_memory: bool
    ingress: IngressSettings


async def preflight(transport: Transport, submission: Submission, scope: Scope) -> Preflight:
    """Check that the cluster has the objects that the submission names, and that its project allows the request.

    Raises Missing and NotAllowed, with one line that names the field.
    """
    checks = _Checks(transport, submission, scope)
    pending_checks = {
        "volume claims": checks.claims(),
        "secrets": checks.secrets(),
        "storage classes": checks.storage_classes(),
        "snapshot classes": checks.snapshots(),
        "node types": checks.node_type(),
        "the project's node types": checks.project_node_types(),
        "the project's pod security": checks.pod_security(),
    }
    results = await asyncio.gather(*pending_checks.values(), return_exceptions=True)
    warnings: list[str] = []
    for subject, result in zip(pending_checks, results, strict=True):
        if isinstance(result, Forbidden):
            warnings.append(f"{subject} could not be checked, because you may not read them")
        elif isinstance(result, BaseException):
            raise result
    pod_milli = submission.gpu_milli * (submission.gpu_devices or 1)
    warnings += await unfitting(transport, scope, pod_milli, submission.min_member or 1)
    namespace = results[-1] if isinstance(results[-1], Namespace) else Namespace()
    return Preflight(
        warnings,
        protection.is_restricted(namespace.metadata),
        protection.limits_gpu_memory(namespace.metadata),
        protection.ingress_settings(namespace.metadata),
    )


async def ingress_of(transport: Transport, submission: Submission, scope: Scope) -> IngressSettings:
    """Return the class and host for the submission's Ingress; the defaults if the user may not read the namespace."""
    if submission.service_type != "ingress":
        return DEFAULT_INGRESS
    try:
        namespace = await transport.get(NAMESPACES.path(None, scope.namespace), Namespace)
    except (Forbidden, NotFound):
        return DEFAULT_INGRESS
    return protection.ingress_settings(namespace.metadata)


class _Checks:
    def __init__(self, transport: Transport, submission: Submission, scope: Scope) -> None:
        self._transport = transport
        self._submission = submission
        self._scope = scope

    async def claims(self) -> None:
        project, namespace = self._scope.project, self._scope.namespace
        for mount in self._submission.claims:
            claim = await self._find(CLAIMS, Object, mount.source, namespace)
            if claim is None:
                raise Missing(
                    "{claims} {name}: project {project} has no volume claim of that name; {known}",
                    name=mount.source,
                    project=project,
                    known=await self._known(CLAIMS, namespace),
                )
            if claim.metadata.deletion_timestamp is not None:
                raise Missing("{claims} {name}: this volume claim is being deleted", name=mount.source)

    async def secrets(self) -> None:
        git = self._submission.git
        for variable in self._submission.environment:
            if variable.secret:
                await self._secret(
                    "{environment} {variable}", variable.secret, variable.secret_key, variable.name
                )
        if git is not None and git.secret:
            await self._secret("{git}", git.secret, "password")
        for name in self._submission.image_pull_secrets:
            await self._pull_secret(name)

    async def _pull_secret(self, name: str) -> None:
        secret = await self._find(SECRETS, _Secret, name, self._scope.namespace)
        if secret is None:
            raise Missing(
                "{image_pull_secrets}: project {project} has no secret {secret!r}; create it with 'kubectl -n "
                "{namespace} create secret docker-registry {secret} --docker-server=... --docker-username=... "
                "--docker-password=...'",
                project=self._scope.project,
                secret=name,
                namespace=self._scope.namespace,
            )
        if secret.data.keys().isdisjoint(PULL_SECRET_KEYS):
            raise Missing(
                "{image_pull_secrets}: secret {secret!r} has no credentials of a registry; it needs the key {keys}",
                secret=name,
                keys=" or ".join(PULL_SECRET_KEYS),
            )

    async def _secret(self, field: str, name: str, key: str, variable: str = "") -> None:
        project, namespace = self._scope.project, self._scope.namespace
        secret = await self._find(SECRETS, _Secret, name, namespace)
        if secret is None:
            raise Missing(
                field + ": project {project} has no secret {secret!r}; create it with "
                "'kubectl -n {namespace} create secret generic {secret} --from-literal={key}=...'",
                project=project,
                secret=name,
                namespace=namespace,
                key=key,
                variable=variable,
            )
        if key not in secret.data:
            known = ", ".join(sorted(secret.data)) or "no keys"
            raise Missing(
                field + ": secret {secret!r} has no key {key!r}; it has: {known}",
                secret=name,
                key=key,
                known=known,
                variable=variable,
            )

    async def storage_classes(self) -> None:
        for claim in self._submission.new_claims:
            name = claim.storage_class
            if name and await self._find(STORAGE_CLASSES, Object, name) is None:
                raise Missing(
                    "{new_claims}: there is no storage class {name!r}; {known}",
                    name=name,
                    known=await self._known(STORAGE_CLASSES),
                )

    async def snapshots(self) -> None:
        if not self._submission.snapshot_on_success:
            return
        fix = "an administrator installs external-snapshotter and a VolumeSnapshotClass of the storage driver"
        try:
            await self._transport.list(
                VOLUME_SNAPSHOTS.path(self._scope.namespace), Object, metadata_only=True
            )
            page = await self._transport.list(VOLUME_SNAPSHOT_CLASSES.path(), Object, metadata_only=True)
        except NotFound as error:
            raise Missing(
                "{snapshot_on_success}: this cluster has no VolumeSnapshots: {fix}", fix=fix
            ) from error
        if not page.items:
            raise Missing("{snapshot_on_success}: this cluster has no VolumeSnapshotClass: {fix}", fix=fix)

    async def project_node_types(self) -> None:
        node_type = self._submission.node_type
        if node_type is None:
            return
        project = await self._find(PROJECTS, Project, self._scope.project)
        if project is None:
            return
        affinity = project.spec.node_affinity
        allowed = affinity.interactive if self._submission.type == INTERACTIVE else affinity.train
        if allowed and node_type not in allowed:
            raise Missing(
                "{node_type} {value}: {kind} jobs of project {project} may only use nodes of type {allowed}",
                value=node_type,
                kind=self._submission.type,
                project=self._scope.project,
                allowed=", ".join(allowed),
            )

    async def pod_security(self) -> Namespace | None:
        """Return the namespace, None if it cannot be read.

        Raises NotAllowed if its policies refuse the submission's pods.
        """
        try:
            namespace: Namespace | None = await self._find(NAMESPACES, Namespace, self._scope.namespace)
        except Forbidden:  # the API server then reports violations
            return None
        if namespace is None:
            return None
        problem = protection.objection(self._submission, namespace.metadata, self._scope.project)
        if problem is not None:
            raise problem
        return namespace

    async def node_type(self) -> None:
        node_type = self._submission.node_type
        if node_type is None:
            return
        page = await self._transport.list(NODES.path(), Node, params={"labelSelector": NODE_TYPE_LABEL})
        known = sorted({node.metadata.labels.get(NODE_TYPE_LABEL, "") for node in page.items})
        if node_type not in known:
            raise Missing(
                "{node_type} {value}: no node has the label {label}={value}; there are: {known}",
                value=node_type,
                label=NODE_TYPE_LABEL,
                known=", ".join(known) or "none",
            )

    async def _find(self, resource: Resource, kind: type[Any], name: str, namespace: str = "") -> Any | None:
        try:
            return await self._transport.get(resource.path(namespace or None, name), kind)
        except NotFound:
            return None

    async def _known(self, resource: Resource, namespace: str = "") -> str:
        page = await self._transport.list(resource.path(namespace or None), Object, metadata_only=True)
        known_names = sorted(known.metadata.name for known in page.items)
        more = ", ..." if len(known_names) > _MAX_NAMES else ""
        return f"there are: {', '.join(known_names[:_MAX_NAMES])}{more}" if known_names else "there are none"
