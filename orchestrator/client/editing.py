"""Requeues and edits workloads.

Kubernetes never lets the image and the PriorityClass in the template of a Job change. Resources can change only from
1.36 on, for a suspended Job. So an edit replaces the Job by another one of the same name:

    create a suspended copy, NAME-edit   the API server checks the change; from here on nothing is lost
    hand Services and Ingresses to it    they would be deleted with the Job
    delete the Job, create its successor
    hand them to the successor, and delete the copy

If a step fails, the copy stays, and the next edit of NAME continues from it. The template of a StatefulSet can change.

HalfEdited   a Job was deleted, and its successor could not be created; the copy is there
"""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import msgspec

from orchestrator import names
from orchestrator.client.fitting import unfitting
from orchestrator.client.jobs import NotPossible, missing_job
from orchestrator.cluster.errors import AlreadyExists, ClusterError, Conflict, NotFound
from orchestrator.cluster.integers import whole_number
from orchestrator.cluster.objects import Job, StatefulSet
from orchestrator.cluster.quantity import format_time
from orchestrator.cluster.resources import CLAIMS, INGRESSES, JOBS, PODS, SECRETS, SERVICES
from orchestrator.cluster.wire import has_condition
from orchestrator.errors import MusterError
from orchestrator.submit.changes import Change, changed_template
from orchestrator.submit.name_rules import is_object_name
from orchestrator.submit.successors import (
    COPY_SUFFIX,
    Replaced,
    replaced,
    secrets_of,
    successor,
    successor_of_copy,
    suspended_copy,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping, Sequence

    from orchestrator.client.jobs import Scope, WorkloadClient
    from orchestrator.cluster.connection import Params
    from orchestrator.cluster.transport import Transport

Manifest = dict[str, Any]

STOP_SECONDS: Final = 60.0
"""Maximum time until the controller of a workload has reacted to a suspension."""
_POLL_SECONDS: Final = 0.3
_DELETION_SECONDS: Final = 20.0
"""Maximum time until a deleted Job no longer has its name."""
_DRY: Final[Params] = {"dryRun": "All"}


class HalfEdited(MusterError):
    """A Job was deleted for an edit, and its successor could not be created. The copy has its description."""


class Editor:
    """The edits of workloads behind one API server. Every method raises MusterError."""

    def __init__(
        self, transport: Transport, workloads: WorkloadClient, report: Callable[[str], None] = lambda _: None
    ) -> None:
        self._transport = transport
        self._workloads = workloads
        self._report = report

    async def requeue(self, scope: Scope, name: str) -> None:
        """Stop a workload, and put it at the end of the queue. Raises NoSuchWorkload, NotPossible."""
        for owner in await self._workloads.changeable(scope, name, "requeued"):
            if names.AFTER_ANNOTATION in owner.metadata.annotations and _is_suspended(owner):
                raise NotPossible(f"{name} has not started, it waits for other jobs (--after)")
            if _is_suspended(owner):
                raise NotPossible(f"{name} is suspended: 'muster resume {name}' returns it to the queue")
            now = format_time(time.time_ns() // 1000)
            await self._restart(scope, owner, {names.QUEUED_SINCE_ANNOTATION: now})

    async def restart(self, scope: Scope, name: str) -> None:
        """Stop a workload, and return it to the queue with its age. Raises NoSuchWorkload, NotPossible."""
        for owner in await self._workloads.changeable(scope, name, "stopped"):
            if not _is_suspended(owner):
                await self._restart(scope, owner, {})

    async def edit(
        self, scope: Scope, name: str, change: Change, *, dry_run: bool = False
    ) -> list[Job | StatefulSet]:
        """Change a workload: its priority at any time, its image and GPUs while no container of it runs.

        Return its changed objects, with `dry_run` as the API server would store them.

        Raises NoSuchWorkload, NotPossible, InvalidField, HalfEdited.
        """
        if not is_object_name(name):
            raise missing_job(name, scope)
        await self._finish_earlier(scope, name, dry_run=dry_run)
        edited = []
        for owner in await self._workloads.changeable(scope, name, "edited"):
            if change.is_of_pods:
                _check_form(owner, change)
                await self._check(owner)
            await self._warn(scope, owner, change)
            if change.is_of_pods and isinstance(owner, Job):
                changed = await self._replace(scope, owner, change, dry_run=dry_run)
            else:
                changed = await self._change(scope, owner, change, dry_run=dry_run)
            edited.append(msgspec.convert(changed, type(owner)))
        return edited

    async def _finish_earlier(self, scope: Scope, name: str, *, dry_run: bool) -> None:
        """Finish an earlier edit that was interrupted after the deletion of its Job.

        If it was interrupted earlier, delete its copy.
        """
        copy = await self._get(JOBS.path(scope.namespace, f"{name}{COPY_SUFFIX}"))
        of = None if copy is None else replaced(copy)
        if copy is None or of is None or of.name != name:
            return
        if dry_run:
            raise NotPossible(f"an edit of {name} was interrupted: run it again without --dry-run")
        if not copy["spec"].get("suspend"):
            raise NotPossible(
                f"an edit of {name} was interrupted, and its copy {name}{COPY_SUFFIX} was resumed: 'muster suspend "
                f"{name}{COPY_SUFFIX}' lets the edit continue, 'muster delete {name}{COPY_SUFFIX}' gives it up"
            )
        present = await self._get(JOBS.path(scope.namespace, name))
        if present is not None and present["metadata"]["uid"] == of.uid and not _is_terminating(present):
            await self._delete_copy(scope, copy)
        else:
            await self._finish(scope, of, copy)

    async def _check(self, owner: Job | StatefulSet) -> None:
        """Raise NotPossible if a container of the workload runs, or if a replacement would repeat or delete work."""
        metadata = owner.metadata
        name = metadata.name
        page = await self._transport.list(PODS.path(metadata.namespace), dict)
        for pod in page.items:
            if pod["status"].get("phase") == "Running" and _is_owned(pod, metadata.uid):
                raise NotPossible(
                    f"{name} runs: only its priority can change; 'muster suspend {name}' stops it, then edit and "
                    f"'muster resume {name}'"
                )
        if isinstance(owner, StatefulSet):
            return
        if owner.status.succeeded or owner.status.failed:
            raise NotPossible(
                f"{name} has pods that ended ({owner.status.succeeded} succeeded, {owner.status.failed} failed), which "
                "would run again: delete it and submit the rest"
            )
        claims = await self._transport.list(CLAIMS.path(metadata.namespace), dict)
        for claim in claims.items:
            if _is_owned(claim, metadata.uid):
                raise NotPossible(
                    f"{name} has the volume {claim['metadata']['name']}, which would be deleted with the old Job: "
                    "delete the job and submit it again"
                )

    async def _warn(self, scope: Scope, owner: Job | StatefulSet, change: Change) -> None:
        """Report if the new number of GPUs exceeds every node or the limit of the project."""
        if change.gpu_milli is None:
            return
        annotations = owner.spec.template.metadata.annotations
        devices, members = (
            whole_number(annotations.get(key, "")) or 1
            for key in (names.GPU_FRACTION_DEVICES_ANNOTATION, names.MIN_MEMBER_ANNOTATION)
        )
        for line in await unfitting(self._transport, scope, change.gpu_milli * devices, members):
            self._report(f"Warning: {line}")

    # --- Priorities, StatefulSets and requeues --------------------------------------------------------

    async def _change(
        self, scope: Scope, owner: Job | StatefulSet, change: Change, *, dry_run: bool
    ) -> Manifest:
        """Change a priority, and the template of a StatefulSet: its controller then makes the pod anew."""
        path = owner.resource.path(owner.metadata.namespace, owner.metadata.name)
        body: Manifest = {"metadata": {}}
        if change.priority is not None:
            body["metadata"]["annotations"] = {names.PRIORITY_ANNOTATION: change.priority}
        if change.is_of_pods:
            present: Manifest = await self._transport.get(path, dict)
            body["metadata"]["resourceVersion"] = present["metadata"]["resourceVersion"]
            body["spec"] = {"template": changed_template(present["spec"]["template"], change)}
        changed: Manifest = await self._transport.patch(path, body, dict, params=_DRY if dry_run else {})
        # A StatefulSet does not roll out a change while its pod is pending. Scaled to 0 and back, it creates
        # a new pod.
        if change.is_of_pods and not (dry_run or _is_suspended(owner)):
            await self._restart(scope, owner, {})
        return changed

    async def _restart(self, scope: Scope, owner: Job | StatefulSet, annotations: Mapping[str, str]) -> None:
        """Suspend the workload, wait until its controller has reacted, and resume it."""
        name = owner.metadata.name
        await self._workloads.suspend(scope, name, annotations)
        try:
            async with asyncio.timeout(STOP_SECONDS):
                while True:
                    if await self._has_stopped(owner):
                        break
                    await asyncio.sleep(_POLL_SECONDS)
            await self._workloads.resume(scope, name)
        except TimeoutError as error:
            raise NotPossible(
                f"{name} is suspended now, and its controller has not confirmed it after {STOP_SECONDS:.0f} s: "
                f"'muster resume {name}' returns it to the queue"
            ) from error
        except BaseException:
            self._report(f"{name} may be suspended: 'muster resume {name}' returns it to the queue")
            raise

    async def _has_stopped(self, owner: Job | StatefulSet) -> bool:
        """Return whether the controller has seen the suspension.

        If the job were resumed earlier, its pods would keep running.
        """
        path = owner.resource.path(owner.metadata.namespace, owner.metadata.name)
        if isinstance(owner, Job):
            job = await self._transport.get(path, Job)
            return has_condition(job.status.conditions, "Suspended") is not None
        stateful_set = await self._transport.get(path, StatefulSet)
        return stateful_set.status.replicas == 0

    # --- Jobs -----------------------------------------------------------------------------------------

    async def _replace(self, scope: Scope, job: Job, change: Change, *, dry_run: bool) -> Manifest:
        present: Manifest = await self._transport.get(JOBS.path(scope.namespace, job.metadata.name), dict)
        if present["metadata"]["uid"] != job.metadata.uid:
            raise Conflict(f"{job.metadata.name} was replaced in the meantime: try again")
        if finalizers := present["metadata"].get("finalizers"):
            raise NotPossible(f"{job.metadata.name} has the finalizer {finalizers[0]} of another program")
        await self._check_secrets(scope, present)
        new_job = successor(present, change, format_time(time.time_ns() // 1000))
        copy = await self._create_copy(scope, present, new_job, dry_run=dry_run)
        of = Replaced(job.metadata.name, job.metadata.uid, bool(present["spec"].get("suspend")))
        if not dry_run:
            return await self._finish(scope, of, copy)
        # The uid of the present Job: its services and its dependencies are those of the successor.
        metadata = {key: present["metadata"][key] for key in ("uid", "creationTimestamp")}
        edited = successor_of_copy(copy, of)
        return edited | {"metadata": edited["metadata"] | metadata}

    async def _check_secrets(self, scope: Scope, job: Manifest) -> None:
        for secret in dict.fromkeys(secrets_of(job["spec"]["template"]["spec"])):
            existing = await self._get(SECRETS.path(scope.namespace, secret))
            if existing is not None and _is_owned(existing, job["metadata"]["uid"]):
                name = job["metadata"]["name"]
                raise NotPossible(
                    f"{name} has the secret {secret} (--git-sync, --code), which would be deleted with the old Job: "
                    "delete the job and submit it again"
                )

    async def _create_copy(
        self, scope: Scope, job: Manifest, new_job: Manifest, *, dry_run: bool
    ) -> Manifest:
        """Create the suspended copy of the successor. The API server checks the change with it."""
        name, copy = job["metadata"]["name"], suspended_copy(job, new_job)
        try:
            created: Manifest = await self._transport.create(
                JOBS.path(scope.namespace), copy, dict, params=_DRY if dry_run else {}
            )
        except AlreadyExists as error:
            raise NotPossible(
                f"{name} cannot be edited while there is a job {name}{COPY_SUFFIX}: delete that one"
            ) from error
        return created

    async def _delete_copy(self, scope: Scope, copy: Manifest) -> None:
        metadata = copy["metadata"]
        with suppress(NotFound, Conflict):  # another edit has deleted the copy, or created its own
            await self._transport.delete(JOBS.path(scope.namespace, metadata["name"]), uid=metadata["uid"])

    async def _finish(self, scope: Scope, of: Replaced, copy: Manifest) -> Manifest:
        """Replace the Job by its successor, which `copy` describes.

        Continue from the step at which an earlier edit ended.
        """
        name, old_uid, _ = of
        try:
            await self._add_owner(scope, name, old_uid, copy)
            present = await self._get(JOBS.path(scope.namespace, name))
            if present is not None and present["metadata"]["uid"] == old_uid:
                await self._check_copy(scope, copy)
                await self._transport.delete(JOBS.path(scope.namespace, name), uid=old_uid)
            new_job = await self._create(scope, successor_of_copy(copy, of), old_uid)
        except (MusterError, asyncio.CancelledError) as error:
            if await self._is_lost(scope, name):
                raise HalfEdited(
                    f"{name} was deleted, and its successor could not be created. The suspended job "
                    f"{name}{COPY_SUFFIX} has its description; run the command again to continue: {error}"
                ) from error
            raise
        await self._set_owner(scope, name, (old_uid, copy["metadata"]["uid"]), new_job)
        await self._rename_dependencies(scope, old_uid, new_job["metadata"]["uid"])
        await self._delete_copy(scope, copy)
        return new_job

    async def _check_copy(self, scope: Scope, copy: Manifest) -> None:
        """Raise Conflict if another edit has deleted the copy: without it, the Job must not be deleted."""
        present = await self._get(JOBS.path(scope.namespace, copy["metadata"]["name"]))
        if present is None or present["metadata"]["uid"] != copy["metadata"]["uid"]:
            raise Conflict("another edit of the job has begun in the meantime: see its result, and try again")

    async def _is_lost(self, scope: Scope, name: str) -> bool:
        try:
            present = await self._get(JOBS.path(scope.namespace, name))
            return present is None or _is_terminating(present)
        except ClusterError:
            return True

    async def _create(self, scope: Scope, new_job: Manifest, old_uid: str) -> Manifest:
        """Create the successor as soon as its predecessor no longer has the name."""
        path = JOBS.path(scope.namespace)
        deadline = time.monotonic() + _DELETION_SECONDS
        while True:
            try:
                created: Manifest = await self._transport.create(path, new_job, dict)
            except AlreadyExists as error:
                name = new_job["metadata"]["name"]
                present = await self._get(JOBS.path(scope.namespace, name))
                stamp = names.SUBMITTED_AT_ANNOTATION
                annotations = {} if present is None else present["metadata"].get("annotations", {})
                if (
                    present is not None
                    and annotations.get(stamp) == new_job["metadata"]["annotations"][stamp]
                ):
                    return present
                if present is not None and present["metadata"]["uid"] != old_uid:
                    raise NotPossible(
                        f"another command has created {name} during its edit; the suspended job {name}{COPY_SUFFIX} "
                        "has the edited description: delete one of the two"
                    ) from error
                if time.monotonic() > deadline:
                    raise
                await asyncio.sleep(_POLL_SECONDS)
            else:
                return created

    async def _add_owner(self, scope: Scope, name: str, old_uid: str, copy: Manifest) -> None:
        """Make the copy an owner of the Job's Services and Ingresses too: they are deleted after the last owner."""
        async for path, existing in self._exposing(scope, name):
            if _is_owned(existing, old_uid) and not _is_owned(existing, copy["metadata"]["uid"]):
                owners = [*existing["metadata"]["ownerReferences"], _reference(copy)]
                await self._transport.patch(path, {"metadata": {"ownerReferences": owners}})

    async def _set_owner(self, scope: Scope, name: str, before: Sequence[str], new_job: Manifest) -> None:
        """Make the successor the only owner of the Services and Ingresses of the Jobs `before`."""
        async for path, existing in self._exposing(scope, name):
            if any(_is_owned(existing, uid) for uid in before):
                await self._transport.patch(path, {"metadata": {"ownerReferences": [_reference(new_job)]}})

    async def _exposing(self, scope: Scope, name: str) -> AsyncIterator[tuple[str, Manifest]]:
        """Yield the Services and Ingresses of the job, each after its path."""
        for resource in (SERVICES, INGRESSES):
            page = await self._transport.list(
                resource.path(scope.namespace),
                dict,
                params={"labelSelector": f"{names.WORKLOAD_LABEL}={name}"},
            )
            for existing in page.items:
                yield resource.path(scope.namespace, existing["metadata"]["name"]), existing

    async def _rename_dependencies(self, scope: Scope, old_uid: str, new_uid: str) -> None:
        """Let the jobs that depend on the old Job depend on its successor."""
        page = await self._transport.list(JOBS.path(scope.namespace), Job)
        for job in page.items:
            after = job.metadata.annotations.get(names.AFTER_ANNOTATION, "")
            if old_uid in after:
                annotations = {names.AFTER_ANNOTATION: after.replace(old_uid, new_uid)}
                path = JOBS.path(scope.namespace, job.metadata.name)
                await self._transport.patch(path, {"metadata": {"annotations": annotations}})

    async def _get(self, path: str) -> Manifest | None:
        try:
            existing: Manifest = await self._transport.get(path, dict)
        except NotFound:
            return None
        return existing


def _check_form(owner: Job | StatefulSet, change: Change) -> None:
    """Raise NotPossible if the change would destroy, or only partly change, the form of the workload."""
    metadata, spec = owner.metadata, owner.spec.template.spec
    name = metadata.name
    if metadata.deletion_timestamp is not None:
        raise NotPossible(f"{name} is being deleted")
    for above in metadata.owner_references:
        raise NotPossible(f"{name} belongs to {above.kind} {above.name}: change that one with kubectl")
    if names.EDIT_OF_ANNOTATION in metadata.annotations:
        edited = name.removesuffix(COPY_SUFFIX)
        raise NotPossible(f"{name} is the copy of an interrupted edit: run 'muster edit' of {edited} again")
    if len(spec.containers) > 1:
        containers = ", ".join(container.name for container in spec.containers)
        raise NotPossible(f"{name} has the containers {containers}: only a job with one can be edited")
    if change.gpu_milli is not None and spec.resource_claims:
        raise NotPossible(f"{name} requests devices by ResourceClaims: delete it and submit it again")


def _is_terminating(job: Manifest) -> bool:
    return "deletionTimestamp" in job["metadata"]


def _reference(job: Manifest) -> Manifest:
    metadata = job["metadata"]
    return {
        "apiVersion": JOBS.api_version,
        "kind": JOBS.kind,
        "name": metadata["name"],
        "uid": metadata["uid"],
    }


def _is_suspended(owner: Job | StatefulSet) -> bool:
    return owner.spec.suspend if isinstance(owner, Job) else owner.spec.replicas == 0


def _is_owned(existing: Mapping[str, Any], uid: str) -> bool:
    return any(owner["uid"] == uid for owner in existing["metadata"].get("ownerReferences", []))
