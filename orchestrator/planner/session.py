"""The state of one decision, shared by its actions: the ledger, the shares, and the seats decided so far."""

from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Sequence
from functools import cached_property
from typing import TypeVar, cast

from orchestrator.planner.accounting.gpu_models import GpuModels
from orchestrator.planner.accounting.quota_checks import Use, incomplete, still_charged, violation
from orchestrator.planner.accounting.shares import fair_shares
from orchestrator.planner.accounting.tiers import EntitlementTier, tier, tier_with_model
from orchestrator.planner.cluster_state import ClusterState
from orchestrator.planner.eviction_limits import EvictionLimits
from orchestrator.planner.failures import Failures
from orchestrator.planner.gangs import (
    Chunk,
    chunk_amounts,
    has_gang,
    is_stale,
)
from orchestrator.planner.model import (
    Eviction,
    Pod,
    PodState,
    Waiting,
    Workload,
)
from orchestrator.planner.obstacles import (
    GangEvicted,
    LimitReached,
    LimitReserved,
    Nominated,
    NoProject,
    Obstacle,
    QuotaReached,
    StillCharged,
)
from orchestrator.planner.ordering import PriorityQueue, workload_order
from orchestrator.planner.placement.chunks import ChunkPlacer
from orchestrator.planner.placement.placer import Placer
from orchestrator.planner.placement.reservations import Reservations
from orchestrator.planner.placements import Placed
from orchestrator.planner.seats import Queues, Seats, SeatState
from orchestrator.planner.settings import WorkBound, work_of_decision

_Built = TypeVar("_Built")


