"""The candidates for eviction on each node: the groups of pods in which running workloads can be evicted.

A candidate is one elastic pod, or all pods of a workload. For migrations it can also be a single pod. The eviction
policies decide which candidates a preemptor may evict.

Example: a gang with a minimum of 2 runs 4 pods. It is three candidates: each of the two elastic pods, and the whole
gang.

The candidates of a node are created when a search first needs them, because most decisions search few nodes. They have
the state of the workloads at the creation of `Candidates`.
"""

from bisect import bisect_left
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cached_property
from operator import attrgetter

from orchestrator.planner.accounting.coverage import Victim, covered_pods
from orchestrator.planner.gangs import chunk_gpu_milli, give_up_chunks
from orchestrator.planner.model import Pod, PodState, Workload
from orchestrator.planner.node_sets import NodeSet, node_set
from orchestrator.planner.preemption.victims import (
    VictimKey,
    gpu_ns_since_start,
    victim_order,
)
from orchestrator.planner.session import Session

_ORDER = attrgetter("order")
_WORK_OF_CANDIDATE = 10


_ON_NO_NODE: Mapping[int, Sequence[Pod]] = {}


class Candidate(Victim):
    """A possible victim. `order` is a sort key within a project, least entitled first.

    `pods_on` has the pods by the position of their node. `gpu_milli` is the sum of their GPUs. `is_harmless`: the pods
    are only nominated, so no pod is evicted. `is_covered`: at least one pod is within the quota of its project.
    `has_started`: at least one container has started.

    `urgency` is the number of different lower priorities among the running preemptible workloads of the project.
    `lost_gpu_ns` is the GPU time since the start of the workload, in nanoseconds.
    """

    __slots__ = (
        "gpu_milli",
        "has_started",
        "is_covered",
        "is_harmless",
        "lost_gpu_ns",
        "order",
        "pod_count",
        "pods_on",
        "project",
        "urgency",
    )

    def __init__(
        self,
        workload: Workload,
        pods: tuple[Pod, ...],
        sequence: int,
        now_us: int,
        *,
        is_core: bool,
        is_move: bool,
    ) -> None:
        super().__init__(workload, pods, is_core, "", is_move)
        self.project = workload.project
        self.has_started = not all(pod.never_started for pod in pods)
        self.lost_gpu_ns = gpu_ns_since_start(self, now_us)
        self.order: tuple[bool, VictimKey, bool, int] = (
            self.has_started,
            victim_order(self, self.lost_gpu_ns),
            is_move,
            sequence,
        )
        self.gpu_milli = pods[0].request.gpu_milli if len(pods) == 1 else chunk_gpu_milli(pods)
        self.pod_count = len(pods)
        self.urgency = 0
        self.is_harmless = False
        self.is_covered = False
        self.pods_on = _ON_NO_NODE

    def is_evicted(self, evicted: set[str]) -> bool:
        """Return whether all pods of the candidate are evicted on the ledger."""
        if not evicted:
            return False
        pods = self.pods
        return pods[0].id in evicted if len(pods) == 1 else all(pod.id in evicted for pod in pods)


