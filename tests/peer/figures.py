"""The peer's cases for single functions, run against the functions and policies by which the planner decides."""

from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Final

from orchestrator.planner.accounting.amounts import Figures, entitled_amounts, exceeds_somewhere
from orchestrator.planner.accounting.coverage import Victim
from orchestrator.planner.accounting.ledger import Ledger
from orchestrator.planner.accounting.quota import ProjectTree
from orchestrator.planner.accounting.quota_checks import quota_violation
from orchestrator.planner.accounting.shares import Claim, divide, divide_over_quota, fair_shares
from orchestrator.planner.accounting.tiers import EntitlementTier
from orchestrator.planner.cluster_state import ClusterState
from orchestrator.planner.gangs import chunk_amounts
from orchestrator.planner.model import (
    UNLIMITED,
    Amounts,
    Node,
    Pod,
    PodState,
    Project,
    Request,
    Snapshot,
    Workload,
)
from orchestrator.planner.ordering import priority_key
from orchestrator.planner.preemption.reclaim_policy import ReclaimPolicy
from orchestrator.planner.preemption.rescheduling import MovePolicy
from orchestrator.planner.preemption.victims import restores_quota
from orchestrator.planner.session import Session

if TYPE_CHECKING:
    from orchestrator.planner.preemption.victim_selection import Losses

Case = Mapping[str, Any]

RECLAIMER: Final = "reclaimer"
RESOURCES = ("gpu", "cpu_milli", "memory")


def exact(amount: float, resource: str) -> int:
    """Return the amount in the planner's unit: thousandths of GPUs, and other resources as they are."""
    return round(Fraction(str(round(amount, 6))) * (1000 if resource.startswith("gpu") else 1))


def bound(amount: float | None, resource: str) -> int:
    return UNLIMITED if amount is None else exact(amount, resource)


def triple(queue: Case, field: str) -> Amounts:
    gpu, cpu, memory = (bound(queue[resource][field], resource) for resource in RESOURCES)
    return gpu, cpu, memory


def requested(amounts: Case) -> Amounts:
    return (
        exact(amounts.get("gpus", 0), "gpu"),
        exact(amounts.get("cpu_milli", 0), "cpu_milli"),
        exact(amounts.get("memory", 0), "memory"),
    )


def figures(queue: Case) -> Figures:
    return Figures(
        quota=triple(queue, "deserved"),
        limit=triple(queue, "limit"),
        share=triple(queue, "fair_share"),
        held=triple(queue, "allocated"),
    )


def unlimited_when_unset(queue: Case) -> Figures:
    """Return the queue's figures without limits: the cases of reclaim write zero for no limit."""
    plain = figures(queue)
    return Figures(plain.quota, (UNLIMITED, UNLIMITED, UNLIMITED), plain.share, plain.held)


def claims(case: Case, resource: str) -> list[Claim]:
    return [
        Claim(
            name=queue["id"],
            quota=bound(queue[resource]["deserved"], resource),
            demand=exact(queue[resource]["requested"], resource),
            limit=None if queue[resource]["limit"] is None else exact(queue[resource]["limit"], resource),
            weight=queue[resource]["over_quota_weight"],
            priority=queue["priority"],
            created_at_us=queue.get("creation_order", position),
        )
        for position, queue in enumerate(case["queues"])
    ]


def expected_shares(case: Case, resource: str) -> dict[str, int]:
    return {
        queue: exact(amounts[resource], resource)
        for queue, amounts in case["expected"]["fair_share"].items()
        if resource in amounts
    }


def granule(resource: str) -> int:
    return 1000 if resource == "gpu" else 1


def agree(expected: Mapping[str, int], found: Mapping[str, int]) -> bool:
    return all(found[name] == amount for name, amount in expected.items())


def one_resource(case: Case) -> bool:
    resource = case["resource"]
    total = exact(case["total"], resource)
    mine = claims(case, resource)
    found = divide(total, mine, granule(resource))
    left = max(0, total - sum(found.values()))
    return agree(expected_shares(case, resource), found) and left == exact(
        case["expected"]["remaining"], resource
    )


def surplus_of_one_resource(case: Case) -> bool:
    resource = case["resource"]
    guaranteed = {queue["id"]: exact(queue[resource]["fair_share"], resource) for queue in case["queues"]}
    found, left = divide_over_quota(
        exact(case["total"], resource), claims(case, resource), guaranteed, granule(resource)
    )
    return agree(expected_shares(case, resource), found) and left == exact(
        case["expected"]["remaining"], resource
    )


