"""The caches of the loops: one reflector for each kind, and one event that is set after a change of a cache.

Kinds of pod owners are watched after a pod refers to them, see `owner_watches`.
"""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec

from orchestrator.cluster.device_objects import DeviceClass, ResourceClaim, ResourceSlice
from orchestrator.cluster.gpu_nodes import GpuNode, given_gpus
from orchestrator.cluster.objects import (
    FINISHED,
    Namespace,
    NetworkPolicy,
    Node,
    Object,
    PersistentVolume,
    PersistentVolumeClaim,
    Pod,
    PodDisruptionBudget,
    Project,
    ResourceQuota,
    RoleBinding,
    StorageClass,
)
from orchestrator.cluster.reflector import Change, HasMetadata, Reflector
from orchestrator.cluster.resources import (
    CLAIMS,
    DEVICE_CLASSES,
    GPU_NODES,
    JOBS,
    NAMESPACES,
    NETWORK_POLICIES,
    NODES,
    PERSISTENT_VOLUMES,
    POD_DISRUPTION_BUDGETS,
    PODS,
    PROJECTS,
    REPLICA_SETS,
    RESOURCE_CLAIMS,
    RESOURCE_QUOTAS,
    RESOURCE_SLICES,
    ROLE_BINDINGS,
    STATEFUL_SETS,
    STORAGE_CLASSES,
)
from orchestrator.control.decide.object_guard import ObjectGuard
from orchestrator.control.decide.owner_watches import OwnerWatches
from orchestrator.names import (
    MEMBERS_BINDING,
    NETWORK_POLICY_NAMES,
    NOMINATED_DEVICES_ANNOTATION,
    OBJECTS_QUOTA,
    OPERATOR_BINDING,
    SUCCESSOR_NOMINATION_ANNOTATION,
)
from orchestrator.observe.health import host_fault, lost_gpus, marked_gpus
from orchestrator.observe.nominations import nomination_of
from orchestrator.observe.unreadable import SkippedObject

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from orchestrator.cluster.resources import Resource
    from orchestrator.cluster.transport import Transport

T = TypeVar("T", bound=HasMetadata)

_NOMINATION: Final = (NOMINATED_DEVICES_ANNOTATION, SUCCESSOR_NOMINATION_ANNOTATION)
SLICE: Final = 1000
"""Maximum number of objects that a follower gets before other tasks run."""


