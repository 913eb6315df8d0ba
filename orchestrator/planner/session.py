"""The state of one decision, shared by its actions: the ledger, the shares, and what has been decided so far."""

from collections.abc import Callable, Collection, Container, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TypeVar, cast

from orchestrator.planner.accounting.budgets import Budgets
from orchestrator.planner.accounting.claim_grants import claims_to_deallocate, grant_claims
from orchestrator.planner.accounting.gpu_models import GpuModels
from orchestrator.planner.accounting.quota import preempt_min_runtime, reclaim_min_runtime
from orchestrator.planner.accounting.quota_checks import incomplete, violation
from orchestrator.planner.accounting.shares import fair_shares
from orchestrator.planner.accounting.terminating_pods import Use, still_charged
from orchestrator.planner.accounting.tiers import EntitlementTier, tier, tier_with_model
from orchestrator.planner.cluster_state import ClusterState
from orchestrator.planner.gangs import (
    Chunk,
    chunk_amounts,
    has_gang,
    held_parts,
    is_stale,
    start_chunks,
)
from orchestrator.planner.model import (
    Binding,
    Eviction,
    PendingReason,
    Plan,
    Pod,
    PodState,
    Waiting,
    Workload,
)
from orchestrator.planner.obstacles import (
    ClaimsOvertaken,
    GangEvicted,
    Hindrances,
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
from orchestrator.planner.placement.reservations import Reservation, Reservations
from orchestrator.planner.placement.reserved_limits import reserved_limit
from orchestrator.planner.placements import Placed, Placement
from orchestrator.planner.work_bound import WorkBound, work_of_decision

_Built = TypeVar("_Built")

Say = Callable[[Obstacle, Hindrances | None, bool], PendingReason]
"""Puts an obstacle into words, with what kept evictions from being made, and whether the workload is left over."""

_WAITS, _RUNS, _GROWS = range(3)


class Session:
    """What has been granted, taken and refused in this decision.

    `actions` are the names of the steps that it may take. `kinds` has the ids of alike workloads that lack room, the
    next in the queue last; empty until it is asked for. `reasons` say why workloads wait, `hindrances` why nobody is
    evicted for them.
    """

    def __init__(self, state: ClusterState, actions: Collection[str] = ()) -> None:
        self.actions = frozenset(actions)
        self.snapshot = state.snapshot
        self.tree = state.tree
        self.ledger = state.ledger
        self.ledger.changes.clear()
        self.ledger.claims.begin()
        self.node_sets = state.nodes
        self.reservations = Reservations(self.may_use)
        self.placer = Placer(
            self.ledger, state.nodes, self.reservations, spread=self.snapshot.settings.spread
        )
        self._chunk_placer = ChunkPlacer(self.ledger, self.placer)
        self.models = GpuModels(self.ledger, state.nodes, state.demand)
        self.shares = fair_shares(
            self.tree, state.demand.by_project(), self.ledger.capacity, self.models.demand
        )
        self.reasons: dict[str, Obstacle] = {}
        self.hindrances: dict[str, Hindrances] = {}
        self._pods_over_cap = 0
        self.endangered: dict[str, str] = {}
        self.kinds: dict[tuple[object, ...], list[str]] = {}
        self.budgets = Budgets(self.snapshot.budgets)
        self._state = state
        self._touched: dict[str, Workload] = {}
        self._chunks = {name: chunks[::-1] for name, chunks in state.waiting.items()}
        self._stages = {name: _stage(state.workloads[name]) for name in state.waiting}
        self._bindings: dict[str, Binding] = {}
        self._granted: dict[str, dict[str, list[Placed]]] = {}
        self._nominations: dict[str, Binding] = {}
        self._nominated_places: dict[str, dict[str, tuple[Pod, Placement]]] = {}
        self.started_elsewhere: list[str] = []
        self._nominees: set[str] = set()
        self._evictions: dict[str, Eviction] = {}
        self._evicted: list[str] = []
        self._bound_nominees: set[str] = set()
        self.work = WorkBound(
            work_of_decision(self.snapshot.settings.max_work, len(self.snapshot.nodes)),
            lambda: self.placer.looked_at,
        )
        self._left_over: dict[str, None] = {}
        self._built: dict[object, object] = {}
        self._left_over_before = frozenset(self.snapshot.left_over)
        for name, project in state.homeless.items():
            self.reasons[name] = NoProject(project)
        for name in state.incomplete:
            self.reasons[name] = incomplete(state.workloads[name])

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
                self._left_over[workload.id] = None
                turns.settle(workload.project)
                workload = turns.pop()
        return workload

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

    def may_use(self, workload: Workload, pod: Pod, reservation: Reservation) -> bool:
        """Whether the pod may use what is kept: it has a better claim, ends in time, or goes as soon as it has to."""
        ours = reservation.workload
        if self.is_whole(ours):
            return True  # it has started in this decision, and nothing is kept for it any more
        inside = workload.project == ours.project
        if inside:
            ahead = workload_order(workload) < workload_order(ours)
            return ahead or self._goes_in_time(workload, pod, reservation)
        if self._ends_in_time(pod, reservation):
            return True
        claim = self.tier(workload, (pod,))
        if claim < reservation.tier:
            return True
        protected = self.tree.nearest(workload.project, reclaim_min_runtime)
        return workload.preemptible and claim is EntitlementTier.SURPLUS and not protected

    def violation(
        self, workload: Workload, chunk: Chunk
    ) -> LimitReached | QuotaReached | LimitReserved | None:
        """Why the project may not hold the chunk too: its limits, its quota, or what is kept of them for another."""
        return violation(self.ledger, workload, chunk_amounts(chunk)) or self.reserved_limit(workload, chunk)

    def reserved_limit(self, workload: Workload, chunk: Chunk) -> LimitReserved | None:
        """Whether its project's limits are kept for a workload that starves, and the chunk would be in its way."""
        if not self.reservations:
            return None
        for reservation in self.reservations:
            ours = reservation.workload
            ahead = workload_order(workload) <= workload_order(ours)
            if workload.project != ours.project or ahead or self.is_whole(ours):
                continue
            if all(self._goes_in_time(workload, pod, reservation) for pod in chunk):
                continue
            if (
                reason := reserved_limit(self.ledger, reservation, workload, chunk_amounts(chunk))
            ) is not None:
                return reason
        return None

    def _ends_in_time(self, pod: Pod, reservation: Reservation) -> bool:
        lasts = pod.max_runtime_seconds
        return lasts is not None and self.snapshot.now_us + lasts * 1_000_000 <= reservation.starts_us

    def _goes_in_time(self, workload: Workload, pod: Pod, reservation: Reservation) -> bool:
        """Whether a pod of the same project ends before the hold is needed, or can be evicted for it."""
        lent = workload.preemptible and not self.tree.nearest(workload.project, preempt_min_runtime)
        return lent or self._ends_in_time(pod, reservation)

    def tier_towards_reservations(self, workload: Workload, chunk: Chunk) -> tuple[object, ...]:
        """What decides whether the chunk may use GPUs that are kept for somebody; empty when none are."""
        if not self.reservations:
            return ()
        return (
            self.tier(workload, chunk),
            workload.preemptible,
            tuple(pod.max_runtime_seconds for pod in chunk),
            *(
                reservation.workload.id == workload.id or self.may_use(workload, chunk[0], reservation)
                for reservation in self.reservations
            ),
        )

    def workload(self, name: str) -> Workload:
        """The workload by its id, with the evictions decided so far."""
        return self._touched.get(name) or self._state.workloads[name]

    def pending(self) -> list[Workload]:
        """Workloads of known projects with a chunk that could start."""
        return [self.workload(workload_id) for workload_id, chunks in self._chunks.items() if chunks]

    def next_chunk(self, workload: Workload) -> Chunk:
        """What the workload would start next; empty when nothing of it waits."""
        chunks = self._chunks.get(workload.id)
        return chunks[-1] if chunks else ()

    def is_whole(self, workload: Workload) -> bool:
        """Whether what its gang needs runs, or will after this decision."""
        return has_gang(workload) or self._stages.get(workload.id, _WAITS) > _WAITS

    def turns(self, waiting: Iterable[Workload]) -> TurnOrder:
        """The order in which these workloads have their turn."""
        return TurnOrder(
            self.ledger,
            self.shares,
            waiting,
            self.next_chunk,
            lambda workload: self._stages.get(workload.id, 0),
        )

    def has_turn_before(self, first: Workload, its: Chunk, second: Workload, chunk: Chunk) -> bool:
        """Whether `first` would have its turn for the chunk `its` before `second` for its own, as the ledger stands."""
        chunks = {first.id: its, second.id: chunk}
        turns = TurnOrder(
            self.ledger, self.shares, (first, second), lambda workload: chunks[workload.id], lambda _: _WAITS
        )
        return turns.pop() is first

    def running(self) -> list[Workload]:
        """Workloads that hold something, as decided so far."""
        known, touched, running = self._state.workloads, self._touched, self._state.running
        if not touched:
            return [known[name] for name in running]
        nominees = (name for name in self._nominated_places if name not in running)
        current = (touched.get(name) or known[name] for name in (*running, *nominees))
        return [
            workload
            for workload in current
            if workload.id not in touched or any(pod.state is PodState.ALLOCATED for pod in workload.pods)
        ]

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
            and not (self.is_whole(workload) or self._has_all_places(workload))
        ]

    def _has_all_places(self, workload: Workload) -> bool:
        """Whether what its gang needs runs or has a place, be it what this decision moves some of it to."""
        pods = (
            pod.in_state(PodState.ALLOCATED) if pod.id in self._evictions and self.is_nominated(pod) else pod
            for pod in workload.pods
        )
        return has_gang(workload.with_pods(tuple(pods)))

    def place_all(self, workload: Workload, chunk: Sequence[Pod], *, only_now: bool = False) -> Placed | None:
        """Place every pod of the chunk on the ledger, or none; None says that one found no place."""
        return self._chunk_placer.place(workload, chunk, only_now=only_now)

    def grant(self, workload: Workload, placed: Placed, *, after_evictions: bool = False) -> None:
        """Make the placements of the next chunk part of the plan; all wait when one of them waits for a release.

        What was nominated together is granted together, though it would start chunk by chunk.
        """
        pods = {pod.id for pod, _ in placed}
        chunks = self._chunks[workload.id]
        while chunks and pods.issuperset(pod.id for pod in chunks[-1]):
            chunks.pop()
            self._stages[workload.id] = min(_GROWS, self._stages[workload.id] + 1)
        # The whole chunk waits: pods that ran ahead of their gang would hold GPUs and do nothing.
        if after_evictions or self._waits(workload, placed):
            self._nominate_as_running(workload, placed)
            return
        self.reasons.pop(workload.id, None)
        self._bindings.update((pod.id, _binding(workload, pod, where)) for pod, where in placed)
        self._granted.setdefault(workload.project, {}).setdefault(workload.id, []).append(placed)

    def _waits(self, workload: Workload, placed: Placed) -> bool:
        """Whether some of the chunk, or of what the workload was given before, waits for a release."""
        return (
            any(placement.promised for _, placement in placed)
            or workload.id in self._nominated_places
            or (
                bool(self._nominations)
                and any(
                    pod.state is PodState.PENDING and pod.id in self._nominations for pod in workload.pods
                )
            )
            or self.still_charged(workload, placed) is not None
        )

    def still_charged(self, workload: Workload, placed: Placed) -> StillCharged | None:
        """Return the limit or quota that these pods, on the ledger, exceed until terminating pods have ended."""
        if workload.preemptible and not self.tree.limited.get(workload.project):
            return None
        own = {pod.id for pod, _ in placed}

        def nominated() -> Iterator[Use]:
            for entry in self._nominations.values():
                if entry.pod not in own:
                    other = self._state.workloads[entry.workload]
                    yield self._use(other, next(pod for pod in other.pods if pod.id == entry.pod), entry.node)

        placed_uses = [self._use(workload, pod, where.node) for pod, where in placed]
        return still_charged(self.ledger, placed_uses, nominated)

    def _use(self, workload: Workload, pod: Pod, node: str) -> Use:
        model = self.ledger.by_name[node].model
        return Use(workload.project, pod.request.amounts, model, workload.preemptible)

    def nominate(self, workload: Workload, placed: Placed) -> None:
        """Promise the places, which are on the ledger, until what is being released there is free."""
        self._nominations.update((pod.id, _binding(workload, pod, where)) for pod, where in placed)
        if any(pod.state is PodState.PENDING and pod.id not in self._bindings for pod in workload.pods):
            nodes = tuple(dict.fromkeys(where.node for _, where in placed))
            is_free = not any(where.promised for _, where in placed)
            charged = self.still_charged(workload, placed) if is_free else None
            nominated = Nominated(chunk_amounts([pod for pod, _ in placed]), nodes, charged)
            before = self.reasons.get(workload.id)
            self.refuse(workload, before.plus(nominated) if isinstance(before, Nominated) else nominated)

    def nominated_workloads(self) -> list[Workload]:
        """Workloads with nominations of earlier decisions."""
        return [self._state.workloads[name] for name in self._state.nominated]

    def chunks_of(self, workload: Workload) -> list[Chunk]:
        """What may start of the workload, in order."""
        return self._chunks.get(workload.id, [])[::-1]

    def restore(self, workload: Workload, chunk: Chunk, placed: Placed) -> None:
        """Bind a nominated chunk, which is on the ledger, where all of it is free by now; else it waits on.

        Pods that wait on count as running, so that somebody with a better claim can take their room.
        """
        chunks = self._chunks[workload.id]
        chunks.remove(chunk)
        chunks.append(chunk)  # the next one, which is what is granted
        if not self._waits(workload, placed):
            self.grant(workload, placed)
            self._bound_nominees.add(workload.id)
            return
        self._chunks[workload.id].pop()
        self._stages[workload.id] = min(_GROWS, self._stages[workload.id] + 1)
        self._nominate_as_running(workload, placed)
        self._nominees.add(workload.id)

    def _nominate_as_running(self, workload: Workload, placed: Placed) -> None:
        """Nominate pods that wait, and count them as running.

        What else grows is judged beside them, and a better claim, be it of this decision, finds them.
        """
        self.nominate(workload, placed)
        places = self._nominated_places.setdefault(workload.id, {})
        places.update((pod.id, (pod, where)) for pod, where in placed)
        current = self.workload(workload.id)
        pods = tuple(
            pod.placed(PodState.ALLOCATED, places[pod.id][1].node, places[pod.id][1].devices)
            if pod.id in places
            else pod
            for pod in current.pods
        )
        self._touched[workload.id] = current.with_pods(pods)

    def waiting_nominees(self) -> list[Workload]:
        """Workloads whose nominations of earlier decisions wait on, in the order of their queues."""
        return sorted(
            (self.workload(name) for name in self._nominees & self._nominated_places.keys()),
            key=workload_order,
        )

    def promised_now(self) -> list[Workload]:
        """Workloads that wait for rooms that no decision before this one promised them."""
        return [self.workload(name) for name in self._nominated_places if name not in self._nominees]

    def waits_for_its_place(self, workload: Workload) -> bool:
        """Whether some of the workload waits for a place that an earlier decision nominated it to."""
        return workload.id in self._nominees and workload.id in self._nominated_places

    def has_nomination(self, workload: Workload) -> bool:
        """Whether some of the workload waits for a place that it is nominated to."""
        return workload.id in self._nominated_places

    def nominated_places(self, workload: Workload) -> Placed:
        """Where the workload's nominations are, on the ledger."""
        return list(self._nominated_places[workload.id].values())

    def renominate(self, workload: Workload, placed: Placed) -> None:
        """Promise nominated pods other places, which are on the ledger, instead of theirs, which are not."""
        places = self._nominated_places[workload.id]
        places.update((pod.id, (pod, where)) for pod, where in placed)
        self.reasons.pop(workload.id, None)
        self._nominate_as_running(self._back_in_queue(workload, places), list(places.values()))

    def bind_nominated(self, workload: Workload, placed: Placed) -> None:
        """Bind nominated pods to other places, which are on the ledger and free."""
        self.started_elsewhere.append(workload.id)
        del self._nominated_places[workload.id]
        for pod, where in placed:
            del self._nominations[pod.id]
            self._bindings[pod.id] = _binding(workload, pod, where)
        self._bound_nominees.add(workload.id)
        self._touched[workload.id] = self._back_in_queue(workload, {pod.id for pod, _ in placed})
        self._granted.setdefault(workload.project, {}).setdefault(workload.id, []).append(placed)
        self.reasons.pop(workload.id, None)

    def _back_in_queue(self, workload: Workload, pods: Container[str]) -> Workload:
        """The workload with these nominated pods as they are in the snapshot."""
        current = self.workload(workload.id)
        return current.with_pods(
            tuple(pod.placed(PodState.PENDING, None, ()) if pod.id in pods else pod for pod in current.pods)
        )

    def nominated_pods(self) -> frozenset[str]:
        """Ids of the pods that have a nomination now."""
        return frozenset(self._nominations)

    @property
    def evicted_pods(self) -> Collection[str]:
        """Ids of the pods that this decision evicts."""
        return self._evictions.keys()

    def lost_since(self, count: int) -> tuple[list[str], int]:
        """Ids of pods evicted after the first `count` and promised no other place, and how many are evicted by now."""
        new = self._evicted[count:]
        return [name for name in new if name not in self._nominations], len(self._evicted)

    def victims_of_others(self) -> dict[str, list[str]]:
        """By workload, the ids of the pods that make way for other workloads, be it that they are only moved."""
        victims: dict[str, list[str]] = {}
        for entry in self._evictions.values():
            if entry.beneficiary != entry.workload:
                victims.setdefault(entry.workload, []).append(entry.pod)
        return victims

    def place_of_moved(self, pod: Pod) -> Placement | None:
        """The other place that the pod, which leaves, was promised by this decision, on the ledger."""
        binding = self._nominations.get(pod.id)
        return None if binding is None else Placement(binding.node, binding.devices, promised=True)

    def is_promised_now(self, pod: Pod) -> bool:
        """Whether the pod waits for a room that no decision before this one promised it."""
        return pod.id in self._nominations and pod.nominated_node is None

    def is_bound(self, pod: Pod) -> bool:
        """Whether the pod is bound in this decision."""
        return pod.id in self._bindings

    def is_nominated(self, pod: Pod) -> bool:
        """Whether a pod that counts as running only has a nomination: nobody is harmed by taking its room."""
        return pod.id in self._nominations

    def granted(self, project: str) -> list[Workload]:
        """The project's workloads to which this decision gave something that they can have at once."""
        return [self.workload(workload_id) for workload_id in self._granted.get(project, ())]

    def is_bound_nominee(self, workload: Workload) -> bool:
        """Whether what was granted to the workload was its own since an earlier decision."""
        return workload.id in self._bound_nominees

    def is_bound_to(self, pod: Pod, node: str, devices: tuple[int, ...]) -> bool:
        """Whether this decision binds the pod to that place."""
        binding = self._bindings.get(pod.id)
        return binding is not None and (binding.node, binding.devices) == (node, devices)

    def count_granted(self) -> int:
        """How many workloads there are that `granted` would name, over all projects."""
        return sum(map(len, self._granted.values()))

    def granted_chunks(self, workload: Workload) -> list[Chunk]:
        """What was granted to the workload, chunk by chunk."""
        return [tuple(pod for pod, _ in placed) for placed in self._granted[workload.project][workload.id]]

    def suspend(self, workload: Workload) -> None:
        """Take what was granted to the workload off the ledger; `cancel` or a rollback must follow."""
        for placed in reversed(self._granted[workload.project][workload.id]):
            self.ledger.unplace(workload, placed)

    def cancel(self, workload: Workload) -> None:
        """Take what was granted to the workload, and was suspended, out of the plan: it waits again."""
        self.kinds.clear()
        for placed in self._granted[workload.project].pop(workload.id):
            for pod, _ in placed:
                del self._bindings[pod.id]
        current = self._as_decided(self.workload(workload.id))
        # Nominees are bound together, and pods that grow one by one wait one by one again.
        self._chunks[workload.id] = start_chunks(current)[::-1]
        self._stages[workload.id] = _stage(current)

    def waits_for(self, workload: Workload, codes: Collection[Waiting]) -> bool:
        """Whether the workload waits for one of these reasons, or for one that is not known yet."""
        reason = self.reasons.get(workload.id)
        return reason is None or reason.code in codes

    def refuse(self, workload: Workload, reason: Obstacle) -> None:
        """Remember why the workload, or the rest of it, waits."""
        self.reasons[workload.id] = reason

    def may_evict(self, victims: Iterable[Sequence[Pod]]) -> bool:
        """Whether evicting these groups of pods as well stays within the cap of one decision."""
        cap = self.snapshot.settings.max_evictions
        if cap is None:
            return True
        # Who loses a nomination loses no work: only pods that run count against the cap.
        evicted = sum(not self.is_nominated(pod) for pods in victims for pod in pods)
        if len(self._evictions) + evicted <= cap:
            return True
        self._pods_over_cap = min(evicted, self._pods_over_cap or evicted)
        return False

    def budgets_allow(self, pods: Iterable[Pod]) -> bool:
        """Whether the budgets for disruption allow evicting these pods, besides those that are evicted already."""
        return self.budgets.allow(pods, self.ledger.evicted)

    def forget_hindrances(self) -> None:
        """Begin to note what keeps evictions from being made."""
        self.budgets.in_the_way.clear()
        self._pods_over_cap = 0

    def note_hindrances(self, workload: Workload) -> None:
        """Remember for the workload which budgets, and whether the cap on evictions, stood in the way since then."""
        budgets, pods, cap = (
            self.budgets.in_the_way,
            self._pods_over_cap,
            self.snapshot.settings.max_evictions,
        )
        if budgets or pods:
            before = self.hindrances.get(workload.id, Hindrances())
            self.hindrances[workload.id] = Hindrances(
                tuple(sorted(budgets.union(before.budgets))),
                cap or 0,
                min(pods or before.pods_over_cap, before.pods_over_cap or pods),
                len(self._evictions),
            )
        self.forget_hindrances()

    def take(self, evictions: Iterable[Eviction]) -> None:
        """Make the evictions, already on the ledger, part of the plan."""
        evicted = list(evictions)
        for eviction in evicted:
            if eviction.pod in self._evictions:
                continue
            if eviction.pod in self._nominations:
                # what this decision moved has a new room, which ends only where its gang does
                if eviction.pod in self._nominated_places.get(eviction.workload, ()):
                    self._withdraw(eviction)
                continue
            workload = self.workload(eviction.workload)
            if any(pod.id == eviction.pod and pod.state is PodState.PENDING for pod in workload.pods):
                continue  # it only had a room, which somebody else has by now
            self._evictions[eviction.pod] = eviction
            self._evicted.append(eviction.pod)
            pods = tuple(
                pod.in_state(PodState.RELEASING) if pod.id == eviction.pod else pod for pod in workload.pods
            )
            self._touched[workload.id] = workload.with_pods(pods)
        for name in {eviction.workload for eviction in evicted} & self._chunks.keys():
            self._regroup(name)

    def _withdraw(self, eviction: Eviction) -> None:
        """End a nomination, because somebody with a better claim takes the room; the pod waits again."""
        name = eviction.workload
        del self._nominations[eviction.pod]
        places = self._nominated_places[name]
        del places[eviction.pod]
        if not places:
            del self._nominated_places[name]
        self._touched[name] = self._back_in_queue(self.workload(name), {eviction.pod})
        self.reasons.pop(name, None)

    def _regroup(self, name: str) -> None:
        """After evictions, let the workload start what makes a gang with what is left of it, or nothing."""
        self.kinds.clear()
        workload = self.workload(name)
        current = self._as_decided(workload)
        if name in self._granted.get(workload.project, ()) and not has_gang(current):
            self.suspend(workload)
            self.cancel(workload)
            current = self._as_decided(workload)
        self._chunks[name] = start_chunks(current)[::-1]
        self._stages[name] = _stage(current)
        if not self._chunks[name] and any(pod.state is PodState.PENDING for pod in current.pods):
            self.refuse(workload, GangEvicted())

    def _as_decided(self, workload: Workload) -> Workload:
        """The workload as if the pods that were given a place had it already."""
        pods = (
            pod.in_state(PodState.ALLOCATED)
            if pod.state is PodState.PENDING and (pod.id in self._bindings or pod.id in self._nominations)
            else pod
            for pod in workload.pods
        )
        return workload.with_pods(tuple(pods))

    def promise(self, workload: Workload, placed: Placed) -> None:
        """Reserve places for pods that were evicted, so that they come back there."""
        waiting = {pod.id for pod in self.workload(workload.id).pods if pod.state is PodState.PENDING}
        places = [(pod, where) for pod, where in placed if pod.id in waiting]
        for pod, where in placed:
            self._nominations[pod.id] = _binding(workload, pod, where)
        if places:  # they lost another room to whom the rest of the workload is evicted for
            self._nominate_as_running(workload, places)
            self._regroup(workload.id)

    def end_useless_promises(self, name: str) -> tuple[Pod, ...]:
        """Take back what was promised to moved pods of a gang of which too little is left to start with them.

        Returns those of them that ran, as they ran, and that this decision evicts.
        """
        workload = self.workload(name)
        places = self._nominated_places.get(name, ())
        moved = [
            pod
            for pod in workload.pods
            if pod.id in self._nominations and pod.state is not PodState.ALLOCATED and pod.id not in places
        ]
        if not moved or any(pod.state is PodState.ALLOCATED for pod in workload.pods):
            return ()
        ran = [pod for pod in moved if pod.state is PodState.RELEASING]
        again = {pod.id: pod.in_state(PodState.ALLOCATED) for pod in ran}
        as_it_ran = workload.with_pods(tuple(again.get(pod.id, pod) for pod in workload.pods))
        if has_gang(self._as_decided(as_it_ran)):
            return ()
        for pod in moved:
            place = self._nominations.pop(pod.id)
            self.ledger.unplace(workload, [(pod, Placement(place.node, place.devices))])
        self._evicted += again  # lost only now
        if len(ran) < len(moved):
            self.reasons.pop(name, None)
            self._regroup(name)
        return tuple(pod for pod in again.values() if pod.id in self._evictions)

    def spare(self, workload: Workload, chunk: Chunk) -> None:
        """Leave pods where they run that were to be evicted or moved; on the ledger they run again."""
        stay = {pod.id for pod in chunk}
        for name in stay:
            del self._evictions[name]
            self._nominations.pop(name, None)
        self._evicted = [name for name in self._evicted if name not in stay]
        current = self.workload(workload.id)
        pods = tuple(pod.in_state(PodState.ALLOCATED) if pod.id in stay else pod for pod in current.pods)
        self._touched[workload.id] = current.with_pods(pods)
        if workload.id in self._chunks:
            self._regroup(workload.id)

    def take_instead(self, evictions: Iterable[Eviction]) -> None:
        """Say of pods that are evicted already for whom and why they go."""
        self._evictions.update((eviction.pod, eviction) for eviction in evictions)

    def plan(self, say: Say) -> Plan:
        """The decision as data; `say` puts the reasons into words."""
        bindings = self._bindings
        if self.snapshot.dynamic.slices or self.snapshot.dynamic.claims:
            bindings = grant_claims(self.ledger, bindings, self.workload)
            for lost in self._bindings.keys() - bindings.keys():
                name = self._bindings[lost].workload
                self.reasons[name] = ClaimsOvertaken()
                self._left_over[name] = None
        return Plan(
            bindings=tuple(bindings.values()),
            evictions=tuple(self._evictions.values()),
            shares_gpu_milli={name: share[0] for name, share in self.shares.items()},
            allocated_gpu_milli=self.ledger.allocated_gpu_milli,
            pending={key: self._pending_reason(key, say) for key in sorted(self.reasons)},
            nominations=tuple(self._nominations.values()),
            left_over=tuple(sorted(filter(self._is_left_over, self._left_over))),
            endangered={key: self.endangered[key] for key in sorted(self.endangered)},
            deallocations=claims_to_deallocate(self.ledger, map(self.workload, self.reasons), bindings),
        )

    def _is_left_over(self, name: str) -> bool:
        """Whether the workload was not reached. Where nothing is decided, nobody comes again who just had a turn."""
        if name not in self._left_over or not self._chunks.get(name):
            return False
        decided = self._bindings or self._evictions or not self._left_over_before
        return bool(decided) or name in self._left_over_before

    def _pending_reason(self, name: str, say: Say) -> PendingReason:
        reason = self.reasons[name]
        if isinstance(reason, Nominated) and reason.charged is not None:
            reason = self._recharged(name, reason)
        return say(reason, self.hindrances.get(name), self._is_left_over(name))

    def _recharged(self, name: str, reason: Nominated) -> Nominated:
        """The reason with the amount that terminating pods hold after all evictions of this decision."""
        workload = self.workload(name)
        bindings = ((pod, self._nominations.get(pod.id)) for pod in workload.pods)
        placed = [(pod, Placement(own.node, own.devices)) for pod, own in bindings if own]
        return replace(reason, charged=self.still_charged(workload, placed) or reason.charged)


def _binding(workload: Workload, pod: Pod, where: Placement) -> Binding:
    return Binding(pod.id, workload.id, where.node, where.devices)


def _stage(workload: Workload) -> int:
    if not has_gang(workload):
        return _WAITS
    return _GROWS if held_parts(workload)[1] else _RUNS
