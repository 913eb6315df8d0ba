"""Explains failed checks by the causes that Kubernetes gives for pods that should run and do not."""

from collections.abc import Collection, Sequence
from typing import Final

from validation.judge.events import Cause, PodSeen
from validation.judge.state import State

MAX_LINES: Final = 20
"""Maximum number of named pods. A thousand pods mostly have one cause."""


def explain_pods(state: State, projects: Sequence[str], waiting: Collection[str] = ()) -> list[str]:
    """Return a line for each pod of the projects that does not run for a known cause, sorted by project and name.

    Workloads in `waiting` are expected to be pending. They have no line, and neither have workloads that a command
    deleted.
    """
    lines = [
        _explain(pod, pod.cause)
        for pod in sorted(state.pods.values(), key=lambda pod: (pod.project, pod.pod))
        if pod.cause is not None
        and pod.project in projects
        and pod.workload not in waiting
        and (pod.project, pod.workload) not in state.deleted
    ]
    more = len(lines) - MAX_LINES
    return [*lines[:MAX_LINES], f"and {more} pods more"] if more > 0 else lines


def _explain(pod: PodSeen, cause: Cause) -> str:
    where = f" on {pod.node}" if pod.node else ""
    words = filter(None, (cause.source, cause.reason, cause.message))
    return f"pod {pod.pod}{where} is {pod.phase}: {': '.join(words)}"
