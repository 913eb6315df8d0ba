"""The state of one decision, shared by its actions: the ledger, the shares, and what has been decided so far."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace

from orchestrator.planner.books import Books
from orchestrator.planner.budgets import Budgets
from orchestrator.planner.gangs import (
    Chunk,
    chunk_amounts,
    chunk_gpu_milli,
    has_gang,
    held_parts,
    leaves,
    start_chunks,
)
from orchestrator.planner.gates import incomplete, refusal
from orchestrator.planner.gpu_models import GpuModels
from orchestrator.planner.headroom import kept_back
from orchestrator.planner.holds import Hold, Holds
from orchestrator.planner.model import (
    Amounts,
    Binding,
    Eviction,
    PendingReason,
    Plan,
    Pod,
    PodState,
    SubGroup,
    TopologyRule,
    Waiting,
    Workload,
)
from orchestrator.planner.ordering import TurnOrder, workload_order
from orchestrator.planner.placement import Placement, Placer
from orchestrator.planner.proof import Bar
from orchestrator.planner.quota import gpus, preempt_min_runtime, reclaim_min_runtime
from orchestrator.planner.shares import fair_shares
from orchestrator.planner.standing import Standing, standing, standing_with_model
from orchestrator.planner.topology import domains_to_try

Placed = list[tuple[Pod, Placement]]
Scope = Collection[int] | None

_WAITS, _RUNS, _GROWS = range(3)


class Decision:
    """What has been granted, taken and refused in this decision.

    `kinds` has the ids of alike workloads that lack room, the next in the queue last; empty until it is asked for.
    """

    def __init__(self, books: Books, bar: Bar) -> None:
        self.snapshot = books.snapshot
        self.tree = books.tree
        self.ledger = books.ledger
        self.ledger.changes.clear()
        self.holds = Holds(self.may_use)
        self.placer = Placer(self.ledger, self.holds, spread=self.snapshot.settings.spread)
        self.models = GpuModels(
            self.ledger, self.placer, {name: books.workloads[name] for name in books.waiting}
        )
        self.shares = fair_shares(self.tree, self._demand(books), self.ledger.capacity)
        self.refusals: dict[str, PendingReason] = {}
        self.endangered: dict[str, str] = {}
        self.guaranteed: set[str] = set()
        self._bar = bar
        self.kinds: dict[tuple[object, ...], list[str]] = {}
        self.budgets = Budgets(self.snapshot.budgets)
        self._books = books
        self._touched: dict[str, Workload] = {}
        self._chunks = {name: chunks[::-1] for name, chunks in books.waiting.items()}
        self._stages = {name: _stage(books.workloads[name]) for name in books.waiting}
        self._bindings: dict[str, Binding] = {}
        self._granted: dict[str, dict[str, list[Placed]]] = {}
        self._promises: dict[str, Binding] = {}
        self._evictions: dict[str, Eviction] = {}
        for name, project in books.homeless.items():
            message = f"there is no project {project!r}: create it, or label the namespace"
            self.refusals[name] = PendingReason(Waiting.UNKNOWN_PROJECT, message)
        for name in books.incomplete:
            self.refusals[name] = incomplete(books.workloads[name])

    def _demand(self, books: Books) -> dict[str, Amounts]:
        """What each project asks for, less what its limits for GPU models keep it from."""
        demand = books.demand()
        if not self.tree.models:
            return demand
        return {
            name: (max(0, gpu - self.models.beyond_limits(name)), cpu, memory)
            for name, (gpu, cpu, memory) in demand.items()
        }

    def standing(self, workload: Workload, chunk: Chunk, *, levels: int | None = None) -> Standing:
        """How well founded it is to start the chunk; `levels` 1 looks at the project alone."""
        asked = chunk_amounts(chunk)
        total = standing(self.ledger, self.shares, workload, asked, levels=levels)
        model = self.models.bound(workload, chunk)
        if model is None:
            return total
        lineage = self.tree.lineage[workload.project][:levels]
        return standing_with_model(
            self.ledger, self.models.shares, total, lineage=lineage, gpu_milli=asked[0], model=model
        )

    def may_use(self, workload: Workload, pod: Pod, hold: Hold) -> bool:
        """Whether the pod may use what is kept: it has a better claim, ends in time, or goes as soon as it has to."""
        ours = hold.workload
        inside = workload.project == ours.project
        if inside:
            ahead = workload_order(workload) < workload_order(ours)
            return ahead or self._goes_in_time(workload, pod, hold)
        if self._ends_in_time(pod, hold):
            return True
        claim = self.standing(workload, (pod,))
        if claim < hold.standing:
            return True
        protected = self.tree.nearest(workload.project, reclaim_min_runtime)
        return workload.preemptible and claim is Standing.SURPLUS and not protected

    def refusal(self, workload: Workload, chunk: Chunk) -> PendingReason | None:
        """Why the project may not hold the chunk too: its limits, its quota, or what is kept of them for another."""
        return refusal(self.ledger, workload, chunk_amounts(chunk)) or self.kept_back(workload, chunk)

    def kept_back(self, workload: Workload, chunk: Chunk) -> PendingReason | None:
        """Whether its project's limits are kept for a workload that starves, and the chunk would be in its way."""
        for hold in self.holds:
            ours = hold.workload
            ahead = workload_order(workload) <= workload_order(ours)
            if workload.project != ours.project or ahead or self.is_whole(ours):
                continue
            if all(self._goes_in_time(workload, pod, hold) for pod in chunk):
                continue
            if (reason := kept_back(self.ledger, hold, workload, chunk_amounts(chunk))) is not None:
                return reason
        return None

    def _ends_in_time(self, pod: Pod, hold: Hold) -> bool:
        lasts = pod.max_runtime_seconds
        return lasts is not None and self.snapshot.now_us + lasts * 1_000_000 <= hold.starts_us

    def _goes_in_time(self, workload: Workload, pod: Pod, hold: Hold) -> bool:
        """Whether a pod of the same project ends before the hold is needed, or can be evicted for it."""
        lent = workload.preemptible and not self.tree.nearest(workload.project, preempt_min_runtime)
        return lent or self._ends_in_time(pod, hold)

    def standing_towards_holds(self, workload: Workload, chunk: Chunk) -> tuple[object, ...]:
        """What decides whether the chunk may use GPUs that are kept for somebody; empty when none are."""
        if not self.holds:
            return ()
        return (
            self.standing(workload, chunk),
            workload.preemptible,
            tuple(pod.max_runtime_seconds for pod in chunk),
            *(
                hold.workload.id == workload.id or self.may_use(workload, chunk[0], hold)
                for hold in self.holds
            ),
        )

    def workload(self, name: str) -> Workload:
        """The workload by its id, with the evictions decided so far."""
        return self._touched.get(name) or self._books.workloads[name]

    def pending(self) -> list[Workload]:
        """Workloads of known projects with a chunk that could start."""
        return [self.workload(each) for each, chunks in self._chunks.items() if chunks]

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
            self.ledger, self.shares, waiting, self.next_chunk, lambda each: self._stages.get(each.id, 0)
        )

    def has_turn_before(self, first: Workload, its: Chunk, second: Workload, chunk: Chunk) -> bool:
        """Whether `first` would have its turn for the chunk `its` before `second` for its own, as the ledger stands."""
        chunks = {first.id: its, second.id: chunk}
        turns = TurnOrder(
            self.ledger, self.shares, (first, second), lambda each: chunks[each.id], lambda _: _WAITS
        )
        return turns.pop() is first

    def running(self) -> list[Workload]:
        """Workloads that hold something, as decided so far."""
        known, touched = self._books.workloads, self._touched
        if not touched:
            return [known[name] for name in self._books.running]
        held = (touched.get(name) or known[name] for name in self._books.running)
        return [
            each
            for each in held
            if each.id not in self._touched or any(pod.state is PodState.ALLOCATED for pod in each.pods)
        ]

    def below_minimum(self) -> list[Workload]:
        """Workloads that are known to have lost a member of their gang."""
        return [self.workload(name) for name in self._books.stale]

    def place_all(self, workload: Workload, chunk: Sequence[Pod]) -> Placed | None:
        """Place every pod of the chunk on the ledger, or none; None says that one found no place."""
        if workload.topology is None and workload.groups is None:
            return self._place_each(workload, chunk, None)
        return self._place_group(workload, workload.groups, workload.topology, chunk, None)

    def _place_group(
        self,
        workload: Workload,
        group: SubGroup | None,
        rule: TopologyRule | None,
        chunk: Sequence[Pod],
        scope: Scope,
    ) -> Placed | None:
        names = None if group is None else {leaf.name for leaf in leaves(group)}
        occupied = [
            self.ledger.by_name[pod.node].position
            for pod in workload.pods
            if pod.state is PodState.ALLOCATED
            and pod.node in self.ledger.by_name
            and (names is None or pod.sub_group in names)
        ]
        tries = [scope] if rule is None else domains_to_try(self.ledger, rule, chunk, scope, occupied)
        for domain in tries:
            placed = self._place_in(workload, group, chunk, domain)
            if placed is not None:
                return placed
        return None

    def _place_in(
        self, workload: Workload, group: SubGroup | None, chunk: Sequence[Pod], scope: Scope
    ) -> Placed | None:
        if group is None or not group.children:
            return self._place_each(workload, chunk, scope)
        checkpoint = self.ledger.checkpoint()
        placed: Placed = []
        for child in group.children:
            names = {leaf.name for leaf in leaves(child)}
            mine = [pod for pod in chunk if pod.sub_group in names]
            part = self._place_group(workload, child, child.topology, mine, scope) if mine else []
            if part is None:
                self.ledger.rollback(checkpoint)
                return None
            placed += part
        return placed

    def _place_each(self, workload: Workload, chunk: Sequence[Pod], scope: Scope) -> Placed | None:
        checkpoint = self.ledger.checkpoint()
        placed: Placed = []
        for pod in largest_first(chunk):
            placement = self.placer.find(workload, pod, scope)
            if placement is None:
                self.ledger.rollback(checkpoint)
                return None
            self.ledger.place(workload, pod, placement.node, placement.devices)
            placed.append((pod, placement))
        return placed

    def grant(self, workload: Workload, placed: Placed, *, after_evictions: bool = False) -> None:
        """Make the placements of the next chunk part of the plan; all wait when one of them waits for a release."""
        self._chunks[workload.id].pop()
        self._stages[workload.id] = min(_GROWS, self._stages[workload.id] + 1)
        promised = after_evictions or any(placement.promised for _, placement in placed)
        earlier = any(pod.id in self._promises for pod in workload.pods)
        granted = [Binding(pod.id, workload.id, where.node, where.devices) for pod, where in placed]
        if not promised and not earlier:
            self.refusals.pop(workload.id, None)
            self._bindings.update((each.pod, each) for each in granted)
            self._granted.setdefault(workload.project, {}).setdefault(workload.id, []).append(placed)
            return
        self._promises.update((each.pod, each) for each in granted)
        asked = chunk_gpu_milli(pod for pod, _ in placed)
        message = f"{gpus(asked)} GPUs are promised to it: it starts when the pods that hold them are gone"
        self.refuse(workload, PendingReason(Waiting.RELEASING, message))

    def granted(self, project: str) -> list[Workload]:
        """The project's workloads to which this decision gave something that they can have at once."""
        return [self.workload(each) for each in self._granted.get(project, ())]

    def count_granted(self) -> int:
        """How many workloads there are that `granted` would name, over all projects."""
        return sum(map(len, self._granted.values()))

    def granted_chunks(self, workload: Workload) -> list[Chunk]:
        """What was granted to the workload, chunk by chunk."""
        return [tuple(pod for pod, _ in placed) for placed in self._granted[workload.project][workload.id]]

    def suspend(self, workload: Workload) -> None:
        """Take what was granted to the workload off the ledger; `cancel` or a rollback must follow."""
        for placed in reversed(self._granted[workload.project][workload.id]):
            for pod, where in placed:
                self.ledger.unplace(workload, pod, where.node, where.devices)

    def cancel(self, workload: Workload) -> None:
        """Take what was granted to the workload, and was suspended, out of the plan: it waits again."""
        self.kinds.clear()
        for placed in reversed(self._granted[workload.project].pop(workload.id)):
            self._chunks[workload.id].append(tuple(pod for pod, _ in placed))
            for pod, _ in placed:
                del self._bindings[pod.id]
        self._stages[workload.id] = _stage(self.workload(workload.id))

    def refuse(self, workload: Workload, reason: PendingReason) -> None:
        """Remember why the workload, or the rest of it, waits."""
        self.refusals[workload.id] = reason

    def may_make_room(self, workload: Workload) -> bool:
        """Whether it is not known that evicting anybody for the workload would be in vain."""
        if self._bar.holds_back(self._books.workloads[workload.id]):
            return False
        chunk = self.next_chunk(workload)
        return not self._bar.is_final or self.standing(workload, chunk) is Standing.GUARANTEED

    def may_evict(self, victims: Iterable[Sequence[Pod]]) -> bool:
        """Whether evicting these groups of pods as well stays within the cap of one decision."""
        cap = self.snapshot.settings.max_evictions
        return cap is None or len(self._evictions) + sum(len(pods) for pods in victims) <= cap

    def budgets_allow(self, pods: Iterable[Pod]) -> bool:
        """Whether the budgets for disruption allow evicting these pods, besides those that are evicted already."""
        return self.budgets.allow(pods, self.ledger.evicted)

    def note_budgets(self, workload: Workload) -> None:
        """Add to the reason why the workload waits which budgets stood in the way since the last call."""
        names, self.budgets.in_the_way = sorted(self.budgets.in_the_way), set()
        reason = self.refusals.get(workload.id)
        if names and reason is not None and "is protected by" not in reason.message:
            message = f"{reason.message}; what could make way is protected by {', '.join(names)}"
            self.refusals[workload.id] = replace(reason, message=message)

    def take(self, evictions: Iterable[Eviction]) -> None:
        """Make the evictions, already on the ledger, part of the plan."""
        evicted = list(evictions)
        for eviction in evicted:
            if eviction.pod in self._evictions:
                continue
            self._evictions[eviction.pod] = eviction
            workload = self.workload(eviction.workload)
            pods = tuple(
                replace(pod, state=PodState.RELEASING) if pod.id == eviction.pod else pod
                for pod in workload.pods
            )
            self._touched[workload.id] = replace(workload, pods=pods)
        for name in {each.workload for each in evicted} & self._chunks.keys():
            self._regroup(name)

    def _regroup(self, name: str) -> None:
        """After evictions, let the workload start what makes a gang with what is left of it, or nothing."""
        self.kinds.clear()
        workload = self.workload(name)
        left = self._as_decided(workload)
        if name in self._granted.get(workload.project, ()) and not has_gang(left):
            self.suspend(workload)
            self.cancel(workload)
            left = self._as_decided(workload)
        self._chunks[name] = start_chunks(left)[::-1]
        self._stages[name] = _stage(left)
        if not self._chunks[name] and any(pod.state is PodState.PENDING for pod in left.pods):
            message = "pods of its gang have to make way: it starts again when they wait too, all together"
            self.refuse(workload, PendingReason(Waiting.RELEASING, message))

    def _as_decided(self, workload: Workload) -> Workload:
        """The workload as if the pods that were given a place had it already."""
        pods = (
            replace(pod, state=PodState.ALLOCATED)
            if pod.state is PodState.PENDING and (pod.id in self._bindings or pod.id in self._promises)
            else pod
            for pod in workload.pods
        )
        return replace(workload, pods=tuple(pods))

    def promise(self, workload: Workload, placed: Placed) -> None:
        """Reserve places for pods that were evicted, so that they come back there."""
        for pod, where in placed:
            self._promises[pod.id] = Binding(pod.id, workload.id, where.node, where.devices)

    def plan(self) -> Plan:
        """The decision as data."""
        return Plan(
            bindings=tuple(self._bindings.values()),
            evictions=tuple(self._evictions.values()),
            shares_gpu_milli={name: share[0] for name, share in self.shares.items()},
            allocated_gpu_milli=self.ledger.allocated_gpu_milli,
            pending={key: self.refusals[key] for key in sorted(self.refusals)},
            promises=tuple(self._promises.values()),
            endangered={key: self.endangered[key] for key in sorted(self.endangered)},
        )


def largest_first(chunk: Sequence[Pod]) -> Sequence[Pod]:
    """Pods in the order in which they find room best."""
    return chunk if len(chunk) == 1 else sorted(chunk, key=lambda pod: -pod.request.gpu_milli)


def _stage(workload: Workload) -> int:
    if not has_gang(workload):
        return _WAITS
    return _GROWS if held_parts(workload)[1] else _RUNS
