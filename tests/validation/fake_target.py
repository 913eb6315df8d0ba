"""A target without a cluster: a scheduler that carries out the results of the oracle."""

import contextlib
import dataclasses
import itertools
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from fractions import Fraction
from typing import Any

import msgspec

from tests.validation.shown import (
    shown_analytics,
    shown_jobs,
    shown_nodes,
    shown_overview,
    shown_projects,
    shown_table,
)
from validation.errors import TargetError
from validation.judge.events import Eviction, GpuSeen, GpusSeen, NodeSeen, PodSeen
from validation.judge.scheduling import oracle
from validation.judge.views.lists import OVERVIEW
from validation.report.record import Command
from validation.scenario.commands import Action, Submit, demands, parse
from validation.scenario.schema import Cluster
from validation.targets.planner import SimulatedRecorder
from validation.targets.pulling import Pull
from validation.targets.recorder import Recorder
from validation.targets.web_pages import PageShown
from validation.witness.urls import Opened

MOUNTING: dict[str, Any] = {
    "metadata": {"name": "pvc-test-1"},
    "spec": {
        "volumes": [
            {"name": "volume-0", "persistentVolumeClaim": {"claimName": "test"}},
            {"name": "kube-api-access-x7k2p", "projected": {}},
        ],
        "containers": [
            {
                "name": "pvc-test",
                "volumeMounts": [
                    {"name": "volume-0", "mountPath": "/tmp/pvc1mount"},  # noqa: S108 - of the paper
                    {"name": "kube-api-access-x7k2p", "mountPath": "/var/run/secrets"},
                ],
            }
        ],
    },
    "status": {"podIP": "10.9.8.7"},
}
"""A pod of a job with the claim test, as the API server returns it."""


