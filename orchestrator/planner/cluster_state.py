"""The state between decisions: ledger, demand and queues, updated by differences between snapshots.

Snapshots share unchanged objects: a workload that is the same object as before is skipped. If nodes or projects change,
a new state is built. The state depends only on the objects of the snapshot, not on their history.
"""

from collections.abc import Sequence
from dataclasses import replace
from itertools import compress, count
from operator import is_, is_not

from orchestrator.planner.accounting.demand import Demand
from orchestrator.planner.accounting.gpu_models import GpuSizes
from orchestrator.planner.accounting.ledger import Ledger
from orchestrator.planner.accounting.neighbours import Neighbours
from orchestrator.planner.accounting.quota import ProjectTree
from orchestrator.planner.gangs import Chunk, start_chunks
from orchestrator.planner.model import Pod, PodState, Snapshot, Workload
from orchestrator.planner.node_sets import NodeSets
from orchestrator.planner.traits import NO_TRAITS


class ClusterState:
    """The ledger between decisions, the demand by project, and the pending and running workloads.

    `incomplete` are the gangs with too few existing pods. `homeless` are the workloads whose project does not exist.
    """

    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        self.tree = ProjectTree(snapshot.projects)
        self.ledger = Ledger(snapshot.nodes, self.tree)
        self.workloads: dict[str, Workload] = {}
        self.waiting: dict[str, list[Chunk]] = {}
        self.running: dict[str, None] = {}
        self.stale: dict[str, None] = {}
        self.nominated: dict[str, None] = {}
        self.unstarted: dict[str, None] = {}
        self.homeless: dict[str, str] = {}
        self.incomplete: dict[str, None] = {}
        self.nodes = NodeSets([account.node for account in self.ledger.nodes])
        self.demand = Demand(self.tree, self.nodes)
        self.ledger.claims.observe(snapshot.dynamic)
        self._gpu_sizes = GpuSizes.of(snapshot.nodes)
        self._constrained: dict[str, None] = {}
        self._is_constrained_by_others = any(
            traits.anti_affinity for node in snapshot.nodes for traits in node.foreign_traits
        )
        for workload in snapshot.workloads:
            self._enter(workload)
        self.ledger.index_free_devices()
        self._observe_neighbours()

    def follows(self, snapshot: Snapshot) -> bool:
        """Update the state to the snapshot. Return false, with no change, if nodes or projects changed."""
        if not (
            _same(snapshot.nodes, self.snapshot.nodes) and _same(snapshot.projects, self.snapshot.projects)
        ):
            return False
        before, after = self.snapshot.workloads, snapshot.workloads
        if snapshot.dynamic is not self.snapshot.dynamic:
            self.ledger.claims.observe(snapshot.dynamic)
        self.snapshot = snapshot
        if _same(before, after):
            return True
        removed, added = _differing(before, after)
        for name in {workload.id for workload in removed}:
            self._strike(name)
        for workload in added:
            self._enter(workload)
        self._observe_neighbours()
        return True

    def _observe_neighbours(self) -> None:
        """Let the ledger count pods by node for constraints between pods, if at least one pod has such a constraint."""
        ledger = self.ledger
        if not self._constrained and not self._is_constrained_by_others:
            ledger.neighbours = None
        elif ledger.neighbours is None or ledger.neighbours.is_worn:
            nodes = [account.node for account in ledger.nodes]
            neighbours = ledger.neighbours = Neighbours(nodes, self.nodes)
            for workload in self.workloads.values():
                for pod in workload.pods:
                    account = ledger.by_name.get(pod.node or "")
                    if account is None:
                        continue
                    neighbours.occupy(pod, account.position, 1)
                    if pod.state is PodState.RELEASING and not pod.stuck:
                        neighbours.release(pod, account.position, 1)

    def _enter(self, workload: Workload) -> None:
        pods = workload.pods
        if len(pods) > 1 or (pods[:1] and pods[0].request.gpu_memory_mib):
            workload = in_pod_order(self._sized(workload))
        self.ledger.load(workload, 1)
        self.workloads[workload.id] = workload
        for pod in workload.pods:
            if pod.traits is not NO_TRAITS and pod.traits.looks_at_others:
                self._constrained[workload.id] = None
                break
        waits, runs, nominated, unstarted = _states(workload.pods)
        if workload.project not in self.tree.projects:
            if waits:
                self.homeless[workload.id] = workload.project
            return
        chunks = start_chunks(workload) if waits else []
        self.demand.count(workload, chunks, 1)
        if waits:
            if chunks:
                self.waiting[workload.id] = chunks
            else:
                self.incomplete[workload.id] = None
        if runs:
            self.running[workload.id] = None
        if workload.stale_since_us:
            self.stale[workload.id] = None
        if nominated:
            self.nominated[workload.id] = None
        if unstarted:
            self.unstarted[workload.id] = None

    def _strike(self, name: str) -> None:
        workload = self.workloads.pop(name)
        self._constrained.pop(name, None)
        self.ledger.load(workload, -1)
        self.homeless.pop(name, None)
        self.demand.count(workload, self.waiting.pop(name, ()), -1)
        self.incomplete.pop(name, None)
        self.running.pop(name, None)
        self.stale.pop(name, None)
        self.nominated.pop(name, None)
        self.unstarted.pop(name, None)

    def _sized(self, workload: Workload) -> Workload:
        """Convert requests for GPU memory to the portion that quotas count: the portion of the smallest GPU with enough
        memory.
        """
        if not any(pod.request.gpu_memory_mib for pod in workload.pods):
            return workload
        return workload.with_pods(tuple(self._sized_pod(pod) for pod in workload.pods))

    def _sized_pod(self, pod: Pod) -> Pod:
        if not pod.request.gpu_memory_mib:
            return pod
        portion = self._gpu_sizes.portion_milli(pod.request)
        return replace(pod, request=replace(pod.request, gpu_portion_milli=portion))


