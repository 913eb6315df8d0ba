"""A nominated placement goes to another workload only if more entitled workloads leave too little of it."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from orchestrator.planner.model import DEVICE_MILLI, PodState
from tests.world.capacity import ClusterCapacity, devices_fault
from tests.world.facts import (
    SECOND_US,
    add,
    admits,
    all_pods,
    gang_is_whole,
    next_chunk,
    order_in_project,
    pending,
    total,
    within,
)
from tests.world.failing import failed_nodes, has_failed
from tests.world.packing import Item, fits
from tests.world.pod_constraints import PodConstraints, releasing
from tests.world.step import Step, Violation

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

    from orchestrator.planner.model import Amounts, Binding, Pod, Workload


def lost_nominations(step: Step) -> Iterator[Violation]:
    """Yield nominations that a decision drops although more entitled workloads leave enough of the placement."""
    for workload, pod in all_pods(step.before):
        node = step.nodes.get(pod.nominated_node or "")
        if node is None or pod.state is PodState.ALLOCATED or not pod.nominated_devices:
            continue
        if pod.id in step.bound or _keeps_its_place(step, workload, pod) or _is_void(step, workload, pod):
            continue
        if _is_gang_evicted(step, workload):
            continue
        is_gang = workload.min_member > 1 or workload.groups is not None
        together = [other for other in workload.pods if other.nominated_node] if is_gang else [pod]
        avoided = failed_nodes(step.before, workload)
        if pod.stuck or has_failed(step.before, workload):
            continue
        if any(other.nominated_node in avoided for other in together):
            continue  # a gang loses all its nominations together
        amounts = _claim_of_gang(workload) if is_gang else total(together)
        if not all(
            within(add(add(step.held_after[name], step.promised(name)), amounts), step.tree.limit(name))
            for name in step.tree.lineage[workload.project]
        ):
            # more entitled workloads used up the limits of its project, and then others may take the
            # placement
            continue
        if _is_over_limit_of_model(step, workload, together):
            continue  # the same for a limit on a GPU model
        if not workload.preemptible and not all(
            within(
                add(add(step.firm_after[name], step.promised(name, only_firm=True)), amounts),
                step.tree.quota(name),
            )
            for name in step.tree.lineage[workload.project]
        ):
            continue  # the quota, within which it must stay, was reduced after the nomination
        # If more entitled workloads take a part of the placement, the pod or its gang cannot use the rest.
        new = [entry for entry in _others(step, workload) if not _is_old(step, entry)]
        better = [entry for entry in new if _goes_first(step, entry, workload)]
        if _breaks_constraints(step, workload, without=[entry for entry in new if entry not in better]):
            continue
        if not _is_still_free(
            step, workload, together, without=[entry for entry in new if entry not in better]
        ):
            continue
        nodes = {other.nominated_node for other in together}
        takers = ", ".join(entry.pod for entry in new if entry not in better and entry.node in nodes)
        facts = (
            f"{takers or 'nobody'} takes what {pod.id} was promised on {node.name}, without a better claim"
        )
        yield Violation("nomination-lost", facts)


def _breaks_constraints(step: Step, workload: Workload, *, without: Collection[Binding]) -> bool:
    """Return whether constraints between pods keep the workload from its nominated nodes.

    Running pods count, and the pods of others that the plan binds or nominates, except those in `without`.
    """
    constraints = PodConstraints(step.before)
    if constraints.are_none:
        return False
    mine = [pod for pod in workload.pods if pod.nominated_node in step.nodes]
    present = [
        *constraints.foreign,
        *constraints.on_nodes(pod for _, pod in step.running),
        *constraints.on_nodes(releasing(step.before, only_stuck=True)),
        *(
            constraints.seen(step.pods[entry.pod], entry.node)
            for entry in _others(step, workload)
            if entry not in without
        ),
    ]
    return not constraints.has_order([constraints.seen(pod, pod.nominated_node) for pod in mine], present, ())


def _is_over_limit_of_model(step: Step, workload: Workload, promised: Iterable[Pod]) -> bool:
    """Return whether, with the nominated pods, a project or department would exceed its limit on a GPU model."""
    requested: dict[str, int] = {}
    for pod in promised:
        model = step.nodes[pod.nominated_node].gpu_model if pod.nominated_node in step.nodes else ""
        requested[model] = requested.get(model, 0) + pod.request.gpu_milli
    return any(
        bounds.limit_gpu_milli is not None
        and _held_of_model(step, bounds.model).get(name, 0) + requested.get(bounds.model, 0)
        > bounds.limit_gpu_milli
        for name in step.tree.lineage[workload.project]
        for bounds in step.tree.projects[name].gpu_models
        if requested.get(bounds.model)
    )


def _others(step: Step, workload: Workload) -> list[Binding]:
    """Return the plan's bindings and nominations of other workloads."""
    entries = (*step.plan.bindings, *step.plan.nominations)
    return [entry for entry in entries if entry.workload != workload.id]


