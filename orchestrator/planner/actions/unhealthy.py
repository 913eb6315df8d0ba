"""Move work off nodes and GPUs that are unhealthy, as soon as all of it that must move together has another place.

What is not preemptible stays, unless its project says otherwise, and so does what fits nowhere else: a job that may
still be working is not traded for one that waits. The plan says who stays, and why.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from orchestrator.planner.actions.evicting import move_elsewhere
from orchestrator.planner.decision import Decision
from orchestrator.planner.entitlement import Victim
from orchestrator.planner.gangs import has_gang
from orchestrator.planner.model import Eviction, Node, Pod, PodState, Workload
from orchestrator.planner.ordering import workload_order
from orchestrator.planner.quota import gpus
from orchestrator.planner.victims import Ruling

RULE = "unhealthy"
_SECOND_US = 1_000_000


def move_off_unhealthy(decision: Decision) -> None:
    """Move, or name as endangered, every workload that runs on unhealthy hardware; the oldest of a project first."""
    if not decision.ledger.unhealthy:
        return
    for workload in sorted(decision.running(), key=lambda each: (each.project, *workload_order(each))):
        struck = list(_struck(decision, workload))
        if struck:
            _move(decision, workload, struck)


def trouble(node: Node, pod: Pod, now_us: int, grace_seconds: int) -> str:
    """What is wrong with what the pod runs on, as far as something has to be done about it; "" for nothing."""
    if node.unhealthy and (
        not node.unhealthy_since_us or now_us >= node.unhealthy_since_us + grace_seconds * _SECOND_US
    ):
        return f"{node.name} is unhealthy ({node.unhealthy})"
    struck = sorted(set(pod.devices).intersection(node.unhealthy_gpus))
    if struck:
        return f"GPU {', '.join(map(str, struck))} of {node.name} is unhealthy"
    return ""


def _struck(decision: Decision, workload: Workload) -> Iterator[tuple[Pod, str]]:
    snapshot = decision.snapshot
    for pod in workload.pods:
        if pod.state is PodState.ALLOCATED and pod.node in decision.ledger.unhealthy:
            node = decision.ledger.by_name[pod.node].node
            why = trouble(node, pod, snapshot.now_us, snapshot.settings.not_ready_grace_seconds)
            if why:
                yield pod, why


def _move(decision: Decision, workload: Workload, struck: Sequence[tuple[Pod, str]]) -> None:
    why = "; ".join(dict.fromkeys(each for _, each in struck))
    project = decision.tree.projects.get(workload.project)
    if project is None:
        return
    if not workload.preemptible and not project.moves_non_preemptible:
        decision.endangered[workload.id] = (
            f"{why}: {workload.name} is not preemptible and stays; delete and submit it again to move it, "
            "or set nonPreemptibleOnUnhealthy of the project to Move"
        )
        return
    victim = Victim(workload, _together(workload, [pod for pod, _ in struck]))
    if not (decision.may_evict([victim.pods]) and decision.budgets_allow(victim.pods)):
        decision.endangered[workload.id] = (
            f"{why}: {workload.name} is moved as soon as the cap on evictions or a disruption budget allows"
        )
        return
    checkpoint = decision.ledger.checkpoint()
    for pod in victim.pods:
        decision.ledger.evict(workload, pod)
    moved = move_elsewhere(decision, [(victim, Ruling(RULE, why))])
    fits = sum(len(placed) for placed in moved.values()) == len(victim.pods)
    if not fits or not decision.may_make_room(workload):
        decision.ledger.rollback(checkpoint)
        asked = gpus(sum(pod.request.gpu_milli for pod in victim.pods))
        decision.endangered[workload.id] = (
            f"{why}: {workload.name} stays until {asked} GPUs are free for it elsewhere"
            + (", and would not be taken by others" if fits else "")
        )
        return
    decision.take(_eviction(workload, pod, why) for pod in victim.pods)
    for placed in moved.values():
        decision.promise(decision.workload(workload.id), placed)


def _together(workload: Workload, struck: Sequence[Pod]) -> tuple[Pod, ...]:
    """The struck pods, or all that run when the gang could not go on without them."""
    gone = {pod.id for pod in struck}
    rest = tuple(pod for pod in workload.pods if pod.id not in gone)
    if has_gang(replace(workload, pods=rest)):
        return tuple(struck)
    return tuple(pod for pod in workload.pods if pod.state is PodState.ALLOCATED)


def _eviction(workload: Workload, pod: Pod, why: str) -> Eviction:
    message = f"{gpus(pod.request.gpu_milli)} GPUs moved to another place by the rule of {RULE}: {why}"
    return Eviction(pod.id, workload.id, workload.id, RULE, message)
