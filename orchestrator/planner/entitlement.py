"""Which running workloads a project's quota covers. Only what it does not cover is borrowed and can be reclaimed.

The quota is filled in the order of what is hardest to take back: work that is not preemptible, then by priority, then
by age. A workload that does not fit into what is left of the quota is borrowed; a smaller one behind it may still be
covered.
"""

from collections.abc import Iterable

from orchestrator.planner.ledger import held_gpu_milli
from orchestrator.planner.model import Workload
from orchestrator.planner.ordering import workload_order


def borrowed(workloads: Iterable[Workload], quota_gpu_milli: int) -> list[Workload]:
    """The preemptible workloads of one project that its quota does not cover, in the order of giving up.

    The order is the opposite of the one in which the quota is filled: lowest priority first, then the youngest.
    """
    left = quota_gpu_milli
    beyond: list[Workload] = []
    for workload in sorted(workloads, key=lambda each: (each.preemptible, *workload_order(each))):
        held = held_gpu_milli(workload)
        if held <= left:
            left -= held
        elif workload.preemptible:
            beyond.append(workload)
    return beyond[::-1]
