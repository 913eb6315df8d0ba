"""What every decision starts from, kept current by differences instead of being added up again.

Snapshots share what did not change: a workload that is the same object as last time is not looked at. A change of
nodes or projects opens new books. What the books say never depends on how they came about.
"""

from collections.abc import Sequence
from dataclasses import replace
from itertools import compress, count
from operator import is_, is_not

from orchestrator.planner.gangs import Chunk, start_chunks
from orchestrator.planner.ledger import Ledger
from orchestrator.planner.model import DEVICE_MILLI, Amounts, Pod, PodState, Snapshot, Workload
from orchestrator.planner.quota import ProjectTree


class Books:
    """The ledger between decisions, what is asked for by project, and which workloads wait or run.

    `incomplete` wait for pods that their gangs need and nobody has made yet, `homeless` for their projects.
    """

    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        self.tree = ProjectTree(snapshot.projects)
        self.ledger = Ledger(snapshot.nodes, self.tree)
        self.workloads: dict[str, Workload] = {}
        self.waiting: dict[str, list[Chunk]] = {}
        self.running: dict[str, None] = {}
        self.stale: dict[str, None] = {}
        self.homeless: dict[str, str] = {}
        self.incomplete: dict[str, None] = {}
        self._asked = {name: [0, 0, 0] for name in self.tree.projects}
        self._smallest_gpu_mib = min(
            (node.gpu_memory_mib for node in snapshot.nodes if node.gpu_memory_mib), default=0
        )
        for workload in snapshot.workloads:
            self._enter(workload)
        self.ledger.index_free_devices()

    def demand(self) -> dict[str, Amounts]:
        """By project, what its allocated and pending pods ask for."""
        return {name: (mine[0], mine[1], mine[2]) for name, mine in self._asked.items()}

    def follows(self, snapshot: Snapshot) -> bool:
        """Take over the new snapshot; False when new books are needed."""
        if not (
            _same(snapshot.nodes, self.snapshot.nodes) and _same(snapshot.projects, self.snapshot.projects)
        ):
            return False
        before, after = self.snapshot.workloads, snapshot.workloads
        self.snapshot = snapshot
        if _same(before, after):
            return True
        gone, come = _differing(before, after)
        for name in {each.id for each in gone}:
            self._strike(name)
        for workload in come:
            self._enter(workload)
        return True

    def _enter(self, workload: Workload) -> None:
        workload = self._sized(workload)
        self.ledger.load(workload, 1)
        if workload.project not in self._asked:
            if any(pod.state is PodState.PENDING for pod in workload.pods):
                self.homeless[workload.id] = workload.project
            self.workloads[workload.id] = workload
            return
        self.workloads[workload.id] = workload
        self._ask(workload, 1)
        states = {pod.state for pod in workload.pods}
        if PodState.PENDING in states:
            if chunks := start_chunks(workload):
                self.waiting[workload.id] = chunks
            else:
                self.incomplete[workload.id] = None
        if PodState.ALLOCATED in states:
            self.running[workload.id] = None
        if workload.stale_since_us:
            self.stale[workload.id] = None

    def _strike(self, name: str) -> None:
        workload = self.workloads.pop(name)
        self.ledger.load(workload, -1)
        if self.homeless.pop(name, None) is None and workload.project in self._asked:
            self._ask(workload, -1)
        self.waiting.pop(name, None)
        self.incomplete.pop(name, None)
        self.running.pop(name, None)
        self.stale.pop(name, None)

    def _ask(self, workload: Workload, sign: int) -> None:
        mine = self._asked[workload.project]
        for pod in workload.pods:
            if pod.state is not PodState.RELEASING:
                request = pod.request
                mine[0] += sign * request.gpu_milli
                mine[1] += sign * request.cpu_milli
                mine[2] += sign * request.memory_bytes

    def _sized(self, workload: Workload) -> Workload:
        """Requests for GPU memory with their portion of the smallest GPU, which is what quotas count them as."""
        if not any(pod.request.gpu_memory_mib for pod in workload.pods):
            return workload
        return replace(workload, pods=tuple(self._sized_pod(pod) for pod in workload.pods))

    def _sized_pod(self, pod: Pod) -> Pod:
        asked, smallest = pod.request.gpu_memory_mib, self._smallest_gpu_mib
        if not asked:
            return pod
        portion = -(-DEVICE_MILLI * asked // smallest) if smallest else DEVICE_MILLI
        return replace(pod, request=replace(pod.request, gpu_portion_milli=portion))


def _differing(
    before: Sequence[Workload], after: Sequence[Workload]
) -> tuple[list[Workload], list[Workload]]:
    """What is only in the one, and what is only in the other; their equal beginnings and ends are not looked at."""
    start = next(compress(count(), map(is_not, before, after)), min(len(before), len(after)))
    rest = min(len(before), len(after)) - start
    end = next(compress(count(), map(is_not, reversed(before), reversed(after))), rest)
    end = min(end, rest)
    before, after = before[start : len(before) - end], after[start : len(after) - end]
    old, new = set(map(id, before)), set(map(id, after))
    return [each for each in before if id(each) not in new], [each for each in after if id(each) not in old]


def _same(left: tuple[object, ...], right: tuple[object, ...]) -> bool:
    return left is right or (len(left) == len(right) and all(map(is_, left, right)))
