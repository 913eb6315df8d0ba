"""The events of a run, with the cluster state and the pod counts at any event, so that one pass serves all checks."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from validation.judge import units
from validation.judge.events import (
    Event,
    GpusSeen,
    NodeSeen,
    OutsidersSeen,
    PodSeen,
    ProjectSet,
    WatchSeen,
)
from validation.judge.evidence import Evidence
from validation.judge.state import State


@dataclass(slots=True)
class _Before:
    """The cluster state and the counts of pods after the first `at` events."""

    at: int = 0
    state: State = field(default_factory=State)
    uids: dict[str, set[str]] = field(default_factory=dict)
    """The uids of the pods of each project."""
    pod_events: dict[str, int] = field(default_factory=dict)
    project_of: dict[str, str] = field(default_factory=dict)
    moved: set[str] = field(default_factory=set)
    """The uids that were seen in more than one project, which is impossible in a real cluster."""

    def apply(self, event: Event) -> None:
        self.at += 1
        self.state.apply(event)
        if isinstance(event, PodSeen):
            self.uids.setdefault(event.project, set()).add(event.uid)
            if self.project_of.setdefault(event.uid, event.project) != event.project:
                self.moved.add(event.uid)
            self.pod_events[event.project] = self.pod_events.get(event.project, 0) + 1

    def count_pods(self, projects: Collection[str]) -> int:
        """Return the number of pods of these projects, each counted once."""
        of_projects = [self.uids.get(project, set()) for project in projects]
        repeated = (sum(uid in uids for uids in of_projects) - 1 for uid in self.moved)
        return sum(map(len, of_projects)) - sum(max(0, times) for times in repeated)


class Timeline:
    """All events in order; the list may grow. If steps are judged in order, each event is applied only once."""

    def __init__(self, events: Sequence[Event]) -> None:
        self.events = events
        self._before = _Before()
        self._indexed = 0
        self._nodes: list[tuple[int, NodeSeen | GpusSeen]] = []
        self._gaps: list[tuple[int, WatchSeen]] = []
        self._around: list[tuple[int, NodeSeen | OutsidersSeen]] = []
        self._projects: set[str] = set()
        self._evicted_at: dict[str, int] = {}
        self._between: tuple[tuple[int, int], Evidence] | None = None

    def state_before(self, index: int) -> State:
        """Return a copy of the state after the events before the index."""
        return self._fold(index).state.copy()

    def evidence_before(self, index: int, projects: Collection[str]) -> Evidence:
        """Return the evidence in the events before the index about the pods of these projects."""
        before = self._fold(index)
        gpus = [gpus for gpus in before.state.nodes.values() if gpus]
        return Evidence(
            len(gpus),
            sum(gpus),
            before.count_pods(projects),
            sum(before.pod_events.get(project, 0) for project in projects),
        )

    def evidence_between(self, from_event: int, until_event: int) -> Evidence:
        """Return the evidence in these events about the pods of all projects.

        Nodes and GPUs are counted at `until_event`.
        """
        if self._between is None or self._between[0] != (from_event, until_event):
            nodes = [event for event in self.nodes_before(until_event) if isinstance(event, NodeSeen)]
            gpus = [gpus for gpus in {event.node: event.gpus for event in nodes}.values() if gpus]
            during, projects = self.events[from_event:until_event], self.projects
            uids = [event.uid for event in during if isinstance(event, PodSeen) and event.project in projects]
            evidence = Evidence(len(gpus), sum(gpus), len(set(uids)), len(uids))
            self._between = (from_event, until_event), evidence
        return self._between[1]

    def nodes_before(self, index: int) -> list[NodeSeen | GpusSeen]:
        """Return the events of nodes before the index, and the reports of their kubelets and drivers."""
        self._index()
        return [event for number, event in self._nodes if number < index]

    def evicted_before(self, uid: str, index: int) -> bool:
        """Return whether an eviction of the pod was announced before the index."""
        self._index()
        return self._evicted_at.get(uid, index) < index

    def gaps(self, from_event: int, until_event: int) -> list[WatchSeen]:
        """Return the restarts of watches. A watch restarts with a new list, so earlier changes may be missing."""
        self._index()
        return [event for number, event in self._gaps if from_event <= number < until_event]

    def disturbance(self, from_event: int, until_event: int) -> str:
        """Return the first reason why the cluster is not fit for a check with these events; empty if it is fit.

        A node with GPUs is not ready, or pods outside the projects hold GPUs.
        """
        self._index()
        before: dict[tuple[type, str], NodeSeen | OutsidersSeen] = {}
        during = list[NodeSeen | OutsidersSeen]()
        for number, event in self._around:
            if number < from_event:
                before[type(event), event.node] = event
            elif number < until_event:
                during.append(event)
        return next((words for event in (*before.values(), *during) if (words := _disturbing(event))), "")

    @property
    def projects(self) -> set[str]:
        """All projects of the run."""
        self._index()
        return self._projects

    def _fold(self, index: int) -> _Before:
        if index < self._before.at:
            self._before = _Before()
        for number in range(self._before.at, min(index, len(self.events))):
            self._before.apply(self.events[number])
        return self._before

    def _index(self) -> None:
        for number in range(self._indexed, len(self.events)):
            event = self.events[number]
            if isinstance(event, NodeSeen | OutsidersSeen):
                self._around.append((number, event))
            if isinstance(event, NodeSeen | GpusSeen):
                self._nodes.append((number, event))
            elif isinstance(event, WatchSeen) and event.change == "relisted":
                self._gaps.append((number, event))
            elif isinstance(event, ProjectSet):
                self._projects.add(event.project)
            elif isinstance(event, PodSeen) and event.eviction is not None:
                self._evicted_at.setdefault(event.uid, number)
        self._indexed = len(self.events)


def _disturbing(event: NodeSeen | OutsidersSeen) -> str:
    if isinstance(event, NodeSeen):
        return f"node {event.node} was not ready" if event.gpus and not event.ready else ""
    if not event.gpu_milli:
        return ""
    pods = "1 pod" if event.pods == 1 else f"{event.pods} pods"
    return f"{pods} outside the projects held {units.gpus(event.gpu_milli)} GPUs of {event.node}"
