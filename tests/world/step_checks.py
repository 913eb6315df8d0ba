"""What has to hold of every single decision. Nothing here is shared with the planner but its data classes."""

from __future__ import annotations

import random
import sys
from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from orchestrator.planner.model import DEVICE_MILLI, PodState
from tests.world.coverage import Coverage
from tests.world.facts import (
    SECOND_US,
    Tree,
    add,
    admits,
    all_pods,
    gang_is_whole,
    held_by_project,
    next_chunk,
    order_in_project,
    pending,
    sized,
    total,
    within,
)
from tests.world.packing import Item, fits
from tests.world.rooms import Rooms, devices_fault
from tests.world.water import fair_shares

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

    from orchestrator.planner.model import Amounts, Binding, Eviction, Plan, Pod, Snapshot, Workload


@dataclass(frozen=True)
class Violation:
    """What does not hold: a name for the check, and the facts."""

    check: str
    facts: str

    def __str__(self) -> str:
        return f"{self.check}: {self.facts}"


class Step:
    """One decision with what it was made on, looked up once for all checks."""

    def __init__(self, before: Snapshot, decision: Plan) -> None:
        before = self.before = sized(before)
        self.plan = decision
        self.tree = Tree(before.projects)
        self.nodes = {node.name: node for node in before.nodes}
        self.workloads = {workload.id: workload for workload in before.workloads}
        self.pods = {pod.id: pod for _, pod in all_pods(before)}
        self.evicted = {eviction.pod for eviction in decision.evictions}
        self.bound = {binding.pod: binding for binding in decision.bindings}
        self.nominated = {binding.pod: binding for binding in decision.nominations}
        self.running = [
            (workload, pod)
            for workload, pod in all_pods(before)
            if pod.state is PodState.ALLOCATED and pod.id not in self.evicted
        ]
        self.held_before = held_by_project(self.tree, self.running)
        started = [(self.workloads[binding.workload], self.pods[pod]) for pod, binding in self.bound.items()]
        self.held_after = held_by_project(self.tree, [*self.running, *started])
        self.firm_after = held_by_project(self.tree, [*self.running, *started], only_firm=True)

    def chunk_bound_or_nominated(self, workload: str) -> Amounts:
        return total(
            self.pods[binding.pod]
            for binding in (*self.plan.bindings, *self.plan.nominations)
            if binding.workload == workload
        )

    def first_chunk_bound_or_nominated(self, workload: Workload) -> Amounts:
        """As `chunk_bound_or_nominated`, but of what grows pod by pod the first, which has a claim of its own."""
        if workload.groups is not None:
            return self.chunk_bound_or_nominated(workload.id)
        running = sum(other.id == workload.id for other, _ in self.running)
        entries = [*self.plan.bindings, *self.plan.nominations]
        pods = [self.pods[entry.pod] for entry in entries if entry.workload == workload.id]
        return total(pods[: max(1, workload.min_member - running)])

    def tier(
        self, workload: Workload, held: dict[str, Amounts], requested: Amounts, above: Collection[str] = ()
    ) -> int:
        """0: within the quotas with that much more, 1: within the fair shares of GPUs, 2: neither.

        Departments `above` do not count.
        """
        worst = 0
        for name in self.tree.lineage.get(workload.project, ()):
            if name in above:
                continue
            then = add(held[name], requested)
            if within(then, self.tree.quota(name), requested):
                continue
            quota, share = self.tree.quota(name)[0], self.plan.shares_gpu_milli.get(name, 0)
            if requested[0] and quota is not None and then[0] > max(quota, share):
                return 2
            worst = 1
        return worst


def check_step(before: Snapshot, decision: Plan) -> list[Violation]:
    """All that is wrong with the decision."""
    if unknown := _unknown_ids(before, decision):
        return unknown
    step = Step(before, decision)
    return [violation for check in CHECKS for violation in check(step)]


def _unknown_ids(before: Snapshot, decision: Plan) -> list[Violation]:
    pods = {pod.id: workload.id for workload, pod in all_pods(before)}
    entries = [
        *((entry.pod, entry.workload) for entry in decision.bindings),
        *((entry.pod, entry.workload) for entry in decision.nominations),
        *((entry.pod, entry.workload) for entry in decision.evictions),
    ]
    return [
        Violation("unknown", f"pod {pod} of {workload} is not in the snapshot")
        for pod, workload in entries
        if pods.get(pod) != workload
    ]


