"""The division of a project's running pods: within quota, or borrowed. Only borrowed pods can be reclaimed.

The quota is filled with non-preemptible workloads first, then by priority, then by age. A workload that does not fit
into the rest of the quota is borrowed; a smaller workload after it can still be within the quota. Elastic pods are
compared with the rest of the quota one by one.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter

from orchestrator.planner.accounting.amounts import EVERY_RESOURCE
from orchestrator.planner.gangs import chunk_amounts, held_parts
from orchestrator.planner.model import Amounts, Pod, PodState, Workload

_BY_AGE = attrgetter("created_at_us", "name", "id")


@dataclass(slots=True, eq=False)
class Victim:
    """Pods of one workload that are evicted together. `is_core`: the workload cannot run without them.

    `model`: the pods are within the total quota of their project but not within its quota for this GPU model. Only
    workloads bound to this model may evict them. `is_move`: the pods are migrated, with a nomination elsewhere.
    """

    workload: Workload
    pods: tuple[Pod, ...]
    is_core: bool = True
    model: str = ""
    is_move: bool = False


@dataclass(frozen=True, slots=True)
class Coverage:
    """The pods within the quota and the borrowed ones, each in the order in which the quota is filled.

    `other_model` has the pods within the total quota but not within a quota for their GPU model. These pods could also
    run on GPUs of another model.
    """

    covered: tuple[Victim, ...]
    borrowed: tuple[Victim, ...]
    other_model: tuple[Victim, ...] = ()


def filling_order(workloads: Iterable[Workload]) -> list[Victim]:
    """Return the candidates in the order of the quota: the minimum of each workload, then its elastic pods one by
    one.
    """
    # Two stable sorts: `attrgetter` runs in C but cannot negate the priority.
    by_age = sorted(workloads, key=_BY_AGE)
    return _as_candidates(sorted(by_age, key=_by_priority))


def in_filling_order(candidates: Iterable[Victim]) -> list[Victim]:
    """Return candidates of several projects in the order of a department's quota. Candidates of a workload keep their
    order.
    """
    by_age = sorted(candidates, key=lambda candidate: _BY_AGE(candidate.workload))
    return sorted(by_age, key=lambda candidate: _by_priority(candidate.workload))


def _by_priority(workload: Workload) -> tuple[bool, int]:
    return workload.preemptible, -workload.priority


def _as_candidates(workloads: Iterable[Workload]) -> list[Victim]:
    candidates: list[Victim] = []
    for workload in workloads:
        core, elastic = held_parts(workload)
        if core:
            candidates.append(Victim(workload, core))
        if elastic:
            candidates += [Victim(workload, (pod,), is_core=False) for pod in elastic]
    return candidates


def coverage(
    candidates: Iterable[Victim],
    quota: Amounts,
    resources: Iterable[int] = EVERY_RESOURCE,
    model_quota: Mapping[str, int] | None = None,
    model_of: Callable[[Pod], str] | None = None,
) -> Coverage:
    """Fill the quota with the candidates. If the minimum of a workload is borrowed, its elastic pods are borrowed too.

    Pods within a quota for their GPU model (`model_quota`) come first.
    """
    remaining = list(quota)
    counted = tuple(resources)
    ordered = list(candidates)
    model_left = dict(model_quota or {})
    firm: Collection[int] = ()
    if model_left and model_of:
        firm = _firm(ordered, remaining, counted, model_left, model_of)
    covered: list[Victim] = []
    beyond: list[Victim] = []
    other_model: list[Victim] = []
    stopped: set[str] = set()
    for candidate in ordered:
        workload = candidate.workload
        fits = (firm and id(candidate) in firm) or (
            (candidate.is_core or workload.id not in stopped) and _fill(remaining, candidate, counted)
        )
        if fits or not workload.preemptible:
            covered.append(candidate)
            if model_left and model_of and id(candidate) not in firm and workload.preemptible:
                models = sorted({model_of(pod) for pod in candidate.pods} & model_left.keys())
                other_model += [replace(candidate, model=model) for model in models]
            continue
        beyond.append(candidate)
        if candidate.is_core:
            stopped.add(workload.id)
    return Coverage(tuple(covered), tuple(beyond), tuple(other_model))


def covered_pods(
    workloads: Sequence[Workload], quota: Amounts, resources: Sequence[int] = EVERY_RESOURCE
) -> Iterator[Pod]:
    """Yield the pods within the quota, as `coverage` does, but without quotas for GPU models."""
    held = [
        pod.request.amounts
        for workload in workloads
        for pod in workload.pods
        if pod.state is PodState.ALLOCATED
    ]
    by_resource = {resource: [amounts[resource] for amounts in held] for resource in resources}
    order: Sequence[Victim]
    # Most projects are within their quota, and many projects that borrow have no quota: these two cases need no sort.
    if all(sum(amounts) <= quota[resource] for resource, amounts in by_resource.items()):
        order = _as_candidates(workloads)
    elif any(min(amounts, default=0) > quota[resource] for resource, amounts in by_resource.items()):
        order = _as_candidates([workload for workload in workloads if not workload.preemptible])
    else:
        order = coverage(filling_order(workloads), quota, resources).covered
    for victim in order:
        yield from victim.pods


def _fill(remaining: list[int], candidate: Victim, counted: Iterable[int]) -> bool:
    """If the candidate fits into the rest of the quota, subtract its amounts from the rest. Return whether it fits."""
    pods = candidate.pods
    held = pods[0].request.amounts if len(pods) == 1 else chunk_amounts(pods)
    for resource in counted:
        if held[resource] > remaining[resource]:
            return False
    for resource in counted:
        remaining[resource] -= held[resource]
    return True


def _firm(
    candidates: Iterable[Victim],
    remaining: list[int],
    counted: tuple[int, ...],
    model_left: dict[str, int],
    model_of: Callable[[Pod], str],
) -> set[int]:
    """Return the ids (`id()`) of the candidates within quotas for GPU models, and subtract their amounts from the
    quota.
    """
    firm: set[int] = set()
    stopped: set[str] = set()
    for candidate in candidates:
        on: dict[str, int] = {}
        for pod in candidate.pods:
            model = model_of(pod)
            if model in model_left and pod.request.gpu_milli:
                on[model] = on.get(model, 0) + pod.request.gpu_milli
        enough = bool(on) and all(amount <= model_left[model] for model, amount in on.items())
        if enough and candidate.workload.id not in stopped and _fill(remaining, candidate, counted):
            for model, amount in on.items():
                model_left[model] -= amount
            firm.add(id(candidate))
        elif candidate.is_core:
            stopped.add(candidate.workload.id)
    return firm
