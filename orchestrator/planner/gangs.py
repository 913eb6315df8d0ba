"""Pods that stand or fall together: how a workload is started and given up in chunks.

Up to `min_member` pods start in one chunk or not at all; every pod beyond that is a chunk of its own. Giving up goes
the other way: the surplus pod by pod, then everything.
"""

from orchestrator.planner.model import Pod, PodState, Workload


def start_chunks(workload: Workload) -> list[tuple[Pod, ...]]:
    """The pending pods, in the groups in which they may start; none when the gang cannot be complete yet."""
    pending = [pod for pod in workload.pods if pod.state is PodState.PENDING]
    allocated = sum(pod.state is PodState.ALLOCATED for pod in workload.pods)
    missing = max(0, workload.min_member - allocated)
    if missing > len(pending):
        return []
    core = [tuple(pending[:missing])] if missing else []
    return core + [(pod,) for pod in pending[missing:]]


def give_up_chunks(workload: Workload) -> list[tuple[Pod, ...]]:
    """The groups of allocated pods that may be evicted, least harm first: each surplus pod alone, then all of them."""
    allocated = [pod for pod in workload.pods if pod.state is PodState.ALLOCATED]
    surplus = [(pod,) for pod in reversed(allocated[workload.min_member :])]
    return surplus + ([tuple(allocated)] if allocated else [])


def chunk_gpu_milli(chunk: tuple[Pod, ...]) -> int:
    """What a chunk counts against quotas."""
    return sum(pod.request.gpu_milli for pod in chunk)