class Candidates:
    """The candidates of all preemptible running workloads, by node and by project, for one decision.

    If `moves` is set, they include migrations of single pods. The least entitled candidate is first. If this decision
    started a nominated workload on other GPUs, its pods count on these GPUs.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._followed = len(session.started_elsewhere)
        self._tree = session.tree
        self._positions = {name: account.position for name, account in session.ledger.by_name.items()}
        self._now_us = session.snapshot.now_us
        self._nominated = {seat.pod.id for seat in session.seats.nominated()}
        self._running: dict[str, list[Workload]] = {}
        self._workloads_on: dict[int, list[Workload]] = {}
        self._known_candidates: dict[str, list[Candidate]] = {}
        self._moves: dict[str, list[Candidate]] = {}
        self._covered: dict[str, frozenset[str]] = {}
        self._priorities: dict[str, list[int]] = {}
        self._on: dict[int, list[Candidate]] = {}
        self._on_with_moves: dict[int, list[Candidate]] = {}
        for workload in session.running():
            self._enter(workload)

    def _enter(self, workload: Workload) -> None:
        if workload.project not in self._tree.projects:
            return
        running = self._running.get(workload.project)
        if running is None:
            self._running[workload.project] = [workload]
        else:
            running.append(workload)
        if workload.preemptible:
            for position in self._nodes_of(workload):
                on_node = self._workloads_on.get(position)
                if on_node is None:
                    self._workloads_on[position] = [workload]
                else:
                    on_node.append(workload)

    def _follow(self) -> None:
        """Update the candidates of nominated workloads that started elsewhere: their nominations are bound now."""
        moved = self._session.started_elsewhere[self._followed :]
        if not moved:
            return
        self._followed += len(moved)
        self._on.clear()
        self._on_with_moves.clear()
        for name in moved:
            self._known_candidates.pop(name, None)
            self._moves.pop(name, None)
            workload = self._session.workload(name)
            lists = (self._running.get(workload.project, []), *self._workloads_on.values())
            for workloads in lists:
                workloads[:] = [other for other in workloads if other.id != name]
            if any(pod.state is PodState.ALLOCATED for pod in workload.pods):
                self._enter(workload)

    @cached_property
    def nodes(self) -> NodeSet:
        """The nodes with at least one candidate."""
        return node_set(self._workloads_on, len(self._positions))

    @property
    def projects(self) -> list[str]:
        """The sorted names of the projects with running workloads."""
        return sorted(self._running)

    def on(self, position: int, *, moves: bool = False) -> Sequence[Candidate]:
        """Return the candidates with pods on the node at this position."""
        self._follow()
        known = self._on_with_moves if moves else self._on
        candidates = known.get(position)
        if candidates is None:
            candidates = known[position] = []
            for workload in self._workloads_on.get(position, ()):
                mine = self._candidates_of(workload, moves=moves)
                is_here = len(workload.pods) == 1
                candidates += (
                    mine if is_here else [candidate for candidate in mine if position in candidate.pods_on]
                )
            candidates.sort(key=_ORDER)
            self._session.work.spend(_WORK_OF_CANDIDATE * len(candidates))
        return candidates

    def movable_milli(self, position: int) -> int:
        """Return the GPUs of the pods on this node that could migrate, in thousandths.

        The result equals the sum over the migrations of `on`, without making candidates.
        """
        self._follow()
        evicted = self._session.ledger.evicted
        node = self._session.ledger.nodes[position].node.name
        return sum(
            pod.request.gpu_milli
            for workload in self._workloads_on.get(position, ())
            if _is_movable(workload)
            for pod in workload.pods
            if pod.state is PodState.ALLOCATED and pod.node == node and pod.id not in evicted
        )

    def of(self, project: str, *, moves: bool = False) -> list[Candidate]:
        """Return the candidates of the project."""
        self._follow()
        workloads = self._running.get(project, ())
        candidates = [
            candidate
            for workload in workloads
            if workload.preemptible
            for candidate in self._candidates_of(workload, moves=moves)
        ]
        return sorted(candidates, key=_ORDER)

    def _nodes_of(self, workload: Workload) -> Iterable[int]:
        pods, known = workload.pods, self._positions
        if len(pods) == 1:
            position = known.get(pods[0].node or "") if pods[0].state is PodState.ALLOCATED else None
            return () if position is None else (position,)
        positions = (known.get(pod.node or "") for pod in pods if pod.state is PodState.ALLOCATED)
        return dict.fromkeys(position for position in positions if position is not None)

    def _candidates_of(self, workload: Workload, *, moves: bool) -> Sequence[Candidate]:
        candidates = self._known_candidates.get(workload.id)
        if candidates is None:
            if len(workload.pods) == 1 == workload.min_member and workload.groups is None:  # the usual case
                candidates = [self._only_candidate(workload)]
            else:
                candidates = self._complete(_evictions(workload, self._nominated, self._now_us))
            self._known_candidates[workload.id] = candidates
        if not moves:
            return candidates
        both = self._moves.get(workload.id)
        if both is None:
            both = self._moves[workload.id] = candidates + self._complete(
                _moves(workload, len(candidates), self._now_us)
            )
        return both

    def _only_candidate(self, workload: Workload) -> Candidate:
        """Return the candidate of a workload with a single pod, with all fields that `_complete` sets."""
        pods = workload.pods
        pod = pods[0]
        candidate = Candidate(workload, pods, 0, self._now_us, is_core=True, is_move=False)
        position = self._positions.get(pod.node or "")
        if position is not None:
            candidate.pods_on = {position: pods}
        covered = self._covered.get(workload.project)
        if covered is None:
            covered = self._covered_pods(workload.project)
        candidate.is_covered = pod.id in covered
        if pod.id in self._nominated:
            candidate.pod_count, candidate.is_harmless = 0, True
        else:
            candidate.urgency = self._urgency(workload)
        return candidate

    def _complete(self, candidates: list[Candidate]) -> list[Candidate]:
        """Set the fields of the candidates that depend on nodes, quotas and nominations."""
        nominated = self._nominated
        for candidate in candidates:
            covered = self._covered.get(candidate.project)
            if covered is None:
                covered = self._covered_pods(candidate.project)
            candidate.pods_on = self._pods_on(candidate.pods)
            for pod in candidate.pods:
                if pod.id in covered:
                    candidate.is_covered = True
                # A nominated pod has not started. If it is a victim, it stays pending, and no running pod is
                # evicted.
                if pod.id in nominated:
                    candidate.pod_count -= 1
            candidate.is_harmless = not candidate.pod_count
            if not (candidate.is_harmless or candidate.is_move):
                candidate.urgency = self._urgency(candidate.workload)
        return candidates

    def _urgency(self, workload: Workload) -> int:
        priorities = self._priorities.get(workload.project)
        if priorities is None:
            running = self._running[workload.project]
            priorities = sorted({other.priority for other in running if other.preemptible})
            self._priorities[workload.project] = priorities
        return bisect_left(priorities, workload.priority)

    def _pods_on(self, pods: tuple[Pod, ...]) -> Mapping[int, Sequence[Pod]]:
        """Return the pods by the position of their node."""
        positions = self._positions
        if len(pods) == 1:
            position = positions.get(pods[0].node or "")
            return {} if position is None else {position: pods}
        pods_on: dict[int, list[Pod]] = {}
        for pod in pods:
            position = positions.get(pod.node or "")
            if position is not None:
                pods_on.setdefault(position, []).append(pod)
        return pods_on

    def _covered_pods(self, project: str) -> frozenset[str]:
        """Return the ids of the project's pods within quota, by its state at the beginning of the decision."""
        covered = self._covered.get(project)
        if covered is None:
            pods = covered_pods(self._running[project], self._tree.quota[project], self._tree.resources)
            covered = self._covered[project] = frozenset([pod.id for pod in pods])
        return covered


