"""The planner alone as the target, on a snapshot. There is no API server, no operator and no node.

`muster` itself parses the command lines of scenarios. Their workloads become pods in the snapshot, as the operator
reads pods. Time is simulated, so a run takes seconds.
"""

import asyncio
import contextlib
import shlex
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import replace

import click
import msgspec

from musterlab.nodes import NodeGroup, names
from musterlab.profiles import load
from orchestrator.cli.project import create, spec_of
from orchestrator.cli.submit_line import read_submission
from orchestrator.cluster import objects
from orchestrator.cluster.gpu_fraction import gpu_milli
from orchestrator.cluster.projects import ProjectSpec
from orchestrator.cluster.quantity import cpu_milli, memory_bytes
from orchestrator.errors import MusterError, UsageError
from orchestrator.observe.project_reader import planner_project
from orchestrator.planner import model, plan
from orchestrator.simulation import change
from orchestrator.simulation.apply_plan import replace_pods
from orchestrator.simulation.run import Planner, settle
from validation.errors import TargetError
from validation.judge.events import Eviction, NodeSeen, PodSeen
from validation.report.record import Command
from validation.scenario.schema import Cluster
from validation.targets.kinds import PLANNER
from validation.targets.pulling import Pull
from validation.targets.recorder import Recorder
from validation.targets.web_pages import PageShown
from validation.witness.urls import Opened


class SimulatedRecorder(Recorder):
    """A recorder on simulated time: a wait advances the clock by its duration and takes no real time."""

    def __init__(self) -> None:
        self.clock_ms = 0
        super().__init__(clock=lambda: self.clock_ms / 1000)

    def now_ms(self) -> int:
        """Return the simulated milliseconds since the run began."""
        return self.clock_ms

    async def changed(self, timeout_ms: int) -> None:
        """Advance the simulated clock by `timeout_ms`."""
        self.clock_ms += max(1, timeout_ms)
        await asyncio.sleep(0)