def all_resources(case: Case) -> bool:
    totals = {"gpu": case["total"]["gpus"], **{each: case["total"][each] for each in RESOURCES[1:]}}
    return all(
        agree(
            expected_shares(case, resource),
            divide(exact(totals[resource], resource), claims(case, resource), granule(resource)),
        )
        for resource in RESOURCES
    )


def project(queue: Case, position: int) -> Project:
    def amount(resource: str, field: str) -> int | None:
        value = queue[resource][field]
        return None if value is None else exact(value, resource)

    return Project(
        name=queue["id"],
        quota_gpu_milli=amount("gpu", "deserved"),
        limit_gpu_milli=amount("gpu", "limit"),
        over_quota_weight=queue["gpu"]["over_quota_weight"],
        priority=queue["priority"],
        parent=queue.get("parent"),
        created_at_us=queue.get("creation_order", position),
        quota_cpu_milli=amount("cpu_milli", "deserved"),
        limit_cpu_milli=amount("cpu_milli", "limit"),
        cpu_over_quota_weight=queue["cpu_milli"]["over_quota_weight"],
        quota_memory_bytes=amount("memory", "deserved"),
        limit_memory_bytes=amount("memory", "limit"),
        memory_over_quota_weight=queue["memory"]["over_quota_weight"],
    )


def hierarchy(case: Case) -> bool:
    queues = {queue["id"]: queue for queue in case["queues"]}
    tree = ProjectTree(project(queue, position) for position, queue in enumerate(queues.values()))
    demand = {name: triple(queue, "requested") for name, queue in queues.items() if name not in tree.children}
    shares = fair_shares(tree, demand, requested(case["total"]))
    return all(
        shares[name][RESOURCES.index(resource)] == exact(amount, resource)
        for name, amounts in case["expected"]["fair_share"].items()
        for resource, amount in amounts.items()
    )


def pod(name: str, amounts: Amounts, node: str | None) -> Pod:
    gpu_milli, cpu_milli, memory_bytes = amounts
    gpus, portion = divmod(gpu_milli, 1000)
    request = Request(
        gpu_count=1 if portion else gpus, gpu_portion_milli=portion,
        cpu_milli=cpu_milli, memory_bytes=memory_bytes,
    )  # fmt: skip
    return Pod(name, name, request, state=PodState.ALLOCATED if node else PodState.PENDING, node=node)


def session_of(queues: Mapping[str, Figures], parents: Mapping[str, str | None], case: Case) -> Session:
    """Return a session in which the queues have the figures of the case, its reclaimer waits and its victims run."""

    def workload(name: str, project: str, *pods: Pod, preemptible: bool = True) -> Workload:
        return Workload(name, name, project, 0, preemptible, 1, pods)

    reclaimer, node = case["reclaimer"], Node("node", gpu_count=0, cpu_milli=0, memory_bytes=0)
    claim = workload(
        RECLAIMER, reclaimer["queue"], pod(RECLAIMER, requested(reclaimer["requires"]), None),
        preemptible=reclaimer["preemptible"],
    )  # fmt: skip
    running = [
        workload(f"{name}-{number}", name, pod(f"{name}-{number}", requested(chunk), node.name))
        for name, chunks in case.get("victims", {}).items()
        for number, chunk in enumerate(chunks)
    ]
    projects = tuple(Project(name, 0, parent=parents.get(name)) for name in queues)
    session = Session(ClusterState(Snapshot((node,), projects, (claim, *running))))
    for name, figures in queues.items():
        session.tree.quota[name], session.tree.limit[name] = figures.quota, figures.limit
        session.ledger.allocated[name] = list(figures.held)
        session.shares[name] = figures.share
    for queue in case["queues"]:
        session.ledger.non_preemptible[queue["id"]] = list(triple(queue, "allocated_non_preemptible"))
    session.tree.resources = tuple(
        resource
        for resource in range(3)
        if any(pod.request.amounts[resource] for one in (claim, *running) for pod in one.pods)
    )
    return session


def can_reclaim(case: Case) -> bool:
    """Check the tier of the claiming workload, and the quota for a workload that is not preemptible, as
    `actions.reclaim` does.
    """
    queues = {queue["id"]: figures(queue) for queue in case["queues"]}
    session = session_of(queues, {}, case)
    claim = session.workload(RECLAIMER)
    amounts = requested(case["reclaimer"]["requires"])
    tier = session.tier(claim, session.next_chunk(claim), levels=1)
    found = tier is not EntitlementTier.OVER_SHARE and quota_violation(session.ledger, claim, amounts) is None
    return found is bool(case["expected"]["result"])


