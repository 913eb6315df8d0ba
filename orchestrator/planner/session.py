"""The state of one decision, shared by its actions: the ledger, the shares, and what has been decided so far."""

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
from orchestrator.planner.ordering import TurnOrder, workload_order
from orchestrator.planner.placement.chunks import ChunkPlacer
from orchestrator.planner.placement.placer import Placer
from orchestrator.planner.placement.reservations import Reservations
from orchestrator.planner.placements import Placed
from orchestrator.planner.seats import Queues, Seats, SeatState
from orchestrator.planner.settings import WorkBound, work_of_decision

_Built = TypeVar("_Built")


class Session:
    """The state of one decision, and the verbs that change it.

    `actions` are the names of the steps that it may take. `seats` and `queues` are the record of the decision,
    `restored` the workloads whose seats an earlier decision nominated. `reasons` say why workloads wait, `limits`
    which evictions are refused. `has_lifted`: a start was taken back, perhaps in a trial.
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
        """What `build` makes of this decision, made once: what has changed since, its users find out themselves."""
        built = self._built.get(build)
        if built is None:
            built = self._built[build] = build(self)
        return cast("_Built", built)

    def turns_left_over_first(self, waiting: Iterable[Workload]) -> Iterator[TurnOrder]:
        """The turns of those that the last decision did not reach, then those of the others."""
        workloads = list(waiting)
        first = [workload for workload in workloads if workload.id in self._left_over_before]
        if first:
            yield self.turns(first)
            workloads = [workload for workload in workloads if workload.id not in self._left_over_before]
        yield self.turns(workloads)

    def next_turn(self, turns: TurnOrder) -> Workload | None:
        """The next workload, None when every one had its turn or the bound on work is reached."""
        workload = turns.pop()
        if workload is not None and not self.work.take_turn():
            # Noted, not dropped: they are first in the next decision, so that nobody starves by the bound.
            while workload is not None:
                self.left_over[workload.id] = None
                turns.settle(workload.project)
                workload = turns.pop()
        return workload

    def _nominated_pods(self) -> Iterator[tuple[Pod, int]]:
        """The pods with seats that are not free yet, and the positions of their nodes."""
        for seat in self.seats.nominated():
            yield seat.pod, self.ledger.by_name[seat.where.node].position

    def meets_constraints(self, placed: Placed) -> bool:
        """Whether the pods, which are on the ledger, meet their constraints on other pods once releases are through.

        A search places pods one after the other, and the last pods can break the constraints of the first ones.
        """
        neighbours = self.ledger.neighbours
        return neighbours is None or all(
            neighbours.is_met(pod, self.ledger.by_name[where.node].position) for pod, where in placed
        )

    def shape_beside_others(self, chunk: Chunk) -> tuple[Hashable, ...]:
        """Return the part of a chunk's shape that constraints between pods add."""
        neighbours = self.ledger.neighbours
        return () if neighbours is None else tuple(map(neighbours.key, chunk))

    def tier(self, workload: Workload, chunk: Chunk, *, levels: int | None = None) -> EntitlementTier:
        """How well founded it is to start the chunk; `levels` 1 looks at the project alone."""
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
        """Why the project may not hold the chunk too: its limits, its quota, or what is kept of them for another."""
        return violation(self.ledger, workload, chunk_amounts(chunk)) or self.reservations.limit(
            workload, chunk
        )

    def workload(self, name: str) -> Workload:
        """The workload by its id, with the evictions and nominations decided so far."""
        return self.seats.workload(name)

    def pending(self) -> list[Workload]:
        """Workloads of known projects with a chunk that could start."""
        return [self.workload(name) for name in self.queues]

    def next_chunk(self, workload: Workload) -> Chunk:
        """The pods that the workload would start next; empty if none waits."""
        return self.queues.next_chunk(workload.id)

    def turns(self, waiting: Iterable[Workload]) -> TurnOrder:
        """The order in which these workloads have their turn."""
        return TurnOrder(
            self.ledger,
            self.shares,
            waiting,
            self.next_chunk,
            lambda workload: self.queues.stage(workload.id),
        )

    def has_turn_before(self, first: Workload, its: Chunk, second: Workload, chunk: Chunk) -> bool:
        """Whether `first` would have its turn for the chunk `its` before `second` for its own, as the ledger stands."""
        chunks = {first.id: its, second.id: chunk}
        turns = TurnOrder(
            self.ledger, self.shares, (first, second), lambda workload: chunks[workload.id], lambda _: 0
        )
        return turns.pop() is first

    def running(self, project: str | None = None) -> list[Workload]:
        """Workloads that hold something, as decided so far: all of them, or those of one project."""
        if project is None:
            return self.seats.running(self._state.running)
        return self.seats.running(self._running_by_project.get(project, {}), project)

    @cached_property
    def _running_by_project(self) -> dict[str, dict[str, None]]:
        """Ids of the workloads that held something at the start, by project."""
        by_project: dict[str, dict[str, None]] = {}
        for name in self._state.running:
            by_project.setdefault(self.workload(name).project, {})[name] = None
        return by_project

    def unstarted(self) -> list[Workload]:
        """Workloads with bound pods of which no container has started, by id."""
        return [self.workload(name) for name in sorted(self._state.unstarted)]

    def stale_gangs(self) -> list[tuple[Workload, list[Pod]]]:
        """Gangs that lost a member too long ago, by id, with what runs of them: it goes unless they are made whole."""
        if not self._state.stale:
            return []
        now_us, grace_seconds = self.snapshot.now_us, self.snapshot.settings.stale_grace_seconds
        below = [self.workload(name) for name in sorted(self._state.stale)]
        return [
            (workload, [pod for pod in workload.pods if pod.state is PodState.ALLOCATED])
            for workload in below
            if is_stale(workload, now_us, grace_seconds)
            and not (self.queues.is_whole(workload) or self._has_all_places(workload))
        ]

    def _has_all_places(self, workload: Workload) -> bool:
        """Whether the pods that its gang needs run or have a seat on another node."""
        pods = (
            pod.in_state(PodState.ALLOCATED)
            if pod.id in self.seats.evictions and self.seats.is_nominated(pod)
            else pod
            for pod in workload.pods
        )
        return has_gang(workload.with_pods(tuple(pods)))

    def place_all(self, workload: Workload, chunk: Sequence[Pod], *, only_now: bool = False) -> Placed | None:
        """Place every pod of the chunk on the ledger, or none; None says that one found no place."""
        return self._chunk_placer.place(workload, chunk, only_now=only_now)

    def grant(self, workload: Workload, placed: Placed, *, after_evictions: bool = False) -> None:
        """Seat the workload's next chunk; all of its pods wait if one of them waits for terminating pods."""
        self.queues.start(workload, placed)
        # The whole chunk waits: pods that ran ahead of their gang would hold GPUs and do nothing.
        if after_evictions or self._waits(workload, placed):
            self.nominate(workload, placed)
            return
        self.reasons.pop(workload.id, None)
        self.seats.place(workload, placed, SeatState.NEW)

    def _waits(self, workload: Workload, placed: Placed) -> bool:
        """Whether some of the chunk, or of what the workload was given before, waits for a release."""
        return (
            any(placement.promised for _, placement in placed)
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
        """Give the pods these seats, which are on the ledger, as soon as they are free."""
        if any(pod.state is PodState.PENDING and not self.seats.is_new(pod) for pod in workload.pods):
            nodes = tuple(dict.fromkeys(where.node for _, where in placed))
            is_free = not any(where.promised for _, where in placed)
            charged = self.still_charged(workload, placed) if is_free else None
            nominated = Nominated(chunk_amounts([pod for pod, _ in placed]), nodes, charged)
            before = self.reasons.get(workload.id)
            self.refuse(workload, before.plus(nominated) if isinstance(before, Nominated) else nominated)
        self.seats.place(workload, placed, state)

    def nominated_workloads(self) -> list[Workload]:
        """Workloads with nominations of earlier decisions."""
        return [self._state.workloads[name] for name in self._state.nominated]

    def restore(self, workload: Workload, chunk: Chunk, placed: Placed) -> None:
        """Bind a nominated chunk, which is on the ledger, if all of its devices are free; else it waits on."""
        self.queues.put_first(workload, chunk)
        self.restored.add(workload.id)
        self.grant(workload, placed)

    def waiting_nominees(self) -> list[Workload]:
        """Workloads whose nominations of earlier decisions wait on, in the order of their queues."""
        workloads = map(self.workload, self.restored)
        waiting = (workload for workload in workloads if self.seats.has(workload, SeatState.NOMINATED))
        return sorted(waiting, key=workload_order)

    def nominated_now(self) -> list[Workload]:
        """Workloads that wait for seats that no earlier decision nominated them to."""
        names = self.seats.all_names(SeatState.NOMINATED)
        return [self.workload(name) for name in names if name not in self.restored]

    def waits_for_its_seat(self, workload: Workload) -> bool:
        """Whether some of the workload waits for a seat that an earlier decision nominated it to."""
        return workload.id in self.restored and self.seats.has(workload, SeatState.NOMINATED)

    def renominate(self, workload: Workload, placed: Placed) -> None:
        """Give nominated pods other seats, which are on the ledger, instead of theirs, which are not."""
        self.seats.place(workload, placed, SeatState.NOMINATED)
        self.reasons.pop(workload.id, None)
        self.nominate(self._state.workloads[workload.id], self.seats.placed(workload, SeatState.NOMINATED))

    def start_nominated(self, workload: Workload, placed: Placed) -> None:
        """Bind nominated pods to other seats, which are on the ledger and free."""
        self.started_elsewhere.append(workload.id)
        self.seats.place(workload, placed, SeatState.NEW)
        self.reasons.pop(workload.id, None)

    def is_promised_now(self, pod: Pod) -> bool:
        """Whether the pod waits for a seat that no decision before this one promised it."""
        return pod.nominated_node is None and self.seats.is_nominated(pod)

    def started(self, project: str) -> list[Workload]:
        """The project's workloads of which this decision starts pods."""
        return [self.workload(name) for name in self.seats.names(SeatState.NEW, project)]

    def lift(self, workload: Workload) -> None:
        """Let the pods that this decision starts wait again, also on the ledger."""
        self.has_lifted = True
        self.seats.lift(workload, SeatState.NEW)
        self.queues.renew(workload.id)

    def waits_for(self, workload: Workload, codes: Collection[Waiting]) -> bool:
        """Whether the workload waits for one of these reasons, or for one that is not known yet."""
        reason = self.reasons.get(workload.id)
        return reason is None or reason.code in codes

    def refuse(self, workload: Workload, reason: Obstacle) -> None:
        """Remember why the workload, or the rest of it, waits."""
        self.reasons[workload.id] = reason

    def take(self, evictions: Iterable[Eviction]) -> None:
        """Make the evictions, already on the ledger, part of the plan."""
        evicted = list(evictions)
        names = dict.fromkeys(eviction.workload for eviction in evicted)
        pods = {pod.id: pod for name in names for pod in self.workload(name).pods}
        for eviction in evicted:
            pod = pods[eviction.pod]
            seat = self.seats.of(pod)
            if seat is not None and seat.state is SeatState.NOMINATED:
                self.seats.remove(pod)  # no running pod ends: this one is pending again
                self.reasons.pop(eviction.workload, None)
            elif seat is None and pod.state is PodState.ALLOCATED and pod.id not in self.seats.evictions:
                self.seats.evict(eviction)
        for name in names:
            if name in self.queues:
                self._queue_again(name)

    def _queue_again(self, name: str) -> None:
        """After evictions, let the workload start what makes a gang with what is left of it, or nothing."""
        self.queues.renew(name)
        workload = self.workload(name)
        if self.seats.has(workload, SeatState.NEW) and not has_gang(self.seats.as_decided(workload)):
            self.lift(workload)
        if not self.next_chunk(workload):
            current = self.seats.as_decided(workload)
            if any(pod.state is PodState.PENDING for pod in current.pods):
                self.refuse(workload, GangEvicted())

    def promise(self, workload: Workload, placed: Placed) -> None:
        """Keep seats for evicted pods, so that they come back there."""
        waiting = {pod.id for pod in self.workload(workload.id).pods if pod.state is PodState.PENDING}
        moved = [(pod, where) for pod, where in placed if pod.id not in waiting]
        self.seats.place(workload, moved, SeatState.KEPT)
        again = [(pod, where) for pod, where in placed if pod.id in waiting]
        if again:  # the preemptor that the rest of the workload is evicted for took their nominated seats
            self.nominate(self.workload(workload.id), again)
            self._queue_again(workload.id)

    def end_useless_promises(self, name: str) -> tuple[Pod, ...]:
        """Take back the seats of moved pods of a gang of which too little is left to start with them.

        Returns those of them that ran, as they ran, and that this decision evicts.
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

    def spare(self, workload: Workload, chunk: Chunk) -> None:
        """Leave pods where they run that were to be evicted or moved; on the ledger they run again."""
        for pod in chunk:
            self.seats.keep_running(pod)
        if workload.id in self.queues:
            self._queue_again(workload.id)

    def is_left_over(self, name: str) -> bool:
        """Whether the workload was not reached. Where nothing is decided, nobody comes again who just had a turn."""
        if name not in self.left_over or not self.queues.next_chunk(name):
            return False
        decided = self.seats.count(SeatState.NEW) or self.seats.evictions or not self._left_over_before
        return bool(decided) or name in self._left_over_before
