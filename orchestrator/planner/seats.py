"""The record of one decision: seats of pods, and queues of pods that may start next.

The undo log of the ledger covers it too.

A pod without a record stays as in the snapshot. For a pod with a record, the decision

    starts it        its seat is new: the pod is bound
    nominates it     the pod is pending, and its seat is free once terminating pods have ended
    evicts it        the pod leaves its node, and its controller creates a pending pod
    migrates it      the pod is evicted, and a seat on another node is kept for the pod that its controller creates

The plan has the new seats as bindings, the other seats as nominations, and the evictions.
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

    A pod with a nominated seat counts as running, so a more entitled workload can choose it as a victim. A kept seat is
    reserved for a pod that cannot start in this decision, for example the replacement of an evicted pod.
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
    """The seats that pods get in this decision, and `evictions` by the id of the evicted pod.

    `rollback` of the ledger undoes changes of this record too. `start` has the workloads of the snapshot by id.
    `nomination_changes` is the number of changes of nominated seats, by project.
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
        """Record these seats for the pods, in place of earlier seats. The placements are on the ledger already."""
        self._chunks += 1
        for pod, where in placed:
            self._set(pod.id, Seat(state, workload, pod, where, self._chunks))

    def remove(self, pod: Pod) -> None:
        """Remove the pod's seat, if it has one, from the record, without a change of the ledger."""
        if pod.id in self._seats:
            self._set(pod.id, None)

    def lift(self, workload: Workload, state: SeatState) -> None:
        """Remove the workload's seats of this state from the ledger and from the record."""
        # The last seat is removed first, so a rollback restores the seats in their order.
        placed = self.placed(workload, state)[::-1]
        self._ledger.unplace(workload, placed)
        for pod, _ in placed:
            self.remove(pod)

    def evict(self, eviction: Eviction) -> None:
        """Record the eviction of a pod that is evicted on the ledger."""
        self._set_eviction(eviction.pod, eviction)

    def keep_running(self, pod: Pod) -> None:
        """Remove the pod's eviction and its new seat from the record. On the ledger, the pod runs again already."""
        self._set_eviction(pod.id, None)
        self.remove(pod)

    def of(self, pod: Pod) -> Seat | None:
        """Return the seat that the decision gives the pod; None if it gives none."""
        return self._seats.get(pod.id)

    def is_new(self, pod: Pod) -> bool:
        """Return whether the decision binds the pod."""
        seat = self._seats.get(pod.id)
        return seat is not None and seat.state is SeatState.NEW

    def is_nominated(self, pod: Pod) -> bool:
        """Return whether the pod has a nominated or kept seat. To remove such a seat evicts no running pod."""
        seat = self._seats.get(pod.id)
        return seat is not None and seat.state is not SeatState.NEW

    def has(self, workload: Workload, state: SeatState) -> bool:
        """Return whether pods of the workload have seats of this state."""
        return workload.id in self._held[state].get(workload.project, ())

    def names(self, state: SeatState, project: str) -> list[str]:
        """Return the ids of the project's workloads with seats of this state, in the order of their first seat.

        They are sorted because a rollback can restore seats in another order.
        """
        held = self._held[state].get(project, {})
        return sorted(held, key=lambda name: next(iter(held[name].values())).chunk)

    def count(self, state: SeatState) -> int:
        """Return the number of workloads with seats of this state."""
        return sum(map(len, self._held[state].values()))

    def all_names(self, state: SeatState) -> Iterator[str]:
        """Yield the ids of all workloads with seats of this state."""
        for by_workload in self._held[state].values():
            yield from by_workload

    def placed(self, workload: Workload, state: SeatState) -> Placed:
        """Return the workload's pods with seats of this state, and the placements."""
        seats = self._held[state].get(workload.project, {}).get(workload.id, {})
        return [(seat.pod, seat.where) for seat in seats.values()]

    def new_chunks(self, workload: Workload) -> list[Chunk]:
        """Return the pods of the workload that the decision starts, in the chunks in which they were placed."""
        seats = self._held[SeatState.NEW].get(workload.project, {}).get(workload.id, {})
        return [
            tuple(seat.pod for seat in chunk) for _, chunk in groupby(seats.values(), key=attrgetter("chunk"))
        ]

    def new(self) -> Iterator[Seat]:
        """Yield the seats of the pods that the decision binds."""
        return (seat for seat in self._seats.values() if seat.state is SeatState.NEW)

    def nominated(self) -> Iterator[Seat]:
        """Yield the nominated and the kept seats."""
        for state in (SeatState.NOMINATED, SeatState.KEPT):
            for by_workload in self._held[state].values():
                for seats in by_workload.values():
                    yield from seats.values()

    def workload(self, name: str) -> Workload:
        """Return the workload with this id, its evicted pods as terminating and its nominated pods as running."""
        start = self._start[name]
        if name not in self._current:
            return start
        current = self._current[name]
        if current is None:
            current = self._current[name] = start.with_pods(tuple(map(self._current_pod, start.pods)))
        return current

    def running(self, at_start: Collection[str], project: str | None = None) -> list[Workload]:
        """Return the workloads of `at_start` (ids) that still run, and the workloads with nominated pods.

        If `project` is given, `at_start` has its workloads, and workloads of other projects are left out.
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
        """Return the workload as if all pending pods with a seat ran."""
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
    """The chunks of one workload; the first `started` chunks have started. `stage`: below, at or above the minimum."""

    chunks: list[Chunk]
    started: int
    stage: int
    next_chunk: Chunk


_NO_QUEUE = _Queue([], 0, _WAITS, ())


class Queues:
    """The chunks of all pending workloads. A changed queue is computed again when it is next read.

    `queued_again` are the workloads that lost pods or seats in this decision and so have more pods to start.
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
        """Yield the ids of the workloads with a chunk that could start."""
        return (name for name, queue in self._queues.items() if (queue or self._renewed(name)).next_chunk)

    def next_chunk(self, name: str) -> Chunk:
        """Return the pods that the workload would start next; empty if no pod can start."""
        return self._of(name).next_chunk

    def chunks(self, name: str) -> list[Chunk]:
        """Return the chunks that the workload can start, in order."""
        queue = self._of(name)
        return queue.chunks[queue.started :]

    def stage(self, name: str) -> int:
        """Return whether the workload is below its minimum (0), at its minimum (1) or above it (2)."""
        return self._of(name).stage

    def is_whole(self, workload: Workload) -> bool:
        """Return whether the pods that its gang needs run, or will run after this decision."""
        return has_gang(workload) or self.stage(workload.id) > _WAITS

    def start(self, workload: Workload, placed: Placed) -> None:
        """Remove the chunks of these pods from the queue. A nomination can place several chunks together."""
        pods = {pod.id for pod, _ in placed}
        chunks, started, stage, _ = self._of(workload.id)
        while started < len(chunks) and pods.issuperset(pod.id for pod in chunks[started]):
            started, stage = started + 1, min(_GROWS, stage + 1)
        self._set(workload.id, _queue(chunks, started, stage))

    def put_first(self, workload: Workload, chunk: Chunk) -> None:
        """Move this chunk to the front of the workload's queue."""
        others = [other for other in self.chunks(workload.id) if other is not chunk]
        self._set(workload.id, _queue([chunk, *others], 0, self.stage(workload.id)))

    def renew(self, name: str) -> None:
        """Compute the queue again when it is next read: the workload has lost pods or their seats."""
        self._set(name, None)
        if name not in self.queued_again:
            self.queued_again[name] = None
            self._ledger.note(lambda: self.queued_again.pop(name))

    def __contains__(self, name: str) -> bool:
        """Return whether the workload has a queue, which may be empty."""
        return name in self._queues

    def _of(self, name: str) -> _Queue:
        queue = self._queues.get(name)
        if queue is not None:
            return queue
        return self._renewed(name) if name in self._queues else _NO_QUEUE

    def _renewed(self, name: str) -> _Queue:
        # If a nomination with several chunks was removed, each of them is a chunk of its own again.
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
