"""Computes the gang minimum of a workload from annotations or, without them, from its kind of controller.

Succeeded pods do not count as missing, so a gang near its end is smaller than before. Pure.
"""

from collections import Counter
from collections.abc import Sequence

from orchestrator.cluster.integers import whole_number
from orchestrator.cluster.objects import Pod
from orchestrator.cluster.quantity import shortened
from orchestrator.names import MIN_MEMBER_ANNOTATION
from orchestrator.observe.controllers import OTHERS, Gang
from orchestrator.observe.owners import Chain
from orchestrator.observe.sub_groups import MAX_PODS, grouping
from orchestrator.observe.unreadable import UnreadableRequest
from orchestrator.planner import model


def required(
    chain: Chain, pods: Sequence[tuple[Pod, model.Pod]], succeeded: Sequence[Pod], levels: tuple[str, ...]
) -> tuple[int, model.SubGroup | None]:
    """Return the minimum number of pods, and the tree of sub-groups, if the workload has one.

    `pods` are the pending and running pods, oldest first. `levels` are the cluster's topology levels. Raises
    UnreadableRequest for an invalid annotation.
    """
    first = pods[0][0]
    members = min_member(first, chain)
    groups = grouping(first.metadata.annotations, levels).groups
    if members is None and groups is None and chain.gang is not None:
        if chain.gang.parts:
            return 1, _tree(chain.gang, pods, succeeded)
        members = chain.gang.minimum
    members = members or 1
    return (min(members, len(pods)), None) if succeeded else (members, groups)


def min_member(pod: Pod, chain: Chain) -> int | None:
    """Return the gang minimum in the annotation of the pod, or of its topmost owner; None without an annotation.

    A value that is not a number above 0 counts as 1. Raises UnreadableRequest for a number out of range.
    """
    owner = {} if chain.owner is None else chain.owner.metadata.annotations
    text = pod.metadata.annotations.get(MIN_MEMBER_ANNOTATION, owner.get(MIN_MEMBER_ANNOTATION))
    if text is None:
        return None
    number = whole_number(text)
    if (number or 0) > MAX_PODS or (number is None and text.isdecimal()):
        whose = "its" if MIN_MEMBER_ANNOTATION in pod.metadata.annotations else "its owner's"
        raise UnreadableRequest(
            f"{whose} annotation {MIN_MEMBER_ANNOTATION} is {shortened(text)}: "
            f"a number of pods is from 1 to {MAX_PODS}"
        )
    return number or 1


def _tree(gang: Gang, pods: Sequence[tuple[Pod, model.Pod]], succeeded: Sequence[Pod]) -> model.SubGroup:
    done = Counter(gang.part_of(pod.metadata.labels) for pod in succeeded)
    present = Counter(gang.part_of(pod.metadata.labels) for pod, _ in pods)
    running = Counter(
        gang.part_of(pod.metadata.labels)
        for pod, planned in pods
        if planned.state is model.PodState.ALLOCATED
    )
    children: list[model.SubGroup] = []
    at_once = 0
    for part in gang.parts:
        count = present[part.name]
        minimum = part.minimum
        if done[part.name]:
            minimum = min(minimum, max(count, minimum - done[part.name]))
        if minimum or count:
            children.append(model.SubGroup(part.name, minimum))
            at_once += not part.later
    if present[OTHERS]:
        children.append(model.SubGroup(OTHERS, 0))
        at_once += 1
    # A part that the controller creates later counts only when it runs. Otherwise the first parts would wait for
    # pods that do not exist yet.
    satisfied = sum(running[child.name] >= (child.minimum or 0) for child in children)
    needed = max(1, at_once, satisfied)
    return model.SubGroup("", None if needed >= len(children) else needed, tuple(children))
