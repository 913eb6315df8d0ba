"""The one dominant reason why a workload waits, and what would make it fit."""

from dataclasses import dataclass

from orchestrator.planner.decision import Decision
from orchestrator.planner.gangs import chunk_amounts
from orchestrator.planner.model import DEVICE_MILLI, Constraints, PendingReason, Pod, Waiting, Workload
from orchestrator.planner.placement import node_types_for
from orchestrator.planner.quota import gpus
from orchestrator.planner.rules import entitled_amounts


@dataclass(frozen=True, slots=True)
class Room:
    """What the nodes that match some constraints have, in total."""

    nodes: int
    largest: int
    devices: int
    free_gpu_milli: int
    whole_devices: int


class Explainer:
    """Words for one decision. What is free is counted once for each kind of pod until the ledger changes."""

    def __init__(self, decision: Decision) -> None:
        self._decision = decision
        self._known: dict[tuple[Constraints, tuple[str, ...]], tuple[int, Room]] = {}

    def no_room(self, workload: Workload, chunk: tuple[Pod, ...]) -> PendingReason:
        """Why a chunk that its project may hold found no place."""
        ledger = self._decision.ledger
        pod = max(chunk, key=lambda each: each.request.gpu_milli)
        room = self._room(workload, pod)
        if not room.nodes:
            return PendingReason(
                Waiting.NO_NODE_MATCHES,
                f"none of the {len(ledger.nodes)} nodes is ready and matches its selector, tolerations and node type",
            )
        if pod.request.gpu_count > room.largest:
            return PendingReason(
                Waiting.TOO_LARGE,
                f"a pod asks for {pod.request.gpu_count} GPUs, the largest node that matches has {room.largest}: "
                "ask for less",
            )
        forbidden = self._decision.models.refusal(workload, chunk)
        if forbidden is not None:
            return forbidden
        asked = chunk_amounts(chunk)[0]
        free = room.free_gpu_milli
        wants = f"asks for {gpus(asked)} GPUs" + (f" in {len(chunk)} pods together" if len(chunk) > 1 else "")
        if free >= asked and asked:
            detail = (
                f"{gpus(free)} are free, {room.whole_devices} of them whole, but not where they are needed"
            )
            return PendingReason(Waiting.FRAGMENTED, f"{wants}; {detail}: fits when workloads end or move")
        figures = ledger.figures(workload.project, self._decision.shares)
        held, quota, share = figures.held[0], figures.quota[0], figures.share[0]
        standing = f"{workload.project} holds {gpus(held)} (quota {gpus(quota)}, fair share {gpus(share)})"
        if asked and held + asked > entitled_amounts(figures)[0]:
            return PendingReason(
                Waiting.AT_FAIR_SHARE,
                f"{wants}; {gpus(free)} are free and {standing}: fits when others return "
                f"{gpus(max(asked - free, 0))}, or with a higher quota",
            )
        return PendingReason(
            Waiting.CLUSTER_FULL,
            f"{wants}; {gpus(free)} of {gpus(room.devices * DEVICE_MILLI)} are free and {standing}: "
            f"fits when {gpus(max(asked - free, 0))} are returned",
        )

    def _room(self, workload: Workload, pod: Pod) -> Room:
        decision = self._decision
        types = node_types_for(decision.tree.projects[workload.project], workload)
        version = decision.ledger.version
        known = self._known.get((pod.constraints, types))
        if known is not None and known[0] == version:
            return known[1]
        matching = [each for each in decision.ledger.nodes if decision.placer.accepts(each, workload, pod)]
        room = Room(
            nodes=len(matching),
            largest=max((each.node.usable_gpus for each in matching), default=0),
            devices=sum(each.node.usable_gpus for each in matching),
            free_gpu_milli=sum(
                each.free_milli(device, later=False)
                for each in matching
                for device in range(each.node.gpu_count)
            ),
            whole_devices=sum(each.idle_devices for each in matching),
        )
        self._known[pod.constraints, types] = (version, room)
        return room
