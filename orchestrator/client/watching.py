"""Lists of jobs, nodes and projects that are computed again after each change."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, nullcontext
from dataclasses import replace
from operator import is_not
from typing import TYPE_CHECKING, Any, Final

from orchestrator import names
from orchestrator.client.published import published_in
from orchestrator.cluster.device_objects import ResourceSlice
from orchestrator.cluster.discovery import probe, served_version
from orchestrator.cluster.errors import Forbidden, NotFound
from orchestrator.cluster.gpu_nodes import GpuNode
from orchestrator.cluster.objects import (
    Ingress,
    Job,
    Namespace,
    Node,
    Pod,
    Project,
    Service,
    StatefulSet,
)
from orchestrator.cluster.reflector import Change, Reflector
from orchestrator.cluster.resources import (
    DRA_VERSIONS,
    GPU_NODES,
    INGRESSES,
    JOBS,
    NAMESPACES,
    NODES,
    PODS,
    PROJECTS,
    RESOURCE_SLICES,
    SERVICES,
    STATEFUL_SETS,
)
from orchestrator.control.decide.owner_watches import OwnerWatches
from orchestrator.observe.namespaces import projects_by_namespace
from orchestrator.views.gpus import gpu_views
from orchestrator.views.jobs import Listing, newest_first, workload_views
from orchestrator.views.nodes import node_views

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Mapping, Sequence

    from orchestrator.client.jobs import Scope
    from orchestrator.client.shared_objects import SharedObjects
    from orchestrator.cluster.errors import ClusterError
    from orchestrator.cluster.resources import Resource
    from orchestrator.cluster.transport import Transport
    from orchestrator.cluster.wire import Object
    from orchestrator.observe.published_gpus import PublishedGpus
    from orchestrator.views.gpus import GpuView
    from orchestrator.views.jobs import WorkloadView
    from orchestrator.views.nodes import NodeView

    OnChange = Callable[[Change[Any]], None]

PAUSE_SECONDS: Final = 0.2
"""Pause between a change and the next list.

Changes come in bursts: for each pod of a job, and for each step of a pod.
"""


async def watch_jobs(transport: Transport, scope: Scope | None) -> AsyncGenerator[list[WorkloadView], None]:
    """Yield the jobs of a project (None: of all projects), now and after each change.

    Close the generator (`contextlib.aclosing`) at the end. After a failure of the API server, requests are repeated.
    """
    caches = JobCaches(transport, scope)
    async with caches.running():
        while True:
            caches.changed.clear()
            yield caches.jobs()
            await caches.changed.wait()
            await asyncio.sleep(PAUSE_SECONDS)


class Caches:
    """Caches that are kept current together. `changed` is set when an object in a cache has changed.

    Several `Caches` can share one `changed`. The `Caches` of several people can share their objects (`shared`).
    """

    def __init__(
        self,
        transport: Transport,
        namespace: str | None = None,
        changed: asyncio.Event | None = None,
        shared: SharedObjects | None = None,
    ) -> None:
        self.changed = changed or asyncio.Event()
        self._shared = shared
        self._transport = transport
        self._namespace = namespace
        self._caches: list[Reflector[Any]] = []

    @property
    def problem(self) -> ClusterError | None:
        """Return why a cache is not current; None if all are current, as far as is known."""
        return next((cache.problem for cache in self._caches if cache.problem is not None), None)

    def objects(self) -> list[Mapping[str, Any]]:
        """Return the objects of each cache, by uid. The mappings change with the caches."""
        return [cache.objects for cache in self._caches]

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Keep the caches current until the end of the context; its body begins when all caches are synced."""
        with self._shared.used_by(self._caches) if self._shared is not None else nullcontext():
            tasks = [asyncio.ensure_future(cache.run()) for cache in self._caches]
            try:
                for cache in self._caches:
                    await cache.synced()
                yield
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)

    def _cache(
        self, resource: Resource, kind: type[Any], on_change: OnChange | None = None, **params: str
    ) -> Reflector[Any]:
        cache = Reflector(
            self._transport,
            resource,
            kind,
            namespace=self._namespace if resource.namespaced else None,
            params=params or None,
            decode=None if self._shared is None else self._shared.decoder(resource, kind),
            beginning=None if self._shared is None else self._shared.beginning,
            on_change=on_change or self._see,
        )
        self._caches.append(cache)
        return cache

    def _see(self, _change: Change[Any]) -> None:
        self.changed.set()


