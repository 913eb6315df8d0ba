"""Creates, lists and deletes the workloads of a project; the command line and other programs use it alike.

DuplicateName     the project has a workload of that name
NoSuchWorkload    it has none
HalfCreated       what was created could not be removed again after a later step failed
NotPossible       the workload is of a kind, or in a state, with which this cannot be done
"""

import asyncio
from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any, Final

from orchestrator import names
from orchestrator.cluster.errors import AlreadyExists, ClusterError, NotFound
from orchestrator.cluster.objects import Event, Ingress, Job, Object, Pod, Service, StatefulSet
from orchestrator.cluster.resources import (
    EVENTS,
    INGRESSES,
    JOBS,
    PODS,
    SERVICES,
    STATEFUL_SETS,
    Resource,
)
from orchestrator.cluster.transport import Transport
from orchestrator.errors import MusterError
from orchestrator.workloads import manifest
from orchestrator.workloads.manifest import Manifest, Placement
from orchestrator.workloads.status import has_condition
from orchestrator.workloads.submission import Submission, is_object_name
from orchestrator.workloads.view import Listing, WorkloadView, events_of, suspended_replicas, workload_views

_OWNERS: Final[Mapping[Resource, type[Job | StatefulSet]]] = {JOBS: Job, STATEFUL_SETS: StatefulSet}


class DuplicateName(MusterError):
    """The project has a workload of that name, running or ended."""


class NoSuchWorkload(MusterError):
    """The project has no workload of that name."""


class HalfCreated(MusterError):
    """A later step of a submission failed, and the workload could not be deleted again."""


class NotPossible(MusterError):
    """The workload is of a kind, or in a state, with which this cannot be done."""


@dataclass(frozen=True, slots=True)
class Scope:
    """A project and the namespace that its workloads live in."""

    project: str
    namespace: str


