"""Whether the remedies in a reason help: each is parsed from the sentence and carried out in a simulation.

The sentences are in one module of the planner; the patterns below are all that this module knows of them.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

from orchestrator.planner.model import PodState
from orchestrator.simulation.run import settle
from tests.world.capacity import ClusterCapacity
from tests.world.facts import Tree, add, all_pods, allocated, held_by_project, next_chunk, sized, total
from tests.world.step import Step

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from orchestrator.planner.model import Binding, PendingReason, Plan, Project, Snapshot, Workload

    Change = Callable[[Snapshot, Workload, re.Match[str]], Snapshot]


def untrue(snapshot: Snapshot, name: str, reason: PendingReason) -> Iterator[str]:
    """Yield the remedies in the reason that do not help the workload. The snapshot is at rest."""
    workload = next(one for one in snapshot.workloads if one.id == name)
    for pattern, change in REMEDIES.items():
        for match in re.finditer(pattern, reason.message):
            if not _starts(change(snapshot, workload, match), workload):
                yield match.group()
    for pattern in NEVER:
        yield from (match.group() for match in re.finditer(pattern, reason.message))


def remedies(reason: PendingReason) -> list[str]:
    """Return the known remedies in the reason."""
    return [match.group() for pattern in REMEDIES for match in re.finditer(pattern, reason.message)]


def _starts(changed: Snapshot, workload: Workload) -> bool:
    """Return whether more of the workload runs once the changed cluster is at rest."""
    after = next(one for one in settle(changed, max_decisions=30).after.workloads if one.id == workload.id)
    return len(allocated(after)) > len(allocated(workload))


def _end(snapshot: Snapshot, workload: Workload, goes: Callable[[Workload], bool]) -> Snapshot:
    """Return the snapshot without the running workloads for which `goes` is true, and without other pending ones."""
    others = [
        one
        for one in snapshot.workloads
        if one.id == workload.id or (allocated(one) and not goes(one) and not _only_waits(one))
    ]
    return replace(
        snapshot, workloads=tuple(_without_growth(one) if one.id != workload.id else one for one in others)
    )


def _only_waits(workload: Workload) -> bool:
    return not allocated(workload)


def _without_growth(workload: Workload) -> Workload:
    return replace(workload, pods=tuple(pod for pod in workload.pods if pod.state is not PodState.PENDING))


def _all_end(snapshot: Snapshot, workload: Workload, match: re.Match[str]) -> Snapshot:
    return _end(snapshot, workload, lambda _: True)


def _project_ends(snapshot: Snapshot, workload: Workload, match: re.Match[str]) -> Snapshot:
    lineage = Tree(snapshot.projects).lineage
    return _end(snapshot, workload, lambda other: match["project"] in lineage[other.project])


def _higher_limit(snapshot: Snapshot, workload: Workload, match: re.Match[str]) -> Snapshot:
    """Return the snapshot without the limits of the one project that the sentence names."""

    def unlimited(project: Project) -> Project:
        models = tuple(replace(bounds, limit_gpu_milli=None) for bounds in project.gpu_models)
        return replace(
            project, limit_gpu_milli=None, limit_cpu_milli=None, limit_memory_bytes=None, gpu_models=models
        )

    return _with_project(snapshot, match["project"], unlimited)


def _higher_quota(snapshot: Snapshot, workload: Workload, match: re.Match[str]) -> Snapshot:
    """Return the snapshot with quotas as high as use and requests, for the project and its departments."""
    tree, facts = Tree(snapshot.projects), sized(snapshot)
    held = held_by_project(tree, ((one, pod) for one in facts.workloads for pod in allocated(one)))
    asking = next(one for one in facts.workloads if one.id == workload.id)
    requested = total(next_chunk(asking) or asking.pods)
    for name in tree.lineage[workload.project]:
        needed = add(held[name], requested)

        def raised(project: Project, needed: tuple[int, int, int] = needed) -> Project:
            quota = project.quota_gpu_milli
            cpu, memory = project.quota_cpu_milli, project.quota_memory_bytes
            return replace(
                project,
                quota_gpu_milli=None if quota is None else max(quota, needed[0]),
                quota_cpu_milli=None if cpu is None else max(cpu, needed[1]),
                quota_memory_bytes=None if memory is None else max(memory, needed[2]),
            )

        snapshot = _with_project(snapshot, name, raised)
    return snapshot


def _with_project(snapshot: Snapshot, name: str, change: Callable[[Project], Project]) -> Snapshot:
    projects = (change(project) if project.name == name else project for project in snapshot.projects)
    return replace(snapshot, projects=tuple(projects))


def _preemptible(snapshot: Snapshot, workload: Workload, match: re.Match[str]) -> Snapshot:
    workloads = (
        replace(one, preemptible=True) if one.id == workload.id else one for one in snapshot.workloads
    )
    return replace(snapshot, workloads=tuple(workloads))


def _declared_end(snapshot: Snapshot, workload: Workload, match: re.Match[str]) -> Snapshot:
    pods = tuple(
        replace(pod, max_runtime_seconds=int(match["minutes"]) * 60) if pod.state is PodState.PENDING else pod
        for pod in workload.pods
    )
    workloads = (replace(one, pods=pods) if one.id == workload.id else one for one in snapshot.workloads)
    return replace(snapshot, workloads=tuple(workloads))


REMEDIES: dict[str, Change] = {
    r"fits when others return [\d.]+": _all_end,
    r"fits when (?!others)(?P<project>[\w-]+) returns [\d.]+": _project_ends,
    r"fits when [\d.]+ (?:more )?are returned": _all_end,
    r"fits when workloads end or move": _all_end,
    r"fits when (?P<project>[\w-]+) returns [^:;]*?, or with a higher limit": _higher_limit,
    r"or with a higher quota": _higher_quota,
    r"raise the quota": _higher_quota,
    r"submit it as preemptible": _preemptible,
    r"only the limit of (?P<project>[\w-]+) is in its way": _higher_limit,
    r"starts at once if its pods declare that they end within (?P<minutes>\d+) min": _declared_end,
}
"""By pattern, the change that the sentence names as a remedy."""

NEVER = (
    r"thousandths of a processor",
    r"bytes of memory",
    r"(?<![\w.])[-\N{MINUS SIGN}]\d",
    r"(?<![\w.])1 (?:GPU|CPU|node|pod)s\b",
    r"asks for 0 ",
)
"""Patterns that no reason may contain: wrong units, negative amounts, a plural after 1."""

_SIZES = {"MiB": 1 << 20, "GiB": 1 << 30}


def false_facts(snapshot: Snapshot, reason: PendingReason) -> Iterator[str]:
    """Yield the wrong amounts in the reason, held or missing. The snapshot is at rest."""
    tree = Tree(snapshot.projects)
    held = held_by_project(tree, ((one, pod) for one in sized(snapshot).workloads for pod in allocated(one)))
    for match in re.finditer(r"(?P<project>[\w-]+) holds (?P<gpus>[\d.]+) \(quota ", reason.message):
        if held[match["project"]][0] != round(1000 * float(match["gpus"])):
            yield match.group()
    pattern = r"asks for ([\d.]+) GPUs?\b.*; ([\d.]+) .*: at least ([\d.]+) more"
    for match in re.finditer(pattern, reason.message):
        requested, free, more = (round(1000 * float(amount)) for amount in match.groups())
        if requested - free != more:
            yield match.group()
    share_text = r"\(quota \S+, fair share ([\d.]+), with this request ([\d.]+)\)"
    pattern = r"asks for ([\d.]+) GPUs?\b.* holds ([\d.]+) " + share_text
    for match in re.finditer(pattern, reason.message):
        requested, has, share, later = (round(1000 * float(amount)) for amount in match.groups())
        if has + requested != later or later <= share:
            yield match.group()


def false_eviction(message: str) -> bool:
    """Return whether an eviction message names an exceeded bound that is not exceeded."""
    match = re.search(
        r" holds ([\d.]+) (\w+)(?: of \S+)?, over its (?:quota|fair share) of ([\d.]+)(?: (\w+))?", message
    )
    if match is None:
        return " over its " in message
    held, unit, bound, other = match.groups()
    return float(held) * _SIZES.get(unit, 1) <= float(bound) * _SIZES.get(other or "", 1)


_NOMINATED = re.compile(
    r"is nominated to nodes? (?P<nodes>.+?)(?: and \d+ more)? with [^;]+; "
    r"(?:terminating pods still hold them|(?P<bound>limit|quota) of (?P<project>\S+): (?P<amount>[\d.]+) (?P<unit>\w+)"
    r"(?: of (?P<model>\S+))? (?:is|are) still held by terminating pods)"
)


def false_waits(before: Snapshot, decision: Plan) -> Iterator[str]:
    """Yield false statements of the decision about nominations: the nodes, and the use of terminating pods.

    The pods must terminate on the nominated nodes, or hold the stated amount of the limit or quota.
    """
    step = Step(before, decision)
    for name, reason in decision.pending.items():
        match = _NOMINATED.search(reason.message)
        places = [place for place in decision.nominations if place.workload == name]
        if match is None:
            if " is nominated to " in f" {reason.message}":
                yield f"{name}: not understood: {reason.message}"
            continue
        nodes = {place.node for place in places}
        if not set(match["nodes"].split(", ")) <= nodes:
            yield f"{name}: its pods are nominated to {sorted(nodes)}: {reason.message}"
        elif match["project"]:
            held = _held_by_terminating(step, match)
            if held != round(float(match["amount"]) * _UNITS[match["unit"].rstrip("s")]):
                yield f"{name}: terminating pods hold {held}: {reason.message}"
        elif not {place.pod for place in places}.isdisjoint(pod.id for _, pod in step.leaving):
            continue  # a nominated pod is itself evicted and still terminates elsewhere
        elif not any(pod.node in nodes for _, pod in step.leaving):
            yield f"{name}: no pod on them goes: {reason.message}"
        elif _are_free(step, places):
            yield f"{name}: nobody holds them: {reason.message}"


_UNITS = {"GPU": 1000, "CPU": 1000, **_SIZES}


def _held_by_terminating(step: Step, match: re.Match[str]) -> int:
    """Return the terminating pods' use of the limit or quota that the sentence names, in thousandths or bytes."""
    unit = match["unit"].rstrip("s")
    resource = ("GPU", "CPU").index(unit) if unit in ("GPU", "CPU") else 2
    held = 0
    for workload, pod in step.leaving:
        is_charged = not (match["bound"] == "quota" and workload.preemptible)
        is_of_model = match["model"] in (None, step.nodes[str(pod.node)].gpu_model)
        if is_charged and is_of_model and match["project"] in step.tree.lineage.get(workload.project, ()):
            held += pod.request.amounts[resource]
    return held


def _are_free(step: Step, places: list[Binding]) -> bool:
    """Return whether the pods would fit at their placements beside all present, bound and nominated pods."""
    capacities = ClusterCapacity(step.before.nodes)
    for _, pod in all_pods(step.before):
        if pod.node is not None:
            capacities.take_pod(pod)
    for place in (*step.bound.values(), *step.plan.nominations):
        capacities.take(place.node, step.pods[place.pod].request, place.devices)
    nodes = {place.node for place in places}
    return not capacities.faults(nodes) and not any(capacities.by_name[node].uses_lost for node in nodes)
