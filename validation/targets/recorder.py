"""Watches the cluster and turns its changes into the judge's events.

The recorder reads only with `validation.witness`, not with the orchestrator's own readers. An observer with the same
defects as the observed program cannot detect them.
"""

import asyncio
import contextlib
import functools
import time
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from validation.errors import TargetError
from validation.judge.events import (
    ClusterSeen,
    CommandRun,
    Event,
    GpusSeen,
    NodeSeen,
    OutputSeen,
    OutsidersSeen,
    PodSeen,
    ProjectDeleted,
    ProjectSet,
    RequestAnswered,
    WatchSeen,
)
from validation.judge.state import State
from validation.report.log import Entry, Observed, RunLog
from validation.scenario.projects import LoadedProject
from validation.targets.agent_pages import AgentPages
from validation.witness import agents, names, objects, outputs, requests
from validation.witness.reader import Handlers, Kind, Reader, ReadFailed, ca_sha256, connect

SYNC_SECONDS = 30.0
NODES = Kind("nodes", "/api/v1/nodes")
NAMESPACES = Kind("namespaces", "/api/v1/namespaces")
PODS = Kind("pods", "/api/v1/pods")
GPU_NODES = Kind("gpunodes", names.GPU_NODES_PATH, optional=True)
SLICES = Kind(
    "resourceslices", names.RESOURCE_SLICES_PATHS[0], optional=True, older=names.RESOURCE_SLICES_PATHS[1:]
)
Json = dict[str, Any]