class Session:
    """The state of one decision, and the methods that change it.

    - `actions`: the names of the steps that the decision may run.
    - `seats` and `queues`: the record of the decision.
    - `restored`: the workloads with a seat from an earlier nomination.
    - `reasons`: by workload id, the reason why the workload is pending.
    - `limits`: the limits on evictions, and the evictions that they refused.
    - `has_lifted`: whether the decision, or a trial in it, has undone a start or an eviction.
    """

    def __init__(self, state: ClusterState, actions: Collection[str] = ()) -> None:
        self.actions = frozenset(actions)
        self.snapshot = state.snapshot
        self.tree = state.tree
        self.ledger = state.ledger
        self.ledger.changes.clear()
        self.ledger.claims.begin()
        self.node_sets = state.nodes
        self.seats = Seats(self.ledger, state.workloads)
        self.failures = Failures(self.snapshot, state.workloads)
        back_offs = self.failures.back_offs
        waiting = state.waiting
        if back_offs:
            waiting = {name: chunks for name, chunks in waiting.items() if name not in back_offs}
        self.queues = Queues(self.ledger, self.seats, state.workloads, waiting)
        if self.ledger.neighbours is not None:
            self.ledger.neighbours.waiting = self._nominated_pods
        self.reservations = Reservations(
            self.ledger, self.tier, self.queues.is_whole, now_us=self.snapshot.now_us
        )
        self.placer = Placer(
            self.ledger,
            state.nodes,
            self.reservations,
            spread=self.snapshot.settings.spread,
            failures=self.failures,
        )
        self._chunk_placer = ChunkPlacer(self.ledger, self.placer)
        self.models = GpuModels(self.ledger, state.nodes, state.demand)
        self.shares = fair_shares(
            self.tree, state.demand.by_project(), self.ledger.capacity, self.models.demand
        )
        self.reasons: dict[str, Obstacle] = {}
        self.endangered: dict[str, str] = {}
        self.limits = EvictionLimits(self.snapshot, self.ledger, self.seats)
        self._state = state
        self.restored: set[str] = set()
        self.started_elsewhere: list[str] = []
        self.has_lifted = False
        self.work = WorkBound(
            work_of_decision(self.snapshot.settings.max_work, len(self.snapshot.nodes)),
            lambda: self.placer.looked_at,
        )
        self.left_over: dict[str, None] = {}
        self._built: dict[object, object] = {}
        self._left_over_before = frozenset(self.snapshot.left_over)
        for name, project in state.homeless.items():
            self.reasons[name] = NoProject(project)
        for name in state.incomplete:
            self.reasons[name] = incomplete(state.workloads[name])
        for name in back_offs.keys() & state.waiting.keys():
            self.reasons[name] = back_offs[name]

    def once(self, build: Callable[["Session"], _Built]) -> _Built:
        """Return the result of `build`, which is called once for a decision. The result is not updated for later
        changes of the session.
        """
        built = self._built.get(build)
        if built is None:
            built = self._built[build] = build(self)
        return cast("_Built", built)

    def queues_left_over_first(self, waiting: Iterable[Workload]) -> Iterator[PriorityQueue]:
        """Yield a queue of the workloads that the last decision did not reach, then a queue of the others."""
        workloads = list(waiting)
        first = [workload for workload in workloads if workload.id in self._left_over_before]
        if first:
            yield self.priority_queue(first)
            workloads = [workload for workload in workloads if workload.id not in self._left_over_before]
        yield self.priority_queue(workloads)

    def next_workload(self, queue: PriorityQueue) -> Workload | None:
        """Return the next workload of the queue; None after the last, or when the action has used up its bound."""
        workload = queue.pop()
        if workload is not None and not self.work.count_workload():
            # Store the workloads that the action did not reach. They come first in the next decision, so none
            # starves.
            while workload is not None:
                self.left_over[workload.id] = None
                queue.settle(workload.project)
                workload = queue.pop()
        return workload

    def _nominated_pods(self) -> Iterator[tuple[Pod, int]]:
        """Yield the pods with nominated seats, and the positions of their nodes."""
        for seat in self.seats.nominated():
            yield seat.pod, self.ledger.by_name[seat.where.node].position

    def meets_constraints(self, placed: Placed) -> bool:
        """Return whether the placed pods meet their constraints on other pods after all terminating pods have ended.

        A search places pods one after the other, and the last pods can break the constraints of the first ones.
        """
        neighbours = self.ledger.neighbours
        if neighbours is None:
            return True
        there = [(pod, self.ledger.by_name[where.node].position) for pod, where in placed]
        return all(neighbours.is_met(*each) for each in there) and neighbours.can_come(there)

    def steady_nominees(self) -> list[tuple[Pod, int]]:
        """Return the nominated pods whose affinity and spread constraints are met now, and their node positions."""
        neighbours = self.ledger.neighbours
        return [] if neighbours is None else neighbours.steady_nominees()

    def keeps_nominees(self, nominees: Sequence[tuple[Pod, int]]) -> bool:
        """Return whether the constraints of these nominated pods are still met.

        For example, an eviction breaks the affinity of a nominated pod to the victim.
        """
        neighbours = self.ledger.neighbours
        return neighbours is None or neighbours.keeps(nominees)

    def shape_beside_others(self, chunk: Chunk) -> tuple[Hashable, ...]:
        """Return the additional key of `shape_of` for constraints on other pods; empty without such constraints."""
        neighbours = self.ledger.neighbours
        return () if neighbours is None else tuple(map(neighbours.key, chunk))

    def tier(self, workload: Workload, chunk: Chunk, *, levels: int | None = None) -> EntitlementTier:
        """Return the entitlement tier of the chunk. If `levels` is 1, only the project counts, not its departments."""
        requested = chunk_amounts(chunk)
        total = tier(self.ledger, self.shares, workload, requested, levels=levels)
        model = self.models.bound(workload, chunk)
        if model is None:
            return total
        lineage = self.tree.lineage[workload.project][:levels]
        return tier_with_model(
            self.ledger, self.models.shares, total, lineage=lineage, gpu_milli=requested[0], model=model
        )

    def violation(
        self, workload: Workload, chunk: Chunk
    ) -> LimitReached | QuotaReached | LimitReserved | None:
        """Return the limit, quota or reservation that excludes the chunk; None if the project may start the chunk."""
        return violation(self.ledger, workload, chunk_amounts(chunk)) or self.reservations.limit(
            workload, chunk
        )

    def workload(self, name: str) -> Workload:
        """Return the workload by its id, with the evictions and nominations decided so far."""
        return self.seats.workload(name)

    def pending(self) -> list[Workload]:
        """Return the workloads of known projects with a chunk that could start."""
        return [self.workload(name) for name in self.queues]

    def next_chunk(self, workload: Workload) -> Chunk:
        """Return the pods that the workload would start next; empty if none is pending."""
        return self.queues.next_chunk(workload.id)

    def priority_queue(self, waiting: Iterable[Workload]) -> PriorityQueue:
        """Return a queue of these workloads."""
        return PriorityQueue(
            self.ledger,
            self.shares,
            waiting,
            self.next_chunk,
            lambda workload: self.queues.stage(workload.id),
        )

    def precedes(self, first: Workload, its: Chunk, second: Workload, chunk: Chunk) -> bool:
        """Return whether `first` with the chunk `its` comes before `second` with `chunk` in the current order."""
        chunks = {first.id: its, second.id: chunk}
        queue = PriorityQueue(
            self.ledger, self.shares, (first, second), lambda workload: chunks[workload.id], lambda _: 0
        )
        return queue.pop() is first

    def running(self, project: str | None = None) -> list[Workload]:
        """Return the workloads with running pods, as decided so far: all, or those of one project."""
        if project is None:
            return self.seats.running(self._state.running)
        return self.seats.running(self._running_by_project.get(project, {}), project)

    def running_at_start(self, project: str) -> list[Workload]:
        """Return the project's workloads that ran when the decision began, in their state at that time."""
        return [self._state.workloads[name] for name in self._running_by_project.get(project, {})]

    @cached_property
    def _running_by_project(self) -> dict[str, dict[str, None]]:
        """The ids of the workloads that had running pods at the start, by project."""
        by_project: dict[str, dict[str, None]] = {}
        for name in self._state.running:
            by_project.setdefault(self.workload(name).project, {})[name] = None
        return by_project

    def unstarted(self) -> list[Workload]:
        """Return the workloads with a bound pod that has started no container, sorted by id."""
        return [self.workload(name) for name in sorted(self._state.unstarted)]

    def stale_gangs(self) -> list[tuple[Workload, list[Pod]]]:
        """Return the gangs that are incomplete beyond their grace period, sorted by id, each with its running pods.

        The decision evicts these pods unless it completes the gang.
        """
        if not self._state.stale:
            return []
        now_us, grace_seconds = self.snapshot.now_us, self.snapshot.settings.stale_grace_seconds
        below = [self.workload(name) for name in sorted(self._state.stale)]
        return [
            (workload, [pod for pod in workload.pods if pod.state is PodState.ALLOCATED])
            for workload in below
            if is_stale(workload, now_us, grace_seconds)
            and not (self.queues.is_whole(workload) or self._has_all_seats(workload))
        ]

    def _has_all_seats(self, workload: Workload) -> bool:
        """Return whether enough pods of the gang run or have a reserved seat on another node."""
        pods = (
            pod.in_state(PodState.ALLOCATED)
            if pod.id in self.seats.evictions and self.seats.is_nominated(pod)
            else pod
            for pod in workload.pods
        )
        return has_gang(workload.with_pods(tuple(pods)))

    def place_all(self, workload: Workload, chunk: Sequence[Pod], *, only_now: bool = False) -> Placed | None:
        """Place every pod of the chunk on the ledger. Return None, with no change, if one does not fit."""
        return self._chunk_placer.place(workload, chunk, only_now=only_now)

    def grant(self, workload: Workload, placed: Placed, *, after_evictions: bool = False) -> None:
        """Give the next chunk of the workload its seats. If one pod has to wait for terminating pods, the whole chunk
        is nominated.
        """
        self.queues.start(workload, placed)
        # Nominate the whole chunk: pods that start before their gang is complete would hold idle GPUs.
        if after_evictions or self._waits(workload, placed):
            self.nominate(workload, placed)
            return
        self.reasons.pop(workload.id, None)
        self.seats.place(workload, placed, SeatState.NEW)

    def _waits(self, workload: Workload, placed: Placed) -> bool:
        """Return whether the chunk, or an earlier seat of the workload, has to wait for terminating pods."""
        return (
            any(placement.waits for _, placement in placed)
            or self.seats.has(workload, SeatState.NOMINATED)
            or any(pod.state is PodState.PENDING for pod, _ in self.seats.placed(workload, SeatState.KEPT))
            or self.still_charged(workload, placed) is not None
        )

    def still_charged(self, workload: Workload, placed: Placed) -> StillCharged | None:
        """Return the limit or quota that these pods, on the ledger, exceed until terminating pods have ended."""
        if workload.preemptible and not self.tree.limited.get(workload.project):
            return None
        own = {pod.id for pod, _ in placed}

        def nominated() -> Iterator[Use]:
            for seat in self.seats.nominated():
                if seat.pod.id not in own:
                    yield self._use(seat.workload, seat.pod, seat.where.node)

        placed_uses = [self._use(workload, pod, where.node) for pod, where in placed]
        return still_charged(self.ledger, placed_uses, nominated)

    def _use(self, workload: Workload, pod: Pod, node: str) -> Use:
        model = self.ledger.by_name[node].model
        return Use(workload.project, pod.request.amounts, model, workload.preemptible)

    def nominate(self, workload: Workload, placed: Placed, state: SeatState = SeatState.NOMINATED) -> None:
        """Reserve these seats until terminating pods have ended. The placements are on the ledger already."""
        if any(pod.state is PodState.PENDING and not self.seats.is_new(pod) for pod in workload.pods):
            nodes = tuple(dict.fromkeys(where.node for _, where in placed))
            is_free = not any(where.waits for _, where in placed)
            charged = self.still_charged(workload, placed) if is_free else None
            nominated = Nominated(chunk_amounts([pod for pod, _ in placed]), nodes, charged)
            before = self.reasons.get(workload.id)
            self.refuse(workload, before.plus(nominated) if isinstance(before, Nominated) else nominated)
        self.seats.place(workload, placed, state)

    def nominated_workloads(self) -> list[Workload]:
        """Return the workloads with nominations of earlier decisions, in the state of the snapshot."""
        return [self._state.workloads[name] for name in self._state.nominated]

    def restore(self, workload: Workload, chunk: Chunk, placed: Placed) -> None:
        """Give a nominated chunk, which is on the ledger, its seats. If all its devices are free, it starts; otherwise
        it keeps its nomination.
        """
        self.queues.put_first(workload, chunk)
        self.restored.add(workload.id)
        self.grant(workload, placed)

    def waiting_nominees(self) -> list[Workload]:
        """Return the workloads whose earlier nominations wait for terminating pods, by priority, then age."""
        workloads = map(self.workload, self.restored)
        waiting = (workload for workload in workloads if self.seats.has(workload, SeatState.NOMINATED))
        return sorted(waiting, key=workload_order)

    def nominated_now(self) -> list[Workload]:
        """Return the workloads that this decision nominated and that had no restored nomination."""
        names = self.seats.all_names(SeatState.NOMINATED)
        return [self.workload(name) for name in names if name not in self.restored]

    def waits_for_its_seat(self, workload: Workload) -> bool:
        """Return whether a pod of the workload is nominated since an earlier decision and still pending."""
        return workload.id in self.restored and self.seats.has(workload, SeatState.NOMINATED)

    def renominate(self, workload: Workload, placed: Placed) -> None:
        """Give nominated pods other seats, which are on the ledger; their former seats are not on it any more."""
        self.seats.place(workload, placed, SeatState.NOMINATED)
        self.reasons.pop(workload.id, None)
        self.nominate(self._state.workloads[workload.id], self.seats.placed(workload, SeatState.NOMINATED))

    def start_nominated(self, workload: Workload, placed: Placed) -> None:
        """Bind nominated pods to other seats, which are on the ledger and free."""
        self.started_elsewhere.append(workload.id)
        self.seats.place(workload, placed, SeatState.NEW)
        self.reasons.pop(workload.id, None)

    def is_newly_nominated(self, pod: Pod) -> bool:
        """Return whether the pod has a nomination of this decision, and none of an earlier one."""
        return pod.nominated_node is None and self.seats.is_nominated(pod)

    def started(self, project: str) -> list[Workload]:
        """Return the workloads of the project that have pods which this decision starts."""
        return [self.workload(name) for name in self.seats.names(SeatState.NEW, project)]

    def lift(self, workload: Workload) -> None:
        """Undo the starts of the workload's pods in this decision, also on the ledger."""
        self.has_lifted = True
        self.seats.lift(workload, SeatState.NEW)
        self.queues.renew(workload.id)

    def waits_for(self, workload: Workload, codes: Collection[Waiting]) -> bool:
        """Return whether the workload is pending for one of these reasons, or has no stored reason yet."""
        reason = self.reasons.get(workload.id)
        return reason is None or reason.code in codes

    def refuse(self, workload: Workload, reason: Obstacle) -> None:
        """Store the reason why the workload, or a part of its pods, is pending."""
        self.reasons[workload.id] = reason

    def take(self, evictions: Iterable[Eviction]) -> None:
        """Add the evictions, which are on the ledger, to the plan."""
        evicted = list(evictions)
        names = dict.fromkeys(eviction.workload for eviction in evicted)
        pods = {pod.id: pod for name in names for pod in self.workload(name).pods}
        for eviction in evicted:
            pod = pods[eviction.pod]
            seat = self.seats.of(pod)
            if seat is not None and seat.state is SeatState.NOMINATED:
                self.seats.remove(pod)  # the pod was only nominated: it is pending again
                self.reasons.pop(eviction.workload, None)
            elif seat is None and pod.state is PodState.ALLOCATED and pod.id not in self.seats.evictions:
                self.seats.evict(eviction)
        for name in names:
            if name in self.queues:
                self._queue_again(name)

    def _queue_again(self, name: str) -> None:
        """After evictions, queue the pods again. If the gang can no longer be complete, undo its starts in this
        decision.
        """
        self.queues.renew(name)
        workload = self.workload(name)
        if self.seats.has(workload, SeatState.NEW) and not has_gang(self.seats.as_decided(workload)):
            self.lift(workload)
        if not self.next_chunk(workload):
            current = self.seats.as_decided(workload)
            if any(pod.state is PodState.PENDING for pod in current.pods):
                self.refuse(workload, GangEvicted())

    def reserve_seats(self, workload: Workload, placed: Placed) -> None:
        """Reserve seats for evicted pods, so that their replacement pods start there."""
        waiting = {pod.id for pod in self.workload(workload.id).pods if pod.state is PodState.PENDING}
        moved = [(pod, where) for pod, where in placed if pod.id not in waiting]
        self.seats.place(workload, moved, SeatState.KEPT)
        again = [(pod, where) for pod, where in placed if pod.id in waiting]
        if again:  # the preemptor of the workload took the nominated seats of these pending pods
            self.nominate(self.workload(workload.id), again)
            self._queue_again(workload.id)

    def end_useless_nominations(self, name: str) -> tuple[Pod, ...]:
        """Remove the reserved seats of a gang that is too small to start with them.

        Return the evicted pods of the gang that had such a seat, in their state before the eviction.
        """
        workload = self.workload(name)
        seated = {pod.id for pod, _ in self.seats.placed(workload, SeatState.KEPT)}
        if not seated or any(pod.state is PodState.ALLOCATED for pod in workload.pods):
            return ()
        as_they_ran = [
            pod.in_state(PodState.ALLOCATED) if pod.id in seated and pod.state is PodState.RELEASING else pod
            for pod in workload.pods
        ]
        if has_gang(self.seats.as_decided(workload.with_pods(tuple(as_they_ran)))):
            return ()
        self.seats.lift(workload, SeatState.KEPT)
        ran = [pod for pod in as_they_ran if pod.id in seated and pod.state is PodState.ALLOCATED]
        if len(ran) < len(seated):
            self.reasons.pop(name, None)
            self._queue_again(name)
        return tuple(pod for pod in ran if pod.id in self.seats.evictions)

    def cancel_evictions(self, workload: Workload, chunk: Chunk) -> None:
        """Cancel the evictions and migrations of these pods. On the ledger, the pods run again already."""
        self.has_lifted = True
        for pod in chunk:
            self.seats.keep_running(pod)
        if workload.id in self.queues:
            self._queue_again(workload.id)

    def is_left_over(self, name: str) -> bool:
        """Return whether the decision did not reach the workload, so that it comes first in the next decision.

        If the decision began with left-over workloads and changed nothing, only those workloads count.
        """
        if name not in self.left_over or not self.queues.next_chunk(name):
            return False
        decided = self.seats.count(SeatState.NEW) or self.seats.evictions or not self._left_over_before
        return bool(decided) or name in self._left_over_before
