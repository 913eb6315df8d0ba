"""The pods that each waiting workload may start next, on the undo log of the ledger."""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from orchestrator.planner.accounting.ledger import Ledger
from orchestrator.planner.gangs import Chunk, has_gang, held_parts, start_chunks
from orchestrator.planner.model import Workload
from orchestrator.planner.placements import Placed
from orchestrator.planner.seats import Seats

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