def capacity(step: Step) -> Iterator[Violation]:
    """Bindings are on what is free now, of nodes that admit the pod."""
    rooms = Rooms(step.before.nodes)
    for _, pod in all_pods(step.before):
        if pod.node is not None:
            rooms.take_pod(pod)
    for kind, bindings in (("bound", step.plan.bindings), ("nominated", step.plan.nominations)):
        for binding in bindings:
            yield from (Violation("capacity", line) for line in _misplaced(step, binding, kind))
    used = {name: room.used for name, room in rooms.by_name.items()}
    for binding in step.plan.bindings:
        rooms.take(binding.node, step.pods[binding.pod].request, binding.devices)
    for line in rooms.faults(binding.node for binding in step.plan.bindings):
        yield Violation("capacity", line)
    for name, room in rooms.by_name.items():
        lost = room.node.lost_gpus
        if room.used > used[name] and room.used + lost > room.node.gpu_count:
            yield Violation("capacity", f"{name} has lost {lost} GPUs, and more than the rest is used")


def _misplaced(step: Step, binding: Binding, kind: str) -> Iterator[str]:
    node, pod = step.nodes.get(binding.node), step.pods[binding.pod]
    workload = step.workloads[binding.workload]
    if kind == "bound" and pod.state is not PodState.PENDING:
        yield f"{binding.pod} is bound and {pod.state.value}"
    if node is None or not admits(node, pod, workload, step.tree.projects.get(workload.project)):
        yield f"{binding.pod} is {kind} on {binding.node}, which does not admit it"
    elif fault := devices_fault(node, pod.request, binding.devices):
        yield f"{binding.pod} is {kind} on {binding.node}: {fault}"


def limits(step: Step) -> Iterator[Violation]:
    """Who starts something is within all limits with it."""
    for name in _projects_of(step, step.plan.bindings):
        if not within(step.held_after[name], step.tree.limit(name)):
            yield Violation("limits", f"{name} holds {step.held_after[name]}, limit {step.tree.limit(name)}")


def model_limits(step: Step) -> Iterator[Violation]:
    """The same for GPUs of each model."""
    held: dict[tuple[str, str], int] = {}
    started = [
        (step.workloads[entry.workload], entry.node, step.pods[entry.pod]) for entry in step.bound.values()
    ]
    for workload, node, pod in [*((one, pod.node, pod) for one, pod in step.running), *started]:
        model = step.nodes[node].gpu_model if node in step.nodes else ""
        for name in step.tree.lineage.get(workload.project, ()):
            held[name, model] = held.get((name, model), 0) + pod.request.gpu_milli
    for name in _projects_of(step, step.plan.bindings):
        for bounds in step.tree.projects[name].gpu_models:
            amount = held.get((name, bounds.model), 0)
            new = any(step.nodes[entry.node].gpu_model == bounds.model for entry in step.plan.bindings)
            if new and bounds.limit_gpu_milli is not None and amount > bounds.limit_gpu_milli:
                yield Violation("limits", f"{name} holds {amount} of {bounds.model}: {bounds}")


def firm_work(step: Step) -> Iterator[Violation]:
    """Work that cannot be taken back stays within the quotas, and is not evicted."""
    firm = [entry for entry in step.plan.bindings if not step.workloads[entry.workload].preemptible]
    for name in _projects_of(step, firm):
        if not within(step.firm_after[name], step.tree.quota(name)):
            yield Violation("firm", f"{name}: {step.firm_after[name]} above quota {step.tree.quota(name)}")
    for eviction in step.plan.evictions:
        workload, node = step.workloads[eviction.workload], step.nodes.get(step.pods[eviction.pod].node or "")
        project = step.tree.projects.get(workload.project)
        unhealthy = node is not None and (node.unhealthy or node.unhealthy_gpus or not node.schedulable)
        may_move = project is not None and project.moves_non_preemptible and unhealthy
        is_own = (
            eviction.beneficiary == eviction.workload
        )  # a gang that lost a member, or is moved off a bad node
        if not workload.preemptible and not may_move and not is_own:
            yield Violation("firm", f"{eviction.pod} is evicted and cannot be taken back ({eviction.rule})")


def _projects_of(step: Step, bindings: tuple[Binding, ...] | list[Binding]) -> list[str]:
    names = {
        name
        for entry in bindings
        for name in step.tree.lineage.get(step.workloads[entry.workload].project, ())
    }
    return sorted(names)