class Recorder:
    """All events of a run in order, and the state after them."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._started = clock()
        self._changed = asyncio.Event()
        self._projects: dict[str, str] = {}
        self._seen: dict[str, PodSeen] = {}
        self._pods: dict[str, Json] = {}
        """The pods, by uid, in namespaces that do not belong to a project or whose project is not yet known."""
        self._outsiders: dict[str, tuple[str, int]] = {}
        """Node and GPUs of each pod that holds GPUs and has no project, by uid."""
        self._pods_by_container: dict[str, str] = {}
        """The uid of the pod of each container that was ever seen, by the id of the container in the runtime."""
        self._nodes: dict[str, Json] = {}
        self._gpu_nodes: dict[str, Json] = {}
        self._slices: dict[str, Json] = {}
        self._published: dict[str, int] = {}
        """The number of GPUs that are published as devices of DRA, by node."""
        self._last: dict[tuple[str, str], NodeSeen | GpusSeen] = {}
        """The last event of each node, by the kind of event and the node's name."""
        self._followed: set[tuple[str, str]] = set()
        """Project and name of the workloads whose output is recorded."""
        self._read_line: Callable[[str, str, str], str] | None = None
        """Takes a namespace, a pod's name and a container's name, and returns the last line that the container printed.

        None outside `watching`.
        """
        self.read_page: agents.PageReader | None = None
        """Returns the page of an agent; None outside `watching`, or if the target has no agents."""
        self.read_log: Callable[[str, str, str], str] | None = None
        """Takes a namespace, a pod's name and a container's name, and returns the log.

        None outside `watching`, or if the target has no logs.
        """
        self.send: requests.Sender | None = None
        """Sends a request to the API server; None outside `watching`, or if the target has no API server."""
        self.agents: dict[str, agents.AgentPod] = {}
        """The running agent of each node, by node."""
        self._pages: dict[str, AgentPages] = {}
        """The reader of each agent's pages, by node."""
        self._outputs: dict[str, asyncio.Task[None]] = {}
        """The task that reads the output of a pod, by the pod's uid."""
        self._ca_sha256 = ""
        """The digest of the CA certificates by which the API server is verified."""
        self._cluster = ""
        """The uid of the namespace kube-system."""
        self._failure: BaseException | None = None
        self._log: RunLog | None = None
        self.events: list[Event] = []
        self.state = State()
        self.nodes: dict[str, str] = {}
        """The product name of the GPUs of each node, by the node's name."""

    def now_ms(self) -> int:
        """Return the milliseconds since the run began."""
        return int((self._clock() - self._started) * 1000)

    def wall_clock(self) -> str:
        """Return the present time of the wall clock, UTC, to the second."""
        return wall_clock()

    @contextlib.asynccontextmanager
    async def watching(self, kubeconfig: Path | None) -> AsyncIterator[None]:
        """Record while the body runs.

        Raises TargetError if the API server does not list all kinds within SYNC_SECONDS.
        """
        loop = asyncio.get_running_loop()
        kinds = (SLICES, NODES, NAMESPACES, GPU_NODES, PODS)
        unread = {kind.name for kind in kinds}
        synced = asyncio.Event()

        def watched(kind: Kind, change: str, version: str) -> None:
            self._watch_changed(kind, change, version)
            unread.discard(kind.name)
            if not unread:
                synced.set()

        def in_loop(handler: Callable[..., None]) -> Callable[..., object]:
            return functools.partial(loop.call_soon_threadsafe, handler)

        handlers = Handlers(in_loop(self._object_changed), in_loop(watched), in_loop(self._read_failed))
        try:
            client = connect(kubeconfig)
        except ReadFailed as error:
            raise TargetError(str(error)) from error
        self._ca_sha256 = ca_sha256(client)
        readers = [Reader(client, kind, handlers, objects.slim) for kind in kinds]
        for reader in readers:
            reader.start()
        self._read_line = functools.partial(outputs.read_last_line, client)
        self.read_page = functools.partial(agents.read_page, client)
        self.send = functools.partial(requests.send, client)
        self.read_log = functools.partial(outputs.read_log, client)
        try:
            await self._until_synced(synced)
            yield
        finally:
            self._read_line = self.read_page = self.send = self.read_log = None
            await asyncio.gather(*self._outputs.values())
            await asyncio.gather(*(asyncio.to_thread(reader.stop) for reader in readers))

    async def _until_synced(self, synced: asyncio.Event) -> None:
        deadline = self._clock() + SYNC_SECONDS
        while not synced.is_set():
            if self._clock() > deadline:
                raise TargetError(f"the cluster did not list its pods and nodes within {SYNC_SECONDS:g} s")
            await self.changed(500)

    async def changed(self, timeout_ms: int) -> None:
        """Return at the next event, or after `timeout_ms`. Raises the error that ended the watch, if it ended."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._changed.wait(), timeout_ms / 1000)
        self._changed.clear()
        if self._failure is not None:
            raise TargetError(f"the cluster can no longer be watched: {self._failure}") from self._failure

    def command(self, action: str, project: str, workloads: tuple[str, ...]) -> None:
        """Record that a command is about to run."""
        self.record(CommandRun(t_ms=self.now_ms(), action=action, project=project, workloads=workloads))

    def project(self, name: str, project: LoadedProject) -> None:
        """Record that a project is about to be created or updated, with this quota and these limits."""
        self.record(
            ProjectSet(
                t_ms=self.now_ms(),
                project=name,
                quota_milli=project.quota_milli,
                interactive_limit_ms=project.interactive_limit_ms,
                train_node_types=project.train_node_types,
                interactive_node_types=project.interactive_node_types,
            )
        )

    def project_deleted(self, name: str) -> None:
        """Record that a project is about to be deleted."""
        self.record(ProjectDeleted(t_ms=self.now_ms(), project=name))

    def follow_output(self, project: str, workload: str) -> None:
        """From now on, when a pod of the workload has ended, record the last output line of its main container."""
        self._followed.add((project, workload))

    async def request(self, check: str, method: str, path: str, body: str = "") -> RequestAnswered:
        """Send the request to the API server; record and return the answer, or the problem if there is no answer."""
        event = await self.answer_of(check, method, path, body)
        self.record(event)
        return event

    async def answer_of(self, check: str, method: str, path: str, body: str = "") -> RequestAnswered:
        """Send the request to the API server; return the answer, or the problem if there is no answer.

        Record nothing.
        """
        status, answer, problem = 0, "", "the cluster is not watched"
        if self.send is not None:
            try:
                status, answer = await asyncio.to_thread(self.send, method, path, body)
                problem = ""
            except ReadFailed as error:
                problem = str(error)
        return RequestAnswered(self.now_ms(), check, method, path, status, answer, body, problem)

    async def log_of(self, pod: PodSeen) -> tuple[str, str]:
        """Return the log of the pod's container with the workload's name, and "".

        If the log cannot be read, return "" and the problem.
        """
        if self.read_log is None:
            return "", "the cluster is not watched"
        try:
            return await asyncio.to_thread(self.read_log, pod.namespace, pod.pod, pod.workload), ""
        except ReadFailed as error:
            return "", str(error)

    async def sample_gpus(self) -> None:
        """Read the page of the agent of each node with GPUs. Record the GPUs on the page, or the problem."""
        nodes = [node for node, gpus in sorted(self.state.nodes.items()) if gpus]
        await asyncio.gather(*(self._sample(node, self.agents.get(node)) for node in nodes))

    async def _sample(self, node: str, agent: agents.AgentPod | None) -> None:
        pages = self._pages.setdefault(node, AgentPages(node))
        problem, text = "no agent runs on it", ""
        if agent is not None and self.read_page is not None:
            try:
                text = await asyncio.to_thread(self.read_page, agent)
            except ReadFailed as error:
                problem = f"its agent does not answer: {error}"
        try:
            event = pages.read(text, self.now_ms()) if text else pages.problem(problem, self.now_ms())
        except TargetError as error:
            event = pages.problem(str(error), self.now_ms())
        if event is not None:
            self.record(event)

    def take_namespace(self, name: str, project: str) -> None:
        """Record the pods of the namespace as pods of the project from now on."""
        self._projects[name] = project
        self._changed.set()

    def remove_namespace(self, name: str) -> None:
        """Forget to which project the namespace belongs."""
        self._projects.pop(name, None)
        self._changed.set()

    def has_namespace(self, project: str) -> bool:
        """Return whether the project has a known namespace."""
        return project in self._projects.values()

    def pods_of(self, projects: set[str]) -> list[PodSeen]:
        """Return the existing pods of these projects."""
        return [pod for pod in self.state.pods.values() if pod.project in projects]

    @property
    def logs(self) -> bool:
        """Whether events are written to a log."""
        return self._log is not None

    def log_to(self, log: RunLog) -> None:
        """Write all later events to the log."""
        self._log = log

    def append(self, entry: Entry) -> None:
        """Write the entry to the log, if there is one. Raises ReportError."""
        if self._log is not None:
            self._log.append(entry)

    def close_log(self) -> None:
        """Close the log, if there is one. Later events are not written."""
        if self._log is not None:
            self._log.close()
        self._log = None

    def record(self, event: Event, resource_version: str = "", server_time: str = "") -> None:
        """Append the event to the log and to `events`, and apply it to the state.

        The log also has the version and the time of the object.
        """
        self.append(Observed(event, resource_version, server_time))
        self.events.append(event)
        self.state.apply(event)
        self._changed.set()

    def _read_failed(self, error: Exception) -> None:
        self._failure = error
        self._changed.set()

    def _watch_changed(self, kind: Kind, change: str, version: str) -> None:
        self.record(WatchSeen(self.now_ms(), kind.name, change, version))

    def _object_changed(self, kind: Kind, change: str, entry: Json) -> None:
        handle = {
            SLICES: self._slice_changed,
            NODES: self._node_changed,
            NAMESPACES: self._namespace_changed,
            PODS: self._pod_changed,
            GPU_NODES: self._gpus_changed,
        }[kind]
        handle(change, entry)

    def _node_changed(self, change: str, node: Json) -> None:
        name = node["metadata"]["name"]
        if change == "deleted":
            self.nodes.pop(name, None)
            self._nodes.pop(name, None)
        else:
            self.nodes[name] = (node["metadata"].get("labels") or {}).get(names.GPU_PRODUCT_LABEL, "")
            self._nodes[name] = node
        published = self._published.get(name, 0)
        event = objects.node_seen(node, change=change, t_ms=self.now_ms(), published=published)
        self._record_if_new(event, node)

    def _slice_changed(self, change: str, published: Json) -> None:
        self._slices[published["metadata"]["uid"]] = published
        if change == "deleted":
            del self._slices[published["metadata"]["uid"]]
        before, self._published = self._published, objects.published_gpus(self._slices.values())
        for name in before.keys() | self._published.keys():
            if name in self._nodes and before.get(name) != self._published.get(name):
                self._node_changed("modified", self._nodes[name])

    def _gpus_changed(self, change: str, gpu_node: Json) -> None:
        self._gpu_nodes[gpu_node["metadata"]["name"]] = gpu_node
        if change == "deleted":
            del self._gpu_nodes[gpu_node["metadata"]["name"]]
        event = objects.gpus_seen(
            gpu_node, change=change, t_ms=self.now_ms(), pods_by_container=self._pods_by_container
        )
        self._record_if_new(event, gpu_node)

    def _record_if_new(self, event: NodeSeen | GpusSeen, entry: Json) -> None:
        """Record the event, unless only times differ from the node's last event of this kind."""
        key = (type(event).__name__, event.node)
        last = self._last.get(key)
        if last is None or _without_times(last) != _without_times(event):
            self._last[key] = event
            self._record_object(event, entry)

    def _namespace_changed(self, change: str, namespace: Json) -> None:
        name = namespace["metadata"]["name"]
        if (
            name == names.KUBE_SYSTEM
            and change != "deleted"
            and namespace["metadata"]["uid"] != self._cluster
        ):
            self._cluster = namespace["metadata"]["uid"]
            self._record_object(ClusterSeen(self.now_ms(), self._cluster, self._ca_sha256), namespace)
        project = (namespace["metadata"].get("labels") or {}).get(names.PROJECT_LABEL, "")
        if change == "deleted":
            self.remove_namespace(name)
        elif project and self._projects.get(name) != project:
            self.take_namespace(name, project)
            for pod in [pod for pod in self._pods.values() if pod["metadata"]["namespace"] == name]:
                self._pod_changed("added", pod)

    def _note_agent(self, change: str, pod: Json) -> None:
        agent = agents.agent_of(pod)
        if agent is None:
            return
        if change != "deleted" and agents.runs(pod):
            self.agents[agent.node] = agent
        elif self.agents.get(agent.node) == agent:
            del self.agents[agent.node]

    def _note_outsider(self, change: str, pod: Json) -> None:
        """Record how many GPUs pods without a project hold on the node of this pod, if the number changed."""
        uid, held = pod["metadata"]["uid"], objects.outsider_gpus(pod, change=change)
        before = self._outsiders.pop(uid, None)
        if held is not None:
            self._outsiders[uid] = held
        if held != before:
            node = (held or before or ("", 0))[0]
            milli = [gpu_milli for at, gpu_milli in self._outsiders.values() if at == node]
            self.record(OutsidersSeen(self.now_ms(), node, len(milli), sum(milli)))

    def _note_containers(self, pod: Json) -> None:
        """Store the ids of the pod's containers.

        If an id is new, record the GPUs of the node again: their processes may belong to the new container.
        """
        ids = set(objects.container_ids(pod)) - self._pods_by_container.keys()
        self._pods_by_container.update(dict.fromkeys(ids, pod["metadata"]["uid"]))
        gpu_node = self._gpu_nodes.get(pod["spec"].get("nodeName") or "")
        if ids and gpu_node is not None:
            self._gpus_changed("modified", gpu_node)

    def _pod_changed(self, change: str, pod: Json) -> None:
        uid = pod["metadata"]["uid"]
        self._note_containers(pod)
        known = self._seen.get(uid)
        project = self._projects.get(pod["metadata"]["namespace"]) or (known.project if known else "")
        if not project:
            self._note_agent(change, pod)
            self._note_outsider(change, pod)
            self._pods[uid] = pod
            if change == "deleted":
                del self._pods[uid]
            return
        if self._pods.pop(uid, None) is not None:
            self._note_outsider("deleted", pod)  # until its project was known
        event = objects.pod_seen(pod, change=change, project=project, t_ms=self.now_ms())
        if known is None or _without_change(known) != _without_change(event):
            self._seen[uid] = event
            self._record_object(event, pod)
        if event.finished and (project, event.workload) in self._followed and uid not in self._outputs:
            self._outputs[uid] = asyncio.get_running_loop().create_task(self._read_output(event, pod))

    async def _read_output(self, seen: PodSeen, pod: Json) -> None:
        """Record how the main container of the pod ended, and its last output line."""
        line, problem = "", ""
        container = outputs.main_container(pod)
        if self._read_line is None:
            problem = "the cluster is not watched any more"
        else:
            try:
                line = await asyncio.to_thread(self._read_line, seen.namespace, seen.pod, container)
            except ReadFailed as error:
                problem = str(error)
        ended = outputs.ended(pod, container)
        output = OutputSeen(
            t_ms=self.now_ms(),
            uid=seen.uid,
            project=seen.project,
            workload=seen.workload,
            pod=seen.pod,
            node=seen.node,
            exit_code=ended.get("exitCode", -1),
            ran_ms=outputs.ran_ms(ended),
            image=ended.get("imageID") or "",
            line=line,
            problem=problem,
            container=container,
        )
        self._record_object(output, pod)

    def _record_object(self, event: Event, entry: Json) -> None:
        self.record(event, entry["metadata"].get("resourceVersion", ""), objects.server_time(entry))


def wall_clock() -> str:
    """Return the present time of the wall clock, UTC, to the second."""
    return f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"


def _without_times(event: NodeSeen | GpusSeen) -> NodeSeen | GpusSeen:
    if isinstance(event, GpusSeen):
        return msgspec.structs.replace(event, t_ms=0, observed_at="")
    return msgspec.structs.replace(event, t_ms=0)


def _without_change(pod: PodSeen) -> PodSeen:
    return msgspec.structs.replace(pod, t_ms=0, change="modified" if pod.change == "added" else pod.change)
