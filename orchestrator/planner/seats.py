"""The record of one decision on the undo log of the ledger: seats of pods, and queues of pods that may start next.

A pod without a record stays as the snapshot has it. Otherwise the decision

    starts it        its seat is new: the pod is bound
    nominates it     the pod is pending, and its seat is free once terminating pods have ended
    evicts it        the pod leaves its node, and its controller creates a pending pod
    migrates it      the pod is evicted, and a seat on another node is kept for the pod that its controller creates

The plan is the difference: bindings are the new seats, nominations the others, and evictions the seats that were left.
"""

import enum
from collections.abc import Collection, Iterator, Mapping
from itertools import groupby
from operator import attrgetter
from typing import NamedTuple

from orchestrator.planner.accounting.ledger import Ledger
from orchestrator.planner.gangs import Chunk, has_gang, held_parts, start_chunks
from orchestrator.planner.model import Binding, Eviction, Pod, PodState, Workload
from orchestrator.planner.placements import Placed, Placement


class SeatState(enum.IntEnum):
    """The state of a seat at the end of the decision.

    A pod with a nominated seat counts as running, so that a better entitled workload finds it among the victims. A kept
    seat waits for a pod that cannot start in this decision.
    """

    NEW = 0
    NOMINATED = 1
    KEPT = 2


class Seat(NamedTuple):
    """The placement of a pod, on the ledger. Pods that were placed together have the same `chunk` number."""

    state: SeatState
    workload: Workload
    pod: Pod
    where: Placement
    chunk: int

    @property
    def binding(self) -> Binding:
        """The seat as an entry of the plan."""
        return Binding(self.pod.id, self.workload.id, self.where.node, self.where.devices)