def coverage(step: Step) -> Iterator[Violation]:
    """What a quota covers is evicted for another project only if it has a promised place, or enough is left.

    A project that holds its whole quota without the victim lost nothing that the quota promises: least harm may well
    take a small job that fits rather than a large one that the order of filling calls borrowed.
    """
    if not step.plan.evictions:
        return
    covered = Coverage(step.before, step.tree)
    models = {bounds.model for project in step.before.projects for bounds in project.gpu_models}
    lost: dict[tuple[str, str], list[Eviction]] = {}
    for eviction in step.plan.evictions:
        victim, winner = step.workloads[eviction.workload], step.workloads.get(eviction.beneficiary)
        if winner is None:
            yield Violation(
                "evictions", f"{eviction.pod} is evicted for {eviction.beneficiary}, which is not there"
            )
            continue
        node = step.nodes.get(step.pods[eviction.pod].node or "")
        is_moved = eviction.pod in step.nominated
        ours, theirs = step.tree.sides(winner.project, victim.project)
        if is_moved or ours is None or theirs is None or (node is not None and node.gpu_model in models):
            continue
        if covered.protects(victim, step.pods[eviction.pod], theirs):
            lost.setdefault((victim.id, theirs), []).append(eviction)
    for (name, theirs), evictions in lost.items():
        # pods of the same kind are interchangeable: what counts is how many are left
        workload = step.workloads[name]
        running = [pod for pod in workload.pods if pod.state is PodState.ALLOCATED]
        safe = sum(covered.protects(workload, pod, theirs) for pod in running)
        gone = sum(pod.id in step.evicted and pod.id not in step.nominated for pod in running)
        alike = len({(pod.request, pod.sub_group) for pod in running}) == 1
        if not alike or len(running) - gone < safe:
            if _keeps_quota(step, theirs, total(step.pods[eviction.pod] for eviction in evictions)):
                continue
            pods = ", ".join(eviction.pod for eviction in evictions)
            facts = f"{pods} evicted for {evictions[0].beneficiary}, the quota of {theirs} covers it"
            yield Violation("covered", facts)


def _keeps_quota(step: Step, name: str, lost: Amounts) -> bool:
    """Whether the project or department still holds all of its quota of what it lost: it lost the wrong work at worst.

    Unbounded GPUs are all promised, unbounded CPU and memory are promised to nobody.

    What its more urgent work took from it counts as held, and what that work got for it does not: others took while it
    was as it had been, and what a project loses by preemption it gets.
    """
    inside = [
        eviction
        for eviction in step.plan.evictions
        if eviction.rule == "priority"
        and name in step.tree.lineage.get(step.workloads[eviction.workload].project, ())
    ]
    urgent = {eviction.beneficiary for eviction in inside}
    preempted = {eviction.pod for eviction in inside}
    promised = {
        pod
        for pod, entry in step.nominated.items()
        if name in step.tree.lineage.get(step.workloads[entry.workload].project, ())
        and entry.workload not in urgent
    }
    held = add(step.held_after[name], total(step.pods[pod] for pod in promised | preempted))
    # What is started and made way again in the same decision is not seen, but what it made way for is.
    at_last = add(step.held_after[name], _promised(step, name))
    return all(
        max(held[resource], at_last[resource]) >= quota if quota is not None else resource > 0
        for resource, quota in enumerate(step.tree.quota(name))
        if lost[resource]
    )


def evictions_inside(step: Step) -> Iterator[Violation]:
    """Inside a project only the more urgent, or the older by a reservation, takes from another; and no pod twice."""
    for pod, count in Counter(eviction.pod for eviction in step.plan.evictions).items():
        if count > 1 or step.pods[pod].state is not PodState.ALLOCATED:
            yield Violation(
                "evictions", f"{pod} is evicted {count} times, it is {step.pods[pod].state.value}"
            )
    for eviction in step.plan.evictions:
        victim, winner = step.workloads[eviction.workload], step.workloads.get(eviction.beneficiary)
        if winner is None or winner.id == victim.id or winner.project != victim.project:
            continue
        if eviction.pod not in step.nominated and order_in_project(winner) > order_in_project(victim):
            yield Violation("evictions", f"{eviction.pod} is evicted for {winner.id}, which comes after it")


