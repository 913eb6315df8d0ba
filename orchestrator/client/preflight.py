"""Whether the cluster has what a submission names, before anything is created.

Missing     a claim, a secret, a storage class or a node type is not there
"""

import asyncio
from typing import Any, Final

import msgspec

from orchestrator.client.jobs import Scope
from orchestrator.cluster.errors import Forbidden, NotFound
from orchestrator.cluster.objects import Node, Object, Project, Wire
from orchestrator.cluster.resources import CLAIMS, NODES, PROJECTS, SECRETS, STORAGE_CLASSES, Resource
from orchestrator.cluster.transport import Transport
from orchestrator.errors import MusterError
from orchestrator.names import INTERACTIVE, NODE_TYPE_LABEL
from orchestrator.workloads.submission import Submission

_MOST_NAMES: Final = 8


class Missing(MusterError):
    """The cluster lacks something that the submission names."""


class _Secret(Wire, frozen=True):
    """The keys of a secret; what it keeps is not looked at."""

    data: dict[str, msgspec.Raw] = {}


async def preflight(transport: Transport, asked: Submission, scope: Scope) -> list[str]:
    """Check that the cluster has what the submission names; return what could not be checked, a line each.

    Raises Missing, with one line that names the flag.
    """
    checks = _Checks(transport, asked, scope)
    wanted = {
        "volume claims": checks.claims(),
        "secrets": checks.secrets(),
        "storage classes": checks.storage_classes(),
        "node types": checks.node_type(),
        "the project's node types": checks.project_node_types(),
    }
    results = await asyncio.gather(*wanted.values(), return_exceptions=True)
    warnings = []
    for what, result in zip(wanted, results, strict=True):
        if isinstance(result, Forbidden):
            warnings.append(f"{what} could not be checked, because you may not read them")
        elif isinstance(result, BaseException):
            raise result
    return warnings


class _Checks:
    def __init__(self, transport: Transport, asked: Submission, scope: Scope) -> None:
        self._transport = transport
        self._asked = asked
        self._scope = scope

    async def claims(self) -> None:
        for each in self._asked.claims:
            claim = await self._find(CLAIMS, Object, each.source, self._scope.namespace)
            if claim is None:
                raise Missing(
                    f"--pvc {each.source}: project {self._scope.project} has no volume claim of that name; "
                    + await self._known(CLAIMS, self._scope.namespace)
                )
            if claim.metadata.deletion_timestamp is not None:
                raise Missing(f"--pvc {each.source}: this volume claim is being deleted")

    async def secrets(self) -> None:
        named = [
            (f"-e/--environment {each.name}", each.secret, each.secret_key)
            for each in self._asked.environment
            if each.secret
        ]
        if self._asked.git is not None and self._asked.git.secret:
            named.append(("--git-sync", self._asked.git.secret, "password"))
        for flag, name, key in named:
            secret = await self._find(SECRETS, _Secret, name, self._scope.namespace)
            if secret is None:
                raise Missing(
                    f"{flag}: project {self._scope.project} has no secret {name!r}; create it with "
                    f"'kubectl -n {self._scope.namespace} create secret generic {name} --from-literal={key}=...'"
                )
            if key not in secret.data:
                known = ", ".join(sorted(secret.data)) or "no keys"
                raise Missing(f"{flag}: secret {name!r} has no key {key!r}; it has: {known}")

    async def storage_classes(self) -> None:
        for each in self._asked.new_claims:
            if not each.storage_class:
                continue
            if await self._find(STORAGE_CLASSES, Object, each.storage_class) is None:
                raise Missing(
                    f"--pvc: there is no storage class {each.storage_class!r}; "
                    + await self._known(STORAGE_CLASSES)
                )

    async def project_node_types(self) -> None:
        wanted = self._asked.node_type
        if wanted is None:
            return
        project = await self._find(PROJECTS, Project, self._scope.project)
        if project is None:
            return
        affinity = project.spec.node_affinity
        allowed = affinity.interactive if self._asked.type == INTERACTIVE else affinity.train
        if allowed and wanted not in allowed:
            raise Missing(
                f"--node-type {wanted}: {self._asked.type} jobs of project {self._scope.project} may only use "
                f"nodes of type {', '.join(allowed)}"
            )

    async def node_type(self) -> None:
        wanted = self._asked.node_type
        if wanted is None:
            return
        page = await self._transport.list(NODES.path(), Node, params={"labelSelector": NODE_TYPE_LABEL})
        known = sorted({node.metadata.labels.get(NODE_TYPE_LABEL, "") for node in page.items})
        if wanted not in known:
            raise Missing(
                f"--node-type {wanted}: no node has the label {NODE_TYPE_LABEL}={wanted}; "
                f"there are: {', '.join(known) or 'none'}"
            )

    async def _find(self, resource: Resource, kind: type[Any], name: str, namespace: str = "") -> Any | None:
        try:
            return await self._transport.get(resource.path(namespace or None, name), kind)
        except NotFound:
            return None

    async def _known(self, resource: Resource, namespace: str = "") -> str:
        page = await self._transport.list(resource.path(namespace or None), Object, metadata_only=True)
        found = sorted(each.metadata.name for each in page.items)
        more = ", ..." if len(found) > _MOST_NAMES else ""
        return f"there are: {', '.join(found[:_MOST_NAMES])}{more}" if found else "there are none"
