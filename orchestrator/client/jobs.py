"""Creates, lists and deletes the workloads of a project, for the command line and other programs.

DuplicateName     the project has a workload of that name
NoSuchWorkload    the project has no workload of that name
HalfCreated       a later step failed, and the created objects could not be removed again
NotPossible       the kind or the state of the workload does not allow the operation
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field, replace
from itertools import count
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec

from orchestrator import names
from orchestrator.client.surroundings import nodes_of, surroundings
from orchestrator.cluster.errors import AlreadyExists, ClusterError, Forbidden, NotFound, Unreachable
from orchestrator.cluster.objects import Event, Ingress, Job, Object, Pod, Service, StatefulSet
from orchestrator.cluster.resources import (
    EVENTS,
    INGRESSES,
    JOBS,
    PODS,
    SERVICES,
    STATEFUL_SETS,
    Resource,
    resource_of,
)
from orchestrator.cluster.wire import has_condition
from orchestrator.errors import MusterError
from orchestrator.observe.owner_lists import list_owners
from orchestrator.submit.name_rules import is_object_name
from orchestrator.views.jobs import (
    Listing,
    WorkloadView,
    event_time_us,
    events_of,
    suspended_replicas,
    workload_views,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from orchestrator.cluster.connection import Params
    from orchestrator.cluster.transport import Transport
    from orchestrator.submit.manifest import Manifest
    from orchestrator.submit.network import IngressSettings
    from orchestrator.submit.submission import Submission

_Made = TypeVar("_Made", bound=Object)
_OWNERS: Final[Mapping[Resource, type[Job | StatefulSet]]] = {JOBS: Job, STATEFUL_SETS: StatefulSet}


class DuplicateName(MusterError):
    """The project has a workload of that name, running or ended."""


class NoSuchWorkload(MusterError):
    """The project has no workload of that name."""


class HalfCreated(MusterError):
    """A later step of a submission failed, and the workload could not be deleted again."""


class NotPossible(MusterError):
    """The kind or the state of the workload does not allow the operation."""


@dataclass(frozen=True, slots=True)
class Scope:
    """A project and its namespace."""

    project: str
    namespace: str


@dataclass(frozen=True, slots=True)
class Submitted(Scope):
    """The project of a submitted workload, and its created objects as the server returned them, the workload first."""

    objects: list[dict[str, Any]] = field(default_factory=list, repr=False)

    @property
    def name(self) -> str:
        """The name of the workload."""
        return str(self.objects[0]["metadata"]["name"])

    @property
    def view(self) -> WorkloadView:
        """The view of the new workload, without pods."""

        def of(kind: type[_Made]) -> list[_Made]:
            return [msgspec.convert(made, kind) for made in self.objects if made["kind"] == kind.__name__]

        projects = {self.namespace: self.project}
        created = Listing(
            projects, of(Job), of(StatefulSet), (), of(Service), of(Ingress), has_all_jobs=False
        )
        (view,) = workload_views(created)
        return view


class WorkloadClient:
    """The workloads of projects behind one API server. Every method raises MusterError."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def submit(
        self,
        submission: Submission,
        scope: Scope,
        submitted_at: str,
        *,
        dry_run: bool = False,
        is_restricted: bool = False,
        limits_gpu_memory: bool = False,
        ingress: IngressSettings,
    ) -> list[Manifest]:
        """Create the workload with its other objects, or nothing. Return the objects as the server has them.

        With `dry_run` the server only checks the objects. With `is_restricted` the pods meet the level Restricted of
        Pod Security. With `limits_gpu_memory` they mount the library for GPU fractions. `ingress` has the settings of
        an Ingress. Raises DuplicateName if the project has a Job or StatefulSet of that name, HalfCreated if undoing
        failed.
        """
        from orchestrator.submit import manifest

        placement = manifest.Placement(
            scope.project, scope.namespace, submitted_at, is_restricted, limits_gpu_memory, ingress
        )
        resource = manifest.workload_resource(submission)
        if await self._owners(scope.namespace, submission.name):
            raise _duplicate(submission.name)
        used_paths = await self._used_paths(submission, scope, ingress.host)
        params: Params = {"dryRun": "All"} if dry_run else {}
        workload = await self._create_workload(
            resource, manifest.workload_manifest(submission, placement), params
        )
        objects = [workload]
        owner = manifest.owner_reference(resource, submission.name, workload["metadata"]["uid"])
        async with AsyncExitStack() as undo:
            if not dry_run:
                undo.push_async_callback(self._undo, objects)
            for dependent, body in manifest.dependent_manifests(submission, placement, owner, used_paths):
                objects.append(await self._create_or_replace_stale(dependent, body, params))
            undo.pop_all()
        for made in objects:
            made["metadata"].pop("managedFields", None)  # half of the object's size, and useless to people
        return objects

    async def free_name(self, scope: Scope, prefix: str) -> str:
        """Return the name `<prefix>-<number>` with the smallest number that no workload of the project has."""
        pages = await asyncio.gather(
            *(
                self._transport.list(resource.path(scope.namespace), kind, metadata_only=True)
                for resource, kind in _OWNERS.items()
            )
        )
        used_names = {owner.metadata.name for page in pages for owner in page.items}
        return next(name for number in count() if (name := f"{prefix}-{number}") not in used_names)

    async def workloads(
        self, projects: Mapping[str, str], namespace: str | None = None
    ) -> list[WorkloadView]:
        """Return the workloads of one namespace, or of all. `projects` has the project of each namespace to show."""
        return workload_views(await self._listing(projects, namespace))

    async def _listing(self, projects: Mapping[str, str], namespace: str | None) -> Listing:
        jobs, stateful_sets, pods, services, ingresses = await asyncio.gather(
            self._transport.list(JOBS.path(namespace), Job),
            self._transport.list(STATEFUL_SETS.path(namespace), StatefulSet),
            self._transport.list(PODS.path(namespace), Pod),
            self._transport.list(SERVICES.path(namespace), Service, params=_OF_WORKLOADS),
            self._transport.list(INGRESSES.path(namespace), Ingress, params=_OF_WORKLOADS),
        )
        known = {owner.metadata.uid: owner for owner in (*jobs.items, *stateful_sets.items)}
        owners, _ = await list_owners(self._transport, pods.items, known, namespace)
        return Listing(
            projects,
            jobs.items,
            stateful_sets.items,
            pods.items,
            services.items,
            ingresses.items,
            list(owners.values()),
            await surroundings(self._transport, pods.items),
        )

    async def workload(self, scope: Scope, name: str) -> tuple[WorkloadView, list[Event]]:
        """Return one workload and the events about it and its pods, oldest first. Raises NoSuchWorkload."""
        if not is_object_name(name):
            raise missing_job(name, scope)
        listing, events = await asyncio.gather(
            self._listing({scope.namespace: scope.project}, scope.namespace),
            self._transport.list(EVENTS.path(scope.namespace), Event),
        )
        for view in workload_views(listing):
            if view.name == name:
                nodes = await nodes_of(self._transport, view.pods)
                happened = sorted(events.items, key=event_time_us)
                return replace(view, around=replace(view.around, events=happened, nodes=nodes)), events_of(
                    view, happened
                )
        raise missing_job(name, scope)

    async def edited(self, scope: Scope, owner: Job | StatefulSet, *, keeps_pods: bool) -> WorkloadView:
        """Return the workload as it would be if its Job or StatefulSet were like `owner`."""
        listing = await self._listing({scope.namespace: scope.project}, scope.namespace)
        uid = owner.metadata.uid
        pods = [
            pod
            for pod in listing.pods
            if keeps_pods or all(above.uid != uid for above in pod.metadata.owner_references)
        ]
        present = [one for one in (*listing.jobs, *listing.stateful_sets) if one.metadata.uid != uid]
        changed = replace(
            listing,
            jobs=[one for one in (*present, owner) if isinstance(one, Job)],
            stateful_sets=[one for one in (*present, owner) if isinstance(one, StatefulSet)],
            pods=pods,
        )
        return next(view for view in workload_views(changed) if view.uid == uid)

    async def delete(self, scope: Scope, name: str, *, dry_run: bool = False) -> None:
        """Delete the Job, StatefulSet or bare pod of that name; its other objects follow.

        With `dry_run` the server checks the request and deletes nothing. Raises NoSuchWorkload, and NotPossible for a
        workload of another controller.
        """
        if not is_object_name(name):
            raise missing_job(name, scope)
        objects: list[Object] = [*await self._owners(scope.namespace, name)]
        if not objects:
            pod = await self._find(PODS, Pod, scope.namespace, name)
            if pod is None:
                await self._refuse_others(scope, name, "deleted")
            if pod is None or pod.metadata.controller or pod.spec.scheduler_name != names.SCHEDULER_NAME:
                raise missing_job(name, scope)
            objects = [pod]
        await asyncio.gather(
            *(self._delete(obsolete.resource, obsolete, dry_run=dry_run) for obsolete in objects)
        )

    async def suspend(self, scope: Scope, name: str, annotations: Mapping[str, str] | None = None) -> None:
        """Stop a workload until it is resumed. A workload that is suspended already does not change.

        `annotations` are written in the same request.
        Raises NoSuchWorkload, and NotPossible for a Job that has ended or a pod without an owner.
        """
        for owner in await self.changeable(scope, name, "suspended"):
            if isinstance(owner, Job):
                if owner.spec.suspend and names.AFTER_ANNOTATION in owner.metadata.annotations:
                    raise NotPossible(
                        f"the job {name} has not started, it waits for other jobs (--after): delete it"
                    )
                # Remove dependencies, because the operator would resume a job whose dependencies are met.
                changed = {**(annotations or {}), names.AFTER_ANNOTATION: None}
                await self._change(owner, {"metadata": {"annotations": changed}, "spec": {"suspend": True}})
            elif owner.spec.replicas != 0:
                replicas = str(1 if owner.spec.replicas is None else owner.spec.replicas)
                changed = {**(annotations or {}), names.SUSPENDED_REPLICAS_ANNOTATION: replicas}
                await self._change(owner, {"metadata": {"annotations": changed}, "spec": {"replicas": 0}})

    async def resume(self, scope: Scope, name: str) -> None:
        """Resume a suspended workload: it is pending again. A workload that is not suspended does not change.

        A job that waits for other jobs loses its dependencies. Raises NoSuchWorkload, and NotPossible for a Job that
        has ended or a pod without an owner.
        """
        for owner in await self.changeable(scope, name, "resumed"):
            if isinstance(owner, Job):
                annotations = {names.AFTER_ANNOTATION: None}
                await self._change(
                    owner, {"metadata": {"annotations": annotations}, "spec": {"suspend": False}}
                )
            elif owner.spec.replicas == 0:
                annotations = dict.fromkeys((names.SUSPENDED_REPLICAS_ANNOTATION, names.TIMED_OUT_ANNOTATION))
                replicas = suspended_replicas(owner) or 1
                await self._change(
                    owner, {"metadata": {"annotations": annotations}, "spec": {"replicas": replicas}}
                )

    async def changeable(self, scope: Scope, name: str, done: str) -> list[Job | StatefulSet]:
        """Return the Jobs or StatefulSets of that name.

        Raises NoSuchWorkload, and NotPossible if none can be changed (`done` is the verb in the message).
        """
        if not is_object_name(name):
            raise missing_job(name, scope)
        owners = await self._owners(scope.namespace, name)
        if not owners:
            if await self._find(PODS, Pod, scope.namespace, name) is not None:
                raise NotPossible(f"{name} is a pod without an owner, which cannot be {done}: delete it")
            await self._refuse_others(scope, name, done)
            raise missing_job(name, scope)
        for owner in owners:
            conditions = owner.status.conditions
            if isinstance(owner, Job) and any(
                has_condition(conditions, end) for end in ("Complete", "Failed")
            ):
                raise NotPossible(f"the job {name} has ended and cannot be {done}: submit it again")
        return owners

    async def _refuse_others(self, scope: Scope, name: str, done: str) -> None:
        """Raise NotPossible if the workload of that name is of a kind that muster reads but does not write."""
        views = await self.workloads({scope.namespace: scope.project}, scope.namespace)
        for view in views:
            if view.name == name:
                raise NotPossible(
                    f"{name} is a {view.kind} that muster did not create: it can be {done} with kubectl, in "
                    f"namespace {scope.namespace}"
                )

    async def _change(self, owner: Job | StatefulSet, patch: dict[str, Any]) -> None:
        """Merge a patch into `owner`. Raises Conflict if the object has changed since it was read."""
        metadata = owner.metadata
        version = {"resourceVersion": metadata.resource_version} if metadata.resource_version else {}
        body = patch | {"metadata": {**patch.get("metadata", {}), **version}}
        await self._transport.patch(owner.resource.path(metadata.namespace, metadata.name), body)

    async def _owners(self, namespace: str, name: str) -> list[Job | StatefulSet]:
        owners = await asyncio.gather(
            *(self._find(resource, kind, namespace, name) for resource, kind in _OWNERS.items())
        )
        return [owner for owner in owners if owner is not None]

    async def _find(self, resource: Resource, kind: type[Any], namespace: str, name: str) -> Any | None:
        try:
            return await self._transport.get(resource.path(namespace, name), kind)
        except NotFound:
            return None

    async def _create_workload(self, resource: Resource, body: Manifest, params: Params) -> Manifest:
        metadata = body["metadata"]
        try:
            return await self._transport.create(resource.path(metadata["namespace"]), body, params=params)
        except AlreadyExists as error:
            raise _duplicate(metadata["name"]) from error
        except Unreachable:
            # The server may have created the workload nevertheless. The time of submission distinguishes it from a
            # workload of another client.
            existing = await self._find(resource, dict, metadata["namespace"], metadata["name"])
            stamp = names.SUBMITTED_AT_ANNOTATION
            ours = metadata["annotations"][stamp]
            if existing is None or existing["metadata"].get("annotations", {}).get(stamp) != ours:
                raise
            return dict(existing)

    async def _used_paths(self, submission: Submission, scope: Scope, host: str) -> set[str]:
        """Return the paths that other Ingresses use on the host. Without a host, return the paths of all hosts.

        Other projects have no Ingresses for the project's host. If the user cannot list Ingresses, return the short
        paths `/<name>` of the submission, so that it avoids them.
        """
        if submission.service_type != "ingress":
            return set()
        try:
            page = await self._transport.list(INGRESSES.path(scope.namespace if host else None), Ingress)
        except Forbidden:
            from orchestrator.submit.network import alias_path

            return {alias_path(submission, port) for port in submission.ports}
        return {
            path.path
            for ingress in page.items
            if (ingress.metadata.namespace, ingress.metadata.name) != (scope.namespace, submission.name)
            for rule in ingress.spec.rules
            if rule.http and (not host or rule.host in ("", host))
            for path in rule.http.paths
        }

    async def _create_or_replace_stale(self, resource: Resource, body: Manifest, params: Params) -> Manifest:
        """Create an object that belongs to a workload.

        An Ingress of an earlier workload of that name can still exist, because the garbage collector is slower than
        the next submission. Such an Ingress is deleted first.
        """
        metadata = body["metadata"]
        path = resource.path(metadata["namespace"])
        try:
            return await self._transport.create(path, body, params=params)
        except AlreadyExists:
            old = await self._find(resource, Object, metadata["namespace"], metadata["name"])
            if old is not None:
                label = names.WORKLOAD_LABEL
                ours = old.metadata.labels.get(label) == metadata["labels"][label]
                if not ours or not old.metadata.owner_references:
                    raise
                if params:  # a dry run deletes nothing
                    return body
                await self._delete(resource, old)
        try:
            return await self._transport.create(path, body)
        except AlreadyExists as error:
            raise DuplicateName(
                f"{resource.kind} {metadata['name']} of an earlier job of that name is still being deleted: "
                "try again in a moment, or choose another name"
            ) from error

    async def _delete(self, resource: Resource, obsolete: Object, *, dry_run: bool = False) -> None:
        metadata = obsolete.metadata
        path = resource.path(metadata.namespace, metadata.name)
        try:
            await self._transport.delete(path, uid=metadata.uid, dry_run=dry_run)
        except NotFound:
            return

    async def _undo(self, objects: list[Manifest]) -> None:
        """Delete the created objects, the workload last.

        If another object cannot be deleted, the garbage collector deletes it after the workload.
        """
        workload, *beside = objects
        for dependent in reversed(beside):
            with suppress(ClusterError):
                await self._delete_made(dependent)
        try:
            await self._delete_made(workload)
        except ClusterError as error:
            name = workload["metadata"]["name"]
            raise HalfCreated(
                f"{name} was created without its other objects, and could not be removed: use 'muster "
                f"delete {name}'"
            ) from error

    async def _delete_made(self, created: Manifest) -> None:
        resource = resource_of(created["apiVersion"], created["kind"])
        await self._delete(resource, msgspec.convert(created, Object))


_OF_WORKLOADS: Final = {"labelSelector": names.WORKLOAD_LABEL}


def _duplicate(name: str) -> DuplicateName:
    return DuplicateName(f"The job {name} already exists, please delete it first. use 'muster delete {name}'")


def missing_job(name: str, scope: Scope) -> NoSuchWorkload:
    """Return the error for a job that the project does not have."""
    return NoSuchWorkload(
        f"The job {name} does not exist in project {scope.project}. "
        "If the job exists in a different project, use -p <project name>."
    )