def minimum_runtimes(step: Step) -> Iterator[Violation]:
    """Nobody loses what it needs to run before its minimum runtime is over, unless it has another place."""
    now_us = step.before.now_us
    for eviction in step.plan.evictions if now_us else ():
        victim, winner = step.workloads[eviction.workload], step.workloads.get(eviction.beneficiary)
        if winner is None or winner.id == victim.id or eviction.pod in step.nominated:
            continue
        same = winner.project == victim.project
        side = victim.project if same else step.tree.sides(winner.project, victim.project)[1]
        field = "preempt_min_runtime_seconds" if same else "reclaim_min_runtime_seconds"
        seconds = 0 if side is None else step.tree.nearest(side, field)
        stays = [pod for workload, pod in step.running if workload.id == victim.id]
        # what is moved has a place, and goes on
        stays += [pod for pod in victim.pods if pod.id in step.evicted and pod.id in step.nominated]
        is_over = now_us >= victim.started_at_us + seconds * SECOND_US
        if seconds and not is_over and not gang_is_whole(victim, stays):
            yield Violation(
                "minimum-runtime", f"{eviction.pod} started at {victim.started_at_us}, {seconds} s"
            )


def caps(step: Step) -> Iterator[Violation]:
    """No decision evicts or moves more than the administrator allows, nor what a disruption budget protects."""
    settings = step.before.settings
    if settings.max_evictions is not None and len(step.evicted) > settings.max_evictions:
        yield Violation("cap", f"{len(step.evicted)} evictions, {settings.max_evictions} are allowed")
    moved: dict[str, list[str]] = {}
    for eviction in step.plan.evictions:
        # Who goes by another rule, and fits elsewhere, is not moved to make the room.
        if eviction.rule == "consolidation":
            moved.setdefault(eviction.beneficiary, []).append(eviction.pod)
            if eviction.pod not in step.nominated:
                yield Violation("moved", f"{eviction.pod} is moved and has no other place")
    most = settings.max_consolidation_victims
    for beneficiary, pods in moved.items():
        if most is not None and len(pods) > most * _count_chunks(step, beneficiary):
            yield Violation("cap", f"{sorted(pods)} are moved for {beneficiary}, {most} are allowed")
    for budget in step.before.budgets:
        evicted = step.evicted.intersection(budget.pods)
        if len(evicted) > budget.allowed:
            yield Violation("budget", f"{sorted(evicted)} evicted, {budget.name} allows {budget.allowed}")


def _count_chunks(step: Step, name: str) -> int:
    """How often room is made for the workload: for what its gang needs, then for every further pod."""
    workload = step.workloads[name]
    given = sum(entry.workload == name for entry in (*step.plan.bindings, *step.plan.nominations))
    if workload.groups is not None:
        return max(1, given)
    running = sum(other.id == name for other, _ in step.running)
    return 1 + max(0, given - max(1, workload.min_member - running))


def gangs(step: Step) -> Iterator[Violation]:
    """A gang starts whole. One that lost pods, or is being moved, is completed, as far as pods are promised places."""
    started: dict[str, list[Pod]] = {}
    for binding in step.plan.bindings:
        started.setdefault(binding.workload, []).append(step.pods[binding.pod])
    for name, pods in started.items():
        workload = step.workloads[name]
        stays = [pod for one, pod in step.running if one.id == name]
        ran = any(pod.state is not PodState.PENDING for pod in workload.pods)
        promised = [step.pods[pod] for pod, entry in step.nominated.items() if entry.workload == name and ran]
        if not gang_is_whole(workload, [*stays, *pods, *promised]):
            yield Violation(
                "gang", f"{name} starts {len(pods)} beside {len(stays)} and {len(promised)} promised"
            )


def nominations(step: Step) -> Iterator[Violation]:
    """Promised rooms are there once what is being released is gone, belong to pods that still want them, once each."""
    rooms = Rooms(step.before.nodes)
    for _, pod in all_pods(step.before):
        if pod.node is not None and pod.state is PodState.RELEASING and pod.stuck:
            rooms.take_pod(pod)
    for _, pod in step.running:
        rooms.take_pod(pod)
    for binding in (*step.plan.bindings, *step.plan.nominations):
        rooms.take(binding.node, step.pods[binding.pod].request, binding.devices)
    for line in rooms.faults(binding.node for binding in step.plan.nominations):
        yield Violation("nomination", f"counting what is promised, {line}")
    for name, count in Counter(binding.pod for binding in step.plan.nominations).items():
        if count > 1 or name in step.bound:
            also = ", and bound" if name in step.bound else ""
            yield Violation("nomination", f"{name} is nominated {count} times{also}")
        if step.pods[name].state is PodState.ALLOCATED and name not in step.evicted:
            yield Violation("nomination", f"{name} is nominated, and runs")


