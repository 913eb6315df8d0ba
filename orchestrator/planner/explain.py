"""The one dominant reason why a workload waits, and what would make it fit."""

from dataclasses import dataclass

from orchestrator.planner.decision import Decision
from orchestrator.planner.gangs import chunk_amounts
from orchestrator.planner.holds import Hold
from orchestrator.planner.model import DEVICE_MILLI, Constraints, PendingReason, Pod, Waiting, Workload
from orchestrator.planner.placement import node_types_for
from orchestrator.planner.quota import gpus
from orchestrator.planner.rules import entitled_amounts


def explain_the_rest(decision: Decision) -> None:
    """Give a reason to whoever waits without one: work that started in part, or whose request nothing looked at."""
    explainer = Explainer(decision)
    for workload in decision.pending():
        if workload.id not in decision.refusals:
            chunk = decision.next_chunk(workload)
            refused = decision.refusal(workload, chunk)
            decision.refuse(workload, refused or explainer.no_room(workload, chunk))


@dataclass(frozen=True, slots=True)
class Room:
    """What the nodes that match some constraints have, in total."""

    nodes: int
    largest: int
    devices: int
    free_gpu_milli: int
    whole_devices: int
    positions: tuple[int, ...]


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
        impossible = self._impossible(workload, chunk, pod, room)
        if impossible is not None:
            return impossible
        asked = chunk_amounts(chunk)[0]
        free = room.free_gpu_milli
        wants = f"asks for {gpus(asked)} GPUs" + (f" in {len(chunk)} pods together" if len(chunk) > 1 else "")
        held_for = self._held(workload, pod, asked, room)
        if held_for is not None:
            return PendingReason(held_for.code, f"{wants}{held_for.message}")
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

    def _impossible(
        self, workload: Workload, chunk: tuple[Pod, ...], pod: Pod, room: Room
    ) -> PendingReason | None:
        """Why no release would help."""
        if not room.nodes:
            return PendingReason(
                Waiting.NO_NODE_MATCHES,
                f"none of the {len(self._decision.ledger.nodes)} nodes is ready and matches its selector, "
                "tolerations and node type",
            )
        if pod.request.gpu_count > room.largest:
            return PendingReason(
                Waiting.TOO_LARGE,
                f"a pod asks for {pod.request.gpu_count} GPUs, the largest node that matches has {room.largest}: "
                "ask for less",
            )
        return self._decision.models.refusal(workload, chunk)

    def _held(self, workload: Workload, pod: Pod, asked: int, room: Room) -> PendingReason | None:
        """What is kept for the workload, or kept from it for another."""
        holds, free = self._decision.holds, room.free_gpu_milli
        hold = holds.of(workload)
        if hold is not None and hold.nodes:
            return self._reserved(hold, asked)
        kept, other = holds.kept_milli(room.positions, workload, pod)
        if other is None or not free >= asked > free - kept:
            return None
        return PendingReason(
            Waiting.HELD,
            f"; {gpus(min(free, kept))} of the {gpus(free)} that are free are held for {other.workload.name} of "
            f"{other.workload.project}, which has waited {_minutes(other.waited_us)}: fits when that has started"
            f"{self._in_time(other)}",
        )

    def _reserved(self, hold: Hold, asked: int) -> PendingReason:
        names = sorted(self._decision.ledger.nodes[each].node.name for each in hold.nodes)
        more = f" and {len(names) - 4} more" if len(names) > 4 else ""
        left = hold.starts_us - self._decision.snapshot.now_us
        soon = f", at the latest in {_minutes(left)}" if hold.starts_us and left > 0 else ""
        return PendingReason(
            Waiting.RESERVED,
            f" and has waited {_minutes(hold.waited_us)}: {gpus(asked - hold.missing_milli)} of them on "
            f"{', '.join(names[:4])}{more} are held for it; fits when {gpus(hold.missing_milli)} more are returned "
            f"there{soon}",
        )

    def _in_time(self, hold: Hold) -> str:
        left = hold.starts_us - self._decision.snapshot.now_us
        if not hold.starts_us or left <= 0:
            return ""
        return (
            f", or at once if its pods declare that they end within {_minutes(left)} (activeDeadlineSeconds)"
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
            positions=tuple(each.position for each in matching),
        )
        self._known[pod.constraints, types] = (version, room)
        return room


def _minutes(span_us: int) -> str:
    """A span of time in minutes, above ten hours in hours; the part of one that is left counts as a whole one."""
    minutes = -(-max(0, span_us) // 60_000_000)
    return f"{minutes} min" if minutes < 600 else f"{-(-minutes // 60)} h"
