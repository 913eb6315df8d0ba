"""The single-function cases of the peer, put to the planner's pure functions."""

from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any

from orchestrator.planner.accounting.quota import ProjectTree
from orchestrator.planner.accounting.shares import Claim, divide, divide_surplus, fair_shares
from orchestrator.planner.model import UNLIMITED, Amounts, Project
from orchestrator.planner.ordering import turn_key
from orchestrator.planner.preemption.reclaim_rules import (
    Figures,
    holds_more_than_entitled,
    may_lose,
    may_reclaim,
    reclaim_is_allowed,
    restores_quota,
)

Case = Mapping[str, Any]

RESOURCES = ("gpu", "cpu_milli", "memory")


def exact(amount: float, resource: str) -> int:
    """In the planner's unit; memory and processors of these cases are whole already."""
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
        held_non_preemptible=triple(queue, "allocated_non_preemptible"),
    )


def unlimited_when_unset(queue: Case) -> Figures:
    """The reclaim tables leave limits at zero where they mean none."""
    plain = figures(queue)
    return Figures(
        plain.quota, (UNLIMITED, UNLIMITED, UNLIMITED), plain.share, plain.held, plain.held_non_preemptible
    )


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
    found, left = divide_surplus(
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


def can_reclaim(case: Case) -> bool:
    reclaimer = case["reclaimer"]
    queue = next(each for each in case["queues"] if each["id"] == reclaimer["queue"])
    found = may_reclaim(
        figures(queue), requested(reclaimer["requires"]), preemptible=reclaimer["preemptible"]
    )
    return found is bool(case["expected"]["result"])


def is_legal(case: Case) -> bool:
    parents = {queue["id"]: queue.get("parent") for queue in case["queues"]}
    lineages: dict[str, list[str]] = {}
    for name, parent in parents.items():
        lineage, above = [name], parent
        while above is not None and above in parents:
            lineage.append(above)
            above = parents[above]
        lineages[name] = lineage
    reclaimer = case["reclaimer"]
    found = reclaim_is_allowed(
        {queue["id"]: unlimited_when_unset(queue) for queue in case["queues"]},
        lineages,
        reclaimer["queue"],
        requested(reclaimer["requires"]),
        {name: [requested(each) for each in chunks] for name, chunks in case["victims"].items()},
        preemptible=reclaimer["preemptible"],
    )
    return found is bool(case["expected"]["result"])


def victim_filter(case: Case) -> bool:
    victim = next(each for each in case["queues"] if each["id"] == case["victim_queue"])
    reclaimer = next(each for each in case["queues"] if each["id"] == case["reclaimer"]["queue"])
    found = may_lose(
        unlimited_when_unset(victim),
        requested(case["reclaimer"]["requires"]),
        unlimited_when_unset(reclaimer),
    )
    return found is bool(case["expected"]["result"])


def fair_share_rule(case: Case) -> bool:
    found = holds_more_than_entitled(
        unlimited_when_unset(case["victim_queue"]), requested(case["victim_remaining"])
    )
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
        side: turn_key(
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
    """`pass`, `fail`, or `unsupported` for a kind of function that the planner does not have."""
    kind = KINDS.get(case["kind"])
    if kind is None or case.get("k"):
        return "unsupported"
    return "pass" if kind(case) else "fail"
