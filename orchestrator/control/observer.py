"""The caches that the loops decide on: one reflector for each kind, and one event when any of them changes."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final

from orchestrator.cluster.objects import (
    FINISHED,
    Namespace,
    Node,
    Object,
    PersistentVolume,
    PersistentVolumeClaim,
    Pod,
    PodDisruptionBudget,
    Project,
    RoleBinding,
    StorageClass,
)
from orchestrator.cluster.reflector import Change, Reflector
from orchestrator.cluster.resources import (
    CLAIMS,
    JOBS,
    NAMESPACES,
    NODES,
    PERSISTENT_VOLUMES,
    POD_DISRUPTION_BUDGETS,
    PODS,
    PROJECTS,
    REPLICA_SETS,
    ROLE_BINDINGS,
    STATEFUL_SETS,
    STORAGE_CLASSES,
)
from orchestrator.names import MEMBERS_BINDING, UNHEALTHY_GPUS_ANNOTATION

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from orchestrator.cluster.transport import Transport

SLICE: Final = 1000
"""Of so many objects at most a follower is told before anything else may run."""


class Observer:
    """Keeps the caches; `changed` is set whenever something changed that a decision may depend on."""

    def __init__(self, transport: "Transport") -> None:
        self.changed = asyncio.Event()
        self._listeners: list[Callable[[Change[Any]], None]] = []
        self._followers: list[Callable[[Change[Any]], None]] = []
        self._is_expected: Callable[[str, str], bool] = _never
        self.nodes = Reflector(transport, NODES, Node, on_change=self._node_changed)
        self.pods = Reflector(transport, PODS, Pod, on_change=self._pod_changed)
        self.namespaces = Reflector(transport, NAMESPACES, Namespace, on_change=self._namespace_changed)
        self.projects = Reflector(transport, PROJECTS, Project, on_change=self._project_changed)
        self.budgets = Reflector(
            transport, POD_DISRUPTION_BUDGETS, PodDisruptionBudget, on_change=self._budget_changed
        )
        self.claims, self.volumes, self.storage_classes = (
            Reflector(transport, resource, kind, on_change=self._storage_changed)
            for resource, kind in (
                (CLAIMS, PersistentVolumeClaim),
                (PERSISTENT_VOLUMES, PersistentVolume),
                (STORAGE_CLASSES, StorageClass),
            )
        )
        self.members = Reflector(
            transport,
            ROLE_BINDINGS,
            RoleBinding,
            params={"fieldSelector": f"metadata.name={MEMBERS_BINDING}"},
            metadata_only=True,
            on_change=self._members_changed,
        )
        # of a pod's owner only the age counts, which wakes nobody: the changes of its pods do
        self.jobs, self.stateful_sets, self.replica_sets = (
            Reflector(transport, each, Object, metadata_only=True, on_change=self._tell_followers)
            for each in (JOBS, STATEFUL_SETS, REPLICA_SETS)
        )

    def listen(self, listener: Callable[[Change[Any]], None]) -> None:
        """Call `listener` with every change that a decision may depend on, but for those of pods' owners."""
        self._listeners.append(listener)

    async def follow(self, follower: Callable[[Change[Any]], None]) -> None:
        """Call `follower` with every change of the caches, whatever it means, and with all that they hold.

        What they hold is told in slices, between which everything else goes on: at the end `follower` knows all.
        Meanwhile it may be told twice that an object was added, or that one is gone of which it never knew.
        """
        self._followers.append(follower)
        told = 0
        for reflector in self._reflectors():
            for uid in list(reflector.objects):
                each = reflector.objects.get(uid)  # as it is by now: it may have changed since, or be gone
                if each is not None:
                    follower(Change("added", each))
                    told += 1
                    if told % SLICE == 0:
                        await asyncio.sleep(0)

    def expect(self, is_expected: Callable[[str, str], bool]) -> None:
        """Take what tells, for a pod's uid and a node, that this process bound it there: its echo is no news."""
        self._is_expected = is_expected

    @asynccontextmanager
    async def running(self) -> "AsyncIterator[asyncio.TaskGroup]":
        """Run the reflectors; enter when every cache holds its first list. A reflector that fails ends the block."""
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(each.run()) for each in self._reflectors()]
            for each in self._reflectors():
                await each.synced()
            self.changed.set()
            yield group
            for task in tasks:
                task.cancel()

    def _reflectors(self) -> Iterator[Reflector[Any]]:
        # namespaces before pods: whoever follows then knows at once whose each pod is
        yield from (self.claims, self.volumes, self.storage_classes)
        yield from (self.nodes, self.namespaces, self.projects, self.pods, self.budgets)
        yield self.members
        yield from (self.jobs, self.stateful_sets, self.replica_sets)

    def _tell_followers(self, change: Change[Any]) -> None:
        for follower in self._followers:
            follower(change)

    def _notify(self, change: Change[Any]) -> None:
        self.changed.set()
        for listener in self._listeners:
            listener(change)

    def _namespace_changed(self, change: Change[Namespace]) -> None:
        self._tell_followers(change)
        self._notify(change)

    def _project_changed(self, change: Change[Project]) -> None:
        self._tell_followers(change)
        before = change.previous
        if change.type != "modified" or before is None or before.spec != change.object.spec:
            self._notify(change)

    def _members_changed(self, change: Change[RoleBinding]) -> None:
        """No decision depends on it: whoever listens is told."""
        for listener in self._listeners:
            listener(change)

    def _storage_changed(self, change: Change[Any]) -> None:
        self._tell_followers(change)
        self._notify(change)

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
        before, pod = change.previous, change.object
        if change.type != "modified" or before is None or _pod_matters(before, pod):
            echo = before is not None and not before.spec.node_name and _same_but_node(before, pod)
            if not (echo and self._is_expected(pod.metadata.uid, pod.spec.node_name)):
                self._notify(change)


def _never(_uid: str, _node: str) -> bool:
    return False


def _pod_matters(before: Pod, after: Pod) -> bool:
    """Whether a decision could change: most of a pod's life is told in its status, of which only the end counts."""
    return (
        before.spec.node_name != after.spec.node_name
        or before.spec.scheduling_gates != after.spec.scheduling_gates
        or before.metadata.generation != after.metadata.generation
        or before.metadata.labels != after.metadata.labels
        or before.metadata.annotations != after.metadata.annotations
        or before.metadata.deletion_timestamp != after.metadata.deletion_timestamp
        or (before.status.phase in FINISHED) != (after.status.phase in FINISHED)
    )


def _same_but_node(before: Pod, after: Pod) -> bool:
    return before.metadata.deletion_timestamp == after.metadata.deletion_timestamp and (
        before.status.phase in FINISHED
    ) == (after.status.phase in FINISHED)


def _matters(before: Node, after: Node) -> bool:
    """Whether a decision could change: heartbeats touch nothing but times."""
    return (
        before.spec != after.spec
        or before.metadata.labels != after.metadata.labels
        or before.metadata.annotations.get(UNHEALTHY_GPUS_ANNOTATION)
        != after.metadata.annotations.get(UNHEALTHY_GPUS_ANNOTATION)
        or before.status.allocatable != after.status.allocatable
        or before.status.capacity != after.status.capacity
        or _ready(before) != _ready(after)
    )


def _ready(node: Node) -> bool:
    return any(each.type == "Ready" and each.status == "True" for each in node.status.conditions)