def _is_old(step: Step, entry: Binding) -> bool:
    """Return whether a pod of the workload was nominated to these devices before: its pods may change places."""
    return any(
        (pod.nominated_node, pod.nominated_devices) == (entry.node, entry.devices)
        for pod in step.workloads[entry.workload].pods
    )


def _is_still_free(
    step: Step, workload: Workload, pods: Iterable[Pod], *, without: Collection[Binding]
) -> bool:
    """Return whether the nominated placements are free beside running pods and others' entries, except `without`."""
    promised = list(pods)
    capacities = _capacity_without(step, workload, promised, without)
    names = {pod.nominated_node for pod in promised if pod.nominated_node}
    return not capacities.faults(names) and not any(
        capacities.by_name[name].uses_lost for name in names & capacities.by_name.keys()
    )


def _capacity_without(
    step: Step, workload: Workload, promised: Sequence[Pod], without: Collection[Binding]
) -> ClusterCapacity:
    """Return the capacity left by running pods, others' entries except `without`, and these nominated placements.

    Pods of the workload that keep their nominations also count as others: if a node lost a GPU, not all pods of a
    workload that grows pod by pod can keep theirs.
    """
    capacities = step.capacity_left()
    others = {pod.id for pod in workload.pods if pod.nominated_node} - {pod.id for pod in promised}
    for entry in (*step.plan.bindings, *step.plan.nominations):
        if entry.pod in others and _is_old(step, entry):
            capacities.take(entry.node, step.pods[entry.pod].request, entry.devices)
    for entry in _others(step, workload):
        if entry not in without:
            capacities.take(entry.node, step.pods[entry.pod].request, entry.devices)
        elif entry.pod in step.evicted:  # otherwise it would not be evicted
            capacities.take_pod(step.pods[entry.pod])
    for pod in promised:
        capacities.take(pod.nominated_node, pod.request, pod.nominated_devices)
    return capacities


def _misses_a_place(step: Step, workload: Workload, promised: Sequence[Pod]) -> bool:
    """Return whether pods of the gang's minimum have no placement: then the gang cannot use its other nominations."""
    stays = [pod for other, pod in step.running if other.id == workload.id]
    if gang_is_whole(workload, [*stays, *promised]):
        return False
    if workload.groups is not None or workload.topology is not None:
        return True  # such a workload is placed again as a whole
    worse = [
        entry
        for entry in _others(step, workload)
        if not _is_old(step, entry) and not _goes_first(step, entry, workload)
    ]
    capacities = list(_capacity_without(step, workload, promised, worse).by_name.values())
    missing = workload.min_member - len(stays) - len(promised)
    project = step.tree.projects.get(workload.project)
    homeless = [pod for pod in pending(workload) if pod not in promised]
    items = [
        Item(
            pod.request,
            frozenset(
                capacity.node.name for capacity in capacities if admits(capacity.node, pod, workload, project)
            ),
        )
        for pod in homeless[:missing]
    ]
    return len(items) < missing or not fits(items, capacities)


def _keeps_its_place(step: Step, workload: Workload, pod: Pod) -> bool:
    """Return whether a pod of the workload keeps the placement, or as many pods have placements as before."""
    entries = [e for e in (*step.plan.bindings, *step.plan.nominations) if e.workload == workload.id]
    if any((e.node, e.devices) == (pod.nominated_node, pod.nominated_devices) for e in entries):
        return True
    had = sum(
        other.nominated_node is not None and other.state is not PodState.ALLOCATED for other in workload.pods
    )
    return len(entries) >= had


