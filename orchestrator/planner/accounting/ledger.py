"""The use of all resources in one decision: mutable, exact, with an undo log.

Every trial of the planner happens on one ledger. A log stores the changes; `rollback` undoes them back to a checkpoint.
Nothing is copied, and a trial runs the same code as a final change.

Capacity of an evicted pod that has not ended is *releasing*. No pod can be bound to this capacity, but a pod can be
nominated to it, so that the next decision does not evict again.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from operator import sub
from typing import TYPE_CHECKING

from orchestrator.planner.accounting.amounts import Figures
from orchestrator.planner.accounting.claim_ledger import ClaimLedger
from orchestrator.planner.accounting.free_index import FreeIndex
from orchestrator.planner.accounting.quota import ProjectTree
from orchestrator.planner.model import (
    DEVICE_MILLI,
    Amounts,
    Node,
    Pod,
    PodState,
    Request,
    Workload,
)
from orchestrator.planner.placements import Placement

if TYPE_CHECKING:
    from orchestrator.planner.accounting.neighbours import Neighbours


class NodeAccount:
    """The used and releasing amounts of one node. Device lists have an entry for each GPU index, in `gpu_milli`."""

    __slots__ = (
        "blocked",
        "cpu_releasing_milli",
        "cpu_used_milli",
        "idle_devices",
        "later_milli",
        "lost",
        "max_free",
        "memory_releasing_bytes",
        "memory_used_bytes",
        "model",
        "node",
        "pods_releasing",
        "pods_used",
        "position",
        "releasing_milli",
        "scalars_releasing",
        "scalars_used",
        "tenants",
        "unused_devices",
        "used_milli",
        "version",
    )

    def __init__(self, node: Node, position: int) -> None:
        self.node = node
        self.position = position
        self.version = 0
        self.max_free = (-1, 0, 0)
        self.model = node.gpu_model
        self.used_milli = [0] * node.gpu_count
        self.releasing_milli = [0] * node.gpu_count
        self.tenants: list[dict[str, int]] = [{} for _ in range(node.gpu_count)]
        self.unused_devices = node.gpu_count
        self.lost = node.lost_gpus
        self.blocked: frozenset[int] = frozenset()
        self.later_milli = (node.gpu_count - self.lost) * DEVICE_MILLI
        self.cpu_used_milli = node.foreign.cpu_milli
        self.memory_used_bytes = node.foreign.memory_bytes
        self.pods_used = node.foreign_pods
        self.scalars_used = dict(node.foreign.scalars)
        self.scalars_releasing: dict[str, int] = {}
        self.cpu_releasing_milli = self.memory_releasing_bytes = self.pods_releasing = 0
        if node.unhealthy_gpus or node.foreign_devices or node.foreign.gpu_count:
            self._block_devices(node)
        self.idle_devices = max(0, self.unused_devices - self.lost)

    def _block_devices(self, node: Node) -> None:
        """Count unhealthy devices, and devices that pods of other schedulers use, as used."""
        self.blocked = frozenset(device for device in node.unhealthy_gpus if device < node.gpu_count)
        known = self.blocked.union(device for device in node.foreign_devices if device < node.gpu_count)
        others = [device for device in range(node.gpu_count) if device not in known]
        unknown = max(0, node.foreign.gpu_count - len(node.foreign_devices))
        for device in known.union(others[max(0, len(others) - unknown) :]):
            self.used_milli[device] = DEVICE_MILLI
            self.later_milli -= DEVICE_MILLI
            self.unused_devices -= 1

    def has_capacity(self, request: Request, *, later: bool) -> bool:
        """Return whether enough CPU, memory, pod slots and other resources are free.

        With `later`, releasing amounts count as free.
        """
        cpu = self.cpu_used_milli - (self.cpu_releasing_milli if later else 0)
        memory = self.memory_used_bytes - (self.memory_releasing_bytes if later else 0)
        pods = self.pods_used - (self.pods_releasing if later else 0)
        return (
            cpu + request.cpu_milli <= self.node.cpu_milli
            and memory + request.memory_bytes <= self.node.memory_bytes
            and pods < self.node.pod_slots
            and (not request.scalars or self._has_scalars(request, later=later))
        )

    def _has_scalars(self, request: Request, *, later: bool) -> bool:
        return all(self.free_scalar(name, later=later) >= amount for name, amount in request.scalars)

    def free_scalar(self, name: str, *, later: bool) -> int:
        """Return the free amount of the resource; negative if the pods hold more than the node has."""
        free = self.node.scalars.get(name, 0) - self.scalars_used.get(name, 0)
        return free + self.scalars_releasing.get(name, 0) if later else free

    def free_milli(self, device: int, *, later: bool) -> int:
        """Return the free amount of this device, in `gpu_milli`; never negative."""
        used = self.used_milli[device] - (self.releasing_milli[device] if later else 0)
        return max(0, DEVICE_MILLI - used)

    def max_free_milli(self, *, later: bool) -> int:
        """Return the largest free amount of one device, in `gpu_milli`; cached until the node changes."""
        if self.max_free[0] != self.version:
            now = max(0, DEVICE_MILLI - min(self.used_milli, default=DEVICE_MILLI))
            then = now
            if any(self.releasing_milli):
                held_milli = map(sub, self.used_milli, self.releasing_milli)
                then = max(0, DEVICE_MILLI - min(held_milli, default=DEVICE_MILLI))
            self.max_free = (self.version, now, then)
        return self.max_free[2 if later else 1]

    def whole_devices(self, *, later: bool) -> list[int]:
        """Return the free whole devices, without the last N if the node lost N devices with unknown indices."""
        held: Iterable[int] = self.used_milli
        if later and self.pods_releasing:
            held = map(sub, self.used_milli, self.releasing_milli)
        whole = [device for device, milli in enumerate(held) if milli <= 0]
        return whole[: max(0, len(whole) - self.lost)] if self.lost else whole

    def count_whole_devices(self, *, later: bool) -> int:
        """Return the number of devices that `whole_devices` returns."""
        if not (later and self.pods_releasing):
            return self.idle_devices
        return len(self.whole_devices(later=True))

    def is_short_of_lost(self) -> bool:
        """Return whether pods terminate on the node and it has fewer unused devices than it lost."""
        return bool(self.lost and self.pods_releasing and self.unused_devices < self.lost)

    def share_milli(self, request: Request) -> int:
        """Return the `gpu_milli` that the request takes of each of its devices."""
        return request.portion_milli(self.node.gpu_memory_mib)

    def occupy(self, request: Request, devices: Iterable[int], project: str, sign: int) -> None:
        """Add (`sign` 1) or remove (-1) a pod's use."""
        share = sign * (
            self.share_milli(request) if request.gpu_memory_mib else request.gpu_portion_milli or DEVICE_MILLI
        )
        used_milli, blocked = self.used_milli, self.blocked
        for device in devices:
            if blocked and device in blocked:
                continue
            self.later_milli -= share
            before = used_milli[device]
            after = used_milli[device] = before + share
            if not before:
                self.unused_devices -= 1
            if not after:
                self.unused_devices += 1
            tenants = self.tenants[device]
            count = tenants.get(project, 0) + sign
            if count:
                tenants[project] = count
            else:
                del tenants[project]
        self.idle_devices = max(0, self.unused_devices - self.lost) if self.lost else self.unused_devices
        self.cpu_used_milli += sign * request.cpu_milli
        self.memory_used_bytes += sign * request.memory_bytes
        self.pods_used += sign
        for name, amount in request.scalars:
            self.scalars_used[name] = self.scalars_used.get(name, 0) + sign * amount

    def release(self, request: Request, devices: Iterable[int], sign: int) -> None:
        """Add (`sign` 1) or remove (-1) a pod's use to the releasing amounts."""
        share = self.share_milli(request)
        for device in devices:
            if device in self.blocked:
                continue
            self.later_milli += sign * share
            self.releasing_milli[device] += sign * share
        self.cpu_releasing_milli += sign * request.cpu_milli
        self.memory_releasing_bytes += sign * request.memory_bytes
        self.pods_releasing += sign
        for name, amount in request.scalars:
            self.scalars_releasing[name] = self.scalars_releasing.get(name, 0) + sign * amount


