"""Derives the required allocation from quotas, weights and demands only.

It is written from the definition of the fair share, independently of the planner, so that the two can contradict each
other. All arithmetic is exact: quantities are integers in thousandths of a GPU, shares are `fractions.Fraction`.

The definition:

1. The quota of a project is filled with its workloads: non-preemptible ones first, then by priority, then in the
   order of submission. A workload that does not fit is skipped; a later, smaller one may still fit. Workloads within
   quota are guaranteed. The others borrow if they are preemptible, and are pending if not.
2. The fair share of a project is the requested part of its quota, plus a portion of the GPUs beyond all quotas.
   The portions follow the weights of the projects that still want more (water-filling). A workload whose gang is larger
   than the whole capacity is not counted: it could never run.
3. Free GPUs are given to borrowing workloads one at a time. The next one is of the project whose allocation, including
   this workload, would be the smallest part of its fair share.

Example: the capacity is 8 GPUs. Projects a and b have a quota of 2 each and equal weights, and both request 8. The
quotas leave 4 GPUs unused, so the fair share is 4 each.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

import msgspec
from msgspec.structs import replace


@dataclass(frozen=True, slots=True)
class Project:
    """A project's quota, weight and limit. `weight` None: the quota is the weight. `limit_milli` None: no limit."""

    name: str
    quota_milli: int
    weight: Fraction | None = None
    limit_milli: int | None = None

    @property
    def share_weight(self) -> Fraction:
        """The weight in the division of the GPUs that the quotas leave unused."""
        return Fraction(self.quota_milli) if self.weight is None else self.weight


class Demand(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """One workload: `pods` pods of `gpu_milli` each. At least `min_member` of them must run, or none."""

    project: str
    name: str
    gpu_milli: int
    preemptible: bool = True
    priority: int = 0
    pods: int = 1
    min_member: int = 1


@dataclass(frozen=True, slots=True)
class Division:
    """The oracle's answer. `running`, `pending` and `borrowed` hold workload names as (project, name)."""

    fair_share: Mapping[str, Fraction]
    allocated_milli: Mapping[str, int]
    running: frozenset[tuple[str, str]]
    pending: frozenset[tuple[str, str]]
    borrowed: frozenset[tuple[str, str]]


def fair_shares(
    capacity_milli: int, projects: Sequence[Project], requested_milli: Mapping[str, int]
) -> dict[str, Fraction]:
    """Return the fair share of each project in thousandths of a GPU.

    Raises ValueError if the quotas exceed the capacity.
    """
    if sum(project.quota_milli for project in projects) > capacity_milli:
        raise ValueError("the quotas exceed the GPUs")
    requestable = {
        project.name: _requestable(project, requested_milli.get(project.name, 0)) for project in projects
    }
    share = {
        project.name: Fraction(min(project.quota_milli, requestable[project.name])) for project in projects
    }
    remaining = Fraction(capacity_milli) - sum(share.values())
    hungry = {
        p.name: p.share_weight for p in projects if p.share_weight > 0 and share[p.name] < requestable[p.name]
    }
    while hungry and remaining > 0:
        total = sum(hungry.values())
        # The level rises until the first project has enough or the GPUs are used up.
        level = min(
            remaining / total,
            *((requestable[name] - share[name]) / weight for name, weight in hungry.items()),
        )
        for name, weight in hungry.items():
            share[name] += level * weight
        remaining -= level * total
        hungry = {name: weight for name, weight in hungry.items() if share[name] < requestable[name]}
    return share


def _requestable(project: Project, requested_milli: int) -> int:
    return requested_milli if project.limit_milli is None else min(requested_milli, project.limit_milli)


def guaranteed(quota_milli: int, demands: Iterable[Demand]) -> list[Demand]:
    """Return the workloads within the quota of one project. `demands` are in order of submission."""
    covered: list[Demand] = []
    used = 0
    for demand in sorted(demands, key=lambda demand: (demand.preemptible, -demand.priority)):
        size = _size(demand)
        if used + size <= quota_milli:
            covered.append(demand)
            used += size
    return covered


def divide(capacity_milli: int, projects: Sequence[Project], demands: Sequence[Demand]) -> Division:
    """Return the running and the pending workloads of `demands`, in order of submission, on `capacity_milli`.

    All GPUs are one pool: the oracle knows no nodes. Raises ValueError if the quotas exceed the capacity.
    """
    by_project = {
        project.name: [demand for demand in demands if demand.project == project.name] for project in projects
    }
    running: list[Demand] = []
    borrowers: dict[str, list[Demand]] = {}
    requested: dict[str, int] = {}
    for project in projects:
        project_demands = by_project[project.name]
        covered = guaranteed(project.quota_milli, project_demands)
        running += covered
        borrowers[project.name] = [d for d in project_demands if d not in covered and d.preemptible]
        requested[project.name] = sum(
            _size(d) for d in covered + borrowers[project.name] if _size(_units(d)[0]) <= capacity_milli
        )
    share = fair_shares(capacity_milli, projects, requested)
    allocated = {project.name: 0 for project in projects}
    for demand in running:
        allocated[demand.project] += _size(demand)
    borrowed = _lend(capacity_milli, projects, borrowers, share, allocated)
    active = frozenset((d.project, d.name) for d in [*running, *borrowed])
    return Division(
        fair_share=share,
        allocated_milli=allocated,
        running=active,
        pending=frozenset((d.project, d.name) for d in demands) - active,
        borrowed=frozenset((d.project, d.name) for d in borrowed),
    )


def _lend(
    capacity_milli: int,
    projects: Sequence[Project],
    borrowers: Mapping[str, list[Demand]],
    share: Mapping[str, Fraction],
    allocated: dict[str, int],
) -> list[Demand]:
    """Give free GPUs to borrowers until nothing more fits. Update `allocated`, and return the started units."""
    limits = {project.name: project.limit_milli for project in projects}
    queues = {name: [_units(demand) for demand in queue] for name, queue in borrowers.items()}
    started: list[Demand] = []
    while True:
        free = capacity_milli - sum(allocated.values())
        candidates: list[tuple[Fraction, str, list[Demand]]] = []
        for name, queue in sorted(queues.items()):
            limit = limits[name]
            free_within_limit = free if limit is None else min(free, limit - allocated[name])
            fitting = next((units for units in queue if units and _size(units[0]) <= free_within_limit), None)
            if fitting is not None:
                after = allocated[name] + _size(fitting[0])
                candidates.append((_relative_allocation(after, share[name]), name, fitting))
        if not candidates:
            return started
        _, name, units = min(candidates, key=lambda candidate: candidate[:2])
        unit = units.pop(0)
        allocated[name] += _size(unit)
        started.append(unit)


def _relative_allocation(allocated_milli: int, share: Fraction) -> Fraction:
    return Fraction(allocated_milli) / share if share else Fraction(allocated_milli * 10**9)


def _size(demand: Demand) -> int:
    return demand.gpu_milli * demand.pods


def _units(demand: Demand) -> list[Demand]:
    """Return the units of a workload that start together: the minimum of the gang, then each further pod alone."""
    gang = replace(demand, pods=max(1, demand.min_member))
    return [gang, *([replace(demand, pods=1)] * (demand.pods - gang.pods))]