def _states(pods: Sequence[Pod]) -> tuple[bool, bool, bool, bool]:
    """Return, for each of four states, whether a pod is in it: pending, running, nominated, bound but not started."""
    waits = runs = nominated = unstarted = False
    for pod in pods:
        state = pod.state
        if state is PodState.ALLOCATED:
            runs = True
            unstarted = unstarted or pod.never_started
        elif state is PodState.PENDING:
            waits = True
        if pod.nominated_node is not None:
            nominated = True
    return waits, runs, nominated, unstarted


def in_pod_order(workload: Workload) -> Workload:
    """Return the workload with its pods sorted by the length of the name, then by name: `worker-2` before `worker-10`.

    With this order, no plan depends on the order of the pods in the snapshot.
    """
    if len(workload.pods) < 2:
        return workload
    pods = tuple(sorted(workload.pods, key=lambda pod: (len(pod.name), pod.name, pod.id)))
    return workload if pods == workload.pods else workload.with_pods(pods)


def _differing(
    before: Sequence[Workload], after: Sequence[Workload]
) -> tuple[list[Workload], list[Workload]]:
    """Return the workloads that are only in `before`, and those only in `after`. Skip equal beginnings and ends."""
    start = next(compress(count(), map(is_not, before, after)), min(len(before), len(after)))
    rest = min(len(before), len(after)) - start
    end = next(compress(count(), map(is_not, reversed(before), reversed(after))), rest)
    end = min(end, rest)
    before, after = before[start : len(before) - end], after[start : len(after) - end]
    old, new = set(map(id, before)), set(map(id, after))
    return [workload for workload in before if id(workload) not in new], [
        workload for workload in after if id(workload) not in old
    ]


def _same(before: tuple[object, ...], after: tuple[object, ...]) -> bool:
    return before is after or (len(before) == len(after) and all(map(is_, before, after)))
