"""Which terminating pods have their successors already. Pure.

A controller makes the next pod when one begins to terminate (a Job, a ReplicaSet) or only after its end (a
StatefulSet). The predecessor is not recorded anywhere, so it is derived from the times. A pod that was created after
the deletion of another one counts as its successor.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from orchestrator.cluster.objects import Pod
from orchestrator.cluster.quantity import time_us
from orchestrator.planner import model


def with_replaced(pods: Sequence[tuple[Pod, model.Pod]]) -> Sequence[tuple[Pod, model.Pod]]:
    """The pods of one workload. A terminating pod whose successor exists is marked."""
    replaced = _replaced(pods)
    if not replaced:
        return pods
    return [
        (pod, replace(planned, replaced=True) if planned.id in replaced else planned) for pod, planned in pods
    ]


def _replaced(pods: Iterable[tuple[Pod, model.Pod]]) -> frozenset[str]:
    """The uids of the pods that leave and were replaced; no pod replaces two."""
    terminating: list[tuple[int, str]] = []
    created: list[int] = []
    for pod, planned in pods:
        made_us, removed_us = time_us(pod.metadata.creation_timestamp), _removed_us(pod)
        if planned.state is model.PodState.RELEASING and removed_us and not _keeps_its_name(pod):
            terminating.append((removed_us, planned.id))
        if not removed_us or made_us < removed_us:  # else it would seem to replace itself
            created.append(made_us)
    if not terminating:
        return frozenset()
    created.sort(reverse=True)
    replaced: list[str] = []
    # The pod that was removed last has the fewest candidates. Times are whole seconds: an equal one counts.
    for removed_us, uid in sorted(terminating, reverse=True):
        if len(replaced) < len(created) and created[len(replaced)] >= removed_us:
            replaced.append(uid)
    return frozenset(replaced)


def _keeps_its_name(pod: Pod) -> bool:
    """Whether the successor has the same name, and so cannot exist before the pod's end."""
    controller = pod.metadata.controller
    return controller is not None and controller.kind == "StatefulSet"


def _removed_us(pod: Pod) -> int:
    """When the pod was deleted, 0 if it was not: its deletion timestamp is when its grace period is over."""
    metadata = pod.metadata
    over_us = time_us(metadata.deletion_timestamp or "")
    return max(0, over_us - (metadata.deletion_grace_period_seconds or 0) * model.SECOND_US)
