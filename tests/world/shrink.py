"""Makes a failing world small: removes all parts without which the same check still fails."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from orchestrator.planner.model import PodState, Snapshot
from orchestrator.planner.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


def shrunk(snapshot: Snapshot, fails: Callable[[Snapshot], bool], max_tries: int = 600) -> Snapshot:
    """Return a failing snapshot after single removals from which no further removal fails."""
    tries = 0
    smaller = True
    while smaller:
        smaller = False
        for candidate in _smaller(snapshot):
            tries += 1
            if tries > max_tries:
                return snapshot
            if fails(candidate):
                snapshot, smaller = candidate, True
                break
    return snapshot


def _smaller(snapshot: Snapshot) -> Iterator[Snapshot]:
    yield from _without_projects(snapshot)
    yield from _without_workloads(snapshot)
    yield from _without_nodes(snapshot)
    if snapshot.budgets:
        yield replace(snapshot, budgets=())
    if snapshot.settings != Settings():
        yield replace(snapshot, settings=Settings())
    yield from _without_pods(snapshot)


def _without_projects(snapshot: Snapshot) -> Iterator[Snapshot]:
    parents = {project.parent for project in snapshot.projects}
    for project in snapshot.projects:
        if project.name not in parents:
            yield replace(
                snapshot,
                projects=tuple(other for other in snapshot.projects if other is not project),
                workloads=tuple(work for work in snapshot.workloads if work.project != project.name),
            )


def _without_workloads(snapshot: Snapshot) -> Iterator[Snapshot]:
    workloads = snapshot.workloads
    half = len(workloads) // 2
    if half > 2:
        yield replace(snapshot, workloads=workloads[half:])
        yield replace(snapshot, workloads=workloads[:half])
    for workload in workloads:
        yield replace(snapshot, workloads=tuple(other for other in workloads if other is not workload))


def _without_nodes(snapshot: Snapshot) -> Iterator[Snapshot]:
    for node in snapshot.nodes:
        runs_there = {
            workload.id for workload in snapshot.workloads for pod in workload.pods if pod.node == node.name
        }
        yield replace(
            snapshot,
            nodes=tuple(other for other in snapshot.nodes if other is not node),
            workloads=tuple(work for work in snapshot.workloads if work.id not in runs_there),
        )


def _without_pods(snapshot: Snapshot) -> Iterator[Snapshot]:
    """Yield the snapshot without one pending pod of a workload that does not need it."""
    for workload in snapshot.workloads:
        surplus = workload.groups is None and len(workload.pods) > max(1, workload.min_member)
        last = workload.pods[-1] if workload.pods else None
        if surplus and last is not None and last.state is PodState.PENDING:
            fewer = replace(workload, pods=workload.pods[:-1])
            yield replace(
                snapshot,
                workloads=tuple(fewer if other is workload else other for other in snapshot.workloads),
            )