class WorkloadClient:
    """The workloads of projects behind one API server. Every method raises MusterError."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def submit(self, asked: Submission, scope: Scope, submitted_at: str) -> None:
        """Create the workload with its service and ingress: all of them, or nothing.

        Raises DuplicateName when the project has a Job or StatefulSet of that name, HalfCreated when
        undoing failed.
        """
        placement = Placement(scope.project, scope.namespace, submitted_at)
        resource = manifest.workload_resource(asked)
        duplicate = DuplicateName(
            f"The job {asked.name} already exists, please delete it first. use 'muster delete {asked.name}'"
        )
        if await self._owners(scope.namespace, asked.name):
            raise duplicate
        body = manifest.workload_manifest(asked, placement)
        try:
            made = await self._transport.create(resource.path(scope.namespace), body, _OWNERS[resource])
        except AlreadyExists as error:
            raise duplicate from error
        async with AsyncExitStack() as undo:
            undo.push_async_callback(self._undo, resource, made)
            await self._create_beside(asked, placement, resource, made.metadata.uid)
            undo.pop_all()

    async def workloads(
        self, projects: Mapping[str, str], namespace: str | None = None
    ) -> list[WorkloadView]:
        """Return the workloads of one namespace, or of all; `projects` maps the namespaces to show to projects."""
        jobs, stateful_sets, pods, services, ingresses = await asyncio.gather(
            self._transport.list(JOBS.path(namespace), Job),
            self._transport.list(STATEFUL_SETS.path(namespace), StatefulSet),
            self._transport.list(PODS.path(namespace), Pod),
            self._transport.list(SERVICES.path(namespace), Service, params=_OF_WORKLOADS),
            self._transport.list(INGRESSES.path(namespace), Ingress, params=_OF_WORKLOADS),
        )
        listing = Listing(
            projects, jobs.items, stateful_sets.items, pods.items, services.items, ingresses.items
        )
        return workload_views(listing)

    async def workload(self, scope: Scope, name: str) -> tuple[WorkloadView, list[Event]]:
        """Return one workload and the events about it and its pods, oldest first. Raises NoSuchWorkload."""
        if not is_object_name(name):
            raise _missing(name, scope)
        views, events = await asyncio.gather(
            self.workloads({scope.namespace: scope.project}, scope.namespace),
            self._transport.list(EVENTS.path(scope.namespace), Event),
        )
        for view in views:
            if view.name == name:
                return view, events_of(view, events.items)
        raise _missing(name, scope)

    async def delete(self, scope: Scope, name: str) -> None:
        """Delete the Job, StatefulSet or bare pod of that name; what belongs to it follows. Raises NoSuchWorkload."""
        if not is_object_name(name):
            raise _missing(name, scope)
        found: list[Object] = [*await self._owners(scope.namespace, name)]
        if not found:
            pod = await self._find(PODS, Pod, scope.namespace, name)
            if pod is None or pod.metadata.controller or pod.spec.scheduler_name != names.SCHEDULER_NAME:
                raise _missing(name, scope)
            found = [pod]
        await asyncio.gather(*(self._delete(each.resource, each) for each in found))

    async def suspend(self, scope: Scope, name: str) -> None:
        """Stop a workload until it is resumed; stopping one that is stopped changes nothing.

        Raises NoSuchWorkload, and NotPossible for one that has ended or is a pod without an owner.
        """
        for owner in await self._suspendable(scope, name, "suspended"):
            if isinstance(owner, Job):
                await self._change(owner, {"spec": {"suspend": True}})
            elif owner.spec.replicas != 0:
                replicas = str(1 if owner.spec.replicas is None else owner.spec.replicas)
                annotations = {names.SUSPENDED_REPLICAS_ANNOTATION: replicas}
                await self._change(owner, {"metadata": {"annotations": annotations}, "spec": {"replicas": 0}})

    async def resume(self, scope: Scope, name: str) -> None:
        """Let a suspended workload wait for its turn again; one that is not suspended is left as it is.

        Raises NoSuchWorkload, and NotPossible for one that has ended or is a pod without an owner.
        """
        for owner in await self._suspendable(scope, name, "resumed"):
            if isinstance(owner, Job):
                await self._change(owner, {"spec": {"suspend": False}})
            elif owner.spec.replicas == 0:
                annotations = {names.SUSPENDED_REPLICAS_ANNOTATION: None}
                replicas = suspended_replicas(owner) or 1
                await self._change(
                    owner, {"metadata": {"annotations": annotations}, "spec": {"replicas": replicas}}
                )

    async def _suspendable(self, scope: Scope, name: str, done: str) -> list[Job | StatefulSet]:
        if not is_object_name(name):
            raise _missing(name, scope)
        owners = await self._owners(scope.namespace, name)
        if not owners:
            if await self._find(PODS, Pod, scope.namespace, name) is not None:
                raise NotPossible(f"{name} is a pod without an owner, which cannot be {done}: delete it")
            raise _missing(name, scope)
        for owner in owners:
            conditions = owner.status.conditions
            if isinstance(owner, Job) and any(
                has_condition(conditions, end) for end in ("Complete", "Failed")
            ):
                raise NotPossible(f"the job {name} has ended and cannot be {done}: submit it again")
        return owners

    async def _change(self, owner: Job | StatefulSet, patch: dict[str, Any]) -> None:
        """Merge a patch into the object as it was read; Conflict if it has changed since."""
        metadata = owner.metadata
        version = {"resourceVersion": metadata.resource_version} if metadata.resource_version else {}
        body = patch | {"metadata": {**patch.get("metadata", {}), **version}}
        await self._transport.patch(owner.resource.path(metadata.namespace, metadata.name), body)

    async def _owners(self, namespace: str, name: str) -> list[Job | StatefulSet]:
        found = await asyncio.gather(
            *(self._find(resource, kind, namespace, name) for resource, kind in _OWNERS.items())
        )
        return [each for each in found if each is not None]

    async def _find(self, resource: Resource, kind: type[Any], namespace: str, name: str) -> Any | None:
        try:
            return await self._transport.get(resource.path(namespace, name), kind)
        except NotFound:
            return None

    async def _create_beside(
        self, asked: Submission, placement: Placement, resource: Resource, uid: str
    ) -> None:
        owner = manifest.owner_reference(resource, asked.name, uid)
        service = manifest.service_manifest(asked, placement, owner)
        ingress = manifest.ingress_manifest(asked, placement, owner)
        if service is not None:
            await self._create_or_replace_stale(SERVICES, Service, service)
        if ingress is not None:
            await self._create_or_replace_stale(INGRESSES, Ingress, ingress)

    async def _create_or_replace_stale(
        self, resource: Resource, kind: type[Service | Ingress], body: Manifest
    ) -> None:
        """Create an object that belongs to a workload.

        One of an earlier workload of that name may still be there, because the garbage collector comes
        later than the next submission; it is deleted first.
        """
        metadata = body["metadata"]
        path = resource.path(metadata["namespace"])
        try:
            await self._transport.create(path, body)
        except AlreadyExists:
            old = await self._find(resource, kind, metadata["namespace"], metadata["name"])
            if old is not None:
                ours = old.metadata.labels.get(names.WORKLOAD_LABEL) == metadata["name"]
                if not ours or not old.metadata.owner_references:
                    raise
                await self._delete(resource, old)
            await self._transport.create(path, body)

    async def _delete(self, resource: Resource, found: Object) -> None:
        metadata = found.metadata
        try:
            await self._transport.delete(resource.path(metadata.namespace, metadata.name), uid=metadata.uid)
        except NotFound:
            return

    async def _undo(self, resource: Resource, made: Object) -> None:
        try:
            await self._delete(resource, made)
        except ClusterError as error:
            name = made.metadata.name
            raise HalfCreated(
                f"{name} was created without its service and could not be removed: use 'muster delete {name}'"
            ) from error


_OF_WORKLOADS: Final = {"labelSelector": names.WORKLOAD_LABEL}


def _missing(name: str, scope: Scope) -> NoSuchWorkload:
    return NoSuchWorkload(
        f"The job {name} does not exist in project {scope.project}. "
        "If the job exists in a different project, use -p <project name>."
    )