class Seats:
    """The seats that pods get in this decision, and `evictions` by the id of the pod that leaves its node.

    `rollback` of the ledger undoes changes of the record too. `start` has the workloads of the snapshot by id.
    `nomination_changes` counts by project the changes of nominations.
    """

    def __init__(self, ledger: Ledger, start: Mapping[str, Workload]) -> None:
        self.evictions: dict[str, Eviction] = {}
        self.nomination_changes: dict[str, int] = {}
        self._ledger = ledger
        self._start = start
        self._seats: dict[str, Seat] = {}
        # The same seats by state, project and workload.
        self._held: list[dict[str, dict[str, dict[str, Seat]]]] = [{} for _ in SeatState]
        self._current: dict[str, Workload | None] = {}
        self._chunks = 0

    def place(self, workload: Workload, placed: Placed, state: SeatState) -> None:
        """Give pods these seats, which are on the ledger, instead of those that they have."""
        self._chunks += 1
        for pod, where in placed:
            self._set(pod.id, Seat(state, workload, pod, where, self._chunks))

    def remove(self, pod: Pod) -> None:
        """Take the pod's seat, if it has one, out of the record; the ledger stays as it is."""
        if pod.id in self._seats:
            self._set(pod.id, None)

    def lift(self, workload: Workload, state: SeatState) -> None:
        """Take the workload's seats of this state off the ledger and out of the record."""
        # The last one first: a rollback then puts them back in their order.
        placed = self.placed(workload, state)[::-1]
        self._ledger.unplace(workload, placed)
        for pod, _ in placed:
            self.remove(pod)

    def evict(self, eviction: Eviction) -> None:
        """Record that the pod, which is evicted on the ledger, leaves its node, and why."""
        self._set_eviction(eviction.pod, eviction)

    def keep_running(self, pod: Pod) -> None:
        """Take the pod's eviction and its new seat out of the record; it runs again on the ledger."""
        self._set_eviction(pod.id, None)
        self.remove(pod)

    def of(self, pod: Pod) -> Seat | None:
        """The seat that the decision gives the pod."""
        return self._seats.get(pod.id)

    def is_new(self, pod: Pod) -> bool:
        """Whether the decision binds the pod."""
        seat = self._seats.get(pod.id)
        return seat is not None and seat.state is SeatState.NEW

    def is_nominated(self, pod: Pod) -> bool:
        """Whether the pod has a seat that is not free yet. Its loss ends no running pod."""
        seat = self._seats.get(pod.id)
        return seat is not None and seat.state is not SeatState.NEW

    def has(self, workload: Workload, state: SeatState) -> bool:
        """Whether pods of the workload have seats of this state."""
        return workload.id in self._held[state].get(workload.project, ())

    def names(self, state: SeatState, project: str) -> list[str]:
        """Ids of the project's workloads with seats of this state, in the order of their first seat.

        A rollback puts seats back in another order than that in which they were given.
        """
        held = self._held[state].get(project, {})
        return sorted(held, key=lambda name: next(iter(held[name].values())).chunk)

    def count(self, state: SeatState) -> int:
        """How many workloads have seats of this state."""
        return sum(map(len, self._held[state].values()))

    def all_names(self, state: SeatState) -> Iterator[str]:
        """Ids of all workloads with seats of this state."""
        for by_workload in self._held[state].values():
            yield from by_workload

    def placed(self, workload: Workload, state: SeatState) -> Placed:
        """The workload's pods with seats of this state, and where those are."""
        seats = self._held[state].get(workload.project, {}).get(workload.id, {})
        return [(seat.pod, seat.where) for seat in seats.values()]

    def new_chunks(self, workload: Workload) -> list[Chunk]:
        """The pods that the decision starts of the workload, as they were placed together."""
        seats = self._held[SeatState.NEW].get(workload.project, {}).get(workload.id, {})
        return [
            tuple(seat.pod for seat in chunk) for _, chunk in groupby(seats.values(), key=attrgetter("chunk"))
        ]

    def new(self) -> Iterator[Seat]:
        """The seats of the pods that the decision binds."""
        return (seat for seat in self._seats.values() if seat.state is SeatState.NEW)

    def nominated(self) -> Iterator[Seat]:
        """The seats that are not free yet."""
        for state in (SeatState.NOMINATED, SeatState.KEPT):
            for by_workload in self._held[state].values():
                for seats in by_workload.values():
                    yield from seats.values()

    def workload(self, name: str) -> Workload:
        """The workload by its id with its evicted pods as terminating and its nominated pods as running."""
        start = self._start[name]
        if name not in self._current:
            return start
        current = self._current[name]
        if current is None:
            current = self._current[name] = start.with_pods(tuple(map(self._current_pod, start.pods)))
        return current

    def running(self, at_start: Collection[str], project: str | None = None) -> list[Workload]:
        """The workloads, by their ids, that ran at the start and still do, and those with nominated pods.

        With a project, `at_start` has its workloads, and nominated pods of others are left out.
        """
        if not self._current:
            return [self._start[name] for name in at_start]
        nominees = (
            name
            for name in self.all_names(SeatState.NOMINATED)
            if name not in at_start and project in (None, self._start[name].project)
        )
        return [
            workload
            for workload in map(self.workload, (*at_start, *nominees))
            if workload.id not in self._current
            or any(pod.state is PodState.ALLOCATED for pod in workload.pods)
        ]

    def _current_pod(self, pod: Pod) -> Pod:
        if pod.id in self.evictions:
            return pod.in_state(PodState.RELEASING)
        seat = self._seats.get(pod.id)
        if seat is None or seat.state is not SeatState.NOMINATED:
            return pod
        return pod.placed(PodState.ALLOCATED, seat.where.node, seat.where.devices)

    def as_decided(self, workload: Workload) -> Workload:
        """The workload as if all pending pods with a seat ran."""
        pods = (
            pod.in_state(PodState.ALLOCATED)
            if pod.state is PodState.PENDING and pod.id in self._seats
            else pod
            for pod in workload.pods
        )
        return workload.with_pods(tuple(pods))

    def _set(self, pod: str, seat: Seat | None) -> None:
        before = self._seats.get(pod)
        self._exchange(pod, before, seat)
        self._ledger.note(lambda: self._exchange(pod, seat, before))

    def _exchange(self, pod: str, old: Seat | None, new: Seat | None) -> None:
        if old is not None and (new is None or new.state is not old.state):
            del self._seats[pod]
            by_workload = self._held[old.state][old.workload.project]
            seats = by_workload[old.workload.id]
            del seats[pod]
            if not seats:
                del by_workload[old.workload.id]
        if new is not None:
            self._seats[pod] = new
            by_workload = self._held[new.state].setdefault(new.workload.project, {})
            by_workload.setdefault(new.workload.id, {})[pod] = new
        for seat in (old, new):
            if seat is not None and seat.state is SeatState.NOMINATED:
                self._current[seat.workload.id] = None
                project = seat.workload.project
                self.nomination_changes[project] = self.nomination_changes.get(project, 0) + 1

    def _set_eviction(self, pod: str, eviction: Eviction | None) -> None:
        before = self.evictions.get(pod)
        self._exchange_eviction(pod, before, eviction)
        self._ledger.note(lambda: self._exchange_eviction(pod, eviction, before))

    def _exchange_eviction(self, pod: str, old: Eviction | None, new: Eviction | None) -> None:
        if new is None:
            self.evictions.pop(pod, None)
        else:
            self.evictions[pod] = new
        for eviction in (old, new):
            if eviction is not None:
                self._current[eviction.workload] = None


