"""Invariants over the limits of projects: the time of their interactive jobs, and the nodes of their jobs."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from validation.judge.events import Event, PodSeen, ProjectSet
from validation.judge.scheduling.history import History, Violation
from validation.judge.state import replay
from validation.judge.units import seconds

EARLY_MS: Final = 1_000
"""Tolerance in milliseconds for a pod that ends before its limit: Kubernetes has its start in whole seconds, rounded
down.
"""
LATE_MS: Final = 20_000
"""Tolerance in milliseconds for a pod that ends after its limit.

The operator checks every 5 s, and then the pod's owner must delete the pod.
"""


@dataclass(slots=True)
class Run:
    """An interactive pod of a project with a limit: when it got a node, began to run, and began to terminate."""

    pod: PodSeen
    limit_ms: int
    bound_ms: int
    running_ms: int | None = None
    left_ms: int | None = None

    def had_its_time(self, now_ms: int) -> bool:
        """Return whether the time limit may end the pod at this moment."""
        return now_ms - self.bound_ms >= self.limit_ms - EARLY_MS

    @property
    def due_ms(self) -> int | None:
        """The latest moment at which the pod must end; None if the pod never ran."""
        return None if self.running_ms is None else self.running_ms + self.limit_ms + LATE_MS


class Runs:
    """The runs of the interactive pods to which a limit applies, by uid, updated event by event."""

    def __init__(self) -> None:
        self.by_uid: dict[str, Run] = {}

    def follow(self, event: Event, projects: dict[str, ProjectSet]) -> None:
        """Apply the event; `projects` are the projects after it."""
        if not isinstance(event, PodSeen) or not event.interactive:
            return
        run = self.by_uid.get(event.uid)
        project = projects.get(event.project)
        if run is None and event.holds and project is not None and project.interactive_limit_ms:
            run = Run(event, project.interactive_limit_ms, event.t_ms)
            self.by_uid[event.uid] = run
        if run is None:
            return
        if event.phase == "Running" and run.running_ms is None:
            run.running_ms = event.t_ms
        if run.left_ms is None and (event.terminating or not event.holds):
            run.left_ms = event.t_ms

    def allows_end(self, pod: PodSeen) -> bool:
        """Return whether the deleted pod had run for the time limit of its project when its termination began."""
        run = self.by_uid.get(pod.uid)
        return run is not None and run.left_ms is not None and run.had_its_time(run.left_ms)


def interactive_time_limit(history: History) -> list[Violation]:
    """Return an interactive job runs no longer than its project allows, plus the time that it takes to end it."""
    violations = []
    for run in _runs(history):
        until_ms = history.end_ms if run.left_ms is None else run.left_ms
        if run.due_ms is not None and run.due_ms < until_ms and until_ms >= history.since_ms:
            message = (
                f"pod {run.pod.project}/{run.pod.pod} ran for more than {seconds(LATE_MS)} longer than the "
                f"{seconds(run.limit_ms)} that interactive jobs of {run.pod.project} may"
            )
            violations.append(Violation(max(run.due_ms, history.since_ms), message))
    return violations


def runs_to_their_limit(history: History) -> int:
    """Return the number of interactive pods that reached the time limit of their project in the judged time."""
    return sum(
        run.left_ms is None or run.left_ms >= history.since_ms
        for run in _runs(history)
        if run.had_its_time(history.end_ms if run.left_ms is None else run.left_ms)
    )


def _runs(history: History) -> list[Run]:
    """Return all runs in their final state."""
    runs = Runs()
    for event, state in replay(history.events):
        runs.follow(event, state.projects)
    return list(runs.by_uid.values())


def node_affinity(history: History) -> list[Violation]:
    """Return a job of a project that is limited to groups of nodes runs only in these groups.

    A project can have different groups for training and for interactive jobs.
    """
    violations = []
    for event, allowed, node_type in _placed(history):
        if node_type not in allowed:
            kind = "interactive" if event.interactive else "training"
            message = (
                f"pod {event.project}/{event.pod} is on {event.node} of the group {node_type or 'none'}, and "
                f"{kind} jobs of {event.project} may be on {', '.join(allowed)}"
            )
            violations.append(Violation(event.t_ms, message))
    return violations


def limited_to_nodes(history: History) -> int:
    """Return the number of pods that were placed while their project was limited to groups of nodes."""
    return sum(event.t_ms >= history.since_ms for event, _, _ in _placed(history))


def _placed(history: History) -> Iterator[tuple[PodSeen, tuple[str, ...], str]]:
    """Yield each pod of a limited project when it gets its node, with the allowed groups, and the group of the node."""
    placed: set[str] = set()
    for event, state in replay(history.events):
        if not isinstance(event, PodSeen) or not event.holds or event.uid in placed:
            continue
        placed.add(event.uid)
        project = state.projects.get(event.project)
        if project is None:
            continue
        allowed = project.interactive_node_types if event.interactive else project.train_node_types
        if allowed:
            yield event, allowed, state.node_types.get(event.node, "")
