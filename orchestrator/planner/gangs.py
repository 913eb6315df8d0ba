"""Divides a workload into chunks: pods that start together or not at all, and pods that are evicted together.

The minimum of a gang (`min_member` pods, or the tree of sub-groups) is one chunk, and every elastic pod is a chunk of
its own. Evictions have the opposite order: elastic pods one by one, then all others together.
"""

from collections.abc import Collection, Hashable, Sequence

from orchestrator.planner.model import SECOND_US, Amounts, Pod, PodState, SubGroup, Workload

Chunk = tuple[Pod, ...]


def start_chunks(workload: Workload) -> list[Chunk]:
    """Return the pending pods, divided in chunks. Return no chunk if the gang has too few pods to reach its minimum."""
    pending = [pod for pod in workload.pods if pod.state is PodState.PENDING]
    if not pending:
        return []
    if workload.groups is not None:
        return _start_tree(workload, workload.groups)
    pending.sort(key=_starting_order)
    allocated = sum(pod.state is PodState.ALLOCATED for pod in workload.pods)
    missing = max(0, workload.min_member - allocated)
    if missing > len(pending):
        return []
    core = [tuple(pending[:missing])] if missing else []
    return core + [(pod,) for pod in pending[missing:]]


def has_gang(workload: Workload) -> bool:
    """Return whether at least the minimum of the gang is running."""
    if workload.groups is not None:
        return is_satisfied(workload.groups, _by_group(workload, PodState.ALLOCATED))
    return sum(pod.state is PodState.ALLOCATED for pod in workload.pods) >= workload.min_member


def is_stale(workload: Workload, now_us: int, grace_seconds: int) -> bool:
    """Return whether the gang has been below its minimum for at least the grace period.

    A negative grace period never ends.
    """
    grace = grace_seconds if workload.stale_grace_seconds is None else workload.stale_grace_seconds
    if not workload.stale_since_us or grace < 0:
        return False
    return now_us - workload.stale_since_us >= grace * SECOND_US


def held_parts(workload: Workload) -> tuple[Chunk, list[Pod]]:
    """Return the running pods that fill the minimum, and the elastic pods in the order in which a gang starts them."""
    if workload.groups is not None:
        return _held_tree(workload, workload.groups)
    if len(workload.pods) == 1 == workload.min_member:
        return (workload.pods if workload.pods[0].state is PodState.ALLOCATED else ()), []
    allocated = [pod for pod in workload.pods if pod.state is PodState.ALLOCATED]
    if len(allocated) > workload.min_member:
        allocated.sort(key=lambda pod: -pod.priority)
    return tuple(allocated[: workload.min_member]), allocated[workload.min_member :]


def give_up_chunks(workload: Workload) -> list[Chunk]:
    """Return the groups of pods to evict, in order: each elastic pod alone, last to first, then all running pods."""
    core, elastic = held_parts(workload)
    everything = (*core, *elastic)
    return [(pod,) for pod in reversed(elastic)] + ([everything] if everything else [])


def chunk_amounts(chunk: Collection[Pod]) -> Amounts:
    """Return the GPUs, CPU and memory of a chunk, as quotas count them."""
    if len(chunk) == 1:
        return next(iter(chunk)).request.amounts
    gpu = cpu = memory = 0
    for pod in chunk:
        request = pod.request
        gpu += request.gpu_milli
        cpu += request.cpu_milli
        memory += request.memory_bytes
    return gpu, cpu, memory


def chunk_gpu_milli(chunk: Sequence[Pod]) -> int:
    """Return the GPUs of a chunk in thousandths, as quotas count them."""
    if len(chunk) == 1:
        return chunk[0].request.gpu_milli
    return sum([pod.request.gpu_milli for pod in chunk])


def shape_of(workload: Workload, chunk: Chunk) -> tuple[Hashable, ...]:
    """Return a key of everything that decides the placement of the chunk, except its project. Chunks with equal keys
    can be placed on the same nodes.
    """
    return (
        workload.interactive,
        workload.topology,
        workload.groups,
        tuple((pod.request, pod.constraints, pod.sub_group) for pod in chunk),
    )


def is_satisfied(group: SubGroup, allocated: dict[str, list[Pod]]) -> bool:
    """Return whether at least the group's minimum runs."""
    if not group.children:
        return len(allocated.get(group.name, ())) >= _leaf_minimum(group)
    return sum(is_satisfied(child, allocated) for child in group.children) >= _child_minimum(group)


