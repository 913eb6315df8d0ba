"""Starts the jobs of projects whose dependencies are met (`muster submit --after`).

No state is stored, because the unmet dependencies are an annotation of the suspended Job. The operator removes each
dependency that is met. The request that removes the last one also starts the Job. A dependency that can no longer be
met stays, and `views.dependencies` names it.
"""

import logging
from collections.abc import Callable, Mapping
from typing import Any

from orchestrator.cluster.errors import ClusterError, NotFound
from orchestrator.cluster.objects import Job, Namespace, Object, Project
from orchestrator.cluster.resources import JOBS
from orchestrator.cluster.transport import MERGE_PATCH, Transport
from orchestrator.cluster.wire import Metadata
from orchestrator.names import AFTER_ANNOTATION
from orchestrator.observe.namespaces import projects_by_namespace
from orchestrator.submit.dependencies import Dependency, annotation_of, dependencies_of
from orchestrator.views.dependencies import end_of

logger = logging.getLogger(__name__)


class Dependencies:
    """Removes met dependencies while this replica leads; the mappings are live caches, by uid."""

    def __init__(
        self,
        transport: Transport,
        jobs: Mapping[str, Object],
        namespaces: Mapping[str, Namespace],
        projects: Mapping[str, Project],
        *,
        is_leader: Callable[[], bool],
    ) -> None:
        self._transport = transport
        self._jobs = jobs
        self._namespaces = namespaces
        self._projects = projects
        self._is_leader = is_leader
        self._ends: dict[str, tuple[str, str]] = {}
        """By uid of a job with dependents: the version that was read last, and the end of the job (`end_of`)."""
        self._failures: dict[str, str] = {}
        """The reason, by uid, why a job with dependencies could not be started, so that each reason is logged once."""

    async def check(self) -> None:
        """Remove the met dependencies of every job, and start the jobs that have no other dependencies."""
        waiting = {
            uid: job.metadata
            for uid, job in self._jobs.items()
            if AFTER_ANNOTATION in job.metadata.annotations and job.metadata.deletion_timestamp is None
        }
        for uid in self._failures.keys() - waiting.keys():
            del self._failures[uid]
        if not waiting:
            self._ends.clear()
            return
        owned = projects_by_namespace(self._namespaces.values(), self._projects.values())
        needed = set()
        for uid, metadata in waiting.items():
            if metadata.namespace not in owned or not self._is_leader():
                continue
            try:
                dependencies = dependencies_of(metadata)
                needed |= {dependency.uid for dependency in dependencies}
                await self._remove_met(metadata, dependencies)
            except (ValueError, ClusterError) as error:
                if self._failures.get(uid) != str(error):
                    self._failures[uid] = str(error)
                    logger.warning("%s/%s is not started yet: %s", metadata.namespace, metadata.name, error)
        for uid in self._ends.keys() - needed:
            del self._ends[uid]

    async def _remove_met(self, metadata: Metadata, dependencies: tuple[Dependency, ...]) -> None:
        left = [each for each in dependencies if not await self._is_met(each, metadata.namespace)]
        if len(left) == len(dependencies):
            return
        # With the version, the write fails instead of overwriting a suspension or another change by the user.
        annotations = {AFTER_ANNOTATION: annotation_of(left) if left else None}
        version = {"uid": metadata.uid, "resourceVersion": metadata.resource_version}
        body: dict[str, Any] = {"metadata": {**version, "annotations": annotations}}
        if not left:
            body["spec"] = {"suspend": False}
        path = JOBS.path(metadata.namespace, metadata.name)
        await self._transport.patch(path, body, content_type=MERGE_PATCH)
        if not left:
            logger.info("%s/%s is started: its dependencies are met", metadata.namespace, metadata.name)

    async def _is_met(self, dependency: Dependency, namespace: str) -> bool:
        """Return whether the other job has reached the state. The job is read again after each change until it has
        ended.
        """
        known = self._jobs.get(dependency.uid)
        if known is None or known.metadata.namespace != namespace:
            return False
        version, end = self._ends.get(dependency.uid, ("", ""))
        if not end and version != known.metadata.resource_version:
            try:
                job = await self._transport.get(JOBS.path(namespace, known.metadata.name), Job)
            except NotFound:
                return False
            if job.metadata.uid != dependency.uid:
                return False
            end = end_of(job)
            self._ends[dependency.uid] = known.metadata.resource_version, end
        return dependency.is_met_by(end)
