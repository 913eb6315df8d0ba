"""Watches the cluster and turns what changes into the judge's events.

It reads pods by itself, not with the orchestrator's own readers: an observer that shares the observed
program's mistakes sees nothing.
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable
from decimal import Decimal, InvalidOperation

import msgspec

from orchestrator import names
from orchestrator.cluster.objects import Namespace, Node, Pod
from orchestrator.cluster.quantity import parse_time
from orchestrator.cluster.reflector import Change, Reflector
from orchestrator.cluster.resources import NAMESPACES, NODES, PODS
from orchestrator.cluster.transport import Transport
from validation.errors import TargetError
from validation.judge.events import CommandRun, Event, Eviction, NodeSeen, PodSeen, ProjectSet
from validation.judge.state import State
from validation.report.log import Entry, Observed, RunLog

SYNC_SECONDS = 30.0
GPU_PRODUCT_LABEL = "nvidia.com/gpu.product"


class Recorder:
    """All events of a run in order, and the state that they lead to."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._started = clock()
        self._changed = asyncio.Event()
        self._projects: dict[str, str] = {}
        self._seen: dict[str, PodSeen] = {}
        self._pods: Reflector[Pod] | None = None
        self._failure: BaseException | None = None
        self._log: RunLog | None = None
        self.events: list[Event] = []
        self.state = State()
        self.nodes: dict[str, str] = {}
        """By name, the product of the GPUs of each node."""

    def now_ms(self) -> int:
        """Milliseconds since the run began."""
        return int((self._clock() - self._started) * 1000)

    @contextlib.asynccontextmanager
    async def watching(self, transport: Transport) -> AsyncIterator[None]:
        """Record while the body runs. Raises TargetError if the first lists do not come."""
        nodes = Reflector(transport, NODES, Node, on_change=self._node_changed)
        namespaces = Reflector(transport, NAMESPACES, Namespace, on_change=self._namespace_changed)
        self._pods = Reflector(transport, PODS, Pod, on_change=self._pod_changed)
        watched = (nodes, namespaces, self._pods)
        tasks = [asyncio.create_task(reflector.run()) for reflector in watched]
        for task in tasks:
            task.add_done_callback(self._ended)
        try:
            async with asyncio.timeout(SYNC_SECONDS):
                for reflector in watched:
                    await reflector.synced()
        except TimeoutError as error:
            await _cancel(tasks)
            raise TargetError(
                f"the cluster did not list its pods and nodes within {SYNC_SECONDS:g} s"
            ) from error
        try:
            yield
        finally:
            await _cancel(tasks)

    async def changed(self, timeout_ms: int) -> None:
        """Return at the next event, or after `timeout_ms`. Raises what ended the watch, if it ended."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._changed.wait(), timeout_ms / 1000)
        self._changed.clear()
        if self._failure is not None:
            raise TargetError(f"the cluster can no longer be watched: {self._failure}") from self._failure

    def command(self, action: str, project: str, workloads: tuple[str, ...]) -> None:
        """Record that a command is about to run."""
        self.record(CommandRun(t_ms=self.now_ms(), action=action, project=project, workloads=workloads))

    def project(self, name: str, quota_milli: int) -> None:
        """Record that a project with this quota is about to exist."""
        self.record(ProjectSet(t_ms=self.now_ms(), project=name, quota_milli=quota_milli))

    def has_namespace(self, project: str) -> bool:
        """Whether the project's namespace has been seen."""
        return project in self._projects.values()

    def pods_of(self, projects: set[str]) -> list[PodSeen]:
        """The pods of these projects that still exist."""
        return [pod for pod in self.state.pods.values() if pod.project in projects]

    @property
    def logs(self) -> bool:
        """Whether there is a log."""
        return self._log is not None

    def log_to(self, log: RunLog) -> None:
        """Write what happens from now on to the log."""
        self._log = log

    def append(self, entry: Entry) -> None:
        """Write the entry to the log, if there is one. Raises ReportError."""
        if self._log is not None:
            self._log.append(entry)

    def close_log(self) -> None:
        """Write nothing more."""
        if self._log is not None:
            self._log.close()
        self._log = None

    def record(self, event: Event, resource_version: str = "", server_time: str = "") -> None:
        """Take the event as the next one, with what the API server said of the object."""
        self.append(Observed(event, resource_version, server_time))
        self.events.append(event)
        self.state.apply(event)
        self._changed.set()

    def _ended(self, task: "asyncio.Task[None]") -> None:
        if not task.cancelled():
            self._failure = task.exception()
            self._changed.set()

    def _node_changed(self, change: Change[Node]) -> None:
        node = change.object
        name = node.metadata.name
        if change.type == "deleted":
            self.nodes.pop(name, None)
        else:
            self.nodes[name] = node.metadata.labels.get(GPU_PRODUCT_LABEL, "")
        gpus = 0 if change.type == "deleted" else int(node.status.allocatable.get(names.GPU_RESOURCE, 0))
        ready = any(
            condition.type == "Ready" and condition.status == "True" for condition in node.status.conditions
        )
        node_seen = NodeSeen(t_ms=self.now_ms(), node=name, gpus=gpus, ready=ready)
        last = next((e for e in reversed(self.events) if isinstance(e, NodeSeen) and e.node == name), None)
        if last is None or (last.gpus, last.ready) != (gpus, ready):
            self.record(node_seen)

    def _namespace_changed(self, change: Change[Namespace]) -> None:
        namespace = change.object.metadata
        project = namespace.labels.get(names.PROJECT_LABEL, "")
        if change.type == "deleted":
            self._projects.pop(namespace.name, None)
            self._changed.set()
        elif project and self._projects.get(namespace.name) != project:
            self._projects[namespace.name] = project
            self._changed.set()
            for pod in list(self._pods.objects.values()) if self._pods else ():
                if pod.metadata.namespace == namespace.name:
                    self._pod_changed(Change("added", pod))

    def _pod_changed(self, change: Change[Pod]) -> None:
        known = self._seen.get(change.object.metadata.uid)
        project = self._projects.get(change.object.metadata.namespace) or (known.project if known else "")
        if not project:
            return
        pod_event = pod_seen(change.object, change=change.type, project=project, t_ms=self.now_ms())
        if known is None or _without_time(known) != _without_time(pod_event):
            self._seen[pod_event.uid] = pod_event
            self.record(pod_event)


