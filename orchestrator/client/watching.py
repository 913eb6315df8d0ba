"""The jobs as they change: what a list shows, again each time that something about it is different."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final

from orchestrator import names
from orchestrator.cluster.objects import Ingress, Job, Namespace, Pod, Project, Service, StatefulSet
from orchestrator.cluster.reflector import Change, Reflector
from orchestrator.cluster.resources import (
    INGRESSES,
    JOBS,
    NAMESPACES,
    PODS,
    PROJECTS,
    SERVICES,
    STATEFUL_SETS,
)
from orchestrator.control.owner_watches import OwnerWatches
from orchestrator.workloads.namespaces import projects_by_namespace
from orchestrator.workloads.view import Listing, workload_views

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Callable

    from orchestrator.client.jobs import Scope
    from orchestrator.cluster.resources import Resource
    from orchestrator.cluster.transport import Transport
    from orchestrator.workloads.view import WorkloadView

    OnChange = Callable[[Change[Any]], None]

PAUSE_SECONDS: Final = 0.2
"""Changes come in bursts: one for each pod of a job, and one for each step of a pod."""


async def watch_jobs(transport: Transport, scope: Scope | None) -> AsyncGenerator[list[WorkloadView], None]:
    """Yield the jobs of a project, or with None of all, now and whenever they have changed.

    Close the generator (`contextlib.aclosing`) when it is left. Failures of the API server are waited out.
    """
    caches = _Caches(transport, scope)
    async with caches.running():
        while True:
            caches.changed.clear()
            yield workload_views(caches.listing())
            await caches.changed.wait()
            await asyncio.sleep(PAUSE_SECONDS)


class _Caches:
    """Caches of all that is shown of the jobs of a project, or with None of all. `changed` is set when one changes."""

    def __init__(self, transport: Transport, scope: Scope | None) -> None:
        where = scope.namespace if scope else None

        def cache(resource: Resource, kind: type[Any], on_change: OnChange, **params: str) -> Reflector[Any]:
            return Reflector(
                transport, resource, kind, namespace=where, params=params or None, on_change=on_change
            )

        self.changed = asyncio.Event()
        self._scope = scope
        self._jobs = cache(JOBS, Job, self._see_owner)
        self._stateful_sets = cache(STATEFUL_SETS, StatefulSet, self._see_owner)
        self._pods = cache(PODS, Pod, self._see_pod)
        self._services = cache(SERVICES, Service, self._see, labelSelector=names.WORKLOAD_LABEL)
        self._ingresses = cache(INGRESSES, Ingress, self._see, labelSelector=names.WORKLOAD_LABEL)
        self._owners = OwnerWatches(
            transport, {JOBS: self._jobs, STATEFUL_SETS: self._stateful_sets},
            tell=self._see, wake=self.changed.set, namespace=where,
        )  # fmt: skip
        self._namespaces = cache(NAMESPACES, Namespace, self._see, labelSelector=names.PROJECT_LABEL)
        self._projects = cache(PROJECTS, Project, self._see)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Keep the caches current; the body begins when all are there."""
        caches = [self._jobs, self._stateful_sets, self._pods, self._services, self._ingresses]
        if self._scope is None:
            caches += [self._namespaces, self._projects]
        tasks = [asyncio.ensure_future(cache.run()) for cache in caches]
        try:
            for cache in caches:
                await cache.synced()
            await self._owners.start(asyncio.ensure_future)
            yield
        finally:
            self._owners.stop()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def listing(self) -> Listing:
        """Return the objects as they are now."""
        namespaces, projects = self._namespaces.objects.values(), self._projects.objects.values()
        return Listing(
            {self._scope.namespace: self._scope.project}
            if self._scope
            else projects_by_namespace(namespaces, projects),
            list(self._jobs.objects.values()),
            list(self._stateful_sets.objects.values()),
            list(self._pods.objects.values()),
            list(self._services.objects.values()),
            list(self._ingresses.objects.values()),
            [owner for cache in self._owners.reflectors() for owner in cache.objects.values()],
        )

    def _see(self, _change: Change[Any]) -> None:
        self.changed.set()

    def _see_owner(self, change: Change[Any]) -> None:
        self._owners.see_owner(change)

    def _see_pod(self, change: Change[Pod]) -> None:
        self._see(change)
        self._owners.see_pod(change.object)
