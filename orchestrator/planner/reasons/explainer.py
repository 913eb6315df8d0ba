"""Chooses the one dominant reason of each pending workload after the decision is complete.

The free amounts are read from the ledger once, as columns over all nodes; each kind of request then costs
microseconds.
"""

from collections.abc import Iterable

from orchestrator.planner.accounting.amounts import entitled_amounts
from orchestrator.planner.accounting.ledger import NodeAccount
from orchestrator.planner.accounting.neighbours import Hindrance
from orchestrator.planner.gangs import Chunk, chunk_amounts, shape_of
from orchestrator.planner.model import DEVICE_MILLI, PendingReason, Pod, Request, Workload
from orchestrator.planner.node_sets import Column, NodeSet, node_set, node_types_for, positions_in
from orchestrator.planner.obstacles import (
    ConstraintsOvertaken,
    GangEvicted,
    Nominated,
    Obstacle,
    Overtaken,
)
from orchestrator.planner.ordering import workload_order
from orchestrator.planner.placement.node_devices import devices_for
from orchestrator.planner.reasons.node_texts import (
    NO_CAPACITY,
    POD_SLOT,
    SCALAR,
    TOGETHER,
    Asking,
    Shortage,
    claims_not_allocatable,
    devices_taken,
    fragmented,
    full,
    held_for_other,
    kept_apart,
    no_claim_made,
    no_node_matches,
    nodes_avoided,
    nodes_reserved,
    part_refused,
    too_large,
    with_avoided,
)
from orchestrator.planner.reasons.remedies import Remedies
from orchestrator.planner.session import Session

_SETTLED = (Nominated, GangEvicted, Overtaken, ConstraintsOvertaken)
_IDLE = 3
"""Index of wholly free GPUs in `_Free.total`, after the three resources."""


def explain_all(session: Session) -> None:
    """Give every pending workload its reason, from the ledger at the end of the decision."""
    explainer = Explainer(session)
    waiting = sorted(session.pending(), key=workload_order)
    for workload in waiting:
        if isinstance(session.reasons.get(workload.id), _SETTLED):
            continue
        chunk = session.next_chunk(workload)
        session.refuse(workload, session.violation(workload, chunk) or explainer.obstacle(workload, chunk))
    explainer.remedies.note_limits(waiting)
    explainer.remedies.note_preemptible(waiting)
    _share_hindrances(session, waiting)


def _share_hindrances(session: Session, waiting: Iterable[Workload]) -> None:
    """Copy the hindrances of a workload to equal workloads for which no eviction was tried."""
    if not session.limits.hindrances:
        return
    kinds = {
        kind_of(session, workload): session.limits.hindrances[workload.id]
        for workload in reversed(list(waiting))
        if workload.id in session.limits.hindrances
    }
    for workload in waiting:
        alike = kinds.get(kind_of(session, workload))
        if alike is not None:
            session.limits.hindrances.setdefault(workload.id, alike)


def kind_of(session: Session, workload: Workload) -> tuple[object, ...]:
    """Return a key of everything that decides which evictions are possible for the workload."""
    chunk = session.next_chunk(workload)
    shape = (*session.shape_beside_others(chunk), *shape_of(workload, chunk))
    return (workload.project, workload.priority, workload.preemptible, *shape)