class Observer:
    """Keeps the caches. `changed` is set after every change that a decision can depend on."""

    def __init__(
        self,
        transport: "Transport",
        *,
        dra_version: str | None = None,
        with_gpu_nodes: bool = False,
        guard: ObjectGuard | None = None,
    ) -> None:
        """`dra_version` is the version of resource.k8s.io that the API server serves; None without such a version.

        If `with_gpu_nodes` is set, the reports of agents are cached. `guard` leaves out objects that cannot be handled.
        """
        self.guard = guard or ObjectGuard()
        self._transport = transport
        self.changed = asyncio.Event()
        self.gpu_nodes_changed = asyncio.Event()
        self._listeners: list[Callable[[Change[Any]], None]] = []
        self._followers: list[Callable[[Change[Any]], None]] = []
        self._is_binding: Callable[[str, str], bool] = lambda _uid, _node: False
        self._is_nominating: Callable[[Pod], bool] = lambda _pod: False
        self._is_granting: Callable[[Any], bool] = lambda _object: False
        self.nodes = self._cache(NODES, Node, self._node_changed)
        self.pods = self._cache(PODS, Pod, self._pod_changed)
        self.namespaces = self._cache(NAMESPACES, Namespace, self._namespace_changed)
        self.projects = self._cache(PROJECTS, Project, self._project_changed)
        self.budgets = self._cache(POD_DISRUPTION_BUDGETS, PodDisruptionBudget, self._budget_changed)
        self.claims, self.volumes, self.storage_classes = (
            self._cache(resource, kind, self._storage_changed)
            for resource, kind in (
                (CLAIMS, PersistentVolumeClaim),
                (PERSISTENT_VOLUMES, PersistentVolume),
                (STORAGE_CLASSES, StorageClass),
            )
        )
        self.dynamic = tuple(
            self._cache(replace(resource, version=dra_version), kind, self._dynamic_changed)
            for resource, kind in (
                (DEVICE_CLASSES, DeviceClass),
                (RESOURCE_SLICES, ResourceSlice),
                (RESOURCE_CLAIMS, ResourceClaim),
            )
            if dra_version is not None
        )
        self.gpu_nodes: dict[str, GpuNode] = {}
        self._agents = (self._cache(GPU_NODES, GpuNode, self._gpu_node_changed),) if with_gpu_nodes else ()
        self._protections = tuple(self._protections_of_projects())
        # decisions use only their age and owner; a change wakes the loop only if a pod waits for the owner
        self.jobs, self.stateful_sets, self.replica_sets = owners = tuple(
            self._cache(resource, Object, self._owner_changed, metadata_only=True)
            for resource in (JOBS, STATEFUL_SETS, REPLICA_SETS)
        )
        self._owners = OwnerWatches(
            transport,
            dict(zip((JOBS, STATEFUL_SETS, REPLICA_SETS), owners, strict=True)),
            tell=self._tell_followers,
            wake=self.changed.set,
            guard=self.guard,
        )

    def _cache(
        self, resource: "Resource", kind: type[T], on_change: Callable[[Change[T]], None], **options: Any
    ) -> Reflector[T]:
        """Return a cache that is protected by the `ObjectGuard`."""
        decode = msgspec.json.Decoder(kind).decode
        return Reflector(
            self._transport,
            resource,
            kind,
            decode=self.guard.decoder(resource.kind, decode),
            on_change=self.guard.guarded(resource.kind, on_change, self._followers),
            **options,
        )

    def _protections_of_projects(self) -> Iterator[Reflector[Any]]:
        """Yield a reflector for each object that the operator restores; no decision depends on them."""
        for resource, kind, name in (
            (ROLE_BINDINGS, RoleBinding, MEMBERS_BINDING),
            (ROLE_BINDINGS, RoleBinding, OPERATOR_BINDING),
            *((NETWORK_POLICIES, NetworkPolicy, name) for name in NETWORK_POLICY_NAMES),
            (RESOURCE_QUOTAS, ResourceQuota, OBJECTS_QUOTA),
        ):
            yield self._cache(
                resource,
                kind,
                self._protection_changed,
                params={"fieldSelector": f"metadata.name={name}"},
                metadata_only=kind is not ResourceQuota,
            )

    def listen(self, listener: Callable[[Change[Any]], None]) -> None:
        """Call `listener` with every change that a decision can depend on, except changes of pods' owners."""
        self._listeners.append(listener)

    async def follow(self, follower: Callable[[Change[Any]], None]) -> None:
        """Call `follower` with every later change of the caches, and once with each object that they have.

        Other tasks run between slices of objects. When this returns, `follower` has received all objects. In the
        meantime it can get an added object twice, or the deletion of an object that it does not know.
        """
        self._followers.append(follower)
        count = 0
        for state in self._owners.states():
            follower(Change("added", state))
        for reflector in list(self._caches()):
            tell = self.guard.guarded(reflector.kind, follower, [follower])
            for uid in list(reflector.objects):
                # The current state, or None if it was deleted in the meantime.
                current = reflector.objects.get(uid)
                if current is not None:
                    tell(Change("added", current))
                    count += 1
                    if count % SLICE == 0:
                        await asyncio.sleep(0)

    def expect(
        self,
        is_binding: Callable[[str, str], bool],
        is_nominating: Callable[[Pod], bool],
        is_granting: Callable[[Any], bool] = lambda _claim: False,
    ) -> None:
        """Set the functions that recognise this process's own writes, so that they cause no decision when the watch
        shows them.

        `is_binding` gets a pod's uid and a node, `is_nominating` a pod with a changed nomination, `is_granting` a
        ResourceClaim.
        """
        self._is_binding, self._is_nominating = is_binding, is_nominating
        self._is_granting = is_granting

    @asynccontextmanager
    async def running(self) -> "AsyncIterator[asyncio.TaskGroup]":
        """Run the reflectors while the block runs. The block begins when every reflector has listed its objects. If a
        reflector fails, the block is canceled.
        """
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(reflector.run()) for reflector in self._reflectors()]
            for reflector in self._reflectors():
                await reflector.synced()
            await self._owners.start(group.create_task)
            self.changed.set()
            yield group
            self._owners.stop()
            for task in tasks:
                task.cancel()

    def skipped(self) -> list[SkippedObject]:
        """Return the objects that cannot be read or handled. A cache keeps the earlier state of such an object, or
        does not have the object.
        """
        undecodable = [
            SkippedObject.of(
                cache.kind,
                metadata,
                why if self.guard.is_excluded(uid) else f"it is kept as it was before: {why}",
            )
            for cache in self._caches()
            for uid, (metadata, why) in cache.undecodable.items()
        ]
        return [*undecodable, *self.guard.skipped()]

    def uids(self) -> set[str]:
        """Return the uids of all objects, including those that could not be decoded."""
        return {uid for cache in self._caches() for uid in (*cache.objects, *cache.undecodable)}

    def device_resources(self) -> frozenset[str]:
        """Return the extended resource names of DeviceClasses. Pods without a ResourceClaim request devices by these
        names.
        """
        classes = self.dynamic[0].objects.values() if self.dynamic else ()
        names = (each.spec.extended_resource_name for each in classes if isinstance(each, DeviceClass))
        return frozenset(name for name in names if name)

    def _reflectors(self) -> Iterator[Reflector[Any]]:
        # namespaces come before pods, so that followers know the project of each pod
        yield from (self.claims, self.volumes, self.storage_classes)
        yield from self.dynamic
        yield from self._agents
        yield from (self.nodes, self.namespaces, self.projects, self.pods, self.budgets)
        yield from self._protections
        yield from (self.jobs, self.stateful_sets, self.replica_sets)

    def _caches(self) -> Iterator[Reflector[Any]]:
        """Yield all reflectors, including those of looked-up kinds of owners."""
        yield from self._reflectors()
        fixed = set(self._reflectors())
        yield from (reflector for reflector in self._owners.reflectors() if reflector not in fixed)

    def _tell_followers(self, change: Change[Any]) -> None:
        for follower in self._followers:
            follower(change)

    def _owner_changed(self, change: Change[Any]) -> None:
        self._owners.see_owner(change)

    def _notify(self, change: Change[Any]) -> None:
        self.changed.set()
        self._tell_listeners(change)

    def _namespace_changed(self, change: Change[Namespace]) -> None:
        self._tell_followers(change)
        self._notify(change)

    def _project_changed(self, change: Change[Project]) -> None:
        self._tell_followers(change)
        before = change.previous
        if change.type != "modified" or before is None or before.spec != change.object.spec:
            self._notify(change)

    def _protection_changed(self, change: Change[Any]) -> None:
        """Pass the change to the listeners only; no decision depends on it."""
        self._tell_listeners(change)

    def _tell_listeners(self, change: Change[Any]) -> None:
        for listener in self._listeners:
            listener(change)

    def _storage_changed(self, change: Change[Any]) -> None:
        self._tell_followers(change)
        self._notify(change)

    def _dynamic_changed(self, change: Change[Any]) -> None:
        self._tell_followers(change)
        if not (change.type == "modified" and self._is_granting(change.object)):
            self._notify(change)

    def _gpu_node_changed(self, change: Change[GpuNode]) -> None:
        """Store the report by node name. Only changes of the GPUs that pods hold wake a decision."""
        before, after = (
            {} if one is None else given_gpus(one)
            for one in (change.previous, None if change.type == "deleted" else change.object)
        )
        if before != after:
            self._tell_followers(change)
            self.changed.set()
        name = change.object.metadata.name
        if change.type == "deleted":
            self.gpu_nodes.pop(name, None)
        else:
            self.gpu_nodes[name] = change.object
        self.gpu_nodes_changed.set()

    def _budget_changed(self, change: Change[PodDisruptionBudget]) -> None:
        before = change.previous
        if before is None or change.type == "deleted" or before.status != change.object.status:
            self._notify(change)

    def _node_changed(self, change: Change[Node]) -> None:
        self._tell_followers(change)
        if change.previous is None or change.type == "deleted" or _matters(change.previous, change.object):
            self._notify(change)

    def _pod_changed(self, change: Change[Pod]) -> None:
        self._tell_followers(change)
        if change.type != "deleted":
            self._owners.see_pod(change.object)
        before, pod = change.previous, change.object
        if change.type != "modified" or before is None:
            is_news = True
        elif not before.spec.node_name and pod.spec.node_name and _same_but_node(before, pod):
            is_news = not self._is_binding(pod.metadata.uid, pod.spec.node_name)
        else:
            is_news = _pod_matters(before, pod) or (
                nomination_of(before) != nomination_of(pod) and not self._is_nominating(pod)
            )
        if is_news:
            self._notify(change)


