"""Carries out a plan: evictions and bindings, many at once, and remembers what the watch has not shown yet.

A request whose answer was lost may have been carried out. It is repeated until there is an answer: both requests name
the pod's uid and are safe to repeat. Until then, and until the watch shows the outcome, the pod counts as placed (or as
leaving), so that its GPUs are given to nobody else, however long the API server is away.
"""

import asyncio
import logging
import random
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final

from orchestrator.cluster.binding import bind
from orchestrator.cluster.errors import (
    BudgetRefusal,
    ClusterError,
    Conflict,
    NotFound,
    ServerFault,
    TooManyRequests,
    Unreachable,
)
from orchestrator.cluster.eviction import evict
from orchestrator.cluster.objects import Pod
from orchestrator.cluster.transport import Transport
from orchestrator.control.choices import LONGEST_GRACE_SECONDS
from orchestrator.control.claims import ClaimNotReady, Claims
from orchestrator.names import EVICTED_BECAUSE_ANNOTATION, GPU_DEVICES_ANNOTATION
from orchestrator.planner.model import Binding, Eviction
from orchestrator.workloads.request import checkpoint_grace_seconds
from orchestrator.workloads.snapshot import Assumption
from orchestrator.workloads.volumes import claims_of

logger = logging.getLogger(__name__)

REQUESTS_IN_FLIGHT: Final = 64
REQUEST_SECONDS: Final = 2.5
"""How long a binding or eviction may take. At most the margin by which a leader stops before its lease expires, so
that no request of a former leader is under way when the next one reads the cluster."""
FIRST_DELAY_SECONDS: Final = 0.1
LONGEST_DELAY_SECONDS: Final = 2.0


@dataclass(frozen=True, slots=True)
class _Task:
    """One thing to do to one pod: its name in the log, the call, how to forget the assumption, and whom to tell.

    `prepare` is waited for before, however long it takes; it raises ClaimNotReady when the call is not to be made.
    """

    what: str
    call: Callable[[], Awaitable[None]]
    is_assumed: Callable[[], bool]
    undo: Callable[[], object]
    done: Callable[[], None] = lambda: None
    put_off: Callable[[str], None] = lambda _why: None
    prepare: Callable[[], Awaitable[None]] | None = None


