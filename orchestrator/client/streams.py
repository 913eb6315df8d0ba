"""Streams to and from the containers of a workload: logs, commands, terminals, ports."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, aclosing, suppress
from dataclasses import dataclass

import msgspec

from orchestrator.client.jobs import Scope, WorkloadClient
from orchestrator.client.targets import (
    ENDED,
    NotRunning,
    Target,
    chosen_pod,
    entered_by,
    naming_node,
    target_of,
)
from orchestrator.cluster.errors import Gone, StreamBroken, Unreachable
from orchestrator.cluster.forwarding import RemotePort, remote_port
from orchestrator.cluster.objects import Pod
from orchestrator.cluster.remote_process import STDERR, STDOUT, RemoteProcess, remote_process
from orchestrator.cluster.resources import PODS
from orchestrator.cluster.timeouts import POD_WATCH_SECONDS
from orchestrator.cluster.transport import Transport
from orchestrator.views.containers import waits_because
from orchestrator.views.jobs import WorkloadView
from orchestrator.views.status import FINAL, PENDING, SUCCEEDED, pod_status

_POD = msgspec.json.Decoder(Pod)


@dataclass(frozen=True, slots=True)
class LogRequest:
    """The requested part of a log, with the names of the Kubernetes API."""

    follow: bool = False
    tail_lines: int | None = None
    since_seconds: int | None = None
    since_time: str | None = None
    timestamps: bool = False
    previous: bool = False

    def params(self, container: str) -> dict[str, str | int | bool]:
        """Return the query of the request."""
        params = {
            "container": container,
            "follow": self.follow or None,
            "tailLines": self.tail_lines,
            "sinceSeconds": self.since_seconds,
            "sinceTime": self.since_time,
            "timestamps": self.timestamps or None,
            "previous": self.previous or None,
        }
        return {key: value for key, value in params.items() if value is not None}


@dataclass(frozen=True, slots=True)
class Finished:
    """A command that ran in a container, and its output."""

    exit_code: int
    stdout: bytes
    stderr: bytes


class StreamClient:
    """The streams of workloads behind one API server. Every method raises MusterError."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self._workloads = WorkloadClient(transport)

    async def target(
        self,
        scope: Scope,
        name: str,
        pod_name: str | None = None,
        container: str | None = None,
        *,
        index: int | None = None,
    ) -> Target:
        """Return a container of a workload: `container` or the first container, of the pod `pod_name` or of the
        youngest pod.

        With `index` only the pods of that index count. Raises NoSuchWorkload, NoSuchPod, NoSuchContainer, NotRunning
        when there is no pod.
        """
        view, _ = await self._workloads.workload(scope, name)
        chosen = chosen_pod(view, view.pods, pod_name, index)
        if chosen is None:
            raise NotRunning(_not_running(view.name, *_state(view, index)))
        return target_of(chosen, container, len(view.pods))

    async def targets(self, scope: Scope, name: str, container: str | None = None) -> list[Target]:
        """Return the named or the first container of every pod of a workload, oldest pod first.

        Raises NoSuchWorkload, NoSuchContainer, NotRunning when there is no pod.
        """
        view, _ = await self._workloads.workload(scope, name)
        if not view.pods:
            raise NotRunning(_not_running(view.name, view.status, view.waits_because))
        return [target_of(pod, container) for pod in view.pods]

    async def running(
        self,
        scope: Scope,
        name: str,
        pod_name: str | None = None,
        container: str | None = None,
        *,
        patience_seconds: float,
        report: Callable[[str], None],
        or_ended: bool = False,
        index: int | None = None,
    ) -> Target:
        """Return a container as soon as it runs; `report` gets a line about each change of the wait.

        With `or_ended`, also return a container that has ended: it still has its log.

        Raises as `target` does, and NotRunning when the workload has ended or `patience_seconds` are over.
        """
        view, _ = await self._workloads.workload(scope, name)
        if view.status in FINAL and not (or_ended and view.pods):
            raise NotRunning(_ended(f"job '{name}'", name, view.status))
        (status, reason), reported = _state(view, index), ""
        try:
            async with (
                asyncio.timeout(None) as limit,
                aclosing(self._pods_of(view.namespace, view.uid, *_controllers(view))) as changes,
            ):
                async for pods in changes:
                    chosen = chosen_pod(view, pods, pod_name, index)
                    if chosen is not None:
                        target = target_of(chosen, container, len(pods))
                        if target.runs and chosen.metadata.deletion_timestamp is None:
                            return target
                        if or_ended and target.terminated is not None:
                            return target
                        status, reason = pod_status(chosen), waits_because([chosen])
                        if status == SUCCEEDED:
                            subject = f"pod {chosen.metadata.name} of job '{name}'"
                            raise NotRunning(_ended(subject, name, status))
                    if limit.when() is None:  # the time limit begins after the first list
                        limit.reschedule(asyncio.get_running_loop().time() + patience_seconds)
                    if patience_seconds and (line := _waiting_line(name, status, reason)) != reported:
                        reported = line
                        report(line)
        except TimeoutError as error:
            raise NotRunning(_not_running(name, status, reason)) from error
        raise AssertionError("the changes of pods have no end")

    async def log(self, target: Target, request: LogRequest) -> AsyncGenerator[bytes, None]:
        """Yield the log of a container as it comes.

        A caller that stops early must close the generator (`contextlib.aclosing`).
        """
        params = request.params(target.container)
        with naming_node(target):
            async with aclosing(self._transport.stream(target.path("log"), params=params)) as chunks:
                async for chunk in chunks:
                    yield chunk

    def execute(
        self, target: Target, command: Sequence[str], *, stdin: bool = False, tty: bool = False
    ) -> AbstractAsyncContextManager[RemoteProcess]:
        """Return a new process in a container, as a context manager."""
        process = remote_process(
            self._transport,
            target.path("exec"),
            container=target.container,
            command=command,
            stdin=stdin,
            tty=tty,
        )
        return entered_by(target, process)

    async def completed(self, target: Target, command: Sequence[str], stdin: bytes = b"") -> Finished:
        """Run a command in a container to its end, with `stdin` as its standard input.

        Raises NotExecutable when the container has no such command.
        """
        outputs = {STDOUT: bytearray(), STDERR: bytearray()}
        async with self.execute(target, command, stdin=bool(stdin)) as process:
            feeding = asyncio.ensure_future(_feed(process, stdin)) if stdin else None
            try:
                async for channel, data in process.output():
                    outputs[channel] += data
            finally:
                if feeding is not None:
                    feeding.cancel()
                    await asyncio.gather(feeding, return_exceptions=True)
        return Finished(process.exit_code, bytes(outputs[STDOUT]), bytes(outputs[STDERR]))

    def attach(
        self, target: Target, *, stdin: bool = False, tty: bool = False
    ) -> AbstractAsyncContextManager[RemoteProcess]:
        """Return the streams of the container's own process, as a context manager."""
        process = remote_process(
            self._transport, target.path("attach"), container=target.container, stdin=stdin, tty=tty
        )
        return entered_by(target, process)

    async def exit_code(self, target: Target, *, patience_seconds: float = 10) -> int | None:
        """Return the exit code of a container whose streams ended; None if it still runs, or its pod was deleted."""
        metadata = target.pod.metadata
        restarts = target.status.restart_count if target.status else 0
        try:
            async with (
                asyncio.timeout(patience_seconds),
                aclosing(self._pods_of(metadata.namespace, metadata.uid)) as changes,
            ):
                async for pods in changes:
                    if not pods:
                        return None
                    now = Target(pods[0], target.container)
                    again = now.status is not None and now.status.restart_count > restarts
                    if now.terminated is not None and (not now.runs or again):
                        return now.terminated.exit_code
        except TimeoutError:
            return None
        return None

    async def end_of(self, target: Target) -> str:
        """Wait until nothing can run in the pod any more; return its final status, or Deleted."""
        metadata = target.pod.metadata
        async with aclosing(self._pods_of(metadata.namespace, metadata.uid)) as changes:
            async for pods in changes:
                if not pods:
                    return "Deleted"
                if pods[0].status.phase in ENDED:
                    return pod_status(pods[0])
        raise AssertionError("the changes of pods have no end")

    def port(self, target: Target, port: int) -> AbstractAsyncContextManager[RemotePort]:
        """Return a new connection to a port of a pod, as a context manager."""
        return entered_by(target, remote_port(self._transport, target.path("portforward"), port))

    async def _pods_of(self, namespace: str, *uids: str) -> AsyncGenerator[list[Pod], None]:
        """Yield the pods whose own uid, or whose controller's uid, is in `uids`, now and after every change.

        Never ends.

        Each list has the oldest pod first.
        """
        path = PODS.path(namespace)
        while True:
            page = await self._transport.list(path, Pod)
            pods = {pod.metadata.uid: pod for pod in page.items if not _uids(pod).isdisjoint(uids)}
            yield _oldest_first(pods)
            changes = self._transport.watch(
                path, resource_version=page.resource_version, timeout_seconds=POD_WATCH_SECONDS
            )
            try:
                async with aclosing(changes) as events:
                    async for event in events:
                        if event.type == "BOOKMARK":
                            continue
                        pod = _POD.decode(event.object)
                        if not _uids(pod).isdisjoint(uids):
                            pods.pop(pod.metadata.uid, None)
                            if event.type != "DELETED":
                                pods[pod.metadata.uid] = pod
                            yield _oldest_first(pods)
            except (Gone, Unreachable):
                continue  # the next list raises if the server is unreachable


