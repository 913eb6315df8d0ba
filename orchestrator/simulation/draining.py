"""Predicts where each job of a node would run if the node were drained. Pure."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

from orchestrator.names import DRAINED
from orchestrator.planner.accounting.gpu_models import GpuSizes
from orchestrator.planner.model import PodState, Snapshot, Workload
from orchestrator.simulation.run import Run, settle

MOVES: Final = "moves"
PENDING: Final = "pending"
REMAINS: Final = "stays"
STOPS: Final = "stopped"
"""The outcome of a job that stays unless a drain stops it (--force)."""


@dataclass(frozen=True, slots=True)
class Departure:
    """A workload of the node: its GPUs there in `gpu_milli`, and the `outcome`, one of the constants above.

    `nodes` are the nodes of a workload that moves, `reason` says why another workload stays or is pending.
    """

    id: str
    project: str
    name: str
    gpu_milli: int
    pods: tuple[str, ...]
    outcome: str
    nodes: tuple[str, ...] = ()
    reason: str = ""


def departures(snapshot: Snapshot, node: str, *, stops: bool = False) -> list[Departure]:
    """Return the workloads on the node, by project and name, with the outcome if the node is drained now.

    `stops`: the drain stops those that would stay.
    """
    nodes = tuple(
        replace(each, unhealthy=DRAINED, unhealthy_since_us=0, schedulable=False)
        if each.name == node
        else each
        for each in snapshot.nodes
    )
    drained = replace(snapshot, nodes=nodes)
    found = sorted(
        _departures(drained, settle(drained), node), key=lambda departure: (departure.project, departure.name)
    )
    if not stops:
        return found
    return [replace(each, outcome=STOPS) if each.outcome == REMAINS else each for each in found]


def _departures(snapshot: Snapshot, run: Run, node: str) -> Iterator[Departure]:
    sizes = GpuSizes.of(snapshot.nodes)
    after = {workload.id: workload for workload in run.after.workloads}
    for workload in snapshot.workloads:
        there = [pod for pod in workload.pods if pod.node == node and pod.state is not PodState.PENDING]
        if not there:
            continue
        outcome, nodes, reason = _outcome(after.get(workload.id), run, node)
        yield Departure(
            workload.id,
            workload.project,
            workload.name,
            sum(sizes.held_milli(pod.request, node) for pod in there),
            tuple(pod.id for pod in there),
            outcome,
            nodes,
            reason,
        )


def _outcome(workload: Workload | None, run: Run, node: str) -> tuple[str, tuple[str, ...], str]:
    if workload is None:
        return MOVES, (), ""
    running = {pod.node for pod in workload.pods if pod.node and pod.state is PodState.ALLOCATED}
    if node in running:
        return REMAINS, (), run.last.endangered.get(workload.id, "")
    if any(pod.state is PodState.PENDING for pod in workload.pods):
        reason = run.last.pending.get(workload.id)
        return PENDING, tuple(sorted(running)), reason.message if reason else ""
    return MOVES, tuple(sorted(running)), ""