def kept_rooms(step: Step) -> Iterator[Violation]:
    """A room that was promised goes to nobody else, unless those with a better claim leave too little of it."""
    for workload, pod in all_pods(step.before):
        node = step.nodes.get(pod.nominated_node or "")
        if node is None or pod.state is PodState.ALLOCATED or not pod.nominated_devices:
            continue
        if pod.id in step.bound or _is_kept(step, workload, pod) or _is_void(step, workload, pod):
            continue
        if _is_gang_evicted(step, workload):
            continue
        is_gang = workload.min_member > 1 or workload.groups is not None
        together = [other for other in workload.pods if other.nominated_node] if is_gang else [pod]
        amounts = _claim_of_gang(workload) if is_gang else total(together)
        if not all(
            within(add(add(step.held_after[name], _promised(step, name)), amounts), step.tree.limit(name))
            for name in step.tree.lineage[workload.project]
        ):
            continue  # its project's limits went to more urgent work, and then the room to somebody else
        if not workload.preemptible and not all(
            within(add(step.firm_after[name], amounts), step.tree.quota(name))
            for name in step.tree.lineage[workload.project]
        ):
            continue  # the quota, which it must stay within, is smaller than when it was promised
        # Once a part of it is gone to better claims, the rest is of no use to the pod, or to its gang.
        new = [entry for entry in _others(step, workload) if not _is_old(step, entry)]
        better = [entry for entry in new if _has_better_claim(step, entry, workload)]
        if not _has_room(step, workload, together, without=[entry for entry in new if entry not in better]):
            continue
        nodes = {other.nominated_node for other in together}
        takers = ", ".join(entry.pod for entry in new if entry not in better and entry.node in nodes)
        facts = (
            f"{takers or 'nobody'} takes what {pod.id} was promised on {node.name}, without a better claim"
        )
        yield Violation("nomination-lost", facts)


def _others(step: Step, workload: Workload) -> list[Binding]:
    """What the plan gives and promises to other workloads."""
    entries = (*step.plan.bindings, *step.plan.nominations)
    return [entry for entry in entries if entry.workload != workload.id]


def _is_old(step: Step, entry: Binding) -> bool:
    """Whether the workload had that very room before: its pods may change places with each other."""
    return any(
        (pod.nominated_node, pod.nominated_devices) == (entry.node, entry.devices)
        for pod in step.workloads[entry.workload].pods
    )


def _has_room(step: Step, workload: Workload, pods: Iterable[Pod], *, without: Collection[Binding]) -> bool:
    """Whether the promised rooms are all there beside what runs and what others get, less some of that."""
    promised = list(pods)
    rooms = _rooms_beside(step, workload, promised, without)
    return not rooms.faults(pod.nominated_node for pod in promised if pod.nominated_node)


def _rooms_beside(
    step: Step, workload: Workload, promised: Iterable[Pod], without: Collection[Binding]
) -> Rooms:
    """What is left beside what runs, what others get, less some of that, and these promised rooms."""
    rooms = Rooms(step.before.nodes)
    for _, pod in all_pods(step.before):
        if pod.node is not None and pod.state is PodState.RELEASING and pod.stuck:
            rooms.take_pod(pod)
    for _, pod in step.running:
        rooms.take_pod(pod)
    for entry in _others(step, workload):
        if entry not in without:
            rooms.take(entry.node, step.pods[entry.pod].request, entry.devices)
    for pod in promised:
        rooms.take(pod.nominated_node, pod.request, pod.nominated_devices)
    return rooms


def _lacks_a_room(step: Step, workload: Workload, promised: Sequence[Pod]) -> bool:
    """Whether pods that a gang needs have no room any more, nor another: the rooms of the rest are of no use then."""
    stays = [pod for other, pod in step.running if other.id == workload.id]
    if gang_is_whole(workload, [*stays, *promised]):
        return False
    if workload.groups is not None or workload.topology is not None:
        return True  # it is placed anew as a whole
    new = [entry for entry in _others(step, workload) if not _is_old(step, entry)]
    rooms = list(_rooms_beside(step, workload, promised, new).by_name.values())
    missing = workload.min_member - len(stays) - len(promised)
    project = step.tree.projects.get(workload.project)
    homeless = [pod for pod in pending(workload) if pod not in promised]
    items = [
        Item(
            pod.request,
            frozenset(room.node.name for room in rooms if admits(room.node, pod, workload, project)),
        )
        for pod in homeless[:missing]
    ]
    return len(items) < missing or not fits(items, rooms)


