"""The caches that the loops decide on: one reflector for each kind, and one event when any of them changes."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from orchestrator.cluster.objects import Job, Namespace, Node, Pod, Project, ReplicaSet, StatefulSet
from orchestrator.cluster.reflector import Change, Reflector
from orchestrator.cluster.resources import (
    JOBS,
    NAMESPACES,
    NODES,
    PODS,
    PROJECTS,
    REPLICA_SETS,
    STATEFUL_SETS,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from orchestrator.cluster.transport import Transport


class Observer:
    """Keeps the caches; `changed` is set whenever something changed that a decision may depend on."""

    def __init__(self, transport: "Transport") -> None:
        self.changed = asyncio.Event()
        self._listeners: list[Callable[[Change[Any]], None]] = []
        self.nodes = Reflector(transport, NODES, Node, on_change=self._node_changed)
        self.pods = Reflector(transport, PODS, Pod, on_change=self._notify)
        self.namespaces = Reflector(transport, NAMESPACES, Namespace, on_change=self._notify)
        self.projects = Reflector(transport, PROJECTS, Project, on_change=self._notify)
        self.jobs = Reflector(transport, JOBS, Job, on_change=self._ignore)
        self.stateful_sets = Reflector(transport, STATEFUL_SETS, StatefulSet, on_change=self._ignore)
        self.replica_sets = Reflector(transport, REPLICA_SETS, ReplicaSet, on_change=self._ignore)

    def listen(self, listener: Callable[[Change[Any]], None]) -> None:
        """Call `listener` with every change of a pod, namespace, project or node."""
        self._listeners.append(listener)

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
        yield from (self.nodes, self.pods, self.namespaces, self.projects)
        yield from (self.jobs, self.stateful_sets, self.replica_sets)

    def _notify(self, change: Change[Any]) -> None:
        self.changed.set()
        for listener in self._listeners:
            listener(change)

    def _node_changed(self, change: Change[Node]) -> None:
        if change.previous is None or change.type == "deleted" or _matters(change.previous, change.object):
            self._notify(change)

    def _ignore(self, change: Change[Any]) -> None:
        """Owners only lend their age to pods, whose own changes are seen."""


def _matters(before: Node, after: Node) -> bool:
    """Whether a decision could change: heartbeats touch nothing but times."""
    return (
        before.spec != after.spec
        or before.metadata.labels != after.metadata.labels
        or before.status.allocatable != after.status.allocatable
        or _ready(before) != _ready(after)
    )


def _ready(node: Node) -> bool:
    return any(each.type == "Ready" and each.status == "True" for each in node.status.conditions)