class FakeTarget:
    """An honest orchestrator on nodes that it makes up. Subclasses lie, or have fewer abilities."""

    kind = "lab"
    disposable = True
    pulls_images = False

    def __init__(self) -> None:
        self.recorder: Recorder | None = None
        self.cluster: Cluster | None = None
        self.quotas: dict[str, int] = {}
        self.limits: dict[str, dict[str, str]] = {}
        """By project, the options of limits with which it was created."""
        self.default_project = ""
        self.history: list[Action] = []
        self.pods: dict[tuple[str, str], list[PodSeen]] = {}
        self.created = 0
        self.ended: set[tuple[str, str]] = set()
        """Jobs that had their time, and are there without a pod."""
        self.lines_printed = 1
        self.volume = ""
        """What stands in the volume."""
        self.claim_uid = "uid-of-test"
        self.mounted = ["test at /tmp/pvc1mount"]
        """The volumes that are shown of each job."""
        self.slow: set[str] = set()
        """Jobs whose pods take their time to end."""
        self.leaving: list[PodSeen] = []
        """Evicted pods that have not ended."""

    async def start(self, cluster: Cluster) -> bool:
        fresh, self.cluster = self.cluster is None, cluster
        return fresh

    @contextlib.asynccontextmanager
    async def recording(self, recorder: Recorder) -> AsyncIterator[None]:
        self.recorder = recorder
        recorder.read_log = self.read_log
        recorder.send = self.send
        assert self.cluster is not None
        for number in range(self.cluster.nodes):
            recorder.record(NodeSeen(recorder.now_ms(), f"n{number + 1}", self.cluster.gpus_per_node))
        yield

    async def set_node_types(self, types: Mapping[str, str]) -> None:
        assert self.recorder is not None
        for name, kind in types.items():
            gpus = self.recorder.state.nodes[name]
            self.recorder.record(NodeSeen(self.recorder.now_ms(), name, gpus, node_type=kind))

    async def pull(self, nodes: Sequence[str], images: Sequence[str]) -> list[Pull]:
        return [Pull(node, image) for image in images for node in nodes]

    async def cordon(self, nodes: Mapping[str, bool]) -> None:
        assert self.recorder is not None
        for name, is_closed in nodes.items():
            gpus = self.recorder.state.nodes[name]
            self.recorder.record(NodeSeen(self.recorder.now_ms(), name, gpus, cordoned=is_closed))
        if not any(nodes.values()):
            self.schedule()

    async def drain(self, pods: Sequence[PodSeen]) -> None:
        submits = {(a.project, a.name): a for a in self.history if isinstance(a, Submit)}
        for pod in pods:
            key = (pod.project, pod.workload)
            self.tell(pod, change="deleted")
            others = [other for other in self.pods[key] if other.uid != pod.uid]
            self.pods[key] = [*others, self.tell(self.pod(submits[key]))]
        self.schedule()

    async def let_end_slowly(self, pods: Sequence[PodSeen]) -> None:
        self.slow |= {pod.workload for pod in pods}

    async def kill_operator(self) -> str:
        return ""

    async def operator_leads_again(self) -> None:
        """Let the next operator lead: terminating pods are deleted, and it schedules."""
        for pod in self.leaving:
            self.tell(pod, change="deleted")
        self.leaving = []
        self.schedule()

    async def execute(self, line: str, *, started_ms: int) -> Command:
        assert self.recorder is not None
        words = line.split()
        if words[:3] == ["muster", "project", "create"]:
            self.quotas[words[3]] = int(float(words[5]) * 1000)
            self.limits[words[3]] = {
                option: value for option, value in itertools.pairwise(words) if option.startswith("--")
            }
            self.recorder.take_namespace(f"muster-{words[3]}", words[3])
        elif words[:3] == ["muster", "project", "update"]:
            after = self.quotas | {words[3]: int(float(words[5]) * 1000)}
            if sum(after.values()) > self.capacity_milli:
                return Command(line, 2, started_ms, 1, stderr="Error: the quotas exceed the cluster")
            self.quotas = after
        elif words[:3] == ["muster", "project", "delete"]:
            del self.quotas[words[3]]
            self.recorder.remove_namespace(f"muster-{words[3]}")
        elif words[:3] == ["muster", "project", "set"]:
            self.default_project = words[3]
        elif (output := self.output_of(line)) is not None:
            return Command(line, 0, started_ms, 1, stdout=output)
        else:
            action = parse(line)
            action = dataclasses.replace(action, project=action.project or self.default_project)
            self.history.append(action)
            self.act(action)
            self.schedule()
        return Command(line, 0, started_ms, 1)

    def output_of(self, line: str) -> str | None:
        """Return the output of a command that shows something; None for other commands."""
        words = line.split()
        if words[:4] == ["muster", "list", "jobs", "-p"]:
            return json.dumps(self.with_urls(words[4]))
        if words[:2] == ["muster", "logs"]:
            return self.printed(words[4], words[2]).strip()
        if words[:2] == ["muster", "bash"]:
            return self.answer(line, self.pods[words[4], words[2]][0].pod)
        if words[:2] == ["muster", "get"]:
            is_text = words[-1] != "json"
            return (
                self.described(words[4], words[2])
                if is_text
                else json.dumps(self.describe_job(words[2], words[4]))
            )
        is_list = words[1] in {"list", "top"}
        return self.listed(words) if is_list else "{}" if "data" in words[:4] else None

    def listed(self, words: Sequence[str]) -> str:
        """Return the list that the command prints: JSON, or the table of jobs."""
        is_table = words[-1] != "json"
        return shown_table(self.show("-A")) if is_table else json.dumps(self.show(words[-3]))

    def show(self, last_word: str) -> list[dict[str, Any]]:
        """Return the JSON of `muster list jobs -A`, `muster top node` or `muster list projects` for this cluster."""
        assert self.recorder is not None
        return {"-A": shown_jobs, "node": shown_nodes, "projects": shown_projects}[last_word](
            self.recorder.state
        )

    async def open_pages(self) -> None:
        return None

    async def show_page(self, view: str) -> PageShown:
        return PageShown(json.dumps(self.page_rows(view)))

    def page_rows(self, view: str) -> list[dict[str, Any]]:
        """Return the rows of a web page for this cluster."""
        assert self.recorder is not None
        if view == OVERVIEW:
            return shown_overview(self.recorder.state)
        return shown_analytics(self.recorder.events, self.recorder.state, self.recorder.now_ms())

    async def open_url(self, url: str) -> Opened:
        """Return 200 for the URL of a job, and 404 for any other."""
        paths = {f"{project}-{name}" for project, name in self.pods}
        return Opened(200 if url.rpartition("/")[2] in paths else 404)

    def answer(self, line: str, pod: str) -> str:
        """Return the answer of a shell in a container of the pod."""
        if "dd if=/etc/hostname" in line:
            self.volume = pod
        return f"{self.volume}\n{pod}" if "cat /tmp/" in line else pod

    def send(self, method: str, path: str, body: str) -> tuple[int, str]:
        """Return status and body of the API server's answer. It has only PersistentVolumeClaims."""
        name = path.rpartition("/")[2]
        if "/pods?" in path:
            return 200, json.dumps({"items": [MOUNTING]})
        if "/volumesnapshots/" in path:
            return 200, json.dumps(self.snapshot(name))
        if "/persistentvolumeclaims" not in path:
            return 404, "{}"
        if name.startswith("pvc-"):
            return 200, json.dumps(self.clone(name))
        claim = {"metadata": {"name": "test", "uid": self.claim_uid}, "spec": {"volumeName": "pvc-of-test"}}
        return 201 if method == "POST" else 200, json.dumps(claim)

    def clone(self, name: str) -> dict[str, Any]:
        """Return the PersistentVolumeClaim of a job with a clone of the claim test."""
        source = {"kind": "PersistentVolumeClaim", "name": "test"}
        return {
            "metadata": {"name": name, "uid": f"uid-of-{name}"},
            "spec": {"volumeName": f"volume-of-{name}", "dataSource": source},
        }

    def snapshot(self, name: str) -> dict[str, Any]:
        """Return a VolumeSnapshot of the claim test."""
        source = {"persistentVolumeClaimName": "test"}
        return {
            "metadata": {"name": name},
            "spec": {"source": source},
            "status": {"readyToUse": True},
        }

    def log_of(self, project: str, workload: str) -> str:
        """Return the log of the job's containers at their kubelet. It grows with each call."""
        self.lines_printed += 1
        lines = (f"{workload} of {project}, epoch {number}" for number in range(self.lines_printed))
        return "".join(f"{line}\n" for line in lines)

    def printed(self, project: str, workload: str) -> str:
        """Return the output of `muster logs`."""
        return self.log_of(project, workload)

    def read_log(self, namespace: str, pod: str, container: str) -> str:
        """Return the container's log from the kubelet."""
        return self.log_of(namespace.removeprefix("muster-"), container)

    def describe_job(self, name: str, project: str) -> dict[str, Any]:
        """Return the output of `muster get` for a job."""
        return next(row for row in self.show("-A") if (row["project"], row["name"]) == (project, name))

    def described(self, project: str, name: str) -> str:
        """Return the output of `muster get` for people."""
        volumes = f"VOLUMES: {', '.join(self.mounted)}\n" if self.mounted else ""
        return f"NAME: {name}\nPROJECT: {project}\n{volumes}\nPods:\n"

    def with_urls(self, project: str) -> list[dict[str, Any]]:
        """Return the output of `muster list jobs` for a project, with the URL of each job."""
        at = f"http://{project}.gpus.example.com/{project}-"
        rows = [row for row in self.show("-A") if row["project"] == project]
        return [{**row, "serviceUrls": [f"{at}{row['name']}"]} for row in rows]

    def act(self, action: Action) -> None:
        """Create the pods of a submit, or delete the pods of a delete."""
        if isinstance(action, Submit):
            self.pods[action.project, action.name] = [self.pod(action) for _ in range(action.pods)]
            for pod in self.pods[action.project, action.name]:
                self.tell(pod)
        else:
            for name in action.names:
                for pod in self.pods.pop((action.project, name), []):
                    self.tell(pod, change="deleted")

    def pod(self, action: Submit) -> PodSeen:
        self.created += 1
        return PodSeen(
            t_ms=0,
            change="added",
            uid=f"uid-{self.created}",
            namespace=f"muster-{action.project}",
            project=action.project,
            workload=action.name,
            pod=f"{action.name}-{self.created}",
            phase="Pending",
            gpu_milli=action.gpu_milli,
            preemptible=action.preemptible,
            priority=100 if action.interactive else 50,
            submitted_us=self.created,
            min_member=action.min_member,
        )

    def tell(self, pod: PodSeen, **changes: Any) -> PodSeen:
        """Let the recorder see the pod with these changes, and return the event."""
        assert self.recorder is not None
        event = msgspec.structs.replace(pod, t_ms=self.recorder.now_ms(), **changes)
        self.recorder.record(event)
        return event

    @property
    def capacity_milli(self) -> int:
        assert self.cluster is not None
        assert self.recorder is not None
        nodes = self.cluster.nodes - len(self.recorder.state.cordoned)
        return nodes * self.cluster.gpus_per_node * 1000

    def schedule(self) -> None:
        """Evict and bind pods, so that exactly the jobs run that quotas and weights entitle."""
        weights = {
            name: Fraction(options["--over-quota-weight"]) * 1000
            for name, options in self.limits.items()
            if "--over-quota-weight" in options
        }
        projects = [oracle.Project(name, quota, weights.get(name)) for name, quota in self.quotas.items()]
        alive = [one for one in demands(self.history) if (one.project, one.name) not in self.ended]
        running = oracle.divide(self.capacity_milli, projects, alive).running
        submits = {(a.project, a.name): a for a in self.history if isinstance(a, Submit)}
        for key, pods in self.pods.items():
            if key not in running and pods[0].node:
                for pod in pods:
                    self.evict(pod)
                self.pods[key] = [self.tell(self.pod(submits[key])) for _ in pods]
        for key, pods in self.pods.items():
            if key in running and not pods[0].node:
                self.pods[key] = [self.nominate(pod) if self.leaving else self.bind(pod) for pod in pods]

    def nominate(self, pod: PodSeen) -> PodSeen:
        """Nominate the pod to the node of the first terminating pod."""
        return self.tell(pod, change="modified", nominated_node=self.leaving[0].node)

    def evict(self, pod: PodSeen) -> None:
        why = Eviction("PreemptionByScheduler", "over its quota")
        is_slow = pod.workload in self.slow
        evicted = self.tell(pod, change="modified", eviction=why, terminating=is_slow)
        if is_slow:
            self.leaving.append(evicted)
        else:
            self.tell(evicted, change="deleted")

    def bind(self, pod: PodSeen) -> PodSeen:
        """Bind the pod to the first GPUs with enough free capacity."""
        assert self.recorder is not None
        held = self.recorder.state.devices()
        need, part = max(1, pod.gpu_milli // 1000), min(pod.gpu_milli, 1000)
        for node in self.open_nodes():
            gpus = self.recorder.state.nodes[node]
            if not self.allows(pod, node):
                continue
            used = [sum(held.get((node, index), {}).values()) for index in range(gpus)]
            usable = [index for index in range(gpus) if used[index] + part <= 1000]
            usable.sort(key=lambda index: (-used[index], index))
            if len(usable) >= need:
                place = {"node": node, "devices": tuple(usable[:need]), "nominated_node": ""}
                return self.tell(pod, change="modified", phase="Running", **place)
        raise TargetError(f"the fake scheduler finds no place for {pod.pod}")

    def open_nodes(self) -> list[str]:
        """Return the schedulable nodes, in the order in which they are filled."""
        assert self.recorder is not None
        return [node for node in self.recorder.state.nodes if node not in self.recorder.state.cordoned]

    def allows(self, pod: PodSeen, node: str) -> bool:
        """Return whether the project allows the pod on the node."""
        assert self.recorder is not None
        option = "--interactive-node-type" if pod.interactive else "--train-node-type"
        group = self.limits[pod.project].get(option)
        return group is None or self.recorder.state.node_types[node] == group

    def over_time(self) -> list[tuple[str, str]]:
        """Return the running interactive jobs of projects with a time limit."""
        return [
            key
            for key, pods in self.pods.items()
            if pods[0].interactive and pods[0].node and "--interactive-time-limit" in self.limits[key[0]]
        ]

    def end(self, key: tuple[str, str]) -> None:
        """End a job at its time limit: its pod is deleted, and the job stays."""
        for pod in self.pods.pop(key):
            self.tell(self.tell(pod, change="modified", terminating=True), change="deleted")
        self.ended.add(key)

    def describe(self) -> dict[str, Any]:
        return {"kind": self.kind, "operator": "a double"}

    def timings(self) -> dict[str, str]:
        return {}

    async def kubernetes(self) -> str:
        return "none"

    async def problem(self) -> str:
        """Move the clock past the time limits after a step, and end the interactive jobs that reach one."""
        over = self.over_time()
        if over:
            assert isinstance(self.recorder, SimulatedRecorder)
            self.recorder.clock_ms += 16_000
        for key in over:
            self.end(key)
        return ""

    async def stop(self) -> None:
        return None


class WitnessedTarget(FakeTarget):
    """A target with agents on its nodes, which report the GPUs of containers from kubelets and drivers."""

    def given(self, pod: PodSeen) -> tuple[int, ...]:
        """Return the GPUs that the kubelet gave to the pod."""
        return pod.devices

    def used(self, pod: PodSeen) -> tuple[int, ...]:
        """Return the GPUs on which the driver shows a process of the pod."""
        return self.given(pod)

    def uuid(self, node: str, index: int) -> str:
        """Return the UUID of the GPU as the driver reports it; by default none."""
        return ""

    def schedule(self) -> None:
        super().schedule()
        assert self.recorder is not None
        state = self.recorder.state
        for node, count in state.nodes.items():
            pods = [pod for pod in state.holding() if pod.node == node]
            gpus = [
                GpuSeen(
                    index,
                    tuple(f"{pod.namespace}/{pod.pod}" for pod in pods if index in self.given(pod)),
                    tuple(pod.uid for pod in pods if index in self.used(pod)),
                    self.uuid(node, index),
                )
                for index in range(count)
            ]
            self.recorder.record(GpusSeen(self.recorder.now_ms(), node, "", tuple(gpus)))


class SwapsDevices(WitnessedTarget):
    """Writes other devices into the pods than the kubelet gave them; no two pods get the same."""

    def given(self, pod: PodSeen) -> tuple[int, ...]:
        return tuple(7 - index for index in pod.devices)


class NeverStarts(WitnessedTarget):
    """Reports pods as running although no container was started on their nodes."""

    def given(self, pod: PodSeen) -> tuple[int, ...]:
        return ()


class HidesEvictions(WitnessedTarget):
    """Deletes pods without announcing an eviction."""

    def evict(self, pod: PodSeen) -> None:
        self.tell(pod, change="deleted")
