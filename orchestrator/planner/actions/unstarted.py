"""Evict pods whose containers did not start in time: such pods hold GPUs that they do not use.

If the kubelet reports that a pod cannot start, for example with InvalidImageName, the time is two minutes.
"""

from typing import Final

from orchestrator.planner.failures import span_text
from orchestrator.planner.gangs import has_gang
from orchestrator.planner.model import SECOND_US, Eviction, Pod, PodState, Workload
from orchestrator.planner.preemption.rescheduling import MOVE_RULE
from orchestrator.planner.session import Session

RULE: Final = "start-timeout"
HOPELESS_SECONDS: Final = 120


def evict_unstarted(session: Session) -> None:
    """Evict the pods that did not start in time, and the rest of a gang that cannot run without them."""
    timeout_seconds = session.snapshot.settings.start_timeout_seconds
    if timeout_seconds is None or not session.snapshot.now_us:
        return
    for workload in session.unstarted():
        late = [pod for pod in workload.pods if _seconds_late(session, pod, timeout_seconds) >= 0]
        if not late:
            continue
        victims = _with_gang(workload, late)
        if not (session.limits.may_evict([victims]) and session.limits.budgets_allow(victims)):
            continue
        for pod in victims:
            session.ledger.evict(workload, pod)
        message = _message(workload, late[0], timeout_seconds)
        session.take(Eviction(pod.id, workload.id, workload.id, RULE, message) for pod in victims)
        session.end_useless_nominations(workload.id)


def is_failed_start(eviction: Eviction, start_problem: str) -> bool:
    """Return whether the eviction of a pod counts as a failed start, so that its workload backs off.

    Example: a job evicts a pod in ImagePullBackOff. Without a back-off, its successor would preempt a running pod.
    """
    is_migrated = eviction.rule == MOVE_RULE or eviction.beneficiary == eviction.workload
    return eviction.rule == RULE or (bool(start_problem) and not is_migrated)


def _seconds_late(session: Session, pod: Pod, timeout_seconds: int) -> int:
    if pod.state is not PodState.ALLOCATED or not pod.never_started or not pod.bound_at_us:
        return -1
    return (session.snapshot.now_us - pod.bound_at_us) // SECOND_US - _allowed_seconds(pod, timeout_seconds)


def _allowed_seconds(pod: Pod, timeout_seconds: int) -> int:
    return min(timeout_seconds, HOPELESS_SECONDS) if pod.cannot_start else timeout_seconds


def _with_gang(workload: Workload, late: list[Pod]) -> list[Pod]:
    ids = {pod.id for pod in late}
    rest = tuple(pod for pod in workload.pods if pod.id not in ids)
    if has_gang(workload.with_pods(rest)):
        return late
    return [pod for pod in workload.pods if pod.state is PodState.ALLOCATED]


def _message(workload: Workload, late: Pod, timeout_seconds: int) -> str:
    span = span_text(_allowed_seconds(late, timeout_seconds) * SECOND_US)
    problem = f": {late.start_problem}" if late.start_problem else ""
    return (
        f"{workload.name} gives its GPUs back: no container of {late.name} started on {late.node} within "
        f"{span} (--start-timeout){problem}"
    )
