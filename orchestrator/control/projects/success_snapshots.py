"""Takes snapshots of the volumes of succeeded Jobs that were submitted with `--snapshot-on-success`.

No state is stored: the names of the snapshots follow from the Job, so existing snapshots count as taken. When all
exist, their names are written on the Job. A failed Job gets no snapshots.
"""

import logging
from collections.abc import Callable, Mapping

from orchestrator.cluster.errors import AlreadyExists, ClusterError, NotFound
from orchestrator.cluster.objects import Job, Namespace, Object, Project
from orchestrator.cluster.resources import JOBS, VOLUME_SNAPSHOTS
from orchestrator.cluster.transport import MERGE_PATCH, Transport
from orchestrator.cluster.wire import has_condition
from orchestrator.names import SNAPSHOT_ON_SUCCESS_ANNOTATION, SNAPSHOTS_ANNOTATION
from orchestrator.observe.namespaces import projects_by_namespace
from orchestrator.submit.datasets import success_snapshots

logger = logging.getLogger(__name__)


class SuccessSnapshots:
    """Takes the snapshots while this replica leads. The mappings are live caches by uid."""

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
        self._versions: dict[str, str] = {}
        """By Job uid, the resource version that was checked without an error."""
        self._failures: dict[str, str] = {}
        """By Job uid, the last logged error, so that each error is logged once."""

    async def check(self) -> None:
        """Check the Jobs that have changed since the last call, and take the snapshots of those that succeeded."""
        pending = {
            uid: job.metadata
            for uid, job in self._jobs.items()
            if job.metadata.annotations.get(SNAPSHOT_ON_SUCCESS_ANNOTATION) == "true"
            and SNAPSHOTS_ANNOTATION not in job.metadata.annotations
            and job.metadata.deletion_timestamp is None
        }
        for remembered in (self._versions, self._failures):
            for uid in remembered.keys() - pending.keys():
                del remembered[uid]
        if not pending:
            return
        owned = projects_by_namespace(self._namespaces.values(), self._projects.values())
        for uid, metadata in pending.items():
            version = metadata.resource_version
            if metadata.namespace not in owned or self._versions.get(uid) == version or not self._is_leader():
                continue
            try:
                await self._keep(metadata.namespace, metadata.name, uid)
            except ClusterError as error:
                if self._failures.get(uid) != str(error):
                    self._failures[uid] = str(error)
                    logger.warning(
                        "%s/%s: no snapshots of its volumes yet: %s", metadata.namespace, metadata.name, error
                    )
            else:
                self._versions[uid] = version

    async def _keep(self, namespace: str, name: str, uid: str) -> None:
        try:
            job = await self._transport.get(JOBS.path(namespace, name), Job)
        except NotFound:
            return
        if job.metadata.uid != uid or not has_condition(job.status.conditions, "Complete"):
            return
        manifests = success_snapshots(job)
        for manifest in manifests:
            try:
                await self._transport.create(VOLUME_SNAPSHOTS.path(namespace), manifest)
            except AlreadyExists:
                logger.info("%s/%s is there already", namespace, manifest["metadata"]["name"])
        taken = ",".join(manifest["metadata"]["name"] for manifest in manifests)
        mark = {"uid": uid, "annotations": {SNAPSHOTS_ANNOTATION: taken}}
        await self._transport.patch(JOBS.path(namespace, name), {"metadata": mark}, content_type=MERGE_PATCH)
        logger.info("%s/%s has succeeded: snapshots %s", namespace, name, taken)