def pod_seen(pod: Pod, *, change: str, project: str, t_ms: int) -> PodSeen:
    """The judge's event for a pod as it is now."""
    labels, annotations = pod.metadata.labels, pod.metadata.annotations
    owner = pod.metadata.controller
    preemptible = annotations.get(names.PREEMPTIBLE_ANNOTATION)
    submitted = annotations.get(names.SUBMITTED_AT_ANNOTATION) or pod.metadata.creation_timestamp
    targeted = any(
        condition.type == "DisruptionTarget"
        and condition.status == "True"
        and condition.reason == names.EVICTION_REASON
        for condition in pod.status.conditions
    )
    because = annotations.get(names.EVICTION_REASON_ANNOTATION)
    return PodSeen(
        t_ms=t_ms,
        change=change,
        uid=pod.metadata.uid,
        namespace=pod.metadata.namespace,
        project=project,
        workload=labels.get(names.WORKLOAD_LABEL) or (owner.name if owner else pod.metadata.name),
        pod=pod.metadata.name,
        phase=pod.status.phase or "Pending",
        node=pod.spec.node_name,
        devices=_devices(annotations.get(names.GPU_DEVICES_ANNOTATION, "")),
        gpu_milli=_gpu_milli(pod),
        preemptible=labels.get(names.TYPE_LABEL) != names.INTERACTIVE
        if preemptible is None
        else preemptible == "true",
        priority=pod.spec.priority,
        submitted_us=_time_us(submitted),
        min_member=_positive(annotations.get(names.MIN_MEMBER_ANNOTATION, "1")),
        terminating=pod.metadata.deletion_timestamp is not None,
        eviction=Eviction(names.EVICTION_REASON, because) if targeted and because is not None else None,
    )


def _gpu_milli(pod: Pod) -> int:
    fraction = pod.metadata.annotations.get(names.GPU_FRACTION_ANNOTATION)
    if fraction is not None:
        try:
            return int(Decimal(fraction) * 1000)
        except InvalidOperation:
            return 0
    limits = (container.resources.limits for container in pod.spec.containers)
    return sum(int(limit.get(names.GPU_RESOURCE, 0)) for limit in limits) * 1000


def _devices(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(",") if part.strip().isdecimal())


def _positive(text: str) -> int:
    return max(1, int(text)) if text.isdecimal() else 1


def _time_us(text: str) -> int:
    try:
        return parse_time(text)
    except ValueError:
        return 0


def _without_time(pod: PodSeen) -> PodSeen:
    return msgspec.structs.replace(pod, t_ms=0, change="modified" if pod.change == "added" else pod.change)


async def _cancel(tasks: list["asyncio.Task[None]"]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
