"""Take borrowed GPUs back for projects that hold less than they may, once the whole placement is shown to work."""

from orchestrator.planner.decision import Decision, Placed
from orchestrator.planner.gangs import chunk_gpu_milli
from orchestrator.planner.gates import refusal
from orchestrator.planner.model import Eviction, Pod, Waiting, Workload
from orchestrator.planner.ordering import TurnOrder
from orchestrator.planner.standing import Standing, standing
from orchestrator.planner.victims import Court, evictions_for

_ROOM_IS_MISSING = (Waiting.CLUSTER_FULL, Waiting.FRAGMENTED, Waiting.AT_FAIR_SHARE)


def reclaim(decision: Decision) -> None:
    """For every workload that only lacks room, best founded first: evict what it may and must, or nothing."""
    court = Court(decision.ledger, decision.placer, decision.shares_gpu_milli)
    waiting = [each for each in decision.pending() if _only_lacks_room(decision, each)]
    for level in (Standing.GUARANTEED, Standing.FAIR):
        turns = TurnOrder(decision.ledger, decision.shares_gpu_milli, waiting)
        while (workload := turns.pop()) is not None:
            for chunk in decision.unplaced_chunks(workload):
                asked = chunk_gpu_milli(chunk)
                here = (
                    asked and standing(decision.ledger, decision.shares_gpu_milli, workload, asked) == level
                )
                if not here or refusal(decision.ledger, workload, asked) is not None:
                    break
                if not _reclaim_for(decision, court, workload, chunk):
                    break
            turns.settle(workload.project)


def _only_lacks_room(decision: Decision, workload: Workload) -> bool:
    reason = decision.refusals.get(workload.id)
    return reason is not None and reason.code in _ROOM_IS_MISSING


def _reclaim_for(decision: Decision, court: Court, workload: Workload, chunk: tuple[Pod, ...]) -> bool:
    checkpoint = decision.ledger.checkpoint()
    candidates = court.candidates(workload, decision.running_by_project())
    evictions: list[Eviction] = []
    placed: Placed = []
    missing = chunk_gpu_milli(chunk)
    for pod in chunk:
        placement = decision.placer.find(workload, pod)
        if placement is None:
            taken = court.make_room(workload, pod, missing, candidates)
            if taken is None:
                decision.ledger.rollback(checkpoint)
                return False
            evictions += evictions_for(workload, taken)
            placement = decision.placer.find(workload, pod)
        if placement is None:
            decision.ledger.rollback(checkpoint)
            return False
        decision.ledger.place(workload, pod, placement.node, placement.devices)
        placed.append((pod, placement))
        missing -= pod.request.gpu_milli
    decision.take(evictions)
    decision.grant(workload, placed)
    return True
