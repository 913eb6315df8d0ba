"""Invariants over what an administrator does while jobs run: nodes are drained, the operator is killed."""

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
    """Pods that were placed while a node was cordoned, on which it could have been."""
    return sum(bool(state.cordoned) and event.t_ms >= history.since_ms for event, state in _placed(history))


def _placed(history: History) -> Iterator[tuple[PodSeen, State]]:
    """Each pod as it got its node, with the state after that."""
    placed: set[str] = set()
    for event, state in replay(history.events):
        if isinstance(event, PodSeen) and event.holds and event.uid not in placed:
            placed.add(event.uid)
            yield event, state


@dataclass(slots=True)
class _Takeover:
    """What the operator that was killed had promised, and whom it had evicted, as long as no command asks for more."""

    promised: dict[str, str] = field(default_factory=dict)
    """By uid of a pod without a node, the node on which room is promised to it."""
    evicted: frozenset[Workload] = frozenset()
    holding: frozenset[str] = frozenset()
    """The uids of all pods that held GPUs: evictions of several pods may have been under way."""


def nominations_last(history: History) -> list[Violation]:
    """Promises of a killed operator outlive it: who waits gets its place, and nobody is evicted twice for it."""
    violations = []
    for pod, promise, again in _after_takeovers(history):
        if again:
            message = (
                f"workload {pod.workload} of {pod.project} was evicted again after the operator was killed"
            )
        elif pod.change == "deleted":
            message = f"pod {pod.project}/{pod.pod} went, and did not get its promised place on {promise}"
        else:
            message = (
                f"pod {pod.project}/{pod.pod} was placed on {pod.node}, and {promise} was promised to it"
            )
        if again or pod.change == "deleted" or pod.node != promise:
            violations.append(Violation(pod.t_ms, message))
    return violations


def promised_pods(history: History) -> int:
    """Pods that waited for a promised place when the operator was killed."""
    return sum(
        len(promised(state))
        for event, state in replay(history.events)
        if isinstance(event, OperatorKilled) and event.t_ms >= history.since_ms
    )


def promised(state: State) -> dict[str, str]:
    """By uid, the node on which room is promised to each pod that has none yet."""
    return {uid: pod.nominated_node for uid, pod in state.pods.items() if pod.nominated_node and not pod.node}


def _after_takeovers(history: History) -> Iterator[tuple[PodSeen, str, bool]]:
    """What became of each promise of a killed operator, and who was evicted again.

    A pod is yielded as it gets a node or goes, with the promised node; or as it is evicted, with no node and True.
    """
    takeover: _Takeover | None = None
    announced: dict[str, Workload] = {}
    """By uid, the workloads of pods that were evicted since the last command."""
    known: set[str] = set()
    for event, state in replay(history.events):
        if isinstance(event, CommandRun):
            takeover, announced = None, {}
        elif isinstance(event, OperatorKilled):
            holding = frozenset(pod.uid for pod in state.holding())
            takeover = _Takeover(promised(state), frozenset(announced.values()), holding)
        elif isinstance(event, PodSeen):
            key = (event.project, event.workload)
            if event.eviction is not None and event.uid not in known:
                known.add(event.uid)
                announced[event.uid] = key
                if takeover is not None and key in takeover.evicted and event.uid not in takeover.holding:
                    yield event, "", True
            went = event.change == "deleted" and key not in state.deleted
            if takeover is not None and event.uid in takeover.promised and (event.holds or went):
                yield event, takeover.promised.pop(event.uid), False