def _promised(step: Step, name: str) -> Amounts:
    """What the plan nominates for the project and what is below it."""
    return total(
        step.pods[entry.pod]
        for entry in step.plan.nominations
        if name in step.tree.lineage[step.workloads[entry.workload].project]
    )


def _is_kept(step: Step, workload: Workload, pod: Pod) -> bool:
    """Whether one of the workload still has that room, or as many have a room as had one: they may change places."""
    entries = [e for e in (*step.plan.bindings, *step.plan.nominations) if e.workload == workload.id]
    if any((e.node, e.devices) == (pod.nominated_node, pod.nominated_devices) for e in entries):
        return True
    had = sum(
        other.nominated_node is not None and other.state is not PodState.ALLOCATED for other in workload.pods
    )
    return len(entries) >= had


def _is_gang_evicted(step: Step, workload: Workload) -> bool:
    """Whether pods that ran were evicted, and what is left with all that was promised makes no gang."""
    stays = [pod for other, pod in step.running if other.id == workload.id]
    lost = [pod for pod in workload.pods if pod.id in step.evicted and pod.id not in step.nominated]
    promised = [pod for pod in workload.pods if pod.state is PodState.PENDING]
    return bool(lost) and not gang_is_whole(workload, [*stays, *promised])


def _is_void(step: Step, workload: Workload, pod: Pod) -> bool:
    """Whether a node cannot keep the room of the pod, or, of a gang, the room of any."""
    is_gang = workload.min_member > 1 or workload.groups is not None
    promised = [other for other in workload.pods if other.nominated_node] if is_gang else [pod]
    if is_gang and _lacks_a_room(step, workload, promised):
        return True
    for other in promised:
        node = step.nodes.get(other.nominated_node or "")
        project = step.tree.projects.get(workload.project)
        if node is None or not admits(node, other, workload, project):
            return True
        if devices_fault(node, other.request, other.nominated_devices):
            return True
    # each alone may still fit on a node that lost a GPU, and all of them not
    rooms = Rooms(step.before.nodes)
    for _, other in step.running:
        rooms.take_pod(other)
    for other in promised:
        rooms.take(other.nominated_node, other.request, other.nominated_devices)
    names = {other.nominated_node for other in promised if other.nominated_node}
    short = any(
        rooms.by_name[name].used + step.nodes[name].lost_gpus > step.nodes[name].gpu_count for name in names
    )
    return short or bool(rooms.faults(names))


def _has_better_claim(step: Step, binding: Binding, loser: Workload) -> bool:
    taker = step.workloads[binding.workload]
    if taker.project == loser.project:
        return order_in_project(taker) < order_in_project(loser)
    # What their common department holds is the same, whoever of the two gets the room: reclaim judges siblings alone.
    common = set(step.tree.lineage[taker.project]) & set(step.tree.lineage[loser.project])
    claim = step.first_chunk_bound_or_nominated(taker)
    ours = step.tier(taker, step.held_before, claim, common)
    # What more urgent work of its project was promised uses up its quotas as if it ran.
    held = {name: add(amounts, _promised(step, name)) for name, amounts in step.held_after.items()}
    if ours < step.tier(loser, held, _claim_of_gang(loser), common):
        return True
    return (
        (ours < 2 and _restores_quota(step, held, binding, loser))
        or _is_over_share(step, held, binding, loser)
        or _is_on_loan(step, taker, loser)
    )


def _is_on_loan(step: Step, taker: Workload, loser: Workload) -> bool:
    """Whether the room may have been kept for the taker, which has waited long, and was lent to who borrows."""
    after, now_us = step.before.settings.reservation_after_seconds, step.before.now_us
    if not now_us or after is None or total(pending(taker))[0] <= DEVICE_MILLI or not loser.preemptible:
        return False
    has_waited = now_us - max(taker.created_at_us, taker.waiting_since_us) >= after * SECOND_US
    return has_waited and step.tier(loser, step.held_before, _claim_of_gang(loser)) == 2