class JobCaches(Caches):
    """Caches of the objects that are shown with the jobs of a project (None: of all projects).

    `known` are the last jobs of each namespace and their inputs. This field can be set to `known` of other caches of
    the same scope.
    """

    def __init__(
        self,
        transport: Transport,
        scope: Scope | None,
        changed: asyncio.Event | None = None,
        shared: SharedObjects | None = None,
    ) -> None:
        super().__init__(transport, scope.namespace if scope else None, changed, shared)
        self._scope = scope
        self._jobs = self._cache(JOBS, Job, self._see_owner)
        self._stateful_sets = self._cache(STATEFUL_SETS, StatefulSet, self._see_owner)
        self._pods = self._cache(PODS, Pod, self._see_pod)
        self._services = self._cache(SERVICES, Service, labelSelector=names.WORKLOAD_LABEL)
        self._ingresses = self._cache(INGRESSES, Ingress, labelSelector=names.WORKLOAD_LABEL)
        self._owners = OwnerWatches(
            transport, {JOBS: self._jobs, STATEFUL_SETS: self._stateful_sets},
            tell=self._see, wake=self.changed.set, namespace=self._namespace,
        )  # fmt: skip
        self.known: Mapping[str, tuple[Listing, list[WorkloadView]]] = {}
        if scope is None:
            self._namespaces = self._cache(NAMESPACES, Namespace, labelSelector=names.PROJECT_LABEL)
            self._projects = self._cache(PROJECTS, Project)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Keep the caches current until the end of the context; its body begins when all caches are synced."""
        async with super().running():
            try:
                await self._owners.start(asyncio.ensure_future)
                yield
            finally:
                self._owners.stop()

    def objects(self) -> list[Mapping[str, Any]]:
        """Return the objects of each cache, also of the kinds of owners, by uid.

        The mappings change with the caches.
        """
        ours = super().objects()
        return [*ours, *(cache.objects for cache in self._owners.reflectors() if cache not in self._caches)]

    def pods(self) -> list[Pod]:
        """Return the pods in the order of namespace and name, also pods without a job."""
        return sorted(self._pods.objects.values(), key=_place)

    def jobs(self) -> list[WorkloadView]:
        """Return the present jobs, as `list_jobs` does.

        If no object of a namespace has changed since the last call, its jobs are the same objects as then.
        """
        known = {}
        for namespace, listing in self._listings(self._namespaces_to_show()).items():
            before = self.known.get(namespace)
            is_same = before is not None and before[0] == listing
            known[namespace] = before if before and is_same else (listing, workload_views(listing))
        self.known = known
        return sorted((view for _, views in known.values() for view in views), key=newest_first)

    def projects(self) -> list[Project]:
        """Return all projects by name. Only a `JobCaches` without a scope has them."""
        return sorted(self._projects.objects.values(), key=lambda project: project.metadata.name)

    def _namespaces_to_show(self) -> Mapping[str, str]:
        if self._scope:
            return {self._scope.namespace: self._scope.project}
        return projects_by_namespace(self._namespaces.objects.values(), self._projects.objects.values())

    def _listings(self, projects: Mapping[str, str]) -> dict[str, Listing]:
        """Return the objects of each of these namespaces, which `projects` maps to their projects."""
        jobs, stateful_sets, pods, services, ingresses = (
            _by_namespace([cache], projects)
            for cache in (self._jobs, self._stateful_sets, self._pods, self._services, self._ingresses)
        )
        owners = _by_namespace(self._owners.reflectors(), projects)
        return {
            namespace: Listing(
                {namespace: project},
                jobs[namespace],
                stateful_sets[namespace],
                pods[namespace],
                services[namespace],
                ingresses[namespace],
                owners[namespace],
            )
            for namespace, project in projects.items()
        }

    def _see_owner(self, change: Change[Any]) -> None:
        self._owners.see_owner(change)

    def _see_pod(self, change: Change[Pod]) -> None:
        self._see(change)
        self._owners.see_pod(change.object)


def _by_namespace(caches: Iterable[Reflector[Any]], namespaces: Iterable[str]) -> dict[str, list[Any]]:
    """Return the objects of these namespaces, by namespace, in the order of the objects' names."""
    listed: dict[str, list[Any]] = {namespace: [] for namespace in namespaces}
    if listed:
        for cache in caches:
            for cached in cache.objects.values():
                if (items := listed.get(cached.metadata.namespace)) is not None:
                    items.append(cached)
    for items in listed.values():
        items.sort(key=_place)
    return listed