def _pod_matters(before: Pod, after: Pod) -> bool:
    """Return whether the change can affect a decision. Most changes of a pod only concern its status."""
    return (
        before.spec.node_name != after.spec.node_name
        or before.spec.scheduling_gates != after.spec.scheduling_gates
        or before.metadata.generation != after.metadata.generation
        or before.status.resource_claim_statuses != after.status.resource_claim_statuses
        or before.metadata.labels != after.metadata.labels
        or _but_nomination(before) != _but_nomination(after)
        or before.metadata.deletion_timestamp != after.metadata.deletion_timestamp
        or (before.status.phase in FINISHED) != (after.status.phase in FINISHED)
    )


def _but_nomination(pod: Pod) -> dict[str, str]:
    annotations = pod.metadata.annotations
    if annotations.keys().isdisjoint(_NOMINATION):
        return annotations
    return {key: text for key, text in annotations.items() if key not in _NOMINATION}


def _same_but_node(before: Pod, after: Pod) -> bool:
    return before.metadata.deletion_timestamp == after.metadata.deletion_timestamp and (
        before.status.phase in FINISHED
    ) == (after.status.phase in FINISHED)


def _matters(before: Node, after: Node) -> bool:
    """Return whether the change can affect a decision. Heartbeats, which change only times, cannot."""
    return (
        before.spec != after.spec
        or before.metadata.labels != after.metadata.labels
        or marked_gpus(before) != marked_gpus(after)
        or lost_gpus(before) != lost_gpus(after)
        or host_fault(before) != host_fault(after)
        or before.status.allocatable != after.status.allocatable
        or before.status.capacity != after.status.capacity
        or _ready(before) != _ready(after)
    )


def _ready(node: Node) -> bool:
    return any(
        condition.type == "Ready" and condition.status == "True" for condition in node.status.conditions
    )
