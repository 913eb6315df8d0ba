"""Who holds what, during one decision: mutable, exact, and undone step by step.

Every try of the planner happens on one ledger. A change is remembered in a log; `rollback` undoes the log down to a
checkpoint. Nothing is ever copied, and a what-if is the same code as the real thing.

Capacity that a pod is giving back (evicted, but not gone) is *releasing*: it cannot be bound to now, but it can be
promised, so that a decision made in the last cycle is not made again in this one.
"""

from collections.abc import Callable, Iterable, Mapping

from orchestrator.planner.free_index import FreeIndex
from orchestrator.planner.model import DEVICE_MILLI, Node, Pod, PodState, Request, Snapshot, Workload
from orchestrator.planner.quota import ProjectTree


class NodeAccount:
    """What is used and what is being released on one node. Device lists are indexed by GPU index, in `gpu_milli`."""

    __slots__ = (
        "cpu_releasing_milli",
        "cpu_used_milli",
        "idle_devices",
        "memory_releasing_bytes",
        "memory_used_bytes",
        "node",
        "pods_releasing",
        "pods_used",
        "position",
        "releasing_milli",
        "tenants",
        "used_milli",
    )

    def __init__(self, node: Node, position: int) -> None:
        self.node = node
        self.position = position
        self.used_milli = [0] * node.gpu_count
        self.releasing_milli = [0] * node.gpu_count
        self.tenants: list[dict[str, int]] = [{} for _ in range(node.gpu_count)]
        self.idle_devices = node.gpu_count
        self.cpu_used_milli = node.foreign.cpu_milli
        self.memory_used_bytes = node.foreign.memory_bytes
        self.pods_used = node.foreign_pods
        self.cpu_releasing_milli = self.memory_releasing_bytes = self.pods_releasing = 0
        for device in range(max(0, node.gpu_count - node.foreign.gpu_count), node.gpu_count):
            self.used_milli[device] = DEVICE_MILLI
            self.idle_devices -= 1

    def has_room(self, request: Request, *, later: bool) -> bool:
        """Whether processors, memory and a pod slot are there; `later` counts what is being released."""
        cpu = self.cpu_used_milli - (self.cpu_releasing_milli if later else 0)
        memory = self.memory_used_bytes - (self.memory_releasing_bytes if later else 0)
        pods = self.pods_used - (self.pods_releasing if later else 0)
        return (
            cpu + request.cpu_milli <= self.node.cpu_milli
            and memory + request.memory_bytes <= self.node.memory_bytes
            and pods < self.node.pod_slots
        )

    def free_milli(self, device: int, *, later: bool) -> int:
        """What a pod could take of this device, in `gpu_milli`; never negative."""
        used = self.used_milli[device] - (self.releasing_milli[device] if later else 0)
        return max(0, DEVICE_MILLI - used)

    def whole_devices(self, *, later: bool) -> list[int]:
        """Indices of the devices that nobody uses."""
        return [d for d in range(self.node.gpu_count) if self.free_milli(d, later=later) == DEVICE_MILLI]

    def occupy(self, request: Request, devices: Iterable[int], project: str, sign: int) -> None:
        """Add (`sign` 1) or remove (-1) a pod's use."""
        share = request.gpu_portion_milli or DEVICE_MILLI
        for device in devices:
            before = self.used_milli[device]
            self.used_milli[device] = before + sign * share
            self.idle_devices += (self.used_milli[device] == 0) - (before == 0)
            tenants = self.tenants[device]
            tenants[project] = tenants.get(project, 0) + sign
            if not tenants[project]:
                del tenants[project]
        self.cpu_used_milli += sign * request.cpu_milli
        self.memory_used_bytes += sign * request.memory_bytes
        self.pods_used += sign

    def release(self, request: Request, devices: Iterable[int], sign: int) -> None:
        """Mark (`sign` 1) or unmark (-1) a pod's use as being given back."""
        share = request.gpu_portion_milli or DEVICE_MILLI
        for device in devices:
            self.releasing_milli[device] += sign * share
        self.cpu_releasing_milli += sign * request.cpu_milli
        self.memory_releasing_bytes += sign * request.memory_bytes
        self.pods_releasing += sign


