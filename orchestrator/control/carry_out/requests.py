"""Requests in the background, a bounded number at a time, each repeated until there is an answer."""

import asyncio
import logging
import random
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from dataclasses import dataclass
from typing import Any, Final

from orchestrator.cluster.errors import (
    ClusterError,
    Conflict,
    EvictionBlocked,
    Forbidden,
    NotFound,
    ServerFault,
    TooManyRequests,
    Unreachable,
)
from orchestrator.cluster.timeouts import OPERATOR_REQUEST_SECONDS

logger = logging.getLogger(__name__)

REQUESTS_IN_FLIGHT: Final = 128
"""Maximum number of running requests: half of the API server's default seats for all service accounts together."""
UNHURRIED_IN_FLIGHT: Final = 16
"""Maximum number of running requests that are not urgent."""
FIRST_DELAY_SECONDS: Final = 0.1
MAX_DELAY_SECONDS: Final = 2.0
FORBIDDEN_ATTEMPTS: Final = 5
"""Number of attempts, within some seconds, for a forbidden request. The API server learns of a new or repaired role
binding by its own watch, so the first attempts can fail.
"""


@dataclass(frozen=True, slots=True)
class Task:
    """One request about one object: its name in the log (`subject`) and the call.

    `is_due` returns whether the request is still needed. Urgent tasks come first. The callbacks are:

    - `refused` after a refusal;
    - `put_off`, with the API server's message, if a disruption budget forbids it;
    - `unauthorized` if the right is still missing;
    - `denied`, with the API server's message, if another attempt would be refused too;
    - `done` after success;
    - `over` at the end, after success and after failure.
    """

    subject: str
    call: Callable[[], Awaitable[None]]
    is_due: Callable[[], bool]
    refused: Callable[[], None]
    done: Callable[[], None] = lambda: None
    put_off: Callable[[str], None] = lambda _why: None
    unauthorized: Callable[[], None] = lambda: None
    denied: Callable[[str], None] = lambda _why: None
    over: Callable[[], None] = lambda: None
    urgent: bool = True