def _is_gang_evicted(step: Step, workload: Workload) -> bool:
    """Return whether running pods were evicted, and the remaining and nominated pods are too few for the gang."""
    stays = [pod for other, pod in step.running if other.id == workload.id]
    lost = [pod for pod in workload.pods if pod.id in step.evicted and pod.id not in step.nominated]
    promised = [pod for pod in workload.pods if pod.state is PodState.PENDING]
    return bool(lost) and not gang_is_whole(workload, [*stays, *promised])


def _is_void(step: Step, workload: Workload, pod: Pod) -> bool:
    """Return whether the node cannot keep the nomination of the pod, or, for a gang, of one of its pods."""
    is_gang = workload.min_member > 1 or workload.groups is not None
    promised = [other for other in workload.pods if other.nominated_node] if is_gang else [pod]
    if is_gang and _misses_a_place(step, workload, promised):
        return True
    for other in promised:
        node = step.nodes.get(other.nominated_node or "")
        project = step.tree.projects.get(workload.project)
        if node is None or not admits(node, other, workload, project):
            return True
        if devices_fault(node, other.request, other.nominated_devices):
            return True
    # on a node that lost a GPU, each nomination can fit alone, but not all together
    capacities = ClusterCapacity(step.before.nodes)
    for _, other in all_pods(step.before):
        if other.state is PodState.ALLOCATED:
            capacities.take_pod(other)
    for other in promised:
        capacities.take(other.nominated_node, other.request, other.nominated_devices)
    names = {other.nominated_node for other in promised if other.nominated_node}
    return any(capacities.by_name[name].uses_lost for name in names) or bool(capacities.faults(names))


def _goes_first(step: Step, entry: Binding, loser: Workload) -> bool:
    """Return whether the taker is more entitled than the loser, or takes the devices from such a workload, or is
    evicted for one.
    """
    if _has_better_claim(step, entry, loser):
        return True
    if any(
        _is_old(step, other)
        and _has_better_claim(step, other, loser)
        and _has_better_claim(step, entry, step.workloads[other.workload])
        for other in _others(step, loser)
        if other.node == entry.node and other.workload != entry.workload
    ):
        return True
    movers = {eviction.beneficiary for eviction in step.plan.evictions if eviction.pod == entry.pod}
    return any(
        other.workload in movers and _has_better_claim(step, other, loser) for other in _others(step, loser)
    )


def _has_better_claim(step: Step, binding: Binding, loser: Workload) -> bool:
    taker = step.workloads[binding.workload]
    if taker.project == loser.project:
        return order_in_project(taker) < order_in_project(loser)
    # The sum in their common department does not change, so reclaim compares only the siblings below it.
    common = set(step.tree.lineage[taker.project]) & set(step.tree.lineage[loser.project])
    claim = step.first_chunk_bound_or_nominated(taker)
    ours = step.tier(taker, step.held_before, claim, common)
    # Nominated pods of more entitled workloads in its project use the quota as if they ran.
    held = {name: add(amounts, step.promised(name)) for name, amounts in step.held_after.items()}
    if ours < step.tier(loser, held, _claim_of_gang(loser), common):
        return True
    return (
        (ours < 2 and _restores_quota(step, held, binding, loser))
        or _is_over_share(step, held, binding, loser)
        or _is_on_loan(step, taker, loser)
        or _has_quota_of_model(step, binding, loser)
    )


def _has_quota_of_model(step: Step, binding: Binding, loser: Workload) -> bool:
    """Return whether the taker is within its side's quota for the GPU model, and the loser's
    side would exceed its own.
    """
    ours, theirs = step.tree.sides(step.workloads[binding.workload].project, loser.project)
    node = step.nodes.get(binding.node)
    if ours is None or theirs is None or node is None:
        return False
    loses = _held_of_model(step, node.gpu_model).get(theirs, 0) + _claim_of_gang(loser)[0]
    # Other pods of its side may have got theirs later.
    taken = _held_of_model(step, node.gpu_model, only=binding.workload).get(ours, 0)
    quota = step.tree.model_quota(ours, node.gpu_model)
    return 0 < taken <= quota and loses > step.tree.model_quota(theirs, node.gpu_model)


