"""Which running work a project's quota covers. Only what it does not cover is borrowed and can be reclaimed.

The quota is filled in the order of what is hardest to take back: work that is not preemptible, then by priority, then
by age. A workload that does not fit into what is left of the quota is borrowed; a smaller one behind it may still be
covered. Of a workload with more pods than its gang needs, the surplus is judged pod by pod.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from orchestrator.planner.gangs import chunk_amounts, chunk_gpu_milli, held_parts
from orchestrator.planner.model import Amounts, Pod, Workload
from orchestrator.planner.ordering import EVERY_RESOURCE, workload_order


@dataclass(frozen=True, slots=True)
class Victim:
    """Pods that one workload gives up together. `is_core`: without them it does not run at all."""

    workload: Workload
    pods: tuple[Pod, ...]
    is_core: bool = True

    @property
    def gpu_milli(self) -> int:
        """What the pods hold."""
        return chunk_gpu_milli(self.pods)


@dataclass(frozen=True, slots=True)
class Coverage:
    """What a quota covers and what is borrowed, each in the order in which the quota is filled."""

    covered: tuple[Victim, ...]
    borrowed: tuple[Victim, ...]


def filling_order(workloads: Iterable[Workload]) -> list[Victim]:
    """The workloads in pieces: first what each needs to run, then its surplus pods one by one."""
    pieces: list[Victim] = []
    for workload in sorted(workloads, key=lambda each: (each.preemptible, *workload_order(each))):
        core, surplus = held_parts(workload)
        if core:
            pieces.append(Victim(workload, core))
        pieces += [Victim(workload, (pod,), is_core=False) for pod in surplus]
    return pieces


def coverage(pieces: Iterable[Victim], quota: Amounts, resources: Iterable[int] = EVERY_RESOURCE) -> Coverage:
    """Fill the quota with the pieces; whoever loses what it needs to run loses its surplus too."""
    left = list(quota)
    counted = tuple(resources)
    covered: list[Victim] = []
    beyond: list[Victim] = []
    stopped: set[str] = set()
    for piece in pieces:
        held = chunk_amounts(piece.pods)
        fits = piece.workload.id not in stopped and all(held[each] <= left[each] for each in counted)
        if fits:
            for each in counted:
                left[each] -= held[each]
        if fits or not piece.workload.preemptible:
            covered.append(piece)
            continue
        beyond.append(piece)
        if piece.is_core:
            stopped.add(piece.workload.id)
    return Coverage(tuple(covered), tuple(beyond))