def _place(item: Object) -> tuple[str, str]:
    """Return the sort key for the order in which the API server lists objects.

    A cache has them in the order of arrival.
    """
    return item.metadata.namespace, item.metadata.name


class ProjectCaches(Caches):
    """A cache of the projects alone, for users who may not see other objects in all namespaces."""

    def __init__(
        self,
        transport: Transport,
        changed: asyncio.Event | None = None,
        shared: SharedObjects | None = None,
    ) -> None:
        super().__init__(transport, changed=changed, shared=shared)
        self._projects = self._cache(PROJECTS, Project)

    def projects(self) -> list[Project]:
        """Return all projects by name."""
        return sorted(self._projects.objects.values(), key=lambda project: project.metadata.name)


class NodeCaches(Caches):
    """Caches of nodes without their pods: the nodes, and the reports of agents and drivers about GPUs.

    `kinds` are the kinds of reports that exist and are visible (`visible_node_kinds`). `known` are the last nodes and
    their inputs. This field can be set to `known` of other caches of the same kinds.
    """

    def __init__(
        self,
        transport: Transport,
        kinds: Sequence[Resource],
        changed: asyncio.Event | None = None,
        shared: SharedObjects | None = None,
    ) -> None:
        super().__init__(transport, changed=changed, shared=shared)
        by_plural = {kind.plural: kind for kind in kinds}
        self._nodes = self._cache(NODES, Node)
        self._gpu_nodes = self._cache(GPU_NODES, GpuNode) if GPU_NODES.plural in by_plural else None
        self.known: Mapping[str, tuple[tuple[Any, ...], PublishedGpus | None, NodeView]] = {}
        slices = by_plural.get(RESOURCE_SLICES.plural)
        self._slices = self._cache(slices, ResourceSlice) if slices else None

    def gpus(self, now_us: int) -> dict[str, tuple[GpuView, ...]]:
        """Return the GPUs by the names of their nodes, as `list_gpus` does."""
        nodes = self._gpu_nodes.objects.values() if self._gpu_nodes else ()
        return {node.metadata.name: gpu_views(node, now_us) for node in nodes}

    def nodes(self, pods: Iterable[Pod], gpus: Mapping[str, tuple[GpuView, ...]]) -> list[NodeView]:
        """Return the nodes with the pods on them, as `list_nodes` does.

        If neither a node nor a pod on it has changed, its view is reused with the present `gpus`.
        """
        published = published_in(self._slices.objects.values()) if self._slices else {}
        pods_by_node: dict[str, list[Pod]] = {}
        for pod in pods:
            if pod.spec.node_name:
                pods_by_node.setdefault(pod.spec.node_name, []).append(pod)
        views = {}
        for node in self._nodes.objects.values():
            name = node.metadata.name
            by_driver, made_of = published.get(name), (node, *pods_by_node.get(name, ()))
            known = self.known.get(name)
            if known is not None and known[1] == by_driver and _are_same(known[0], made_of):
                view = known[2]
            else:
                (view,) = node_views([node], made_of[1:], published=published)
            views[name] = (made_of, by_driver, view)
        self.known = views
        return [replace(views[name][2], gpus=gpus.get(name, ())) for name in sorted(views)]


def _are_same(before: tuple[Any, ...], after: tuple[Any, ...]) -> bool:
    """Return whether these are the same objects. A cache replaces a changed object by another object."""
    return len(before) == len(after) and not any(map(is_not, before, after))


async def visible_node_kinds(transport: Transport) -> list[Resource]:
    """Return the kinds of reports about GPUs that exist and that the user may see."""
    version = await served_version(transport, RESOURCE_SLICES.group, DRA_VERSIONS)
    kinds = [GPU_NODES, *([replace(RESOURCE_SLICES, version=version)] if version else [])]
    return [kind for kind in kinds if await _is_visible(transport, kind)]


async def _is_visible(transport: Transport, resource: Resource) -> bool:
    try:
        await probe(transport, resource)
    except (NotFound, Forbidden):
        return False
    return True