class Ledger:
    """The accounts of all nodes and projects of one snapshot, with an undo log."""

    def __init__(self, snapshot: Snapshot, tree: ProjectTree) -> None:
        self.tree = tree
        self.nodes = [
            NodeAccount(node, position)
            for position, node in enumerate(sorted(snapshot.nodes, key=lambda each: each.name))
        ]
        self.by_name = {account.node.name: account for account in self.nodes}
        self.allocated_gpu_milli = dict.fromkeys(tree.projects, 0)
        self.non_preemptible_gpu_milli = dict.fromkeys(tree.projects, 0)
        self.releasing_nodes: dict[int, int] = {}
        self.evicted: set[str] = set()
        self._log: list[Callable[[], None]] = []
        for workload in snapshot.workloads:
            for pod in workload.pods:
                self._load(workload, pod)
        self.free = FreeIndex(self.nodes)

    def _load(self, workload: Workload, pod: Pod) -> None:
        account = self.by_name.get(pod.node) if pod.node is not None else None
        if account is not None:
            devices = tuple(device for device in pod.devices if device < account.node.gpu_count)
            account.occupy(pod.request, devices, workload.project, 1)
            if pod.state is PodState.RELEASING:
                self._release(account, pod.request, devices, 1)
        if pod.state is PodState.ALLOCATED:
            self._charge(workload, pod.request.gpu_milli)

    def checkpoint(self) -> int:
        """A mark to roll back to."""
        return len(self._log)

    def rollback(self, checkpoint: int) -> None:
        """Undo everything since `checkpoint`, last change first."""
        while len(self._log) > checkpoint:
            self._log.pop()()

    def place(self, workload: Workload, pod: Pod, node: str, devices: tuple[int, ...]) -> None:
        """Give a pending pod these devices; also used for a promise on what is being released."""
        account = self.by_name[node]
        self._occupy(account, workload, pod, devices, 1)
        self._charge(workload, pod.request.gpu_milli)

        def undo() -> None:
            self._occupy(account, workload, pod, devices, -1)
            self._charge(workload, -pod.request.gpu_milli)

        self._log.append(undo)

    def evict(self, workload: Workload, pod: Pod) -> None:
        """Turn an allocated pod's use into capacity that is being released; once is enough."""
        if pod.id in self.evicted:
            return
        self.evicted.add(pod.id)
        account = self.by_name.get(pod.node) if pod.node is not None else None
        if account is not None:
            self._release(account, pod.request, pod.devices, 1)
        self._charge(workload, -pod.request.gpu_milli)

        def undo() -> None:
            self.evicted.discard(pod.id)
            if account is not None:
                self._release(account, pod.request, pod.devices, -1)
            self._charge(workload, pod.request.gpu_milli)

        self._log.append(undo)

    def _occupy(
        self, account: NodeAccount, workload: Workload, pod: Pod, devices: tuple[int, ...], sign: int
    ) -> None:
        before = account.idle_devices
        account.occupy(pod.request, devices, workload.project, sign)
        self.free.move(account, before)

    def _release(self, account: NodeAccount, request: Request, devices: tuple[int, ...], sign: int) -> None:
        account.release(request, devices, sign)
        count = self.releasing_nodes.get(account.position, 0) + sign
        if count:
            self.releasing_nodes[account.position] = count
        else:
            self.releasing_nodes.pop(account.position, None)

    def _charge(self, workload: Workload, gpu_milli: int) -> None:
        for project in self.tree.lineage.get(workload.project, ()):
            self.allocated_gpu_milli[project] += gpu_milli
            if not workload.preemptible:
                self.non_preemptible_gpu_milli[project] += gpu_milli


def capacity_gpu_milli(nodes: Iterable[Node]) -> int:
    """What projects can share: the GPUs of nodes that take work, less what other schedulers hold."""
    return sum(
        max(0, node.gpu_count - node.foreign.gpu_count) * DEVICE_MILLI for node in nodes if node.schedulable
    )


def held_gpu_milli(workload: Workload) -> int:
    """What the workload's allocated pods hold."""
    return sum(pod.request.gpu_milli for pod in workload.pods if pod.state is PodState.ALLOCATED)


def demand_gpu_milli(snapshot: Snapshot, tree: ProjectTree) -> Mapping[str, int]:
    """By project, what its allocated and pending pods ask for."""
    demand = dict.fromkeys(tree.projects, 0)
    for workload in snapshot.workloads:
        if workload.project in demand:
            demand[workload.project] += sum(
                pod.request.gpu_milli for pod in workload.pods if pod.state is not PodState.RELEASING
            )
    return demand