class Executor:
    """Binds and evicts in the background, as an async context manager that ends what is under way.

    `assumed` and `evicted` are what was begun and has not been seen on the watch yet. `on_refused` is called when
    something was refused for good: it has to be decided again; `on_evicted` when an eviction went through,
    `on_forbidden`, with the API server's words, when a disruption budget did not allow it; `on_bound`, with the uid,
    when a binding was answered. A pod with claims is bound when `claims` has them ready; when it has not,
    `on_unready` is told why. Nothing is begun unless `is_leader()`.
    """

    def __init__(
        self,
        transport: Transport,
        *,
        is_leader: Callable[[], bool],
        on_refused: Callable[[], None],
        on_evicted: Callable[[Pod, Eviction], None] = lambda _pod, _eviction: None,
        on_forbidden: Callable[[Pod, str], None] = lambda _pod, _why: None,
        on_bound: Callable[[str], None] = lambda _uid: None,
        on_unready: Callable[[Pod, str], None] = lambda _pod, _why: None,
        claims: Claims | None = None,
        longest_grace_seconds: int = LONGEST_GRACE_SECONDS,
        request_seconds: float = REQUEST_SECONDS,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._transport = transport
        self._is_leader = is_leader
        self._on_refused = on_refused
        self._on_evicted = on_evicted
        self._on_forbidden = on_forbidden
        self._on_bound = on_bound
        self._on_unready = on_unready
        self._claims = claims
        self._longest_grace_seconds = longest_grace_seconds
        self._request_seconds = request_seconds
        self._sleep = sleep
        self._queue: deque[tuple[_Task, int]] = deque()
        self._assumed: dict[str, Assumption] = {}
        self._evicted: set[str] = set()
        self._workers: set[asyncio.Task[None]] = set()
        self._working = 0  # a worker that has ended is among the tasks until the loop's next turn
        self._delayed: set[asyncio.Task[None]] = set()
        self._preparing: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> "Executor":
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._queue.clear()
        running = [*self._preparing, *self._delayed, *self._workers]
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)

    @property
    def assumed(self) -> Mapping[str, Assumption]:
        """Bindings that the watch has not shown yet, by pod uid."""
        return dict(self._assumed)

    @property
    def evicted(self) -> frozenset[str]:
        """Uids of pods whose eviction the watch has not shown yet."""
        return frozenset(self._evicted)

    def is_evicting(self, uid: str) -> bool:
        """Whether the pod's eviction was begun and has not been seen on the watch yet."""
        return uid in self._evicted

    @property
    def is_busy(self) -> bool:
        """Whether something is under way or waits for its turn."""
        return bool(self._workers or self._delayed or self._preparing)

    def is_assumed_on(self, uid: str, node: str) -> bool:
        """Whether this executor is binding, or has just bound, the pod to that node."""
        assumption = self._assumed.get(uid)
        return assumption is not None and assumption.node == node

    def confirm(self, pods: Mapping[str, Pod]) -> None:
        """Forget what the watch shows by now: pods that are bound, leaving or gone."""
        for uid in list(self._assumed):
            pod = pods.get(uid)
            if pod is None or pod.spec.node_name or pod.metadata.deletion_timestamp is not None:
                del self._assumed[uid]
        for uid in list(self._evicted):
            pod = pods.get(uid)
            if pod is None or pod.metadata.deletion_timestamp is not None:
                self._evicted.discard(uid)

    def begin(
        self, evictions: Iterable[Eviction], bindings: Iterable[Binding], pods: Mapping[str, Pod]
    ) -> None:
        """Evict and bind in the background. What is refused is decided again, on fresh state."""
        for eviction in evictions:
            if eviction.pod in pods:
                self._start(self._eviction(pods[eviction.pod], eviction))
        for binding in bindings:
            if binding.pod in pods:
                self._start(self._binding(pods[binding.pod], binding))

    async def idle(self) -> None:
        """Wait until nothing is under way, whatever else waits for its volumes."""
        while running := self._workers | self._delayed:
            await asyncio.wait(running)

    def _start(self, task: _Task) -> None:
        if task.prepare is None:
            self._put(task)
        else:
            _keep(self._preparing, self._prepare(task, task.prepare))

    async def _prepare(self, task: _Task, prepare: Callable[[], Awaitable[None]]) -> None:
        try:
            await prepare()
        except ClaimNotReady as error:
            logger.info("%s: not begun: %s", task.what, error)
            task.undo()
            task.put_off(str(error))
            self._on_refused()
        else:
            self._put(task)

    def _binding(self, pod: Pod, binding: Binding) -> _Task:
        uid = pod.metadata.uid
        self._assumed[uid] = Assumption(binding.node, binding.devices)
        devices = ",".join(str(device) for device in binding.devices)
        claims = self._claims if pod.spec.volumes and claims_of(pod) else None
        return _Task(
            what=f"bind {pod.metadata.namespace}/{pod.metadata.name} to {binding.node} devices [{devices}]",
            call=lambda: bind(
                self._transport,
                namespace=pod.metadata.namespace,
                name=pod.metadata.name,
                uid=uid,
                node=binding.node,
                annotations={GPU_DEVICES_ANNOTATION: devices} if devices else {},
            ),
            is_assumed=lambda: uid in self._assumed,
            undo=lambda: self._assumed.pop(uid, None),
            done=lambda: self._on_bound(uid),
            put_off=lambda why: self._on_unready(pod, why),
            prepare=None
            if claims is None
            else lambda: claims.ready(pod, binding.node, lambda: uid in self._assumed),
        )

    def _eviction(self, pod: Pod, eviction: Eviction) -> _Task:
        uid = pod.metadata.uid
        self._evicted.add(uid)
        return _Task(
            what=f"evict {pod.metadata.namespace}/{pod.metadata.name}: {eviction.message}",
            call=lambda: evict(
                self._transport,
                namespace=pod.metadata.namespace,
                name=pod.metadata.name,
                uid=uid,
                annotations={EVICTED_BECAUSE_ANNOTATION: eviction.message},
                grace_seconds=checkpoint_grace_seconds(pod, self._longest_grace_seconds),
            ),
            is_assumed=lambda: uid in self._evicted,
            undo=lambda: self._evicted.discard(uid),
            done=lambda: self._on_evicted(pod, eviction),
            put_off=lambda why: self._on_forbidden(pod, why),
        )

    def _put(self, task: _Task, attempt: int = 1) -> None:
        """Let it be asked in its turn. A worker whose request was answered sends the next one at once.

        A task for each request, which waits for one of so many slots, would send it a turn of the loop later.
        """
        self._queue.append((task, attempt))
        if self._working < REQUESTS_IN_FLIGHT:
            self._working += 1
            _keep(self._workers, self._work())

    async def _work(self) -> None:
        try:
            while self._queue:
                task, attempt = self._queue.popleft()
                if not await self._carry_out(task, attempt):
                    _keep(self._delayed, self._put_later(task, attempt + 1))
        finally:
            self._working -= 1

    async def _put_later(self, task: _Task, attempt: int) -> None:
        await self._sleep(_delay_seconds(attempt - 1))
        self._put(task, attempt)

    async def _carry_out(self, task: _Task, attempt: int) -> bool:
        """Ask once; True when there was an answer that settles it, or the watch shows the outcome."""
        if not task.is_assumed():
            if attempt > 1:
                task.done()
            return True
        try:
            return self._is_leader() and await self._asked(task, attempt)
        except (ServerFault, TooManyRequests) as error:
            _log_repeat(task, attempt, error)
        except Unreachable as error:
            # The server is away for all: keeping the worker keeps the number of attempts down.
            _log_repeat(task, attempt, error)
            await self._sleep(_delay_seconds(1))
        except Exception:  # it may have been carried out, and the other requests wait for this worker
            logger.exception("%s: to be repeated after a mistake in muster", task.what)
        return False

    async def _asked(self, task: _Task, attempt: int) -> bool:
        try:
            async with asyncio.timeout(self._request_seconds):
                await task.call()
        except TimeoutError as error:
            raise Unreachable(f"no answer within {self._request_seconds} s") from error
        except (Unreachable, ServerFault, TooManyRequests):
            raise
        except BudgetRefusal as error:
            logger.info("%s: %s", task.what, error)
            task.undo()
            task.put_off(error.message)
            self._on_refused()
        except ClusterError as error:
            overtaken = isinstance(error, NotFound | Conflict)
            logger.log(logging.INFO if overtaken else logging.WARNING, "%s: refused: %s", task.what, error)
            task.undo()
            self._on_refused()
        else:
            logger.info("%s%s", task.what, f" (attempt {attempt})" if attempt > 1 else "")
            task.done()
        return True


def _keep(tasks: set[asyncio.Task[None]], work: Coroutine[Any, Any, None]) -> None:
    """Let it go on in the background, as one of these tasks."""
    task = asyncio.create_task(work)
    tasks.add(task)
    task.add_done_callback(tasks.discard)


def _log_repeat(task: _Task, attempt: int, error: ClusterError) -> None:
    logger.log(logging.WARNING if attempt == 1 else logging.DEBUG, "%s: to be repeated: %s", task.what, error)


def _delay_seconds(attempt: int) -> float:
    longest = min(LONGEST_DELAY_SECONDS, FIRST_DELAY_SECONDS * 2.0 ** min(attempt, 8))
    return longest * random.uniform(0.5, 1.0)  # noqa: S311 - spreads the load, keeps no secret