class Ledger:
    """The accounts of all nodes and projects, with an undo log.

    The caller loads all running pods first and then calls `index_free_devices` once. `load` is not recorded in the log.
    `changes` has the positions of the nodes that changed in this decision, in the order of the changes. `neighbours` is
    set if a pod has constraints on other pods.
    """

    def __init__(self, nodes: Sequence[Node], tree: ProjectTree) -> None:
        self.tree = tree
        self.claims = ClaimLedger()
        self.nodes = [
            NodeAccount(node, position)
            for position, node in enumerate(sorted(nodes, key=lambda node: node.name))
        ]
        self.by_name = {account.node.name: account for account in self.nodes}
        self.unhealthy = frozenset(node.name for node in nodes if node.unhealthy or node.unhealthy_gpus)
        self.capacity = capacity(nodes)
        self.model_capacity = model_capacity(nodes)
        self.allocated = {name: [0, 0, 0] for name in tree.projects}
        self.non_preemptible = {name: [0, 0, 0] for name in tree.projects}
        self.model_held: dict[tuple[str, str], int] = {}
        self.model_non_preemptible: dict[tuple[str, str], int] = {}
        self.terminating = {name: [0, 0, 0] for name in tree.projects}
        self.model_terminating: dict[tuple[str, str], int] = {}
        self.non_preemptible_terminating = {name: [0, 0, 0] for name in tree.projects}
        self.releasing_nodes: dict[int, int] = {}
        self.nodes_with_free_gpus: set[int] = set()
        self.evicted: set[str] = set()
        self.version = 0
        self.max_free = (-1, 0, 0)
        self.changes: list[int] = []
        self._log: list[Callable[[], None]] = []
        self.free: FreeIndex | None = None
        self.neighbours: Neighbours | None = None
        self._groups: dict[tuple[str, ...], dict[tuple[str, ...], tuple[int, ...]]] = {}

    def index_free_devices(self) -> None:
        """Build the index of nodes by their idle GPUs."""
        self.free = FreeIndex(self.nodes)

    def grouped_by(self, labels: tuple[str, ...]) -> Mapping[tuple[str, ...], tuple[int, ...]]:
        """Return the node positions by the values of these labels, "" for a missing label; computed once."""
        groups = self._groups.get(labels)
        if groups is None:
            positions_by_values: dict[tuple[str, ...], list[int]] = {}
            for account in self.nodes:
                values = tuple([account.node.labels.get(label, "") for label in labels])
                positions_by_values.setdefault(values, []).append(account.position)
            groups = self._groups[labels] = {values: tuple(at) for values, at in positions_by_values.items()}
        return groups

    def load(self, workload: Workload, sign: int) -> None:
        """Add (`sign` 1) or remove (-1) the workload's pods."""
        for pod in workload.pods:
            if pod.node is None:
                continue
            if pod.claims:
                self.claims.use(pod, sign)
                if pod.state is PodState.RELEASING and not pod.stuck:
                    self.claims.give_back(pod, sign)
            account = self.by_name.get(pod.node)
            if account is not None:
                devices = pod.devices
                if len(devices) != 1 or devices[0] >= account.node.gpu_count:
                    devices = _devices(account, pod)
                if self.free is not None:
                    self._occupy(account, workload, pod, devices, sign)
                else:  # changes are recorded only after the first load, when the index exists
                    account.occupy(pod.request, devices, workload.project, sign)
                    if account.position in self.releasing_nodes:
                        self._note_free_gpus(account)
                if pod.state is PodState.RELEASING and not pod.stuck:
                    self._release(account, workload, pod, devices, sign)
            if pod.state is PodState.ALLOCATED:
                self._charge(workload, pod.request, account, sign)

    @property
    def allocated_gpu_milli(self) -> dict[str, int]:
        """The GPUs of each project and department."""
        return {name: held[0] for name, held in self.allocated.items()}

    def figures(self, name: str, shares: Mapping[str, Amounts]) -> Figures:
        """Return quota, limit, fair share and current use of the project or department."""
        held = self.allocated[name]
        return Figures(
            self.tree.quota[name], self.tree.limit[name], shares[name], (held[0], held[1], held[2])
        )

    def with_idle_devices(self, count: int) -> Iterator[int]:
        """Yield the positions of nodes with at least `count` idle GPUs: the fullest nodes first, then by name."""
        if self.free is None:
            self.index_free_devices()
        return iter(()) if self.free is None else self.free.with_at_least(count)

    def checkpoint(self) -> int:
        """Return a mark for `rollback`."""
        return len(self._log)

    def rollback(self, checkpoint: int) -> None:
        """Undo all changes since the checkpoint, last change first."""
        while len(self._log) > checkpoint:
            self._log.pop()()

    def note(self, undo: Callable[[], None]) -> None:
        """Add an undo function to the log, for a change that the caller made outside the ledger."""
        self._log.append(undo)

    def place(self, workload: Workload, pod: Pod, where: Placement) -> None:
        """Give a pending pod these devices, for a start or for a nomination to releasing devices."""
        account = self.by_name[where.node]
        self._occupy(account, workload, pod, where.devices, 1)
        self._charge(workload, pod.request, account, 1)
        if self.claims.concern(account.node, pod):
            self.claims.enter(pod, self.claims.choose(account.node, pod, where.devices))

        def undo() -> None:
            if self.claims.concern(account.node, pod):
                self.claims.leave(pod)
            self._occupy(account, workload, pod, where.devices, -1)
            self._charge(workload, pod.request, account, -1)

        self._log.append(undo)

    def unplace(self, workload: Workload, placed: Iterable[tuple[Pod, Placement]]) -> None:
        """Undo placements of this decision."""
        for pod, where in placed:
            self._unplace(workload, pod, where)

    def _unplace(self, workload: Workload, pod: Pod, where: Placement) -> None:
        account = self.by_name[where.node]
        self._occupy(account, workload, pod, where.devices, -1)
        self._charge(workload, pod.request, account, -1)
        granted = self.claims.leave(pod) if self.claims.concern(account.node, pod) else None

        def undo() -> None:
            self._occupy(account, workload, pod, where.devices, 1)
            self._charge(workload, pod.request, account, 1)
            if granted is not None:
                self.claims.enter(pod, granted)

        self._log.append(undo)

    def evict(self, workload: Workload, pod: Pod) -> None:
        """Change a running pod's use to releasing capacity. A second call for the same pod changes nothing."""
        if pod.id in self.evicted:
            return
        self._leave(workload, pod)
        self._log.append(lambda: self._run_again(workload, pod))

    def unevict(self, workload: Workload, pod: Pod) -> None:
        """Undo an eviction of this decision."""
        self._run_again(workload, pod)
        self._log.append(lambda: self._leave(workload, pod))

    def _leave(self, workload: Workload, pod: Pod) -> None:
        self.evicted.add(pod.id)
        account = self.by_name.get(pod.node) if pod.node is not None else None
        if account is not None:
            self._release(account, workload, pod, _devices(account, pod), 1)
        self._charge(workload, pod.request, account, -1)
        if pod.claims:
            self.claims.give_back(pod, 1)

    def _run_again(self, workload: Workload, pod: Pod) -> None:
        if pod.claims:
            self.claims.give_back(pod, -1)
        self.evicted.discard(pod.id)
        account = self.by_name.get(pod.node) if pod.node is not None else None
        if account is not None:
            self._release(account, workload, pod, _devices(account, pod), -1)
        self._charge(workload, pod.request, account, 1)

    def _occupy(
        self, account: NodeAccount, workload: Workload, pod: Pod, devices: tuple[int, ...], sign: int
    ) -> None:
        before = account.idle_devices
        self.version += 1
        account.version = self.version
        self.changes.append(account.position)
        account.occupy(pod.request, devices, workload.project, sign)
        if self.neighbours is not None:
            self.neighbours.occupy(pod, account.position, sign)
        if self.free is not None and account.idle_devices != before:
            self.free.move(account, before)
        if self.releasing_nodes and account.position in self.releasing_nodes:
            self._note_free_gpus(account)

    def _release(
        self, account: NodeAccount, workload: Workload, pod: Pod, devices: tuple[int, ...], sign: int
    ) -> None:
        account.release(pod.request, devices, sign)
        if self.neighbours is not None:
            self.neighbours.release(pod, account.position, sign)
        self._charge_terminating(workload, pod.request, account, sign)
        self.version += 1
        account.version = self.version
        self.changes.append(account.position)
        count = self.releasing_nodes.get(account.position, 0) + sign
        if count:
            self.releasing_nodes[account.position] = count
        else:
            self.releasing_nodes.pop(account.position, None)
        self._note_free_gpus(account)

    def _note_free_gpus(self, account: NodeAccount) -> None:
        """Update `nodes_with_free_gpus`: the nodes with releasing GPUs that no nomination uses."""
        if account.later_milli > 0 and account.position in self.releasing_nodes:
            self.nodes_with_free_gpus.add(account.position)
        else:
            self.nodes_with_free_gpus.discard(account.position)

    def _charge(self, workload: Workload, request: Request, account: NodeAccount | None, sign: int) -> None:
        gpu, cpu, memory = request.amounts
        if sign < 0:
            gpu, cpu, memory = -gpu, -cpu, -memory
        for project in self.tree.lineage.get(workload.project, ()):
            held = self.allocated[project]
            held[0] += gpu
            held[1] += cpu
            held[2] += memory
            if not workload.preemptible:
                non_preemptible = self.non_preemptible[project]
                non_preemptible[0] += gpu
                non_preemptible[1] += cpu
                non_preemptible[2] += memory
        if self.tree.models and account is not None and gpu and account.model in self.tree.models:
            self._charge_model(workload, account.model, gpu)

    def _charge_terminating(
        self, workload: Workload, request: Request, account: NodeAccount, sign: int
    ) -> None:
        """Add a terminating pod to the use that counts for limits. If the pod is non-preemptible, its use counts for
        quotas too.
        """
        for project in self.tree.limited.get(workload.project, ()):
            for resource, amount in enumerate(request.amounts):
                self.terminating[project][resource] += sign * amount
            if account.model in self.tree.models:
                key = (project, account.model)
                self.model_terminating[key] = self.model_terminating.get(key, 0) + sign * request.amounts[0]
        for project in () if workload.preemptible else self.tree.lineage.get(workload.project, ()):
            for resource, amount in enumerate(request.amounts):
                self.non_preemptible_terminating[project][resource] += sign * amount

    def _charge_model(self, workload: Workload, model: str, gpu_milli: int) -> None:
        for project in self.tree.lineage.get(workload.project, ()):
            key = (project, model)
            self.model_held[key] = self.model_held.get(key, 0) + gpu_milli
            if not workload.preemptible:
                self.model_non_preemptible[key] = self.model_non_preemptible.get(key, 0) + gpu_milli


