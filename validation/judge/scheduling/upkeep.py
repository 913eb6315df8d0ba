"""Invariants over maintenance while jobs run: an administrator drains nodes, and the operator is killed."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from validation.judge.events import CommandRun, OperatorKilled, PodSeen
from validation.judge.scheduling.history import History, Violation
from validation.judge.state import State, Workload, replay


def cordoned_node(history: History) -> list[Violation]:
    """No pod is placed on a node that is cordoned."""
    return [
        Violation(
            event.t_ms, f"pod {event.project}/{event.pod} was placed on {event.node}, which is cordoned"
        )
        for event, state in _placed(history)
        if event.node in state.cordoned
    ]


def placed_beside_cordoned(history: History) -> int:
    """Return the number of pods that were placed elsewhere while a suitable node was cordoned."""
    return sum(bool(state.cordoned) and event.t_ms >= history.since_ms for event, state in _placed(history))


def _placed(history: History) -> Iterator[tuple[PodSeen, State]]:
    """Yield each pod when it gets its node, with the state after this event."""
    placed: set[str] = set()
    for event, state in replay(history.events):
        if isinstance(event, PodSeen) and event.holds and event.uid not in placed:
            placed.add(event.uid)
            yield event, state


@dataclass(slots=True)
class _Takeover:
    """The nominations and evictions of a killed operator, until a command of the scenario changes the demand."""

    nominated: dict[str, str] = field(default_factory=dict)
    """The nominated node of each pod without a node, by the pod's uid."""
    evicted: frozenset[Workload] = frozenset()
    holding: frozenset[str] = frozenset()
    """The uids of all pods that held GPUs when the operator was killed. Their evictions may have begun before."""


def nominations_last(history: History) -> list[Violation]:
    """Nominations stay valid after their operator was killed: each nominated pod gets its node, and no workload is
    evicted a second time for it.
    """
    violations = []
    for pod, node, again in _after_takeovers(history):
        if again:
            message = (
                f"workload {pod.workload} of {pod.project} was evicted again after the operator was killed"
            )
        elif pod.change == "deleted":
            message = f"pod {pod.project}/{pod.pod} was deleted before it got its nominated GPUs on {node}"
        else:
            message = f"pod {pod.project}/{pod.pod} was placed on {pod.node}, and was nominated to {node}"
        if again or pod.change == "deleted" or pod.node != node:
            violations.append(Violation(pod.t_ms, message))
    return violations


def nominated_pods(history: History) -> int:
    """Return the number of pods with a nomination at the time when the operator was killed."""
    return sum(
        len(nominated_nodes(state))
        for event, state in replay(history.events)
        if isinstance(event, OperatorKilled) and event.t_ms >= history.since_ms
    )


def nominated_nodes(state: State) -> dict[str, str]:
    """Return the nominated node of each pod that has no node yet, by uid."""
    return {uid: pod.nominated_node for uid, pod in state.pods.items() if pod.nominated_node and not pod.node}


def _after_takeovers(history: History) -> Iterator[tuple[PodSeen, str, bool]]:
    """Yield the outcome of each nomination of a killed operator, and the workloads that were evicted again.

    A pod is yielded with its nominated node when it gets a node or is deleted. It is yielded with no node and True
    when it is evicted again.
    """
    takeover: _Takeover | None = None
    announced: dict[str, Workload] = {}
    """The workload of each pod that was evicted since the last command, by the pod's uid."""
    known: set[str] = set()
    for event, state in replay(history.events):
        if isinstance(event, CommandRun):
            takeover, announced = None, {}
        elif isinstance(event, OperatorKilled):
            holding = frozenset(pod.uid for pod in state.holding())
            takeover = _Takeover(nominated_nodes(state), frozenset(announced.values()), holding)
        elif isinstance(event, PodSeen):
            key = (event.project, event.workload)
            if event.eviction is not None and event.uid not in known:
                known.add(event.uid)
                announced[event.uid] = key
                if takeover is not None and key in takeover.evicted and event.uid not in takeover.holding:
                    yield event, "", True
            was_deleted = event.change == "deleted" and key not in state.deleted
            if takeover is not None and event.uid in takeover.nominated and (event.holds or was_deleted):
                yield event, takeover.nominated.pop(event.uid), False
