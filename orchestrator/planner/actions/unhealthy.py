"""Migrate or evict pods that hold GPUs and cannot use them: on unhealthy hardware, in stale gangs, or with a device
that another ResourceClaim holds.

Preemptible pods on unhealthy hardware are migrated as soon as all pods that must migrate together fit elsewhere. Other
pods stay, because they may still work. The plan names them with the reason (`endangered`).

Two schedulers can give one device to two ResourceClaims at the same moment. The operator cannot deallocate the claim of
the other scheduler, so it evicts the pod that it bound itself.
"""

from collections.abc import Iterator, Sequence

from orchestrator.planner.accounting.amounts import amounts_text
from orchestrator.planner.accounting.coverage import Victim
from orchestrator.planner.gangs import chunk_amounts, has_gang, shape_of
from orchestrator.planner.model import SECOND_US, Eviction, Node, Pod, PodState, Workload
from orchestrator.planner.ordering import workload_order
from orchestrator.planner.placements import Placed
from orchestrator.planner.preemption.rescheduling import move_elsewhere
from orchestrator.planner.preemption.victims import EvictionReason
from orchestrator.planner.session import Session

RULE = "unhealthy"


def move_off_unhealthy(session: Session) -> None:
    """Migrate each workload on unhealthy hardware, or report it as endangered; the oldest of a project first."""
    if not session.ledger.unhealthy:
        return
    common = _common_cause(session)
    for workload in sorted(
        session.running(), key=lambda workload: (workload.project, *workload_order(workload))
    ):
        struck = list(_struck(session, workload))
        if struck and common:
            session.endangered[workload.id] = f"{_causes(struck)}: {workload.name} stays, as {common}"
        elif struck:
            _move(session, workload, struck)


def problem_of(node: Node, pod: Pod, now_us: int, grace_seconds: int) -> str:
    """Return the problem of the pod's node or GPUs that requires a migration; "" if there is none.

    A node counts as unhealthy only after the grace period.
    """
    if _is_unhealthy(node, now_us, grace_seconds):
        return f"{node.name} is unhealthy ({node.unhealthy})"
    struck = sorted(set(pod.devices).intersection(node.unhealthy_gpus))
    if struck:
        return f"GPU {', '.join(map(str, struck))} of {node.name} is unhealthy"
    return ""


def _is_unhealthy(node: Node, now_us: int, grace_seconds: int) -> bool:
    """Return whether the whole node is unhealthy, and has been for the grace period."""
    return bool(node.unhealthy) and (
        not node.unhealthy_since_us or now_us >= node.unhealthy_since_us + grace_seconds * SECOND_US
    )


def _common_cause(session: Session) -> str:
    """Return a sentence if more nodes are unhealthy than the settings allow, else ""."""
    snapshot, most = session.snapshot, session.snapshot.settings.max_unhealthy_nodes
    if most is None:
        return ""
    nodes = (session.ledger.by_name[name].node for name in session.ledger.unhealthy)
    count = sum(
        bool(node.unhealthy_gpus)
        or _is_unhealthy(node, snapshot.now_us, snapshot.settings.not_ready_grace_seconds)
        for node in nodes
    )
    return (
        f"{count} nodes are unhealthy at the same time (--max-unhealthy-nodes {most})" if count > most else ""
    )


def _causes(struck: Sequence[tuple[Pod, str]]) -> str:
    return "; ".join(dict.fromkeys(cause for _, cause in struck))


def _struck(session: Session, workload: Workload) -> Iterator[tuple[Pod, str]]:
    snapshot = session.snapshot
    for pod in workload.pods:
        if pod.state is PodState.ALLOCATED and pod.node in session.ledger.unhealthy:
            node = session.ledger.by_name[pod.node].node
            why = problem_of(node, pod, snapshot.now_us, snapshot.settings.not_ready_grace_seconds)
            if why:
                yield pod, why


def _move(session: Session, workload: Workload, struck: Sequence[tuple[Pod, str]]) -> None:
    why = _causes(struck)
    project = session.tree.projects.get(workload.project)
    if project is None:
        return
    if not workload.preemptible and not project.moves_non_preemptible:
        session.endangered[workload.id] = (
            f"{why}: {workload.name} is not preemptible and stays; delete and submit it again to move it, "
            "or set nonPreemptibleOnUnhealthy of the project to Move"
        )
        return
    victim = Victim(workload, _together(workload, [pod for pod, _ in struck]))
    if not (session.limits.may_evict([victim.pods]) and session.limits.budgets_allow(victim.pods)):
        session.endangered[workload.id] = (
            f"{why}: {workload.name} is migrated as soon as the cap on evictions or a disruption budget allows"
        )
        return
    checkpoint = session.ledger.checkpoint()
    for pod in victim.pods:
        session.ledger.evict(workload, pod)
    moved = move_elsewhere(session, [(victim, EvictionReason(RULE, why))])
    fits = sum(len(placed) for placed in moved.values()) == len(victim.pods)
    fits = fits and not any(_keeps_unhealthy(session, pod) for pod in victim.pods)
    if not fits or _is_due_to_others(session, workload, victim.pods, moved[workload.id]):
        session.ledger.rollback(checkpoint)
        requested = amounts_text(chunk_amounts(victim.pods))
        session.endangered[workload.id] = (
            f"{why}: {workload.name} stays until it finds {requested} elsewhere"
            + (", which no other workload is more entitled to" if fits else "")
        )
        return
    session.take(_eviction(workload, pod, why) for pod in victim.pods)
    for placed in moved.values():
        session.reserve_seats(session.workload(workload.id), placed)