def _evictions(workload: Workload, nominated: Collection[str], now_us: int) -> list[Candidate]:
    # Sort nominated pods last, so that they count as elastic first: the workload runs without them.
    running_first = sorted(workload.pods, key=lambda pod: pod.id in nominated)
    *elastic, everything = give_up_chunks(workload.with_pods(tuple(running_first))) or [()]
    candidates = [
        Candidate(workload, chunk, sequence, now_us, is_core=False, is_move=False)
        for sequence, chunk in enumerate(elastic)
    ]
    if everything:
        candidates.append(Candidate(workload, everything, len(elastic), now_us, is_core=True, is_move=False))
    return candidates


def _is_movable(workload: Workload) -> bool:
    # If a pod terminates or was nominated earlier, the workload is already migrating. Its other pods must
    # stay: otherwise the gang would be incomplete and would lose that nomination.
    return not any(pod.state is PodState.RELEASING or _is_successor(pod) for pod in workload.pods)


def _moves(workload: Workload, sequence: int, now_us: int) -> list[Candidate]:
    if not _is_movable(workload):
        return []
    pods = [pod for pod in reversed(workload.pods) if pod.state is PodState.ALLOCATED]
    return [
        Candidate(workload, (pod,), sequence + index, now_us, is_core=True, is_move=True)
        for index, pod in enumerate(pods)
    ]


def _is_successor(pod: Pod) -> bool:
    """Return whether the pod is pending and an earlier decision nominated it."""
    return pod.state is PodState.PENDING and pod.nominated_node is not None