def capacity(nodes: Iterable[Node]) -> Amounts:
    """Return the capacity that projects share: the capacity of the schedulable nodes without the use by other
    schedulers.
    """
    gpu = cpu = memory = 0
    for node in nodes:
        if node.schedulable:
            gpu += _shared_gpu_milli(node)
            cpu += max(0, node.cpu_milli - node.foreign.cpu_milli)
            memory += max(0, node.memory_bytes - node.foreign.memory_bytes)
    return gpu, cpu, memory


def model_capacity(nodes: Iterable[Node]) -> dict[str, int]:
    """Return the GPUs of `capacity` for each model, in `gpu_milli`."""
    capacity: dict[str, int] = {}
    for node in nodes:
        model = node.gpu_model
        if model and node.schedulable:
            capacity[model] = capacity.get(model, 0) + _shared_gpu_milli(node)
    return capacity


def _shared_gpu_milli(node: Node) -> int:
    return max(0, node.usable_gpus - node.foreign.gpu_count) * DEVICE_MILLI


def capacity_gpu_milli(nodes: Iterable[Node]) -> int:
    """Return the GPUs of `capacity`, in `gpu_milli`."""
    return capacity(nodes)[0]


def _devices(account: NodeAccount, pod: Pod) -> tuple[int, ...]:
    """Return the pod's devices whose indices the node still has."""
    devices, count = pod.devices, account.node.gpu_count
    if not devices or (devices[0] if len(devices) == 1 else max(devices)) < count:
        return devices
    return tuple(device for device in devices if device < count)
