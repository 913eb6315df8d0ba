"""Give what is free, best founded requests first, project by project in the order of turns, disturbing nobody."""

from orchestrator.planner.decision import Decision
from orchestrator.planner.explain import no_room
from orchestrator.planner.gangs import chunk_gpu_milli
from orchestrator.planner.gates import refusal
from orchestrator.planner.model import Constraints, Pod, Request, Workload
from orchestrator.planner.ordering import TurnOrder
from orchestrator.planner.standing import Standing, standing

Shape = tuple[str, bool, tuple[tuple[Request, Constraints], ...]]


def allocate(decision: Decision) -> None:
    """Place every pending workload that fits; remember for the others why they do not.

    What is free only shrinks here, so a shape that found no place is not tried again.
    """
    hopeless: set[Shape] = set()
    waiting = decision.pending()
    for level in Standing:
        turns = TurnOrder(decision.ledger, decision.shares_gpu_milli, waiting)
        waiting = []
        while (workload := turns.pop()) is not None:
            if not _start(decision, workload, level, hopeless):
                waiting.append(workload)
            turns.settle(workload.project)


def _start(decision: Decision, workload: Workload, level: Standing, hopeless: set[Shape]) -> bool:
    """Place what has this standing; False when something of the workload is left for a lower one."""
    for chunk in decision.unplaced_chunks(workload):
        asked = chunk_gpu_milli(chunk)
        if standing(decision.ledger, decision.shares_gpu_milli, workload, asked) > level:
            return False
        refused = refusal(decision.ledger, workload, asked)
        if refused is not None:
            decision.refuse(workload, refused)
            return True
        shape = _shape(workload, chunk)
        placed = None if shape in hopeless else decision.place_all(workload, chunk)
        if placed is None:
            hopeless.add(shape)
            decision.refuse(workload, no_room(decision, workload, chunk))
            return True
        decision.grant(workload, placed)
    return True


def _shape(workload: Workload, chunk: tuple[Pod, ...]) -> Shape:
    return (workload.project, workload.interactive, tuple((pod.request, pod.constraints) for pod in chunk))
