"""Reads the host every five minutes, and keeps the condition `muster.dev/HostFault` of its node current."""

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, Protocol

from orchestrator.agent.host import HostTexts, unread
from orchestrator.agent.host_health import HostHealth, HostReading
from orchestrator.agent.metrics import CONDITION
from orchestrator.agent.publisher import Publisher
from orchestrator.cluster.errors import ClusterError
from orchestrator.cluster.objects import Node
from orchestrator.cluster.quantity import format_time, parse_time
from orchestrator.cluster.resources import NODES
from orchestrator.cluster.transport import STRATEGIC_MERGE_PATCH, Transport
from orchestrator.cluster.wire import Condition
from orchestrator.names import HOST_FAULT_CONDITION

logger = logging.getLogger(__name__)

HOST_SECONDS: Final = 300.0
BLOCKED_SECONDS: Final = 60.0
RETRY_SECONDS: Final = 10.0


class Source(Protocol):
    """The host; see `host.Host`."""

    def read(self) -> HostTexts: ...  # noqa: D102


class HostWatch:
    """The loop over the facts of the host. `wall_clock` is since the epoch, in seconds, as is `booted_at`.

    If `host` is None, another system owns the health of nodes: the loop removes the condition and ends.
    """

    def __init__(
        self,
        transport: Transport,
        node: str,
        host: Source | None,
        *,
        wall_clock: Callable[[], float],
        booted_at: float,
        seconds: float = HOST_SECONDS,
        blocked_seconds: float = BLOCKED_SECONDS,
        count: Callable[[str, str], None] = lambda _about, _result: None,
    ) -> None:
        self._transport = transport
        self._node = node
        self._host = host
        self._wall_clock = wall_clock
        self._booted_at = booted_at
        self._seconds = seconds
        self._blocked_seconds = blocked_seconds
        self._written: Condition | None = None
        self._publisher: Publisher[dict[str, Any]] = Publisher(CONDITION, self._write, count=count)
        self.reading: HostReading | None = None if host is None else HostReading()

    async def run(self) -> None:
        """Read and write until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._publisher.run())
            group.create_task(self._watch())

    async def _watch(self) -> None:
        self._written = await self._before()
        if self._host is None:
            if self._written is not None:
                self._publisher.offer({"type": HOST_FAULT_CONDITION, "$patch": "delete"})
            return
        health = HostHealth(_carried(self._written, self._booted_at))
        loop = asyncio.get_running_loop()
        with ThreadPoolExecutor(1, "host") as thread:
            due = loop.time()
            while True:
                future = loop.run_in_executor(thread, self._host.read)
                await asyncio.wait({future}, timeout=self._blocked_seconds)
                if not future.done():
                    self._take(health.next(unread(f"no answer for {self._blocked_seconds:g} s")))
                self._take(health.next(await future))
                due = max(due + self._seconds, loop.time())
                await asyncio.sleep(due - loop.time())

    async def _before(self) -> Condition | None:
        """Return the condition that the node has. Without an answer of the API server, ask again."""
        while True:
            try:
                node = await self._transport.get(NODES.path(name=self._node), Node)
            except ClusterError as error:
                logger.debug("the conditions of the Node are not known: %s", error)
                await asyncio.sleep(RETRY_SECONDS)
                continue
            conditions = node.status.conditions
            return next((one for one in conditions if one.type == HOST_FAULT_CONDITION), None)

    def _take(self, reading: HostReading) -> None:
        self.reading = reading
        now = format_time(int(self._wall_clock()) * 1_000_000, places=0)
        before = self._written
        is_same = before is not None and before.status == reading.status and before.last_transition_time
        condition = Condition(
            HOST_FAULT_CONDITION,
            reading.status,
            reading.reason,
            reading.message,
            before.last_transition_time if before is not None and is_same else now,
        )
        if not is_same:
            logger.warning("condition %s is %s: %s", condition.type, condition.status, condition.message)
        self._written = condition
        self._publisher.offer(
            {
                "type": condition.type,
                "status": condition.status,
                "reason": condition.reason,
                "message": condition.message,
                "lastHeartbeatTime": now,
                "lastTransitionTime": condition.last_transition_time,
            }
        )

    async def _write(self, condition: dict[str, Any]) -> None:
        path = f"{NODES.path(name=self._node)}/status"
        body = {"status": {"conditions": [condition]}}
        await self._transport.patch(path, body, content_type=STRATEGIC_MERGE_PATCH)


def _carried(before: Condition | None, booted_at: float) -> tuple[str, str] | None:
    """Return reason and message of a fault that was found since the host started; None if there is none."""
    if before is None or before.status != "True":
        return None
    try:
        is_of_this_boot = parse_time(before.last_transition_time or "") >= booted_at * 1_000_000
    except ValueError:
        is_of_this_boot = True
    return (before.reason, before.message) if is_of_this_boot else None
