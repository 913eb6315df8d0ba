"""Reserves GPUs for workloads that have been pending for long, and decides which other workloads may backfill them.

A reservation also reserves the workload's amounts of its project's limits. Otherwise smaller jobs of the project
would take each GPU as soon as it is free.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from orchestrator.planner.accounting.amounts import summed_scalars
from orchestrator.planner.accounting.ledger import Ledger, NodeAccount
from orchestrator.planner.accounting.quota import preempt_min_runtime, reclaim_min_runtime
from orchestrator.planner.accounting.tiers import EntitlementTier
from orchestrator.planner.gangs import Chunk, chunk_amounts
from orchestrator.planner.model import DEVICE_MILLI, Amounts, Pod, Scalars, Workload
from orchestrator.planner.node_sets import NodeSet
from orchestrator.planner.obstacles import LimitReserved
from orchestrator.planner.ordering import workload_order


@dataclass(frozen=True, slots=True)
class ReservedCapacity:
    """The reserved amounts of one node."""

    devices: int = 0
    cpu_milli: int = 0
    memory_bytes: int = 0
    scalars: Scalars = ()

    def plus(self, pod: Pod) -> "ReservedCapacity":
        """Return the sum with the amounts of one more pod; a GPU fraction is reserved as a whole device."""
        request = pod.request
        devices = request.shared_devices if request.is_shared else request.gpu_count
        return ReservedCapacity(
            self.devices + devices,
            self.cpu_milli + request.cpu_milli,
            self.memory_bytes + request.memory_bytes,
            summed_scalars((self.scalars, request.scalars)) if request.scalars else self.scalars,
        )


@dataclass(frozen=True, slots=True)
class Reservation:
    """The amounts that are reserved for a workload, by position of the node.

    - `tier`: the entitlement tier of the workload.
    - `starts_us`: the latest declared end of the pods that must end first, 0 if one of them has no declared end.
    - `requested`: the amounts that the workload needs within its project's limits.
    - `yielding`: the amounts of backfilled pods of its project that can be evicted for it.

    `nodes` is empty if the limits of the project are too small until other workloads end.
    """

    workload: Workload
    tier: EntitlementTier
    nodes: Mapping[int, ReservedCapacity]
    starts_us: int
    waited_us: int
    requested: Amounts
    yielding: Amounts


class Reservations:
    """The reservations of one decision.

    `tier` returns the tier of a chunk. `is_whole` returns whether the minimum of a gang runs, or will run after this
    decision.
    """

    def __init__(
        self,
        ledger: Ledger,
        tier: Callable[[Workload, Chunk], EntitlementTier],
        is_whole: Callable[[Workload], bool],
        *,
        now_us: int,
    ) -> None:
        self._ledger = ledger
        self._tier = tier
        self._is_whole = is_whole
        self._now_us = now_us
        self._by_position: dict[int, Reservation] = {}
        self._by_workload: dict[str, Reservation] = {}

    def add(self, reservation: Reservation) -> None:
        """Add a reservation. Its nodes must not be reserved for another workload."""
        self._by_workload[reservation.workload.id] = reservation
        self._by_position |= dict.fromkeys(reservation.nodes, reservation)

    def __iter__(self) -> Iterator[Reservation]:
        return iter(self._by_workload.values())

    def __bool__(self) -> bool:
        return bool(self._by_workload)

    def of(self, workload: Workload) -> Reservation | None:
        """Return the reservation of the workload, or None."""
        return self._by_workload.get(workload.id)

    def on(self, position: int) -> Reservation | None:
        """Return the reservation of the node at this position, or None."""
        return self._by_position.get(position)

    def lets(
        self, account: NodeAccount, workload: Workload, pod: Pod, devices: tuple[int, ...], *, later: bool
    ) -> bool:
        """Return whether the pod can get these devices: the reserved amount stays free, or the pod may use it."""
        reservation = self._by_position.get(account.position)
        if reservation is None or reservation.workload.id == workload.id:
            return True
        return _leaves(
            account, pod, devices, reservation.nodes[account.position], later=later
        ) or self._passes(workload, pod, reservation)

    def reserved_milli(
        self, accounts: Sequence[NodeAccount], nodes: NodeSet, workload: Workload, pod: Pod
    ) -> tuple[int, Reservation | None]:
        """Return the free GPUs of these nodes, in `gpu_milli`, that are reserved for other workloads and that the pod
        may not use.

        Also return the first of these reservations.
        """
        closed = {
            reservation.workload.id
            for reservation in self
            if reservation.workload.id != workload.id and not self._passes(workload, pod, reservation)
        }
        total, first = 0, None
        for position, reservation in (
            sorted(self._by_position.items(), key=lambda entry: entry[0]) if closed else ()
        ):
            if reservation.workload.id in closed and nodes >> position & 1:
                reserved = reservation.nodes[position].devices
                total += min(reserved, accounts[position].idle_devices) * DEVICE_MILLI
                first = first or reservation
        return total, first

    def _passes(self, workload: Workload, pod: Pod, reservation: Reservation) -> bool:
        """Return whether the pod may use the reserved nodes: it is more entitled, ends in time, or can be evicted in
        time.
        """
        ours = reservation.workload
        if self._is_whole(ours):
            return True  # the reservation has ended: its workload runs or starts in this decision
        if workload.project == ours.project:
            ahead = workload_order(workload) < workload_order(ours)
            return ahead or self._ends_or_is_evicted_in_time(workload, pod, reservation)
        if self._ends_in_time(pod, reservation):
            return True
        claim = self._tier(workload, (pod,))
        if claim < reservation.tier:
            return True
        protected = self._ledger.tree.nearest(workload.project, reclaim_min_runtime)
        return workload.preemptible and claim is EntitlementTier.OVER_SHARE and not protected

    def _ends_in_time(self, pod: Pod, reservation: Reservation) -> bool:
        lasts = pod.max_runtime_seconds
        return lasts is not None and self._now_us + lasts * 1_000_000 <= reservation.starts_us

    def _ends_or_is_evicted_in_time(self, workload: Workload, pod: Pod, reservation: Reservation) -> bool:
        """Return whether a pod of the same project ends before the reservation starts, or can be evicted for it."""
        protected = self._ledger.tree.nearest(workload.project, preempt_min_runtime)
        return (workload.preemptible and not protected) or self._ends_in_time(pod, reservation)

    def key(self, workload: Workload, chunk: Chunk) -> tuple[object, ...]:
        """Return a key: chunks with equal keys may use the same reserved GPUs. Empty if nothing is reserved."""
        if not self:
            return ()
        return (
            self._tier(workload, chunk),
            workload.preemptible,
            tuple(pod.max_runtime_seconds for pod in chunk),
            *(
                reservation.workload.id == workload.id or self._passes(workload, chunk[0], reservation)
                for reservation in self
            ),
        )

    def limit(self, workload: Workload, chunk: Chunk) -> LimitReserved | None:
        """Return a limit that the chunk would take from a starving workload of the same project, or None."""
        for reservation in self:
            ours = reservation.workload
            ahead = workload_order(workload) <= workload_order(ours)
            if workload.project != ours.project or ahead or self._is_whole(ours):
                continue
            if all(self._ends_or_is_evicted_in_time(workload, pod, reservation) for pod in chunk):
                continue
            if (reason := self._limit_of(reservation, workload, chunk_amounts(chunk))) is not None:
                return reason
        return None

    def _limit_of(
        self, reservation: Reservation, workload: Workload, requested: Amounts
    ) -> LimitReserved | None:
        """Return the first limit or quota that is too small for both workloads, which are of the same project."""
        ledger = self._ledger
        both = not workload.preemptible and not reservation.workload.preemptible
        for name in ledger.tree.lineage[workload.project]:
            held, non_preemptible = ledger.allocated[name], ledger.non_preemptible[name]
            for resource in ledger.tree.resources:
                if not (requested[resource] and reservation.requested[resource]):
                    continue
                demanded = requested[resource] + reservation.requested[resource]
                total = held[resource] - reservation.yielding[resource] + demanded
                full = total > ledger.tree.limit[name][resource]
                if full or (
                    both and non_preemptible[resource] + demanded > ledger.tree.quota[name][resource]
                ):
                    return LimitReserved(name, requested, reservation.requested, reservation.workload.name)
        return None


def _leaves(
    account: NodeAccount, pod: Pod, devices: tuple[int, ...], reserved: ReservedCapacity, *, later: bool
) -> bool:
    """Return whether the reserved amount stays free if the pod gets the devices."""
    whole = account.whole_devices(later=later)
    opened = len(set(devices).intersection(whole))
    if opened and len(whole) - opened < reserved.devices:
        return False
    cpu = account.cpu_used_milli - (account.cpu_releasing_milli if later else 0)
    memory = account.memory_used_bytes - (account.memory_releasing_bytes if later else 0)
    return (
        cpu + pod.request.cpu_milli + reserved.cpu_milli <= account.node.cpu_milli
        and memory + pod.request.memory_bytes + reserved.memory_bytes <= account.node.memory_bytes
        and (
            not reserved.scalars
            or not pod.request.scalars
            or _leaves_scalars(account, pod.request.scalars, dict(reserved.scalars), later=later)
        )
    )


def _leaves_scalars(
    account: NodeAccount, requested: Scalars, reserved: Mapping[str, int], *, later: bool
) -> bool:
    return all(
        name not in reserved or account.free_scalar(name, later=later) >= amount + reserved[name]
        for name, amount in requested
    )
