"""Whether a container of a pod has ever started, and which pods their node rejected. Pure."""

from typing import Final

from orchestrator.cluster.objects import Pod
from orchestrator.cluster.pods import ContainerState

_NOT_STARTED: Final = frozenset(("ContainerCannotRun", "StartError"))
"""Reasons of terminated containers whose process the runtime could not start."""


def has_started(pod: Pod) -> bool:
    """Whether a process of a container, or of an init container, has run."""
    status = pod.status
    return any(
        container.restart_count or _has_run(container.state) or _has_run(container.last_state)
        for container in (*status.container_statuses, *status.init_container_statuses)
    )


def never_started(pod: Pod) -> bool:
    """Whether the pod is pending on its node: no process has run, so it has no work to lose."""
    return pod.status.phase == "Pending" and bool(pod.spec.node_name) and not has_started(pod)


def is_rejected(pod: Pod) -> bool:
    """Whether the pod failed on its node before a process ran, for example with UnexpectedAdmissionError."""
    return pod.status.phase == "Failed" and bool(pod.spec.node_name) and not has_started(pod)


def _has_run(state: ContainerState) -> bool:
    if state.terminated is not None:
        return state.terminated.reason not in _NOT_STARTED
    return state.running is not None