def leaves(group: SubGroup) -> list[SubGroup]:
    """Return the leaves below the group, or the group itself if it is a leaf. Only leaves hold pods."""
    return [leaf for child in group.children for leaf in leaves(child)] if group.children else [group]


def has_topology(group: SubGroup) -> bool:
    """Return whether the group, or a group inside it, has a topology rule of its own."""
    return group.topology is not None or any(has_topology(child) for child in group.children)


def _leaf_minimum(group: SubGroup) -> int:
    return 1 if group.minimum is None else group.minimum


def _child_minimum(group: SubGroup) -> int:
    return len(group.children) if group.minimum is None else group.minimum


def _starting_order(pod: Pod) -> tuple[int, bool]:
    """Return the sort key of a pod in its gang: higher priority first, then nominated pods before others."""
    return -pod.priority, pod.nominated_node is None


def _by_group(workload: Workload, state: PodState) -> dict[str, list[Pod]]:
    groups: dict[str, list[Pod]] = {}
    for pod in sorted((pod for pod in workload.pods if pod.state is state), key=_starting_order):
        groups.setdefault(pod.sub_group, []).append(pod)
    return groups


def _missing(
    group: SubGroup, pending: dict[str, list[Pod]], allocated: dict[str, list[Pod]]
) -> list[Pod] | None:
    """Return the fewest pending pods that complete the group's minimum; None if too few pods are pending."""
    if not group.children:
        waiting = pending.get(group.name, [])
        missing = max(0, _leaf_minimum(group) - len(allocated.get(group.name, ())))
        return waiting[:missing] if missing <= len(waiting) else None
    parts = [part for child in group.children if (part := _missing(child, pending, allocated)) is not None]
    if len(parts) < _child_minimum(group):
        return None
    return [pod for part in sorted(parts, key=len)[: _child_minimum(group)] for pod in part]


def _start_tree(workload: Workload, root: SubGroup) -> list[Chunk]:
    pending, allocated = _by_group(workload, PodState.PENDING), _by_group(workload, PodState.ALLOCATED)
    core = _missing(root, pending, allocated)
    if core is None:
        return []
    started = {pod.id for pod in core}
    chunks: list[Chunk] = [tuple(core)] if core else []
    growing: list[tuple[tuple[bool, int], int, Chunk]] = []
    for position, leaf in enumerate(leaves(root)):
        minimum = _leaf_minimum(leaf)
        rest = [pod for pod in pending.get(leaf.name, ()) if pod.id not in started]
        have = len(allocated.get(leaf.name, ())) + len(pending.get(leaf.name, ())) - len(rest)
        if have < minimum:
            if have + len(rest) < minimum:
                continue
            growing.append(((False, 0), position, tuple(rest[: minimum - have])))
            rest, have = rest[minimum - have :], minimum
        for index, pod in enumerate(rest):
            growing.append((_elastic_order(have + index, minimum), position, (pod,)))
    return chunks + [chunk for _, _, chunk in sorted(growing, key=lambda entry: entry[:2])]


def _held_tree(workload: Workload, root: SubGroup) -> tuple[Chunk, list[Pod]]:
    allocated = _by_group(workload, PodState.ALLOCATED)
    core: list[Pod] = []
    elastic: list[tuple[tuple[bool, int], int, Pod]] = []
    not_needed = _not_needed(root, allocated)
    for position, leaf in enumerate(leaves(root)):
        minimum = 0 if leaf.name in not_needed else _leaf_minimum(leaf)
        held = allocated.get(leaf.name, [])
        core += held[:minimum]
        elastic += [
            (_elastic_order(minimum + index, minimum), position, pod)
            for index, pod in enumerate(held[minimum:])
        ]
    return tuple(core), [pod for _, _, pod in sorted(elastic, key=lambda entry: entry[:2])]


def _elastic_order(running: int, minimum: int) -> tuple[bool, int]:
    """Return the sort key of a group's next elastic pod: smaller running/minimum first; no minimum: last."""
    return minimum == 0, running * 1_000_000 // max(1, minimum)


def _not_needed(group: SubGroup, allocated: dict[str, list[Pod]]) -> set[str]:
    """Return the names of leaves that the gang does not need, because enough other children of the same group run."""
    if not group.children:
        return set()
    complete = [child for child in group.children if is_satisfied(child, allocated)]
    needed = complete[: _child_minimum(group)]
    not_needed: set[str] = set()
    for child in group.children:
        if child in needed or len(needed) < _child_minimum(group):
            not_needed |= _not_needed(child, allocated)
        else:
            not_needed |= {leaf.name for leaf in leaves(child)}
    return not_needed