def _held_of_model(step: Step, model: str, *, only: str = "") -> dict[str, int]:
    """Return the use of the GPU model by project and department, with the plan's bindings and nominations, in
    `gpu_milli`.

    With `only`, of the plan's entries only those of this workload count.
    """
    places = [(workload.id, pod, pod.node) for workload, pod in step.running]
    entries = [
        entry for entry in (*step.plan.bindings, *step.plan.nominations) if not only or entry.workload == only
    ]
    places += [(entry.workload, step.pods[entry.pod], entry.node) for entry in entries]
    held: dict[str, int] = {}
    for workload, pod, node in places:
        if node in step.nodes and step.nodes[node].gpu_model == model:
            for name in step.tree.lineage[step.workloads[workload].project]:
                held[name] = held.get(name, 0) + pod.request.gpu_milli
    return held


def _is_on_loan(step: Step, taker: Workload, loser: Workload) -> bool:
    """Return whether the placement may have been reserved for the taker, which is pending for long, and lent to a
    borrower.
    """
    after, now_us = step.before.settings.reservation_after_seconds, step.before.now_us
    if not now_us or after is None or total(pending(taker))[0] <= DEVICE_MILLI or not loser.preemptible:
        return False
    has_waited = now_us - max(taker.created_at_us, taker.waiting_since_us) >= after * SECOND_US
    return has_waited and step.tier(loser, step.held_before, _claim_of_gang(loser)) == 2


def _restores_quota(step: Step, held: dict[str, Amounts], binding: Binding, loser: Workload) -> bool:
    """Return whether the taker's side stays within its quota, and the loser's side would exceed its own: a rule of
    reclaim.
    """
    ours, theirs = step.tree.sides(step.workloads[binding.workload].project, loser.project)
    if ours is None or theirs is None:
        return False
    claim = step.pods[binding.pod].request.amounts
    return within(held[ours], step.tree.quota(ours), claim) and any(
        not within(add(held[theirs], lost), step.tree.quota(theirs))
        for lost in _last_to_go(step, theirs, loser)
    )


def _is_over_share(step: Step, held: dict[str, Amounts], binding: Binding, loser: Workload) -> bool:
    """Return whether the taker is within its project's fair share of GPUs, and the loser's side above its own.

    Afterwards, the taker's side must not be better served than the loser's: the other rule of reclaim.
    """
    taker = step.workloads[binding.workload].project
    ours, theirs = step.tree.sides(taker, loser.project)
    if ours is None or theirs is None:
        return False
    shares = step.plan.shares_gpu_milli
    entitled: dict[str, int] = {}
    for name in (taker, ours, theirs):
        quota = step.tree.quota(name)[0]
        entitled[name] = sys.maxsize if quota is None else max(quota, shares.get(name, 0))
    loses = held[theirs][0] + max(lost[0] for lost in _last_to_go(step, theirs, loser))
    # Pods after its first chunk may use devices that the loser can no longer use.
    first = step.first_chunk_bound_or_nominated(step.workloads[binding.workload])
    more_milli = step.chunk_bound_or_nominated(binding.workload)[0] - first[0]
    if held[taker][0] - more_milli > entitled[taker] or loses <= entitled[theirs]:
        return False
    held_milli = held[ours][0] - more_milli
    is_better_served = held_milli * shares.get(theirs, 0) >= held[theirs][0] * shares.get(ours, 0)
    return held_milli <= entitled[ours] or not (shares.get(theirs, 0) and is_better_served)


def _last_to_go(step: Step, side: str, loser: Workload) -> list[Amounts]:
    """Return the needs of the loser and the losses of each workload of its side: each can be the last to be evicted.

    While a side exceeds its quota, whole workloads of it are evicted, in any order.
    """
    placed = step.bound.keys() | step.nominated.keys()
    losses = [_claim_of_gang(loser)]
    for workload in step.workloads.values():
        if side in step.tree.lineage.get(workload.project, ()):
            placed_before = [pod for pod in workload.pods if pod.id in step.evicted or pod.nominated_node]
            losses.append(total(pod for pod in placed_before if pod.id not in placed))
    return losses


def _claim_of_gang(workload: Workload) -> Amounts:
    """Return the needs of the pending pods in the gang's minimum.

    With sub-groups, these are its nominated pods: its `min_member` is 1, but one pod alone would be more entitled than
    all.
    """
    waiting = [pod for pod in workload.pods if pod.state is PodState.PENDING]
    if workload.groups is None:
        return total(waiting[: max(1, workload.min_member)])
    return total([pod for pod in waiting if pod.nominated_node] or next_chunk(workload))
