"""Fair shares: the entitlement of each project, given the demand of all.

Each level of the tree is divided in these steps. The total of a level is the share of the parent.

1. Each project gets its demand, up to the quota.
2. The rest is divided by priority, high to low. A lower priority gets nothing while a higher priority has more demand
   and a weight.
3. Within a priority, the rest is divided in proportion to the weights. A project with less demand than its portion gets
   exactly its demand, and the others divide the rest.
4. The portions are rounded down to whole devices, once and at the end, so that a job can use a share. The remaining
   devices are given one each to the largest remainders, then to the older project.

No share exceeds the demand, and the sum of the shares never exceeds the total, unless the sum of the quotas does. The
demand of a department is the sum of its projects' demands within their limits. All arithmetic is exact, in integers.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from orchestrator.planner.accounting.quota import ProjectTree
from orchestrator.planner.model import DEVICE_MILLI, UNLIMITED, Amounts

ModelAmounts = Mapping[tuple[str, str], int]
"""Amounts of GPUs by project and GPU model, in `gpu_milli`."""


@dataclass(frozen=True, slots=True)
class Claim:
    """Demand and bounds of one project in a division, in the unit of the total. `limit` None: unlimited."""

    name: str
    quota: int
    demand: int
    limit: int | None = None
    weight: int = 1
    priority: int = 0
    created_at_us: int = 0

    @property
    def wanted(self) -> int:
        """The demand within the limit: the maximum of the project's share."""
        return self.demand if self.limit is None else min(self.demand, self.limit)


def divide(total: int, claims: Sequence[Claim], unit: int = DEVICE_MILLI) -> dict[str, int]:
    """Return each project's fair share of `total`; portions beyond the quotas are rounded to `unit`."""
    shares = {
        claim.name: min(total if claim.quota >= UNLIMITED else claim.quota, claim.wanted) for claim in claims
    }
    return divide_over_quota(total - sum(shares.values()), claims, shares, unit)[0]


def divide_over_quota(
    remaining: int, claims: Sequence[Claim], guaranteed: Mapping[str, int], unit: int = DEVICE_MILLI
) -> tuple[dict[str, int], int]:
    """Return each project's guaranteed amount plus its portion beyond the quotas.

    Also return the portion that no project can use.
    """
    shares = dict(guaranteed)
    rest = max(0, remaining)
    buckets: dict[int, list[tuple[Claim, int]]] = {}
    for claim in claims:
        missing = claim.wanted - shares[claim.name]
        if missing > 0 and claim.weight > 0:
            buckets.setdefault(claim.priority, []).append((claim, missing))
    for priority in sorted(buckets, reverse=True):
        if not rest:
            break
        for name, part in _divide_among_equals(rest, buckets[priority], unit).items():
            shares[name] += part
            rest -= part
    return shares, rest


def _divide_among_equals(total: int, hungry: list[tuple[Claim, int]], unit: int) -> dict[str, int]:
    """Return the portions of the total by weight, each at most the project's missing amount."""
    # Sort the projects by missing amount / weight: as all portions grow in proportion to the weights, this
    # project is satisfied first. Two different ratios differ by at least 1 / largest weight², so scaling by
    # this square keeps their order in integers.
    scale = max(claim.weight for claim, _ in hungry) ** 2
    by_level = sorted(hungry, key=lambda entry: entry[1] * scale // entry[0].weight)
    parts: dict[str, int] = {}
    weights = sum(claim.weight for claim, _ in hungry)
    satisfied = 0
    for claim, missing in by_level:
        if missing * weights > total * claim.weight:
            break
        parts[claim.name] = missing
        total -= missing
        weights -= claim.weight
        satisfied += 1
    remainders: list[tuple[int, int, str, int]] = []
    rounded_off = total
    for claim, missing in by_level[satisfied:]:
        part = total * claim.weight // (weights * unit) * unit
        parts[claim.name] = part
        rounded_off -= part
        remainder = total * claim.weight - part * weights
        remainders.append((-remainder, claim.created_at_us, claim.name, missing - part))
    # Each of these projects misses more than its remainder, so one pass distributes all that was rounded off.
    for _, _, name, missing in sorted(remainders):
        extra = min(unit, rounded_off, missing)
        parts[name] += extra
        rounded_off -= extra
    return parts


def fair_shares(
    tree: ProjectTree,
    demand: Mapping[str, Amounts],
    capacity: Amounts,
    model_demand: ModelAmounts | None = None,
) -> dict[str, Amounts]:
    """Return the fair share of every project and department. `demand` has the demand of each project's own workloads.

    `model_demand` is the demand that only one GPU model can serve; limits for the model apply to it. If no project
    bounds a resource, all shares of this resource are UNLIMITED.
    """
    requested = total_demand(tree, demand, model_demand or {})
    shares = {name: [UNLIMITED, UNLIMITED, UNLIMITED] for name in tree.projects}
    for resource in tree.resources:
        levels: list[tuple[str | None, int]] = [(None, capacity[resource])]
        while levels:
            parent, total = levels.pop()
            children = tree.children.get(parent, ())
            claims = [_claim(tree, name, resource, requested[name][resource]) for name in children]
            for name, share in divide(total, claims, DEVICE_MILLI if resource == 0 else 1).items():
                shares[name][resource] = share
                if name in tree.children:
                    levels.append((name, share))
    return {name: (share[0], share[1], share[2]) for name, share in shares.items()}


def total_demand(
    tree: ProjectTree, demand: Mapping[str, Amounts], model_demand: ModelAmounts
) -> dict[str, Amounts]:
    """Return the demand of each project and department. A department sums its projects' demands up to their limits.

    Demand beyond a project's limits for GPU models is subtracted; demand beyond its own total limit is not.
    """
    by_model = total_model_demand(tree, model_demand)
    totals = {name: list(demand.get(name, (0, 0, 0))) for name in tree.projects}
    for name in _children_first(tree):
        total = totals[name]
        beyond = sum(
            max(0, by_model.get((name, model), 0) - tree.model_limit[name, model]) for model in tree.models
        )
        total[0] = max(0, total[0] - beyond)
        for parent in tree.lineage[name][1:2]:
            for resource, limit in enumerate(tree.limit[name]):
                totals[parent][resource] += min(total[resource], limit)
    return {name: (total[0], total[1], total[2]) for name, total in totals.items()}


def total_model_demand(tree: ProjectTree, demand: ModelAmounts) -> dict[tuple[str, str], int]:
    """Return the result of `total_demand` for the bounded GPU models. Demand beyond a project's own limit for a
    model is not subtracted.
    """
    totals = {key: amount for key, amount in demand.items() if key[0] in tree.projects}
    if not totals:
        return {}
    for name in _children_first(tree):
        for parent in tree.lineage[name][1:2]:
            for model in tree.models:
                within = min(totals.get((name, model), 0), tree.model_limit[name, model])
                totals[parent, model] = totals.get((parent, model), 0) + within
    return totals


def _children_first(tree: ProjectTree) -> list[str]:
    return sorted(tree.projects, key=lambda name: -len(tree.lineage[name]))


def _claim(tree: ProjectTree, name: str, resource: int, demand: int) -> Claim:
    project = tree.projects[name]
    weights = (project.over_quota_weight, project.cpu_over_quota_weight, project.memory_over_quota_weight)
    limit = tree.limit[name][resource]
    return Claim(
        name=name,
        quota=tree.quota[name][resource],
        demand=demand,
        limit=None if limit >= UNLIMITED else limit,
        weight=max(0, weights[resource]),
        priority=project.priority,
        created_at_us=project.created_at_us,
    )