class Explainer:
    """Finds the obstacles of pending workloads in one decision."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._free: tuple[int, _Free] | None = None
        self._holding: dict[Request, NodeSet] = {}
        self._without_slices: NodeSet | None = None
        self.remedies = Remedies(session)

    def no_capacity(self, workload: Workload, chunk: Chunk) -> Obstacle:
        """Return the reason if the chunk can never fit, else NO_CAPACITY, which `explain_all` replaces at the end."""
        return self._impossible(workload, chunk) or NO_CAPACITY

    def obstacle(self, workload: Workload, chunk: Chunk) -> Obstacle:
        """Return the reason why a chunk within the limits and quotas has no placement on the ledger."""
        impossible = self._impossible(workload, chunk)
        if impossible is not None:
            return impossible
        shortage = self._shortage(workload, chunk)
        avoided = self._session.failures.avoided_by(workload)
        return with_avoided(shortage, avoided.values()) if avoided else shortage

    def _no_node_matches(self, workload: Workload, pod: Pod) -> Obstacle:
        project = self._session.tree.projects[workload.project]
        unfit = self._session.node_sets.unfit_counts(pod.constraints, node_types_for(project, workload))
        return no_node_matches(len(self._session.ledger.nodes), unfit)

    def _impossible(self, workload: Workload, chunk: Chunk) -> Obstacle | None:
        """Return the reason why the chunk would not fit even if other pods ended; None if it could."""
        problems = self._session.ledger.claims.problems
        for pod in chunk if problems else ():
            if pod.id in problems:
                return claims_not_allocatable(problems[pod.id])
        pods = {(pod.request, id(pod.constraints)): pod for pod in chunk}
        for pod in pods.values():
            admitting = self._session.placer.matching(workload, pod)
            if not admitting:
                return self._no_node_matches(workload, pod)
            if pod.request not in self._holding:
                self._holding[pod.request] = self._session.node_sets.holding(pod.request)
            if not admitting & self._holding[pod.request]:
                node_sets = self._session.node_sets
                scalars = {name: node_sets.largest_scalar(name, admitting) for name, _ in pod.request.scalars}
                return too_large(pod.request, node_sets.largest(admitting), scalars)
            if self._needs_claim(pod, admitting & self._holding[pod.request]):
                return no_claim_made(is_part=pod.request.is_shared)
            if not self._session.placer.admitting(workload, pod) & self._holding[pod.request]:
                return nodes_avoided(self._session.failures.avoided_by(workload).values())
        return self._session.models.violation(workload, chunk)

    def _needs_claim(self, pod: Pod, nodes: NodeSet) -> bool:
        """Return whether all these nodes give GPUs only to ResourceClaims, and the pod has none and can get none."""
        if pod.claims or pod.extended_claim is not None or not pod.request.gpu_milli:
            return False
        if self._without_slices is None:
            accounts = self._session.ledger.nodes
            self._without_slices = sum(
                1 << account.position for account in accounts if not account.node.published_gpus
            )
        return not nodes & self._without_slices

    def _shortage(self, workload: Workload, chunk: Chunk) -> PendingReason:
        """Return the resource, reservation or constraint that keeps the chunk pending now."""
        session = self._session
        requested = chunk_amounts(chunk)
        pod = max(chunk, key=lambda pod: pod.request.gpu_milli)
        admitting = session.placer.admitting(workload, pod)
        held = self._held(workload, chunk, pod, admitting)
        if held is not None:
            return held
        resource = next((resource for resource in range(3) if requested[resource]), 1)
        free = self._columns().total(resource, admitting)
        if free >= requested[resource]:
            claims = len(pod.claims) or len(pod.request.claim_specs)
            if claims:
                return devices_taken(claims)
            return (
                self._kept_apart(workload, chunk)
                or self._part_refused(pod, admitting)
                or self._fragmented(workload, chunk)
            )
        figures = session.ledger.figures(workload.project, session.shares)
        most = entitled_amounts(figures)[resource]
        return full(
            Asking(requested, len(chunk)),
            resource,
            free=free,
            capacity=session.node_sets.capacity(admitting)[resource],
            is_part=admitting != session.node_sets.schedulable,
            is_counted=not any(pod.request.gpu_memory_mib for pod in chunk),
            project=workload.project,
            figures=figures,
            is_at_share=figures.held[resource] + requested[resource] > most,
        )

    def _held(self, workload: Workload, chunk: Chunk, pod: Pod, admitting: NodeSet) -> PendingReason | None:
        """Return the reason of a reservation, for this workload or for another; None if reservations do not matter."""
        session, requested = self._session, chunk_amounts(chunk)
        if not session.reservations:
            return None
        nodes = session.ledger.nodes
        ours = session.reservations.of(workload)
        if ours is not None and ours.nodes:
            return nodes_reserved(
                Asking(requested, len(chunk)),
                ours.waited_us,
                reserved=sum(reserved.devices for reserved in ours.nodes.values()),
                used=sum(
                    max(0, reserved.devices - nodes[position].idle_devices)
                    for position, reserved in ours.nodes.items()
                ),
                nodes=tuple(sorted(nodes[position].node.name for position in ours.nodes)),
                until_us=ours.starts_us - session.snapshot.now_us if ours.starts_us else 0,
            )
        free = self._columns().total(0, admitting)
        if free < requested[0]:
            return None
        reserved, other = session.reservations.reserved_milli(nodes, admitting, workload, pod)
        if other is None or requested[0] <= free - reserved:
            return None
        return held_for_other(
            Asking(requested, len(chunk)),
            other,
            free=free,
            reserved=min(free, reserved),
            fitting_minutes=self.remedies.fitting_minutes(workload, chunk, other),
        )

    def _kept_apart(self, workload: Workload, chunk: Chunk) -> PendingReason | None:
        """Return the constraints between pods that exclude all nodes with capacity, either for one pod or for all pods
        together.
        """
        neighbours = self._session.ledger.neighbours
        if neighbours is None:
            return None
        asking = Asking(chunk_amounts(chunk), len(chunk))
        together: list[Hindrance] = []
        for pod in {neighbours.key(pod): pod for pod in chunk if neighbours.concerns(pod)}.values():
            nodes = self._columns().fitting(pod.request, self._session.placer.admitting(workload, pod))
            hindrances = _closing(neighbours.hindrances(pod), nodes)
            if nodes and not nodes & neighbours.admitting(pod, later=False):
                return kept_apart(asking, pod.request, nodes.bit_count(), hindrances)
            together += hindrances or neighbours.hindrances(pod)
        return kept_apart(asking, chunk[0].request, 0, together) if together and len(chunk) > 1 else None

    def _part_refused(self, pod: Pod, admitting: NodeSet) -> PendingReason | None:
        """Return the reason that a node has the requested fraction free, but its driver does not share the GPU."""
        request = pod.request
        if not request.is_shared or pod.extended_claim is None:
            return None
        for account in self._session.ledger.nodes:
            if not admitting >> account.position & 1 or not account.node.published_gpus:
                continue
            has_capacity = account.has_capacity(request, later=False)
            if has_capacity and devices_for(account, request, "", later=False) is not None:
                return part_refused(account.node.name)
        return None

    def _fragmented(self, workload: Workload, chunk: Chunk) -> PendingReason:
        """Return the reason for the largest pod that fits on no node, or else that the pods do not fit together."""
        columns, placer = self._columns(), self._session.placer
        largest = sorted(chunk, key=lambda pod: -pod.request.gpu_milli)
        shortages = (
            columns.shortage(pod.request, placer.admitting(workload, pod))
            for pod in {pod.request: pod for pod in reversed(largest)}.values()
        )
        admitting = placer.admitting(workload, largest[0])
        return fragmented(
            Asking(chunk_amounts(chunk), len(chunk)),
            largest[0].request,
            next(filter(None, shortages), None),
            free=(columns.total(0, admitting), columns.total(1, admitting), columns.total(2, admitting)),
            whole=columns.whole(admitting),
            level="" if workload.topology is None else workload.topology.required or "",
            short_scalar=columns.short_scalar([pod.request for pod in chunk], admitting),
        )

    def _columns(self) -> "_Free":
        """Return the free amounts; they are read from the ledger again after a change."""
        version = self._session.ledger.version
        if self._free is None or self._free[0] != version:
            self._free = (version, _Free(self._session.ledger.nodes))
        return self._free[1]


def _closing(hindrances: Iterable[Hindrance], nodes: NodeSet) -> list[Hindrance]:
    """Return the hindrances in order, without hindrances whose nodes are excluded by earlier ones already."""
    closing: list[Hindrance] = []
    for hindrance in hindrances:
        if nodes & hindrance.closed:
            closing.append(hindrance)
            nodes &= ~hindrance.closed
    return closing


class _Free:
    """The free amounts of all nodes, one column for each resource."""

    def __init__(self, accounts: list[NodeAccount]) -> None:
        self._accounts = accounts
        self._gpu = Column([_free_gpu_milli(account) for account in accounts])
        self._idle = Column([account.idle_devices for account in accounts])
        self._most = Column([account.max_free_milli(later=False) for account in accounts])
        self._cpu = Column([max(0, account.node.cpu_milli - account.cpu_used_milli) for account in accounts])
        self._memory = Column(
            [max(0, account.node.memory_bytes - account.memory_used_bytes) for account in accounts]
        )
        self._with_slot = node_set(
            (account.position for account in accounts if account.pods_used < account.node.pod_slots),
            len(accounts),
        )
        self._scalars: dict[str, Column] = {}
        self._totals: dict[tuple[int, NodeSet], int] = {}
        self._shortages: dict[tuple[Request, NodeSet], Shortage | None] = {}

    def total(self, resource: int, nodes: NodeSet) -> int:
        """Return the free amount of the resource on these nodes."""
        known = self._totals.get((resource, nodes))
        if known is None:
            known = (self._gpu, self._cpu, self._memory, self._idle)[resource].total(nodes)
            self._totals[resource, nodes] = known
        return known

    def whole(self, nodes: NodeSet) -> int:
        """Return the number of wholly free GPUs on these nodes."""
        return self.total(_IDLE, nodes)

    def shortage(self, request: Request, nodes: NodeSet) -> Shortage | None:
        """Return the resource of which no node has enough for the request; None if a node has enough of all."""
        key = (request, nodes)
        if key not in self._shortages:
            self._shortages[key] = self._find_shortage(request, nodes)
        return self._shortages[key]

    def fitting(self, request: Request, nodes: NodeSet) -> NodeSet:
        """Return the nodes with enough free capacity for the request."""
        nodes = self._having_gpus(request, nodes) & self._with_slot
        nodes &= self._cpu.at_least(request.cpu_milli) & self._memory.at_least(request.memory_bytes)
        for name, amount in request.scalars:
            nodes &= self._scalar(name).at_least(amount)
        return nodes

    def _find_shortage(self, request: Request, nodes: NodeSet) -> Shortage | None:
        having = self._having_gpus(request, nodes)
        count = having.bit_count()
        if not having:
            return Shortage(request, 0, 0, 0)
        with_cpu = having & self._cpu.at_least(request.cpu_milli)
        if not with_cpu:
            return Shortage(request, 1, count, self._cpu.most(having))
        with_memory = having & self._memory.at_least(request.memory_bytes)
        if not with_memory:
            return Shortage(request, 2, count, self._memory.most(having))
        fitting = with_cpu & with_memory
        for name, amount in request.scalars:
            with_scalar = having & self._scalar(name).at_least(amount)
            if not with_scalar:
                return Shortage(request, SCALAR, count, self._scalar(name).most(having), name)
            fitting &= with_scalar
        if not fitting:
            return Shortage(request, TOGETHER, count, 0)
        return None if fitting & self._with_slot else Shortage(request, POD_SLOT, count, 0)

    def short_scalar(self, requests: Iterable[Request], nodes: NodeSet) -> tuple[str, int, int] | None:
        """Return the first scalar of which these nodes have too little in total, with the requested and free amount."""
        requested: dict[str, int] = {}
        for request in requests:
            for name, amount in request.scalars:
                requested[name] = requested.get(name, 0) + amount
        for name in sorted(requested):
            free = self._scalar(name).total(nodes)
            if free < requested[name]:
                return name, requested[name], free
        return None

    def _scalar(self, name: str) -> Column:
        if name not in self._scalars:
            self._scalars[name] = Column(
                [max(0, account.free_scalar(name, later=False)) for account in self._accounts]
            )
        return self._scalars[name]

    def _having_gpus(self, request: Request, nodes: NodeSet) -> NodeSet:
        if not request.is_shared:
            return nodes & self._idle.at_least(request.gpu_count)
        if request.shared_devices == 1 and not request.gpu_memory_mib:
            return nodes & self._most.at_least(request.gpu_portion_milli)
        accounts = (self._accounts[position] for position in positions_in(nodes))
        return node_set(
            (
                account.position
                for account in accounts
                if devices_for(account, request, "", later=False) is not None
            ),
            len(self._accounts),
        )


def _free_gpu_milli(account: NodeAccount) -> int:
    free = sum([DEVICE_MILLI - used for used in account.used_milli if used < DEVICE_MILLI])
    return max(0, free - account.lost * DEVICE_MILLI)
