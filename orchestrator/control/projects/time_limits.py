"""Stops interactive workloads that run longer than their project allows, after a warning.

No state is stored: the start of a workload is in its pod, and the stop is in an annotation of the workload. To stop a
workload, the operator scales a StatefulSet to zero and marks it, or gives a Job an expired deadline. Both are shown as
TimedOut, and stay until a user deletes or resumes them.
"""

import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from orchestrator.cluster.errors import ClusterError
from orchestrator.cluster.objects import Namespace, Pod, Project
from orchestrator.cluster.quantity import format_time, parse_time
from orchestrator.cluster.resources import JOBS, STATEFUL_SETS, Resource
from orchestrator.cluster.transport import MERGE_PATCH, Transport
from orchestrator.durations import parse_duration_seconds
from orchestrator.errors import UsageError
from orchestrator.names import (
    INTERACTIVE,
    SUSPENDED_REPLICAS_ANNOTATION,
    TIMED_OUT_ANNOTATION,
    TYPE_LABEL,
)
from orchestrator.observe.namespaces import projects_by_namespace
from orchestrator.planner.model import SECOND_US

logger = logging.getLogger(__name__)

MAX_WARNING_SECONDS: Final = 900
"""The warning is sent before the end of the limit: one tenth of the limit before, but at most this time."""
_OWNERS: Final[Mapping[str, Resource]] = {"StatefulSet": STATEFUL_SETS, "Job": JOBS}


@dataclass(frozen=True, slots=True)
class Limited:
    """A pod of an interactive workload in a project with a time limit. Times are microseconds since the epoch."""

    pod: Pod
    project: str
    limit: str
    warns_at_us: int
    ends_at_us: int

    @property
    def warning(self) -> str:
        """The message for the user."""
        return (
            f"it is stopped at {format_time(self.ends_at_us, places=0)}: interactive jobs of {self.project} may run "
            f"for {self.limit}"
        )


@dataclass(frozen=True, slots=True)
class Caches:
    """The watched objects by uid."""

    projects: Mapping[str, Project]
    namespaces: Mapping[str, Namespace]
    pods: Mapping[str, Pod]


class TimeLimits:
    """Warns and stops workloads while this replica leads. `now_us` returns the time; `warn` gets pod and message."""

    def __init__(
        self,
        transport: Transport,
        caches: Caches,
        *,
        now_us: Callable[[], int],
        warn: Callable[[Pod, str], None],
        is_leader: Callable[[], bool],
    ) -> None:
        self._transport = transport
        self._caches = caches
        self._now_us = now_us
        self._warn = warn
        self._is_leader = is_leader

    async def check(self) -> None:
        """Send the warnings that are due, and stop expired workloads."""
        caches, now_us = self._caches, self._now_us()
        for pod in limited(caches.projects.values(), caches.namespaces.values(), caches.pods.values()):
            if now_us >= pod.warns_at_us:
                self._warn(pod.pod, pod.warning)
            if now_us >= pod.ends_at_us and self._is_leader():
                await self._stop(pod, now_us)

    async def _stop(self, over_time: Limited, now_us: int) -> None:
        owner = over_time.pod.metadata.controller
        if owner is None:
            return
        resource = _OWNERS[owner.kind]
        annotations = {TIMED_OUT_ANNOTATION: format_time(now_us, places=0)}
        spec: dict[str, Any] = {"activeDeadlineSeconds": 1}
        if resource is STATEFUL_SETS:  # muster submit creates interactive StatefulSets with one pod
            annotations[SUSPENDED_REPLICAS_ANNOTATION] = "1"
            spec = {"replicas": 0}
        mark = {"uid": owner.uid, "annotations": annotations}
        path = resource.path(over_time.pod.metadata.namespace, owner.name)
        name = f"{over_time.pod.metadata.namespace}/{owner.name}"
        try:
            await self._transport.patch(path, {"metadata": mark, "spec": spec}, content_type=MERGE_PATCH)
        except ClusterError as error:
            logger.warning("%s is to be stopped for its time limit: %s", name, error)
        else:
            logger.info(
                "%s was stopped: it ran for the %s that %s allows", name, over_time.limit, over_time.project
            )


def limited(
    projects: Collection[Project], namespaces: Iterable[Namespace], pods: Iterable[Pod]
) -> Iterator[Limited]:
    """Yield the running pods of interactive StatefulSets and Jobs in projects with a time limit."""
    limits = {
        project.metadata.name: (project.spec.interactive_time_limit, seconds)
        for project in projects
        if (seconds := _seconds(project)) and project.spec.interactive_time_limit
    }
    if not limits:
        return
    owned = projects_by_namespace(namespaces, projects)
    project_of = {namespace: project for namespace, project in owned.items() if project in limits}
    for pod in pods:
        if pod.metadata.namespace in project_of and _is_running_interactive(pod):
            project = project_of[pod.metadata.namespace]
            limit, seconds = limits[project]
            started_us = _started_us(pod)
            if started_us is None:
                continue
            warning_seconds = min(MAX_WARNING_SECONDS, seconds // 10)
            ends_at_us = started_us + seconds * SECOND_US
            yield Limited(pod, project, limit, ends_at_us - warning_seconds * SECOND_US, ends_at_us)


def _started_us(pod: Pod) -> int | None:
    try:
        return parse_time(pod.status.start_time)
    except ValueError as error:
        logger.warning("pod %s/%s: %s", pod.metadata.namespace, pod.metadata.name, error)
        return None


def _seconds(project: Project) -> int:
    try:
        return parse_duration_seconds("interactiveTimeLimit", project.spec.interactive_time_limit) or 0
    except UsageError as error:
        logger.warning("project %s: %s", project.metadata.name, error)
        return 0


def _is_running_interactive(pod: Pod) -> bool:
    owner = pod.metadata.controller
    return (
        pod.metadata.labels.get(TYPE_LABEL) == INTERACTIVE
        and pod.metadata.deletion_timestamp is None
        and pod.status.phase == "Running"
        and bool(pod.status.start_time)
        and owner is not None
        and owner.kind in _OWNERS
    )