def _restores_quota(step: Step, held: dict[str, Amounts], binding: Binding, loser: Workload) -> bool:
    """Whether the side that takes stays within its quota, and the other would be above its own: reclaim's rule."""
    ours, theirs = step.tree.sides(step.workloads[binding.workload].project, loser.project)
    if ours is None or theirs is None:
        return False
    claim = step.pods[binding.pod].request.amounts
    return within(held[ours], step.tree.quota(ours), claim) and not within(
        add(held[theirs], _claim_of_gang(loser)), step.tree.quota(theirs)
    )


def _is_over_share(step: Step, held: dict[str, Amounts], binding: Binding, loser: Workload) -> bool:
    """Whether the taker is within the fair share of its project, and the side that loses is above its own.

    Of GPUs, and afterwards the side that takes may not be served better: reclaim's other rule.
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
    loses = held[theirs][0] + _claim_of_gang(loser)[0]
    if held[taker][0] > entitled[taker] or loses <= entitled[theirs]:
        return False
    is_better_served = held[ours][0] * shares.get(theirs, 0) >= held[theirs][0] * shares.get(ours, 0)
    return held[ours][0] <= entitled[ours] or not (shares.get(theirs, 0) and is_better_served)


def _claim_of_gang(workload: Workload) -> Amounts:
    """What the gang needs together, of those of it that wait.

    With sub-groups that is what it was promised: its `min_member` is 1, and one pod alone has a better claim than all.
    """
    waiting = [pod for pod in workload.pods if pod.state is PodState.PENDING]
    if workload.groups is None:
        return total(waiting[: max(1, workload.min_member)])
    return total([pod for pod in waiting if pod.nominated_node] or next_chunk(workload))


def shares(step: Step) -> Iterator[Violation]:
    """The fair shares are those of an independent calculation. GPU models with limits of their own are left out."""
    if any(project.gpu_models for project in step.before.projects):
        return
    expected = fair_shares(step.before, step.tree)
    actual = dict(step.plan.shares_gpu_milli)
    if expected is not None and actual != expected:
        wrong = {
            name: (actual.get(name), share) for name, share in expected.items() if actual.get(name) != share
        }
        yield Violation("shares", f"(is, should be): {wrong}")


def reasons(step: Step) -> Iterator[Violation]:
    """Whoever waits is told why, and nobody else is."""
    waiting = {
        workload.id
        for workload, pod in all_pods(step.before)
        if pod.state is PodState.PENDING and pod.id not in step.bound
    }
    if waiting != set(step.plan.pending):
        yield Violation("reasons", f"differs: {sorted(waiting.symmetric_difference(step.plan.pending))}")
    if any(not reason.message for reason in step.plan.pending.values()):
        yield Violation("reasons", "an empty one")


CHECKS: tuple[Callable[[Step], Iterator[Violation]], ...] = (
    capacity,
    limits,
    model_limits,
    firm_work,
    coverage,
    evictions_inside,
    minimum_runtimes,
    caps,
    gangs,
    nominations,
    kept_rooms,
    shares,
    reasons,
)


def shuffled(snapshot: Snapshot, seed: int) -> Snapshot:
    """The same snapshot in another order."""
    shuffler = random.Random(seed)  # noqa: S311 - a shuffle that can be repeated
    return replace(
        snapshot,
        nodes=tuple(shuffler.sample(snapshot.nodes, len(snapshot.nodes))),
        projects=tuple(shuffler.sample(snapshot.projects, len(snapshot.projects))),
        workloads=tuple(
            replace(workload, pods=tuple(shuffler.sample(workload.pods, len(workload.pods))))
            for workload in shuffler.sample(snapshot.workloads, len(snapshot.workloads))
        ),
        budgets=tuple(shuffler.sample(snapshot.budgets, len(snapshot.budgets))),
    )


def difference(first: Plan, second: Plan) -> str | None:
    """In which parts two plans for the same snapshot differ, their order included; None: in none."""
    parts = []
    for name in (
        "bindings",
        "evictions",
        "nominations",
        "left_over",
        "shares_gpu_milli",
        "pending",
        "endangered",
    ):
        one, other = getattr(first, name), getattr(second, name)
        if repr(one) != repr(other):
            same_set = isinstance(one, tuple) and sorted(map(repr, one)) == sorted(map(repr, other))
            same_set = same_set or (isinstance(one, dict) and one == other)
            parts.append(f"{name}{' (only their order)' * same_set}")
    return ", ".join(parts) or None