def is_legal(case: Case) -> bool:
    """Check that the policy has a reason for the eviction of each victim, and accepts the losses as a whole."""
    parents = {queue["id"]: queue.get("parent") for queue in case["queues"]}
    session = session_of(
        {queue["id"]: unlimited_when_unset(queue) for queue in case["queues"]}, parents, case
    )
    ledger, policy = session.ledger, ReclaimPolicy(session)
    claim = session.workload(RECLAIMER)
    chunk = session.next_chunk(claim)
    policy.start(claim, chunk)
    losses: Losses = []
    for victim in (Victim(workload, workload.pods) for workload in session.running()):
        reason = policy.eviction_reason(claim, chunk_amounts(chunk), victim)
        if reason is None:
            return not case["expected"]["result"]
        losses.append((victim, reason))
        move(ledger, victim.workload, victim.pods, -1)
    quota_suffices = quota_violation(ledger, claim, chunk_amounts(chunk)) is None
    move(ledger, claim, chunk, 1)
    found = quota_suffices and policy.accepts(session, claim, losses)
    return found is bool(case["expected"]["result"])


def move(ledger: Ledger, workload: Workload, pods: Sequence[Pod], sign: int) -> None:
    for name in ledger.tree.lineage[workload.project]:
        for resource, amount in enumerate(chunk_amounts(pods)):
            ledger.allocated[name][resource] += sign * amount


def victim_filter(case: Case) -> bool:
    """Check whether the queue's workloads may be reclaimed, or moved if the case is about consolidation."""
    queues = {queue["id"]: unlimited_when_unset(queue) for queue in case["queues"]}
    session = session_of(queues, {}, case)
    reclaim = ReclaimPolicy(session)
    policy = MovePolicy(None, reclaim) if "consolidation" in case["name"] else reclaim
    amounts = requested(case["reclaimer"]["requires"])
    is_closed = policy.is_closed(session.workload(RECLAIMER), amounts, case["victim_queue"])
    return is_closed is not bool(case["expected"]["result"])


def fair_share_rule(case: Case) -> bool:
    entitled = entitled_amounts(unlimited_when_unset(case["victim_queue"]))
    found = exceeds_somewhere(requested(case["victim_remaining"]), entitled)
    return found is bool(case["expected"]["result"])


def quota_rule(case: Case) -> bool:
    found = restores_quota(
        unlimited_when_unset(case["reclaimer_queue"]),
        requested(case["requires"]),
        unlimited_when_unset(case["victim_queue"]),
        requested(case["victim_remaining"]),
    )
    return found is bool(case["expected"]["result"])


def next_job(job: Case, smallest_gpu_mib: int | None) -> Amounts:
    gpu_milli = exact(job.get("gpus", 0), "gpu")
    if smallest_gpu_mib and job.get("gpu_memory_mib"):
        gpu_milli += job.get("gpu_devices", 1) * -(-1000 * job["gpu_memory_mib"] // smallest_gpu_mib)
    return (gpu_milli, exact(job.get("cpu_milli", 0), "cpu_milli"), exact(job.get("memory", 0), "memory"))


def queue_order(case: Case) -> bool:
    total = requested(case["total"])
    keys = {
        side: priority_key(
            figures(case[side]),
            next_job(case[f"{side}_next_job"], case["min_gpu_memory_mib"]),
            total,
            priority=case[side]["priority"],
            created_at_us=0,
            name=case[side]["id"],
        )
        for side in ("left", "right")
    }
    return (keys["left"] < keys["right"]) is bool(case["expected"]["result"] == "left_first")


KINDS: Mapping[str, Callable[[Case], bool]] = {
    "fair_share_one_resource": one_resource,
    "over_quota_one_resource": surplus_of_one_resource,
    "fair_share_all_resources": all_resources,
    "fair_share_hierarchy": hierarchy,
    "can_reclaim": can_reclaim,
    "reclaim_is_legal": is_legal,
    "victim_filter": victim_filter,
    "strategy_MaintainFairShare": fair_share_rule,
    "strategy_GuaranteeDeservedQuota": quota_rule,
    "queue_order": queue_order,
}


def run_unit_case(case: Case) -> str:
    """Return `pass`, `fail`, or `unsupported` if the planner has no such function."""
    kind = KINDS.get(case["kind"])
    if kind is None or case.get("k"):
        return "unsupported"
    return "pass" if kind(case) else "fail"
