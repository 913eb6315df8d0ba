"""Rules for every single decision. Only the planner's data classes are shared with the planner."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

from orchestrator.planner.model import PodState
from tests.world.capacity import ClusterCapacity, devices_fault
from tests.world.covered_work import covered_work
from tests.world.facts import (
    SECOND_US,
    admits,
    all_pods,
    gang_is_whole,
    order_in_project,
    total,
    within,
)
from tests.world.nominations import lost_nominations
from tests.world.pod_constraints import PodConstraints, releasing
from tests.world.step import Step, Violation
from tests.world.water import fair_shares

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from orchestrator.planner.model import Binding, Eviction, Plan, Pod, Snapshot


def check_step(before: Snapshot, decision: Plan) -> list[Violation]:
    """Return all violations in the decision."""
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
    """Check that bindings use presently free devices of nodes that admit the pod."""
    capacities = ClusterCapacity(step.before.nodes)
    for _, pod in all_pods(step.before):
        if pod.node is not None:
            capacities.take_pod(pod)
    for kind, bindings in (("bound", step.plan.bindings), ("nominated", step.plan.nominations)):
        for binding in bindings:
            yield from (Violation("capacity", line) for line in _misplaced(step, binding, kind))
    used = {name: capacity.used for name, capacity in capacities.by_name.items()}
    for binding in step.plan.bindings:
        capacities.take(binding.node, step.pods[binding.pod].request, binding.devices)
    for line in capacities.faults(binding.node for binding in step.plan.bindings):
        yield Violation("capacity", line)
    for name, capacity in capacities.by_name.items():
        lost = capacity.node.lost_gpus
        if capacity.used > used[name] and capacity.uses_lost:
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


def pod_constraints(step: Step) -> Iterator[Violation]:
    """Check that each bound pod satisfies the required constraints between pods now, and each nominated pod later."""
    constraints = PodConstraints(step.before)
    if constraints.are_none:
        return
    running = constraints.on_nodes(pod for _, pod in step.running)
    evicted = [step.pods[name] for name in step.evicted]
    new = [
        constraints.seen(step.pods[entry.pod], entry.node)
        for entry in step.plan.bindings
        if entry.node in step.nodes
    ]
    present = [*constraints.foreign, *running]
    leaving = constraints.on_nodes([*releasing(step.before), *evicted])
    if not constraints.has_order(new, present, leaving):
        yield Violation(
            "constraint", f"{[(pod.id, pod.node) for pod in new]} break one, whatever their order"
        )
    nominated = [
        constraints.seen(step.pods[entry.pod], entry.node)
        for entry in step.plan.nominations
        if entry.node in step.nodes
    ]
    stuck = constraints.on_nodes(releasing(step.before, only_stuck=True))
    if not constraints.has_order(nominated, [*present, *new], stuck):
        facts = f"{[(pod.id, pod.node) for pod in nominated]} break one when terminating pods are gone"
        yield Violation("constraint-later", facts)


def limits(step: Step) -> Iterator[Violation]:
    """Check that each project that starts pods is within its limits, with its terminating pods."""
    for name in _projects_of(step, step.plan.bindings):
        started = total(
            step.pods[entry.pod]
            for entry in step.plan.bindings
            if name in step.tree.lineage[step.workloads[entry.workload].project]
        )
        if not within(step.held_until_gone[name], step.tree.limit(name), started):
            yield Violation(
                "limits", f"{name} holds {step.held_until_gone[name]}, limit {step.tree.limit(name)}"
            )


def model_limits(step: Step) -> Iterator[Violation]:
    """Check the limits on GPU models in the same way."""
    held: dict[tuple[str, str], int] = {}
    started = [
        (step.workloads[entry.workload], entry.node, step.pods[entry.pod]) for entry in step.bound.values()
    ]
    for workload, node, pod in [
        *((one, pod.node, pod) for one, pod in [*step.running, *step.leaving]),
        *started,
    ]:
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
    """Check that non-preemptible pods, with terminating ones, stay within the quotas, and are not evicted."""
    firm = [entry for entry in step.plan.bindings if not step.workloads[entry.workload].preemptible]
    for name in _projects_of(step, firm):
        own = [entry for entry in firm if name in step.tree.lineage[step.workloads[entry.workload].project]]
        requested = total(
            step.pods[entry.pod] for entry in own
        )  # bounds only requested resources: a pod with only CPUs may start although GPUs exceed the quota
        if not within(step.firm_until_gone[name], step.tree.quota(name), requested):
            yield Violation(
                "firm", f"{name}: {step.firm_until_gone[name]} above quota {step.tree.quota(name)}"
            )
    for eviction in step.plan.evictions:
        workload, node = step.workloads[eviction.workload], step.nodes.get(step.pods[eviction.pod].node or "")
        project = step.tree.projects.get(workload.project)
        unhealthy = node is not None and (node.unhealthy or node.unhealthy_gpus or not node.schedulable)
        may_move = project is not None and project.moves_non_preemptible and unhealthy
        is_own = eviction.beneficiary == eviction.workload  # it lost a member, or is migrated from a bad node
        if not workload.preemptible and not may_move and not is_own:
            yield Violation("firm", f"{eviction.pod} is evicted and cannot be taken back ({eviction.rule})")


def _projects_of(step: Step, bindings: tuple[Binding, ...] | list[Binding]) -> list[str]:
    names = {
        name
        for entry in bindings
        for name in step.tree.lineage.get(step.workloads[entry.workload].project, ())
    }
    return sorted(names)


def evictions_inside(step: Step) -> Iterator[Violation]:
    """Check that within a project only more entitled workloads evict others, and that no pod is evicted twice."""
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
    """Check that no workload loses pods of its minimum during its minimum runtime, unless they are nominated elsewhere.

    A victim without protection from its beneficiary does not count: other evictions may have taken the surplus pods.
    """
    if not step.before.now_us:
        return
    protected = [
        (eviction, seconds)
        for eviction in step.plan.evictions
        if (seconds := _protected_seconds(step, eviction)) is not None
    ]
    in_time = {eviction.pod for eviction, _ in protected}
    for eviction, seconds in protected:
        victim = step.workloads[eviction.workload]
        stays = [pod for workload, pod in step.running if workload.id == victim.id]
        # migrated pods have a placement and continue
        stays += [
            pod
            for pod in victim.pods
            if pod.id in step.evicted and (pod.id in step.nominated or pod.id not in in_time)
        ]
        if not gang_is_whole(victim, stays):
            yield Violation(
                "minimum-runtime", f"{eviction.pod} started at {victim.started_at_us}, {seconds} s"
            )


def _protected_seconds(step: Step, eviction: Eviction) -> int | None:
    """Return the minimum runtime, in seconds, that protects the victim from the beneficiary; None if it is over or
    unset.
    """
    victim, winner = step.workloads[eviction.workload], step.workloads.get(eviction.beneficiary)
    if winner is None or winner.id == victim.id or eviction.pod in step.nominated:
        return None
    same = winner.project == victim.project
    side = victim.project if same else step.tree.sides(winner.project, victim.project)[1]
    field = "preempt_min_runtime_seconds" if same else "reclaim_min_runtime_seconds"
    seconds = 0 if side is None else step.tree.nearest(side, field)
    is_over = step.before.now_us >= victim.started_at_us + seconds * SECOND_US
    return None if is_over or not seconds else seconds


def caps(step: Step) -> Iterator[Violation]:
    """Check that a decision evicts and migrates at most the permitted numbers, and respects disruption budgets."""
    settings = step.before.settings
    if settings.max_evictions is not None and len(step.evicted) > settings.max_evictions:
        yield Violation("cap", f"{len(step.evicted)} evictions, {settings.max_evictions} are allowed")
    moved: dict[str, list[str]] = {}
    for eviction in step.plan.evictions:
        # A victim of another rule that is nominated elsewhere does not count as migrated.
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
    """Return the number of chunks of the workload for which pods may be migrated: its gang, then each further pod."""
    workload = step.workloads[name]
    given = sum(entry.workload == name for entry in (*step.plan.bindings, *step.plan.nominations))
    if workload.groups is not None:
        return max(1, given)
    running = sum(other.id == name for other, _ in step.running)
    return 1 + max(0, given - max(1, workload.min_member - running))


def gangs(step: Step) -> Iterator[Violation]:
    """Check that a gang starts as a whole. A gang that lost pods or is migrated may be completed by nominated pods."""
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
    """Check that nominated placements are free once terminating pods have ended, and that each pending pod has at most
    one.
    """
    capacities = step.capacity_left()
    for binding in (*step.plan.bindings, *step.plan.nominations):
        capacities.take(binding.node, step.pods[binding.pod].request, binding.devices)
    for line in capacities.faults(binding.node for binding in step.plan.nominations):
        yield Violation("nomination", f"counting what is promised, {line}")
    for name, count in Counter(binding.pod for binding in step.plan.nominations).items():
        if count > 1 or name in step.bound:
            also = ", and bound" if name in step.bound else ""
            yield Violation("nomination", f"{name} is nominated {count} times{also}")
        if step.pods[name].state is PodState.ALLOCATED and name not in step.evicted:
            yield Violation("nomination", f"{name} is nominated, and runs")


def shares(step: Step) -> Iterator[Violation]:
    """Check the fair shares against an independent calculation. GPU models with limits of their own are left out."""
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
    """Check that exactly the pending workloads have reasons."""
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
    pod_constraints,
    limits,
    model_limits,
    firm_work,
    covered_work,
    evictions_inside,
    minimum_runtimes,
    caps,
    gangs,
    nominations,
    lost_nominations,
    shares,
    reasons,
)


def shuffled(snapshot: Snapshot, seed: int) -> Snapshot:
    """Return the same snapshot in another order."""
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
    """Return the parts in which two plans for the same snapshot differ, including their order;
    None if they are equal.
    """
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