class PlannerTarget:
    """A snapshot to which command lines are applied.

    After each command line, the planner's decisions are applied until one changes nothing.
    """

    kind = PLANNER
    pulls_images = False
    disposable = True

    def __init__(self, planner: Planner = plan) -> None:
        self._planner = planner
        self._shape: Cluster | None = None
        self._snapshot = model.Snapshot((), (), ())
        self._recorder: Recorder | None = None
        self._seen: dict[str, PodSeen] = {}
        """The last recorded state of each pod, by the planner's id of the pod."""
        self._submitted: dict[str, int] = {}
        """The number of the submission of each workload, by the workload's id.

        It makes uids unique, because a name can be reused.
        """
        self._count = 0

    async def start(self, cluster: Cluster) -> bool:
        """Begin with these nodes, without pods.

        If the last start was with the same nodes, keep the snapshot and return False.
        """
        if self._shape == cluster:
            return False
        self._shape, self._snapshot = cluster, model.Snapshot(_nodes(cluster), (), ())
        self._seen = {}
        return True

    @contextlib.asynccontextmanager
    async def recording(self, recorder: Recorder) -> AsyncIterator[None]:
        """Record the nodes, and from now on each change of a pod; at the end record that the nodes have no GPUs."""
        self._recorder, nodes = recorder, self._snapshot.nodes
        for node in nodes:
            recorder.nodes[node.name] = node.gpu_model
            recorder.record(NodeSeen(recorder.now_ms(), node.name, node.gpu_count))
        yield
        for node in nodes:
            del recorder.nodes[node.name]
            recorder.record(NodeSeen(recorder.now_ms(), node.name, gpus=0))

    async def set_node_types(self, types: Mapping[str, str]) -> None:
        """Set the group of each of these nodes."""
        nodes = [
            replace(node, node_type=types.get(node.name, node.node_type)) for node in self._snapshot.nodes
        ]
        self._snapshot = replace(self._snapshot, nodes=tuple(nodes))
        for node in nodes:
            now_ms = self._watching.now_ms()
            self._watching.record(NodeSeen(now_ms, node.name, node.gpu_count, node_type=node.node_type))

    async def pull(self, nodes: Sequence[str], images: Sequence[str]) -> list[Pull]:
        """Do nothing: no container runs. Return an empty result for each node and image."""
        return [Pull(node, image) for image in images for node in nodes]

    async def cordon(self, nodes: Mapping[str, bool]) -> None:
        """Cordon (True) or uncordon (False) each of these nodes, and let the planner decide."""
        changed = [
            replace(node, schedulable=not nodes.get(node.name, not node.schedulable))
            for node in self._snapshot.nodes
        ]
        self._snapshot = replace(self._snapshot, nodes=tuple(changed))
        for node in changed:
            seen = NodeSeen(self._watching.now_ms(), node.name, node.gpu_count, cordoned=not node.schedulable)
            self._watching.record(msgspec.structs.replace(seen, node_type=node.node_type))
        self._settle()

    async def drain(self, pods: Sequence[PodSeen]) -> None:
        """Replace the pods by pending pods, as their controllers would, and let the planner decide."""
        uids = {pod.uid for pod in pods}
        names = [name for name, pod in self._seen.items() if pod.uid in uids]
        self._snapshot, _ = replace_pods(self._snapshot, names)
        self._settle()

    async def let_end_slowly(self, pods: Sequence[PodSeen]) -> None:
        """Do nothing: simulated pods end without delay."""

    async def kill_operator(self) -> str:
        """Return why no operator can be killed: there is none in this target."""
        return "there is no operator"

    async def operator_leads_again(self) -> None:
        """Do nothing: this target has no operator."""

    async def execute(self, line: str, *, started_ms: int) -> Command:
        """Apply the command line to the snapshot, and let the planner decide.

        Return the result. The command fails as on a cluster, and also if the planner does not become stable.
        """
        try:
            self._apply(shlex.split(line)[1:])
            self._settle()
        except click.ClickException as error:
            return Command(line, error.exit_code, started_ms, 0, stderr=error.format_message())
        except MusterError as error:
            return Command(line, error.exit_code, started_ms, 0, stderr=str(error))
        return Command(line, 0, started_ms, 0)

    async def open_pages(self) -> None:
        """Do nothing: there is no cluster to show."""

    async def show_page(self, view: str) -> PageShown:
        """There are no pages; raises TargetError."""
        raise TargetError(f"there is no cluster to show: {view}")

    async def open_url(self, url: str) -> Opened:
        """Return that there is no answer: there is no cluster."""
        return Opened(0, f"there is no cluster to answer at {url}")

    def describe(self) -> dict[str, str]:
        """Return the description of the simulation for the report."""
        return {
            "kind": self.kind,
            "operator": "none: the planner of this installation, called on a snapshot",
            "cluster is": "simulated: no API server, no kubelet; no container runs",
            "time is": "simulated: waiting takes no time",
        }

    def timings(self) -> dict[str, str]:
        """Return an empty mapping: this target waits for nothing."""
        return {}

    async def kubernetes(self) -> str:
        """Return `none`: there is no API server."""
        return "none"

    async def problem(self) -> str:
        """Return "": there is no process that can end."""
        return ""

    async def stop(self) -> None:
        """Forget the nodes, so that the next `start` begins with new nodes."""
        self._shape, self._recorder = None, None

    def _apply(self, words: Sequence[str]) -> None:
        """Apply the words of a command line of a scenario, or of the run itself.

        Raises UsageError, and exceptions of click.
        """
        match words:
            case ["submit", *rest]:
                self._submit(rest)
            case ["delete", "-p", project, *workloads]:
                for name in workloads:
                    self._snapshot = change.delete(self._snapshot, project, name)
            case ["project", "create", name, *options]:
                self._snapshot = change.set_project(self._snapshot, _project(name, options))
                self._watching.take_namespace(_namespace(name), name)
            case ["project", "update", name, "-g", quota]:
                self._snapshot = change.set_quota(self._snapshot, name, gpu_milli(quota))
            case ["project", "delete", name, "--force"]:
                self._snapshot = change.delete_project(self._snapshot, name)
            case _:
                raise UsageError(f"muster {shlex.join(words)}: not done without a cluster")

    def _submit(self, words: Sequence[str]) -> None:
        submission, project = read_submission(words)
        if project is None:
            raise UsageError(f"submit {shlex.join(words)} names no project: add -p PROJECT")
        self._snapshot = change.submit(self._snapshot, submission, project)
        self._count += 1
        self._submitted[self._snapshot.workloads[-1].id] = self._count
        self._record(self._snapshot, ())

    def _settle(self) -> None:
        """Let the planner decide until nothing changes, and record each decision.

        Evicted pods terminate one decision later.
        """
        self._record(self._snapshot, ())
        run = settle(self._snapshot, planner=self._planner, grace_decisions=1)
        states = [*run.snapshots, run.after]
        for decision, after in zip(run.steps, states[1:], strict=True):
            self._record(after, decision.evictions)
        self._snapshot = run.after
        if not run.is_stable:
            raise TargetError(f"the planner still changes its mind after {len(run.steps)} decisions")

    @property
    def _watching(self) -> Recorder:
        if self._recorder is None:
            raise TargetError("nothing records the decisions of the planner")
        return self._recorder

    def _record(self, after: model.Snapshot, evictions: Iterable[model.Eviction]) -> None:
        """Record the differences of the pods from the last record: deleted pods, then evicted pods, then the others."""
        pods = self._pods(after, {eviction.pod: eviction for eviction in evictions})
        for name in [name for name in self._seen if name not in pods]:
            self._tell(msgspec.structs.replace(self._seen.pop(name), change="deleted"))
        changed = [(name, pod) for name, pod in pods.items() if pod != self._seen.get(name)]
        for name, pod in sorted(changed, key=lambda entry: entry[1].eviction is None):
            self._tell(pod if name in self._seen else msgspec.structs.replace(pod, change="added"))
            self._seen[name] = pod

    def _tell(self, pod: PodSeen) -> None:
        recorder = self._watching
        recorder.record(msgspec.structs.replace(pod, t_ms=recorder.now_ms()))

    def _pods(self, snapshot: model.Snapshot, evictions: dict[str, model.Eviction]) -> dict[str, PodSeen]:
        """Return the pods of the snapshot by id, as a watch would show them.

        `evictions` has the evictions of this decision, by the pod's id.
        """
        return {
            pod.id: PodSeen(
                t_ms=0,
                change="modified",
                uid=f"{self._submitted[workload.id]}/{pod.id}",
                namespace=_namespace(workload.project),
                project=workload.project,
                workload=workload.name,
                pod=pod.name,
                phase="Pending" if pod.state is model.PodState.PENDING else "Running",
                node=pod.node or "",
                devices=pod.devices,
                gpu_milli=pod.request.gpu_milli,
                preemptible=workload.preemptible,
                priority=workload.priority,
                submitted_us=workload.created_at_us,
                min_member=workload.min_member,
                terminating=pod.state is model.PodState.RELEASING,
                eviction=self._eviction(pod.id, evictions.get(pod.id)),
            )
            for workload in snapshot.workloads
            for pod in workload.pods
        }

    def _eviction(self, pod: str, decided: model.Eviction | None) -> Eviction | None:
        """Return the eviction that this decision or an earlier one made.

        The planner's rule is the reason, because there is no API server that gives one.
        """
        if decided is not None:
            return Eviction(decided.rule, decided.message)
        return self._seen[pod].eviction if pod in self._seen else None


def _project(name: str, options: Sequence[str]) -> model.Project:
    """Return the project of these options as the operator would read it. Raises UsageError, and exceptions of click."""
    with create.make_context("create", [name, *options]) as context:
        values = {key: value for key, value in context.params.items() if key not in {"name", "no_wait"}}
    project = objects.Project(metadata=objects.Metadata(name=name), spec=spec_of(ProjectSpec(), values))
    return planner_project(project)


def _nodes(cluster: Cluster) -> tuple[model.Node, ...]:
    """Return the nodes that the scenario needs, without pods. Raises ProfileError."""
    profile = load(cluster.profile)
    return tuple(
        model.Node(
            name=name,
            gpu_count=cluster.gpus_per_node,
            cpu_milli=cpu_milli(profile.capacity["cpu"]),
            memory_bytes=memory_bytes(profile.capacity["memory"]),
            pod_slots=int(profile.capacity["pods"]),
            labels=dict(profile.labels),
        )
        for name, _ in names([NodeGroup(profile, cluster.nodes)])
    )


def _namespace(project: str) -> str:
    return f"muster-{project}"
