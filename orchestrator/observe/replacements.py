"""Terminating pods whose successors exist already. Pure.

A controller creates the successor when a pod begins to terminate (Job, ReplicaSet) or only after its end (StatefulSet).
No object names the predecessor of a pod, so it is derived from times. A pod that was created after the deletion of
another pod counts as its successor.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from orchestrator.cluster.objects import Pod
from orchestrator.cluster.quantity import time_us
from orchestrator.planner import model


def with_replaced(pods: Sequence[tuple[Pod, model.Pod]]) -> Sequence[tuple[Pod, model.Pod]]:
    """Return the pods of one workload, with `replaced` set on terminating pods whose successor exists."""
    replaced = _replaced(pods)
    if not replaced:
        return pods
    return [
        (pod, replace(planned, replaced=True) if planned.id in replaced else planned) for pod, planned in pods
    ]


def _replaced(pods: Iterable[tuple[Pod, model.Pod]]) -> frozenset[str]:
    """Return the uids of terminating pods with a successor. A pod is the successor of only one pod."""
    terminating: list[tuple[int, str]] = []
    created: list[int] = []
    for pod, planned in pods:
        made_us, removed_us = time_us(pod.metadata.creation_timestamp), _removed_us(pod)
        if planned.state is model.PodState.RELEASING and removed_us and not _keeps_its_name(pod):
            terminating.append((removed_us, planned.id))
        if not removed_us or made_us < removed_us:  # a pod must not count as its own successor
            created.append(made_us)
    if not terminating:
        return frozenset()
    created.sort(reverse=True)
    replaced: list[str] = []
    # The pod that was deleted last has the fewest possible successors. Times are whole seconds, so an equal
    # time counts.
    for removed_us, uid in sorted(terminating, reverse=True):
        if len(replaced) < len(created) and created[len(replaced)] >= removed_us:
            replaced.append(uid)
    return frozenset(replaced)


def _keeps_its_name(pod: Pod) -> bool:
    """Return whether the successor has the same name. If so, it cannot exist before the pod's end."""
    controller = pod.metadata.controller
    return controller is not None and controller.kind == "StatefulSet"


def _removed_us(pod: Pod) -> int:
    """Return the time of the pod's deletion or 0. The deletion timestamp is the end of the grace period."""
    metadata = pod.metadata
    over_us = time_us(metadata.deletion_timestamp or "")
    return max(0, over_us - (metadata.deletion_grace_period_seconds or 0) * model.SECOND_US)