def _is_due_to_others(session: Session, workload: Workload, pods: Sequence[Pod], placed: Placed) -> bool:
    """Return whether a pending workload is more entitled to the new placements and fits nowhere else."""
    checkpoint = session.ledger.checkpoint()
    session.ledger.unplace(workload, placed)
    ours = session.tier(workload, tuple(pods))
    rivals = []
    kinds: set[tuple[object, ...]] = set()
    for rival in sorted(session.pending(), key=workload_order):
        chunk = session.next_chunk(rival)
        tier = session.reservations.key(rival, chunk)
        kind = (rival.project, tier, *session.shape_beside_others(chunk), *shape_of(rival, chunk))
        ahead = rival.project == workload.project and workload_order(rival) < workload_order(workload)
        if kind in kinds or not (ahead or session.tier(rival, chunk) < ours):
            continue
        kinds.add(kind)
        if session.violation(rival, chunk) is None and session.place_all(rival, chunk) is not None:
            rivals.append((rival, chunk))
            session.ledger.rollback(checkpoint)
            session.ledger.unplace(workload, placed)
    session.ledger.rollback(checkpoint)
    due = False
    for rival, chunk in rivals:
        due = due or session.place_all(rival, chunk) is None
        session.ledger.rollback(checkpoint)
    return due


def _keeps_unhealthy(session: Session, pod: Pod) -> bool:
    """Return whether a ResourceClaim of the evicted pod still holds an unhealthy GPU because other pods use the
    claim too.
    """
    account = session.ledger.by_name.get(pod.node or "")
    if account is None or not pod.claims:
        return False
    gpus, unhealthy = account.node.published_gpus, account.node.unhealthy_gpus
    return session.ledger.claims.holds_on(pod, {gpus[index] for index in unhealthy if index < len(gpus)})


def _together(workload: Workload, struck: Sequence[Pod]) -> tuple[Pod, ...]:
    """Return the affected pods and the pods that share ResourceClaims with them. If the gang would be below its minimum
    without these, return all its running pods.
    """
    keys = {key for pod in struck for key in pod.claims}
    if keys:
        hit = {pod.id for pod in struck}
        struck = [
            pod
            for pod in workload.pods
            if pod.id in hit or (pod.state is PodState.ALLOCATED and not keys.isdisjoint(pod.claims))
        ]
    struck_ids = {pod.id for pod in struck}
    rest = tuple(pod for pod in workload.pods if pod.id not in struck_ids)
    if has_gang(workload.with_pods(rest)):
        return tuple(struck)
    return tuple(pod for pod in workload.pods if pod.state is PodState.ALLOCATED)


def _eviction(workload: Workload, pod: Pod, why: str) -> Eviction:
    message = f"{amounts_text(pod.request.amounts)} migrated to other hardware by the rule of {RULE}: {why}"
    return Eviction(pod.id, workload.id, workload.id, RULE, message)


STALE_RULE = "stale-gang"
DOUBLE_CLAIM_RULE = "double-claim"


def evict_hopeless_stale(session: Session) -> None:
    """Evict the pods of stale gangs that this decision cannot complete, because no pending pods of the gang can start.

    Workloads of the same decision can then be nominated to these GPUs, which no longer count as used by the project.
    Otherwise the decision would evict other pods without need.
    """
    _evict(session, only_hopeless=True)


def evict_stale(session: Session) -> None:
    """Evict the pods of every stale gang that the decision did not complete."""
    _evict(session, only_hopeless=False)


def _evict(session: Session, *, only_hopeless: bool) -> None:
    """Evict stale gangs within the maximum number of evictions and the disruption budgets. Their nominations end."""
    for workload, survivors in session.stale_gangs():
        if not survivors or (only_hopeless and session.next_chunk(workload)):
            continue
        if not (session.limits.may_evict([survivors]) and session.limits.budgets_allow(survivors)):
            continue
        message = f"{workload.name} runs with fewer pods than it needs: all start again together"
        for pod in survivors:
            session.ledger.evict(workload, pod)
        session.take(Eviction(pod.id, workload.id, workload.id, STALE_RULE, message) for pod in survivors)
        session.end_useless_nominations(workload.id)


def evict_double_holders(session: Session) -> None:
    """Evict the pods whose ResourceClaims hold devices that other ResourceClaims hold too, even if the pods are
    within quota.
    """
    doubles = session.ledger.claims.doubles
    if not doubles:
        return
    for workload in sorted(session.running(), key=lambda workload: workload.id):
        holders = [
            (pod, next(key for key in pod.claims if key in doubles))
            for pod in workload.pods
            if pod.state is PodState.ALLOCATED and not doubles.keys().isdisjoint(pod.claims)
        ]
        for pod, _ in holders:
            session.ledger.evict(workload, pod)
        session.take(
            Eviction(
                pod.id,
                workload.id,
                workload.id,
                DOUBLE_CLAIM_RULE,
                f"{pod.name} starts again with other devices: another scheduler gave a device of its claim {key}, or "
                f"too much of it, to the claim {doubles[key]}",
            )
            for pod, key in holders
        )