async def _feed(process: RemoteProcess, content: bytes) -> None:
    with suppress(StreamBroken):  # a process can end before it has read all
        await process.send(content)
        await process.close_stdin()


def _uids(pod: Pod) -> set[str]:
    owner = pod.metadata.controller
    return {pod.metadata.uid, owner.uid} if owner else {pod.metadata.uid}


def _controllers(view: WorkloadView) -> set[str]:
    """Return the uids of the owners of a workload's pods. For example, the owners of a JobSet's pods are its Jobs."""
    return {owner.uid for pod in view.pods if (owner := pod.metadata.controller) is not None}


def _oldest_first(pods: Mapping[str, Pod]) -> list[Pod]:
    return sorted(pods.values(), key=lambda pod: (pod.metadata.creation_timestamp, pod.metadata.name))


def _state(view: WorkloadView, index: int | None) -> tuple[str, str]:
    """Return the status and the reason to show while there is no pod."""
    return (view.status, view.waits_because) if index is None else (PENDING, f"index {index} has no pod")


def _waiting_line(name: str, status: str, reason: str) -> str:
    return f"Waiting for job '{name}' to run: {status}{f' ({reason})' if reason else ''}"


def _not_running(name: str, status: str, reason: str) -> str:
    because = f" ({reason})" if reason else ""
    return (
        f"Job '{name}' is still in '{status}' state{because}. "
        "Please wait until the job is running and try again."
    )


def _ended(subject: str, name: str, status: str) -> str:
    return f"{subject} has ended ({status}): nothing runs in it any more; see 'muster logs {name}'"
