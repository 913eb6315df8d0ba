"""Folds events into the state of the cluster: which workloads hold which GPUs, and which are pending."""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from validation.judge.events import (
    CommandRun,
    Event,
    GpusSeen,
    NodesDrained,
    NodeSeen,
    NodesOpened,
    PodSeen,
    ProjectDeleted,
    ProjectSet,
)

Workload = tuple[str, str]
"""Project and name."""


@dataclass(slots=True)
class State:
    """The cluster after the events seen so far. `apply` changes it in place."""

    nodes: dict[str, int] = field(default_factory=dict)
    quotas: dict[str, int] = field(default_factory=dict)
    pods: dict[str, PodSeen] = field(default_factory=dict)
    expected: set[Workload] = field(default_factory=set)
    deleted: set[Workload] = field(default_factory=set)
    deleted_projects: set[str] = field(default_factory=set)
    witnesses: dict[str, GpusSeen] = field(default_factory=dict)
    """The last report of the kubelet and the driver of each node, by node."""
    applied: int = 0
    projects: dict[str, ProjectSet] = field(default_factory=dict)
    """The projects with their latest limits. `quotas` repeats their quotas."""
    node_types: dict[str, str] = field(default_factory=dict)
    """The group of nodes of each node, by node."""
    cordoned: set[str] = field(default_factory=set)
    """The cordoned nodes. A node is removed when it is about to be uncordoned."""
    closed: set[str] = field(default_factory=set)
    """The nodes that take no new pods: they are not ready or cordoned."""
    drained: set[str] = field(default_factory=set)
    """The uids of pods that an administrator evicted."""
    _bound_at: dict[str, int] = field(default_factory=dict)
    _said_at: dict[str, int] = field(default_factory=dict)
    _given: dict[str, dict[str, frozenset[int]]] = field(default_factory=dict)
    """The GPUs that the kubelet gave each pod, by node and by name of the pod."""
    _holding: dict[str, PodSeen] = field(default_factory=dict)
    """The pods that occupy GPUs, by uid."""
    _members: dict[Workload, dict[str, PodSeen]] = field(default_factory=dict)
    """The existing pods, by workload and uid."""

    def copy(self) -> "State":
        """Return a copy of the state that changes independently."""
        return State(
            dict(self.nodes),
            dict(self.quotas),
            dict(self.pods),
            set(self.expected),
            set(self.deleted),
            set(self.deleted_projects),
            dict(self.witnesses),
            self.applied,
            dict(self.projects),
            dict(self.node_types),
            set(self.cordoned),
            set(self.closed),
            set(self.drained),
            dict(self._bound_at),
            dict(self._said_at),
            dict(self._given),
            dict(self._holding),
            {key: dict(members) for key, members in self._members.items()},
        )

    def apply(self, event: Event) -> None:
        """Update the state with `event`."""
        self.applied += 1
        match event:
            case PodSeen():
                self._see(event)
            case NodeSeen():
                self.nodes[event.node] = event.gpus
                self.node_types[event.node] = event.node_type
                (self.cordoned.add if event.cordoned else self.cordoned.discard)(event.node)
                is_open = event.ready and not event.cordoned
                (self.closed.discard if is_open else self.closed.add)(event.node)
            case NodesDrained():
                self.drained.update(event.uids)
            case NodesOpened():
                self.cordoned.difference_update(event.nodes)
            case GpusSeen():
                self._hear(event)
            case ProjectSet():
                self.quotas[event.project] = event.quota_milli
                self.projects[event.project] = event
                self.deleted_projects.discard(event.project)
            case ProjectDeleted():
                self.quotas.pop(event.project, None)
                self.projects.pop(event.project, None)
                self.deleted_projects.add(event.project)
            case CommandRun():
                workloads = {(event.project, name) for name in event.workloads}
                if event.action == "submit":
                    self.expected |= workloads
                    self.deleted -= workloads
                elif event.action == "delete":
                    self.expected -= workloads
                    self.deleted |= workloads

    def _see(self, pod: PodSeen) -> None:
        """Store the present state of a pod."""
        holds = pod.holds
        self._join(pod)
        if pod.change == "deleted":
            self.pods.pop(pod.uid, None)
            self._bound_at.pop(pod.uid, None)
        else:
            self.pods[pod.uid] = pod
            if holds:
                self._bound_at.setdefault(pod.uid, self.applied)
        if holds and pod.gpu_milli:
            self._holding[pod.uid] = pod
        else:
            self._holding.pop(pod.uid, None)

    def _join(self, pod: PodSeen) -> None:
        """Add the pod to its workload, or remove it. `self.pods` still has its earlier state."""
        before = self.pods.get(pod.uid)
        moved = before is not None and (before.project != pod.project or before.workload != pod.workload)
        if before is not None and (moved or pod.change == "deleted"):
            members = self._members[before.project, before.workload]
            del members[pod.uid]
            if not members:
                del self._members[before.project, before.workload]
        if pod.change != "deleted":
            self._members.setdefault((pod.project, pod.workload), {})[pod.uid] = pod

    def _hear(self, event: GpusSeen) -> None:
        """Store the report of a kubelet and a driver. A report without any GPU removes the previous report."""
        if not event.gpus:
            self.witnesses.pop(event.node, None)
            self._given.pop(event.node, None)
            return
        given: dict[str, set[int]] = defaultdict(set)
        for gpu in event.gpus:
            for holder in gpu.holders:
                given[holder].add(gpu.index)
        self.witnesses[event.node] = event
        self._said_at[event.node] = self.applied
        self._given[event.node] = {name: frozenset(indices) for name, indices in given.items()}

    def given(self, pod: PodSeen) -> frozenset[int]:
        """Return the GPUs that the kubelet of its node gave the pod, by a report since the pod was bound.

        An earlier report can be about another pod of that name.
        """
        if self._said_at.get(pod.node, 0) < self._bound_at.get(pod.uid, self.applied):
            return frozenset()
        return self.named(pod)

    def named(self, pod: PodSeen) -> frozenset[int]:
        """Return the GPUs that the kubelet of the pod's node gave to a pod of this name, by the kubelet's last report.

        The report can be older than the binding of the pod.
        """
        return self._given.get(pod.node, {}).get(f"{pod.namespace}/{pod.pod}", frozenset())

    def holding(self) -> list[PodSeen]:
        """Return the pods that occupy GPUs now."""
        return list(self._holding.values())

    def allocated_milli(self) -> dict[str, int]:
        """Return the thousandths of a GPU that each project holds; every known project is a key."""
        held = dict.fromkeys(self.quotas, 0)
        for pod in self.holding():
            held[pod.project] = held.get(pod.project, 0) + pod.gpu_milli
        return held

    def by_workload(self) -> dict[Workload, list[PodSeen]]:
        """Return all existing pods, by project and workload."""
        return {key: list(members.values()) for key, members in self._members.items()}

    def running(self) -> set[Workload]:
        """Return the workloads of which at least `min_member` pods run and are not being deleted."""
        return {
            key
            for key, pods in self.by_workload().items()
            if sum(pod.phase == "Running" and pod.holds and not pod.terminating for pod in pods)
            >= pods[0].min_member
        }

    def pending(self) -> set[Workload]:
        """Return the submitted workloads without any bound pod, also those whose pods do not exist yet."""
        pods = self.by_workload()
        occupied = {key for key, members in pods.items() if any(pod.node for pod in members)}
        return (self.expected | set(pods)) - occupied - self.deleted

    def devices(self, *, by_kubelets: bool = False) -> dict[tuple[str, int], dict[str, int]]:
        """Return the thousandths that each pod, by uid, holds of each GPU (node, index) in use.

        The devices are those of the scheduler. With `by_kubelets`, whole GPUs are those of the kubelets that report.
        """
        shares: dict[tuple[str, int], dict[str, int]] = defaultdict(dict)
        for pod in self.holding():
            uses_kubelets = by_kubelets and pod.node in self.witnesses and pod.gpu_milli >= 1000
            for index in self.given(pod) if uses_kubelets else pod.devices:
                shares[pod.node, index][pod.uid] = min(pod.gpu_milli, 1000)
        return dict(shares)


def replay(events: Iterable[Event]) -> Iterator[tuple[Event, State]]:
    """Yield each event with the state after it. The state is one object that changes: copy any value that must last."""
    state = State()
    for event in events:
        state.apply(event)
        yield event, state


def fold(events: Iterable[Event]) -> State:
    """Return the state after all events."""
    state = State()
    for event in events:
        state.apply(event)
    return state


def evictions(events: Iterable[Event]) -> list[PodSeen]:
    """Return, for every evicted pod, the first event with its eviction, in order of time."""
    first_events: dict[str, PodSeen] = {}
    for event in events:
        if isinstance(event, PodSeen) and event.eviction is not None:
            first_events.setdefault(event.uid, event)
    return list(first_events.values())


def series(events: Iterable[Event]) -> list[tuple[int, dict[str, int]]]:
    """Return the allocated thousandths of a GPU of each project over time: one entry for each change, at its `t_ms`."""
    points: list[tuple[int, dict[str, int]]] = []
    for event, state in replay(events):
        allocated = state.allocated_milli()
        if points and points[-1][0] == event.t_ms:
            points[-1] = (event.t_ms, allocated)
        elif not points or points[-1][1] != allocated:
            points.append((event.t_ms, allocated))
    return points
