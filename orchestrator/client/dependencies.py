"""Checks the jobs that a submission depends on, and fills in their uids."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

from orchestrator.client.preflight import Missing
from orchestrator.cluster.errors import NotFound
from orchestrator.cluster.objects import Job, Object
from orchestrator.cluster.resources import JOBS, STATEFUL_SETS
from orchestrator.submit.values import MIN_SEEN_TTL_SECONDS
from orchestrator.views.dependencies import end_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from orchestrator.client.jobs import Scope
    from orchestrator.cluster.transport import Transport
    from orchestrator.submit.dependencies import Dependency


async def unmet(
    transport: Transport, scope: Scope, dependencies: Iterable[Dependency]
) -> tuple[Dependency, ...]:
    """Return the dependencies with uids, without those that are met.

    Raises Missing for a job that does not exist, or can no longer reach the state.
    """
    found = await asyncio.gather(*(_checked(transport, scope, each) for each in dependencies))
    return tuple(filter(None, found))


async def _checked(transport: Transport, scope: Scope, dependency: Dependency) -> Dependency | None:
    try:
        job = await transport.get(JOBS.path(scope.namespace, dependency.job), Job)
    except NotFound as error:
        why = await _why_missing(transport, scope, dependency.job)
        raise Missing("{after} {job}: {why}", job=dependency.job, why=why) from error
    end, ttl = end_of(job), job.spec.ttl_seconds_after_finished
    if dependency.is_met_by(end):
        return None
    why = ""
    if end:
        why = f"the job has {end}, so it does not become {dependency.state}"
    elif job.metadata.deletion_timestamp is not None:
        why = "the job is being deleted"
    elif ttl is not None and ttl < MIN_SEEN_TTL_SECONDS:
        why = (
            f"the job is deleted {ttl} s after its end, which the operator may not see; "
            f"submit it with --ttl-after-finish {MIN_SEEN_TTL_SECONDS}s or more"
        )
    if why:
        raise Missing("{after} {job}: {why}", job=dependency.job, why=why)
    return replace(dependency, uid=job.metadata.uid)


async def _why_missing(transport: Transport, scope: Scope, name: str) -> str:
    try:
        await transport.get(STATEFUL_SETS.path(scope.namespace, name), Object)
    except NotFound:
        return f"project {scope.project} has no job of that name that muster submit made"
    return "the job is interactive, and does not end by itself"
