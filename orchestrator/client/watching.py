"""The jobs as they change: what a list shows, again each time that something about it is different."""

from __future__ import annotations

import asyncio
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
    from collections.abc import AsyncGenerator

    from orchestrator.client.jobs import Scope
    from orchestrator.cluster.transport import Transport
    from orchestrator.workloads.view import WorkloadView

PAUSE_SECONDS: Final = 0.2
"""Changes come in bursts: one for each pod of a job, and one for each step of a pod."""
_OF_WORKLOADS: Final = {"labelSelector": names.WORKLOAD_LABEL}
_OF_PROJECTS: Final = {"labelSelector": names.PROJECT_LABEL}


async def watch_jobs(transport: Transport, scope: Scope | None) -> AsyncGenerator[list[WorkloadView], None]:
    """Yield the jobs of a project, or with None of all, now and whenever they have changed.

    Close the generator (`contextlib.aclosing`) when it is left. Failures of the API server are waited out.
    """
    changed = asyncio.Event()

    def notice(_change: Change[Any]) -> None:
        changed.set()

    where = scope.namespace if scope else None

    def notice_owner(change: Change[Any]) -> None:
        owners.see_owner(change)

    def notice_pod(change: Change[Pod]) -> None:
        notice(change)
        owners.see_pod(change.object)

    jobs = Reflector(transport, JOBS, Job, namespace=where, on_change=notice_owner)
    stateful_sets = Reflector(transport, STATEFUL_SETS, StatefulSet, namespace=where, on_change=notice_owner)
    pods = Reflector(transport, PODS, Pod, namespace=where, on_change=notice_pod)
    owners = OwnerWatches(
        transport, {JOBS: jobs, STATEFUL_SETS: stateful_sets}, tell=notice, wake=changed.set, namespace=where
    )
    services = Reflector(
        transport, SERVICES, Service, namespace=where, params=_OF_WORKLOADS, on_change=notice
    )
    ingresses = Reflector(
        transport, INGRESSES, Ingress, namespace=where, params=_OF_WORKLOADS, on_change=notice
    )
    namespaces = Reflector(transport, NAMESPACES, Namespace, params=_OF_PROJECTS, on_change=notice)
    projects = Reflector(transport, PROJECTS, Project, on_change=notice)
    caches: list[Reflector[Any]] = [jobs, stateful_sets, pods, services, ingresses]
    if scope is None:
        caches += [namespaces, projects]
    tasks = [asyncio.ensure_future(cache.run()) for cache in caches]
    try:
        for reflector in caches:
            await reflector.synced()
        await owners.start(asyncio.ensure_future)
        while True:
            changed.clear()
            yield workload_views(
                Listing(
                    {scope.namespace: scope.project}
                    if scope
                    else projects_by_namespace(namespaces.objects.values(), projects.objects.values()),
                    list(jobs.objects.values()),
                    list(stateful_sets.objects.values()),
                    list(pods.objects.values()),
                    list(services.objects.values()),
                    list(ingresses.objects.values()),
                    [owner for cache in owners.reflectors() for owner in cache.objects.values()],
                )
            )
            await changed.wait()
            await asyncio.sleep(PAUSE_SECONDS)
    finally:
        owners.stop()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
