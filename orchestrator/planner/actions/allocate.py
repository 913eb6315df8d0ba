"""Give what is free, project by project in the order of turns, without disturbing anybody."""

from orchestrator.planner.decision import Decision
from orchestrator.planner.explain import no_room
from orchestrator.planner.gangs import chunk_gpu_milli, start_chunks
from orchestrator.planner.gates import refusal
from orchestrator.planner.model import Constraints, Pod, Request, Workload
from orchestrator.planner.ordering import TurnOrder

Shape = tuple[str, bool, tuple[tuple[Request, Constraints], ...]]


def allocate(decision: Decision) -> None:
    """Place every pending workload that fits; remember for the others why they do not.

    What is free only shrinks here, so a shape that found no place is not tried again.
    """
    turns = TurnOrder(decision.ledger, decision.shares_gpu_milli, decision.pending())
    hopeless: set[Shape] = set()
    while (workload := turns.pop()) is not None:
        _start(decision, workload, hopeless)
        turns.settle(workload.project)


def _start(decision: Decision, workload: Workload, hopeless: set[Shape]) -> None:
    for chunk in start_chunks(workload):
        refused = refusal(decision.ledger, workload, chunk_gpu_milli(chunk))
        if refused is not None:
            decision.refuse(workload, refused)
            return
        shape = _shape(workload, chunk)
        placed = None if shape in hopeless else decision.place_all(workload, chunk)
        if placed is None:
            hopeless.add(shape)
            decision.refuse(workload, no_room(decision, workload, chunk))
            return
        decision.grant(workload, placed)


def _shape(workload: Workload, chunk: tuple[Pod, ...]) -> Shape:
    return (workload.project, workload.interactive, tuple((pod.request, pod.constraints) for pod in chunk))
