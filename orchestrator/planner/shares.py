"""Fair shares: what each project may hold now, given what everybody asks for.

Level by level, as a parent's share is its children's total:
1. everybody gets what is asked for, up to the quota;
2. what is left goes, by priority from high to low, to those that ask for more, in proportion to their weights and
   in whole devices, so that a share is something a job can use; a project that asks for less than its part gets
   exactly what it asks for, and the rest is divided again;
3. devices lost to the rounding go one each to the largest remainders, then to the older project.

Nobody is given more than was asked for, and the sum never exceeds the total unless the quotas themselves do.
The rule is that of the field (Run:AI, KAI-Scheduler), in exact integers.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from orchestrator.planner.model import DEVICE_MILLI, UNLIMITED, Amounts
from orchestrator.planner.quota import ProjectTree


@dataclass(frozen=True, slots=True)
class Claim:
    """One project's side of a division. `limit` None: unlimited. All amounts in the unit of the total."""

    name: str
    quota: int
    demand: int
    limit: int | None = None
    weight: int = 1
    priority: int = 0
    created_at_us: int = 0

    @property
    def wanted(self) -> int:
        """What it may be given at most."""
        return self.demand if self.limit is None else min(self.demand, self.limit)


def divide(total: int, claims: Sequence[Claim], unit: int = DEVICE_MILLI) -> dict[str, int]:
    """Each claim's fair share of `total`; `unit` is the granule of the surplus."""
    shares = {
        claim.name: min(claim.quota, total if claim.quota >= UNLIMITED else UNLIMITED, claim.wanted)
        for claim in claims
    }
    return divide_surplus(total - sum(shares.values()), claims, shares, unit)[0]


def divide_surplus(
    left: int, claims: Sequence[Claim], guaranteed: Mapping[str, int], unit: int = DEVICE_MILLI
) -> tuple[dict[str, int], int]:
    """Add each claim's part of what is `left` to what it is guaranteed; also what nobody takes."""
    shares = dict(guaranteed)
    remainders: list[tuple[int, int, int, str]] = []
    for priority in sorted({claim.priority for claim in claims}, reverse=True):
        bucket = [claim for claim in claims if claim.priority == priority]
        left, remaining = _divide_among_equals(left, bucket, shares, unit)
        remainders += [
            (-priority, -rest, claim.created_at_us, claim.name) for claim, rest in remaining.items()
        ]
    by_name = {claim.name: claim for claim in claims}
    for _, _, _, name in sorted(remainders):
        given = max(0, min(unit, left, by_name[name].wanted - shares[name]))
        shares[name] += given
        left -= given
    return shares, max(0, left)


def _divide_among_equals(
    left: int, bucket: Sequence[Claim], shares: dict[str, int], unit: int
) -> tuple[int, dict[Claim, int]]:
    remainders: dict[Claim, int] = {}
    somebody_was_satisfied = True
    while left > 0 and somebody_was_satisfied:
        somebody_was_satisfied = False
        hungry = [claim for claim in bucket if claim.wanted > shares[claim.name] and claim.weight > 0]
        weights = sum(claim.weight for claim in hungry)
        round_total = left
        for claim in hungry:
            scaled_slice = round_total * claim.weight
            missing = claim.wanted - shares[claim.name]
            if missing * weights <= scaled_slice:
                given = missing
                remainders.pop(claim, None)
                somebody_was_satisfied |= missing * weights < scaled_slice
            else:
                given = scaled_slice // weights // unit * unit
                remainders[claim] = scaled_slice - given * weights
            shares[claim.name] += given
            left -= given
    return left, remainders


def fair_shares(tree: ProjectTree, demand: Mapping[str, Amounts], capacity: Amounts) -> dict[str, Amounts]:
    """The fair share of every project and department; `demand` counts the leaves' jobs.

    A resource that no project bounds is not divided: everybody's share of it is UNLIMITED.
    """
    asked = {name: [0, 0, 0] for name in tree.projects}
    for name, amounts in demand.items():
        for ancestor in tree.lineage[name]:
            for resource in tree.resources:
                asked[ancestor][resource] += amounts[resource]
    shares = {name: [UNLIMITED, UNLIMITED, UNLIMITED] for name in tree.projects}
    for resource in tree.resources:
        levels: list[tuple[str | None, int]] = [(None, capacity[resource])]
        while levels:
            parent, total = levels.pop()
            children = tree.children.get(parent, ())
            claims = [_claim(tree, name, resource, asked[name][resource]) for name in children]
            for name, share in divide(total, claims, DEVICE_MILLI if resource == 0 else 1).items():
                shares[name][resource] = share
                if name in tree.children:
                    levels.append((name, share))
    return {name: (share[0], share[1], share[2]) for name, share in shares.items()}


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