class Requests:
    """Carries out tasks in the order of their arrival, urgent tasks first. No request is sent unless `is_leader()`.

    `on_failure` is called after every failed attempt, with the kind of failure: `unanswered`, `budget`, `forbidden`,
    `overtaken`, `refused`, `mistake`.
    """

    def __init__(
        self,
        *,
        is_leader: Callable[[], bool],
        request_seconds: float = OPERATOR_REQUEST_SECONDS,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        on_failure: Callable[[str], None] = lambda _reason: None,
    ) -> None:
        self.request_seconds = request_seconds
        self._on_failure = on_failure
        self._is_leader = is_leader
        self._sleep = sleep
        self._urgent: deque[tuple[Task, int]] = deque()
        self._unhurried: deque[tuple[Task, int]] = deque()
        self._workers: set[asyncio.Task[None]] = set()
        self._working = (
            # `len(_workers)` would be too high, because an ended worker stays in it until the next round of
            # the event loop.
            0
        )
        self._working_unhurried = 0
        self._delayed: set[asyncio.Task[None]] = set()

    async def close(self) -> None:
        """Cancel the running requests and drop the queued requests."""
        self._urgent.clear()
        self._unhurried.clear()
        running = [*self._delayed, *self._workers]
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)

    @property
    def is_busy(self) -> bool:
        """Whether a request is running or queued."""
        return bool(self._workers or self._delayed)

    async def idle(self) -> None:
        """Wait until no request is running or queued."""
        while running := self._workers | self._delayed:
            await asyncio.wait(running)

    def put(self, task: Task, *, after: Iterable[asyncio.Future[None]] = ()) -> None:
        """Queue the task, but send it only after all of `after` are done, with or without success.

        The wait is at most `request_seconds`. The task then comes before newer tasks.
        """
        earlier = [future for future in after if not future.done()]
        if earlier:
            keep(self._delayed, self._put_after(task, earlier))
        else:
            self._put(task)

    def _put(self, task: Task, attempt: int = 1, *, first: bool = False) -> None:
        """Queue the task, and start a worker if fewer than the maximum run. A worker takes one task after the other.

        Workers are faster than a task for each request with a semaphore, which starts the next request one event loop
        round later.
        """
        queue = self._urgent if task.urgent else self._unhurried
        (queue.appendleft if first else queue.append)((task, attempt))
        if self._working < REQUESTS_IN_FLIGHT:
            self._working += 1
            keep(self._workers, self._work())

    async def _work(self) -> None:
        try:
            while (entry := self._next()) is not None:
                task, attempt = entry
                self._working_unhurried += not task.urgent
                try:
                    is_settled = await self._carry_out(task, attempt)
                finally:
                    self._working_unhurried -= not task.urgent
                if is_settled:
                    task.over()
                else:
                    keep(self._delayed, self._put_later(task, attempt + 1))
        finally:
            self._working -= 1

    def _next(self) -> tuple[Task, int] | None:
        if self._urgent:
            return self._urgent.popleft()
        if self._unhurried and self._working_unhurried < UNHURRIED_IN_FLIGHT:
            return self._unhurried.popleft()
        return None

    async def _put_after(self, task: Task, earlier: Iterable[asyncio.Future[None]]) -> None:
        await asyncio.wait(earlier, timeout=self.request_seconds)
        self._put(task, first=True)

    async def _put_later(self, task: Task, attempt: int) -> None:
        await self._sleep(_delay_seconds(attempt - 1))
        self._put(task, attempt)

    async def _carry_out(self, task: Task, attempt: int) -> bool:
        """Make one attempt. Return true if an answer settled the task, or if it is no longer due."""
        if not task.is_due():
            if attempt > 1:
                task.done()
            return True
        try:
            return self._is_leader() and await self._send(task, attempt)
        except (ServerFault, TooManyRequests) as error:
            self._on_failure("unanswered")
            _log_repeat(task, attempt, error)
        except Unreachable as error:
            self._on_failure("unanswered")
            _log_repeat(task, attempt, error)
            # The server is unreachable for all requests. The worker waits, so that fewer attempts are made.
            await self._sleep(_delay_seconds(1))
        except Exception:  # the server may have carried out the request, and other requests need this worker
            self._on_failure("mistake")
            logger.exception("%s: to be repeated after a mistake in muster", task.subject)
        return False

    async def _send(self, task: Task, attempt: int) -> bool:
        try:
            async with asyncio.timeout(self.request_seconds):
                await task.call()
        except TimeoutError as error:
            raise Unreachable(f"no answer within {self.request_seconds} s") from error
        except (Unreachable, ServerFault, TooManyRequests):
            raise
        except EvictionBlocked as error:
            self._on_failure("budget")
            logger.info("%s: %s", task.subject, error)
            task.refused()
            task.put_off(error.message)
        except Forbidden as error:
            self._on_failure("forbidden")
            if attempt < FORBIDDEN_ATTEMPTS:
                _log_repeat(task, attempt, error)
                return False
            logger.warning("%s: refused %d times: %s", task.subject, attempt, error)
            task.refused()
            task.unauthorized()
            task.denied(error.message)
        except ClusterError as error:
            overtaken = isinstance(error, NotFound | Conflict)
            self._on_failure("overtaken" if overtaken else "refused")
            logger.log(logging.INFO if overtaken else logging.WARNING, "%s: refused: %s", task.subject, error)
            task.refused()
            if not overtaken:
                task.denied(error.message)
        else:
            logger.info("%s%s", task.subject, f" (attempt {attempt})" if attempt > 1 else "")
            task.done()
        return True


def keep(tasks: set[asyncio.Task[None]], work: Coroutine[Any, Any, None]) -> None:
    """Run the coroutine in the background. `tasks` has its task until it ends."""
    task = asyncio.create_task(work)
    tasks.add(task)
    task.add_done_callback(tasks.discard)


def _log_repeat(task: Task, attempt: int, error: ClusterError) -> None:
    logger.log(
        logging.WARNING if attempt == 1 else logging.DEBUG, "%s: to be repeated: %s", task.subject, error
    )


def _delay_seconds(attempt: int) -> float:
    longest = min(MAX_DELAY_SECONDS, FIRST_DELAY_SECONDS * 2.0 ** min(attempt, 8))
    return longest * random.uniform(0.5, 1.0)  # noqa: S311 - spreads the load, keeps no secret
