"""Facts from a pod's status: starts of its containers, reasons of failed starts, the latest end, rejection. Pure."""

import enum
from collections.abc import Iterator
from typing import Any, Final

from orchestrator.cluster.objects import Pod
from orchestrator.cluster.pods import ContainerState, ContainerStatus
from orchestrator.cluster.quantity import time_us
from orchestrator.cluster.wire import has_condition
from orchestrator.names import DISRUPTED_CONDITION
from orchestrator.planner.model import SECOND_US

_NOT_STARTED: Final = frozenset(("ContainerCannotRun", "StartError"))
"""Reasons of terminated containers whose process the runtime could not start."""

HOPELESS: Final = frozenset(("InvalidImageName", "ErrImageNeverPull"))
"""Reasons of waiting containers that no further attempt of the kubelet can repair."""
_TOO_LITTLE: Final = "OutOf"
"""Prefix of the kubelet's reason if its node lacks a resource. The name of the resource follows: `OutOfcpu`."""
_REJECTED: Final = frozenset(
    (
        # pkg/kubelet of Kubernetes: lifecycle/predicate.go, the topology and CPU managers; filters of its scheduler
        *("UnexpectedAdmissionError", "UnexpectedPredicateFailureType", "UnknownReason", "InvalidNodeInfo"),
        *("PodOSSelectorNodeLabelDoesNotMatch", "PodOSNotSupported", "InitContainerRestartPolicyForbidden"),
        *("SupplementalGroupsPolicyNotSupported", "SysctlForbidden", "TopologyAffinityError"),
        *("AppArmor", "PodFeatureUnsupported"),
        *("SMTAlignmentError", "NodeAffinity", "NodeName", "NodePorts", "TaintToleration"),
    )
)
"""Reasons that a kubelet gives if it does not admit a pod."""
_ENDED: Final = frozenset(("DeadlineExceeded", "Preempting", "NodeShutdown", "Terminated"))
"""Reasons of pods that ended early although their node could run them."""
_NORMAL: Final = frozenset(("", "ContainerCreating", "PodInitializing"))


class NotDecided(enum.StrEnum):
    """Reasons, beside the planner's, for no decision about a pod.

    The message of its condition begins with one of them.
    """

    VOLUME_NOT_READY = "VolumeNotReady"
    UNREADABLE = "Unreadable"
    SKIPPED = "Skipped"


def ends_by_us(pod: Pod) -> int:
    """Return the latest time at which Kubernetes ends the pod; 0 if it has no deadline or has not started."""
    seconds, started_us = pod.spec.active_deadline_seconds, time_us(pod.status.start_time)
    return 0 if seconds is None or not started_us else started_us + seconds * SECOND_US


def has_started(pod: Pod) -> bool:
    """Return whether a process of a container, or of an init container, has run."""
    return any(map(_has_run, _containers(pod)))


def never_started(pod: Pod) -> bool:
    """Return whether the pod is bound and no process of it has run, so that an eviction loses nothing.

    If the runtime repeatedly fails to start a container, the pod is Running without a process.
    """
    if not pod.spec.node_name or has_started(pod):
        return False
    return pod.status.phase == "Pending" or (
        pod.status.phase == "Running" and bool(pod.status.container_statuses)
    )


def is_rejected(pod: Pod) -> bool:
    """Return whether the kubelet rejected the pod, or the pod failed before a process ran.

    A restarted kubelet can reject pods that were running. Deleted and disrupted pods do not count as rejected.
    """
    status = pod.status
    if status.phase != "Failed" or not pod.spec.node_name or pod.metadata.deletion_timestamp is not None:
        return False
    if status.reason in _REJECTED or status.reason.startswith(_TOO_LITTLE):
        return True
    is_disrupted = status.reason in _ENDED or has_condition(status.conditions, DISRUPTED_CONDITION)
    return not is_disrupted and not has_started(pod)


def rejection_reason(pod: Pod) -> str:
    """Return why a rejected pod failed: the reason of the kubelet, else the reason of the container runtime."""
    if pod.status.reason:
        return pod.status.reason
    ended = (container.state.terminated for container in _containers(pod))
    return next((state.reason for state in ended if state is not None and state.reason), "")


def start_problem(pod: Pod) -> tuple[str, str]:
    """Return the kubelet's reason and message for a container that has not started; both are empty if there are
    none.
    """
    for container in _containers(pod):
        for state in (container.state, container.last_state):
            found = state.waiting or state.terminated
            if found is not None and found.reason not in _NORMAL and not _runs(state):
                return found.reason, " ".join(found.message.split())
    return "", ""


def cannot_start(pod: Pod) -> bool:
    """Return whether a container waits for a reason in HOPELESS."""
    return any(
        container.state.waiting is not None and container.state.waiting.reason in HOPELESS
        for container in _containers(pod)
    )


def bound_at_us(pod: Pod) -> int:
    """Return the time of the pod's binding, in microseconds; 0 if its status has none."""
    scheduled = (
        condition.last_transition_time
        for condition in pod.status.conditions
        if condition.type == "PodScheduled" and condition.status == "True"
    )
    return time_us(next(scheduled, "")) or time_us(pod.status.start_time)


def last_start_us(pod: Pod) -> int:
    """Return the time of the last start of a container, in microseconds; 0 if none has started or no time is known."""
    states = (state for container in _containers(pod) for state in (container.state, container.last_state))
    ran = (state.running or state.terminated for state in states if _runs(state))
    return max((time_us(state.started_at) for state in ran if state is not None), default=0)


def failed_at_us(pod: Pod) -> int:
    """Return the time of the pod's failure: the latest time in its status, else its creation; 0 if there is none."""
    status = pod.status
    ended = (container.state.terminated for container in _containers(pod))
    stamps = (
        status.start_time,
        *(condition.last_transition_time for condition in status.conditions),
        *(state.finished_at for state in ended if state is not None),
    )
    return max(map(time_us, stamps), default=0) or time_us(pod.metadata.creation_timestamp)


def start_fields(pod: Pod) -> dict[str, Any]:
    """Return the planner's fields about a bound pod that has not started; empty if it has started or is unbound."""
    if not never_started(pod):
        return {}
    return {
        "never_started": True,
        "bound_at_us": bound_at_us(pod),
        "start_problem": start_problem(pod)[0],
        "cannot_start": cannot_start(pod),
    }


def _containers(pod: Pod) -> Iterator[ContainerStatus]:
    yield from pod.status.container_statuses
    yield from pod.status.init_container_statuses


def _has_run(container: ContainerStatus) -> bool:
    if _runs(container.state) or _runs(container.last_state):
        return True
    # The restart count alone does not prove that a process ran: it also counts restarts after a failed start.
    return bool(container.restart_count) and container.last_state.terminated is None


def _runs(state: ContainerState) -> bool:
    if state.terminated is not None:
        return state.terminated.reason not in _NOT_STARTED
    return state.running is not None