_WAITS, _RUNS, _GROWS = range(3)


class _Queue(NamedTuple):
    """The chunks of one workload, those before `started` started. `stage`: below, at or above the minimum."""

    chunks: list[Chunk]
    started: int
    stage: int
    next_chunk: Chunk


_NO_QUEUE = _Queue([], 0, _WAITS, ())


class Queues:
    """The chunks of all waiting workloads; a queue that changed is worked out anew when it is next asked for.

    `queued_again` are the workloads that have more to start than at the start of the decision.
    """

    def __init__(
        self,
        ledger: Ledger,
        seats: Seats,
        workloads: Mapping[str, Workload],
        waiting: Mapping[str, list[Chunk]],
    ) -> None:
        self.queued_again: dict[str, None] = {}
        self._ledger = ledger
        self._seats = seats
        self._queues: dict[str, _Queue | None] = {
            name: _queue(chunks, 0, _stage(workloads[name])) for name, chunks in waiting.items()
        }

    def __iter__(self) -> Iterator[str]:
        """Ids of the workloads with a chunk that could start."""
        return (name for name, queue in self._queues.items() if (queue or self._renewed(name)).next_chunk)

    def next_chunk(self, name: str) -> Chunk:
        """The pods that the workload would start next; empty if none waits."""
        return self._of(name).next_chunk

    def chunks(self, name: str) -> list[Chunk]:
        """The pods that the workload may start, in order."""
        queue = self._of(name)
        return queue.chunks[queue.started :]

    def stage(self, name: str) -> int:
        """How far the workload has grown: below its minimum, at its minimum, above it."""
        return self._of(name).stage

    def is_whole(self, workload: Workload) -> bool:
        """Whether the pods that its gang needs run, or will run after this decision."""
        return has_gang(workload) or self.stage(workload.id) > _WAITS

    def start(self, workload: Workload, placed: Placed) -> None:
        """Take these pods out of the queue; a nomination of several chunks is one placement."""
        pods = {pod.id for pod, _ in placed}
        chunks, started, stage, _ = self._of(workload.id)
        while started < len(chunks) and pods.issuperset(pod.id for pod in chunks[started]):
            started, stage = started + 1, min(_GROWS, stage + 1)
        self._set(workload.id, _queue(chunks, started, stage))

    def put_first(self, workload: Workload, chunk: Chunk) -> None:
        """Let the workload start this one of its chunks next."""
        others = [other for other in self.chunks(workload.id) if other is not chunk]
        self._set(workload.id, _queue([chunk, *others], 0, self.stage(workload.id)))

    def renew(self, name: str) -> None:
        """Work the queue out anew: the workload has lost pods or their seats."""
        self._set(name, None)
        if name not in self.queued_again:
            self.queued_again[name] = None
            self._ledger.note(lambda: self.queued_again.pop(name))

    def __contains__(self, name: str) -> bool:
        """Whether the workload has a queue, which may be empty."""
        return name in self._queues

    def _of(self, name: str) -> _Queue:
        queue = self._queues.get(name)
        if queue is not None:
            return queue
        return self._renewed(name) if name in self._queues else _NO_QUEUE

    def _renewed(self, name: str) -> _Queue:
        # A nomination may hold several chunks. Each is a chunk of its own again.
        current = self._seats.as_decided(self._seats.workload(name))
        queue = self._queues[name] = _queue(start_chunks(current), 0, _stage(current))
        return queue

    def _set(self, name: str, queue: _Queue | None) -> None:
        before = self._queues.get(name)
        self._queues[name] = queue
        self._ledger.note(lambda: self._queues.update({name: before}))


def _queue(chunks: list[Chunk], started: int, stage: int) -> _Queue:
    return _Queue(chunks, started, stage, chunks[started] if started < len(chunks) else ())


def _stage(workload: Workload) -> int:
    if not has_gang(workload):
        return _WAITS
    return _GROWS if held_parts(workload)[1] else _RUNS
