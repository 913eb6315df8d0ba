"""GPUs that are kept free for a workload that has waited for too long, and who may use them meanwhile."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from orchestrator.planner.accounting.amounts import summed_scalars
from orchestrator.planner.accounting.ledger import NodeAccount
from orchestrator.planner.accounting.tiers import EntitlementTier
from orchestrator.planner.model import DEVICE_MILLI, Amounts, Pod, Scalars, Workload
from orchestrator.planner.node_sets import NodeSet


@dataclass(frozen=True, slots=True)
class ReservedCapacity:
    """What is kept of one node."""

    devices: int = 0
    cpu_milli: int = 0
    memory_bytes: int = 0
    scalars: Scalars = ()

    def plus(self, pod: Pod) -> "ReservedCapacity":
        """With what one more pod needs; a part of a device is kept as a whole one."""
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
    """Nodes, by position, on which room is kept for a workload.

    `tier` is its entitlement. `starts_us` is when it fits at the latest, 0 when that is not known
    because something that has to end first has no declared end. `missing_milli` is what is still to be returned.
    `requested` is what it needs of its project's limits, and `yielding` what of its project goes as soon as it has to;
    where the limits are in the way there are no nodes.
    """

    workload: Workload
    tier: EntitlementTier
    nodes: Mapping[int, ReservedCapacity]
    starts_us: int
    missing_milli: int
    waited_us: int
    requested: Amounts
    yielding: Amounts


class Reservations:
    """The reservations of one decision; `passes` says who may use what is kept."""

    def __init__(self, passes: Callable[[Workload, Pod, Reservation], bool]) -> None:
        self._passes = passes
        self._by_position: dict[int, Reservation] = {}
        self._by_workload: dict[str, Reservation] = {}

    def add(self, reservation: Reservation) -> None:
        """Keep room for one more workload, on nodes where none is kept yet."""
        self._by_workload[reservation.workload.id] = reservation
        self._by_position |= dict.fromkeys(reservation.nodes, reservation)

    def __iter__(self) -> Iterator[Reservation]:
        return iter(self._by_workload.values())

    def __bool__(self) -> bool:
        return bool(self._by_workload)

    def of(self, workload: Workload) -> Reservation | None:
        """What is kept for the workload."""
        return self._by_workload.get(workload.id)

    def on(self, position: int) -> Reservation | None:
        """For whom room is kept on the node."""
        return self._by_position.get(position)

    def lets(
        self, account: NodeAccount, workload: Workload, pod: Pod, devices: tuple[int, ...], *, later: bool
    ) -> bool:
        """Whether the pod may have these devices: enough stays free beside it, or it may use what is kept."""
        reservation = self._by_position.get(account.position)
        if reservation is None or reservation.workload.id == workload.id:
            return True
        return _leaves(
            account, pod, devices, reservation.nodes[account.position], later=later
        ) or self._passes(workload, pod, reservation)

    def reserved_milli(
        self, accounts: Sequence[NodeAccount], nodes: NodeSet, workload: Workload, pod: Pod
    ) -> tuple[int, Reservation | None]:
        """Of what is free on these nodes, what is kept from the pod, in `gpu_milli`, and for whom first of all."""
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


def _leaves(
    account: NodeAccount, pod: Pod, devices: tuple[int, ...], reserved: ReservedCapacity, *, later: bool
) -> bool:
    """Whether what is kept stays free when the pod gets the devices."""
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
