"""The status of a workload in one word, derived from the workload and its pods.

It is never stored: a stored word costs a write for every change, and can be stale. Every word is a single token,
because scripts split the tables at white space.

    Pending               no pod of it has a node
    ContainerCreating     placed, the image is being pulled
    Running               at least one pod runs, none has a problem
    Terminating           being deleted, or evicted before a new pod follows
    Succeeded Failed TimedOut Suspended   the state of the workload itself
    DependencyFailed      it never starts, because another job did not reach the state that it depends on
    Error                 the last attempt failed, another follows
    Stuck                 a pod did not end after its grace period
    NodeNotReady          the node of a pod is not ready
    ErrImagePull ImagePullBackOff CrashLoopBackOff ContainerCannotRun …   the reason that Kubernetes gives
"""

from collections.abc import Sequence
from typing import Final

from orchestrator.cluster.objects import Job, Pod, StatefulSet
from orchestrator.cluster.wire import has_condition
from orchestrator.names import DISRUPTED_CONDITION, STUCK_CONDITION, TIMED_OUT_ANNOTATION
from orchestrator.views.containers import NORMAL_WAITS

PENDING: Final = "Pending"
CREATING: Final = "ContainerCreating"
RUNNING: Final = "Running"
TERMINATING: Final = "Terminating"
SUCCEEDED: Final = "Succeeded"
FAILED: Final = "Failed"
TIMED_OUT: Final = "TimedOut"
SUSPENDED: Final = "Suspended"
ERROR: Final = "Error"
UNKNOWN: Final = "Unknown"
DEPENDENCY_FAILED: Final = "DependencyFailed"

STATUSES: Final = (
    PENDING, CREATING, RUNNING, TERMINATING, SUCCEEDED, FAILED, TIMED_OUT, SUSPENDED, ERROR, UNKNOWN,
    DEPENDENCY_FAILED,
)  # fmt: skip
"""Muster's own words. A status can also be a reason that Kubernetes gives."""

FINAL: Final = frozenset({SUCCEEDED, FAILED, TIMED_OUT})

_PHASES_THAT_ENDED: Final = frozenset({"Succeeded", "Failed"})
# For a workload of several pods: any status that is not listed here is a problem and comes first, then these
# in this order.
_PRECEDENCE: Final = (RUNNING, CREATING, TERMINATING, PENDING, UNKNOWN)


def workload_status(workload: Job | StatefulSet | None, pods: Sequence[Pod]) -> str:
    """Return the status of a workload; `workload` is None if the pods have no Job or StatefulSet."""
    if workload is not None and workload.metadata.deletion_timestamp is not None:
        return next(filter(None, map(_stuck, pods)), TERMINATING)
    if isinstance(workload, Job):
        return _job_status(workload, pods)
    if workload is not None and workload.spec.replicas == 0 and not pods:
        return TIMED_OUT if TIMED_OUT_ANNOTATION in workload.metadata.annotations else SUSPENDED
    return _combined([pod_status(pod) for pod in pods])


def pod_status(pod: Pod) -> str:
    """Return the status of one pod."""
    status = pod.status
    if status.phase in _PHASES_THAT_ENDED:
        return SUCCEEDED if status.phase == "Succeeded" else _failure(pod)
    if pod.metadata.deletion_timestamp is not None:
        return _stuck(pod) or TERMINATING
    problem = _stuck(pod) or _problem(pod)
    if problem:
        return problem
    if status.phase == "Running":
        return RUNNING
    if status.phase == "Unknown":
        return UNKNOWN
    return CREATING if pod.spec.node_name else PENDING


def _job_status(job: Job, pods: Sequence[Pod]) -> str:
    conditions = job.status.conditions
    if has_condition(conditions, "Complete"):
        return SUCCEEDED
    failed = has_condition(conditions, "Failed")
    if failed:
        return TIMED_OUT if failed.reason == "DeadlineExceeded" else FAILED
    active = [pod for pod in pods if pod.status.phase not in _PHASES_THAT_ENDED]
    if active:
        return _combined([pod_status(pod) for pod in active])
    if job.spec.suspend:
        return SUSPENDED
    return _between_attempts(pods)


def _between_attempts(pods: Sequence[Pod]) -> str:
    """Return the status of a Job whose pods have all ended, before the Job has a condition for its end, or its next
    pod.
    """
    if not pods:
        return PENDING
    last = max(pods, key=lambda pod: (pod.metadata.creation_timestamp, pod.metadata.name))
    if last.status.phase == "Succeeded":
        return RUNNING
    evicted = has_condition(last.status.conditions, DISRUPTED_CONDITION)
    return PENDING if evicted else ERROR


def _combined(words: Sequence[str]) -> str:
    if not words:
        return PENDING
    problem = [word for word in words if word not in _PRECEDENCE and word != SUCCEEDED]
    if problem:
        return problem[0]
    return next((word for word in _PRECEDENCE if word in words), SUCCEEDED)


def _failure(pod: Pod) -> str:
    if pod.status.reason:
        return _token(pod.status.reason) or ERROR
    ended = [
        container_status.state.terminated
        for container_status in pod.status.container_statuses
        if container_status.state.terminated
    ]
    reasons = [state.reason for state in ended if state.exit_code != 0 and state.reason]
    return (_token(reasons[0]) if reasons else "") or ERROR


def _stuck(pod: Pod) -> str:
    """Return the reason of the operator's condition on a pod that its kubelet does not end; empty for any other pod."""
    if pod.status.phase in _PHASES_THAT_ENDED:
        return ""
    stuck = has_condition(pod.status.conditions, STUCK_CONDITION)
    return "" if stuck is None else _token(stuck.reason) or UNKNOWN


def _problem(pod: Pod) -> str:
    for container in (*pod.status.init_container_statuses, *pod.status.container_statuses):
        waiting, terminated = container.state.waiting, container.state.terminated
        if waiting is not None and waiting.reason not in NORMAL_WAITS:
            return _token(waiting.reason)
        if terminated is not None and terminated.exit_code != 0:
            return _token(terminated.reason) or ERROR
    return ""


def _token(reason: str) -> str:
    return "".join(reason.split())
