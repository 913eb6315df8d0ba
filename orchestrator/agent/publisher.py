"""Writes changes to the API server, one write at a time; a newer value replaces a queued one."""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable
from typing import Final, Generic, TypeVar

from orchestrator.cluster.errors import ClusterError

logger = logging.getLogger(__name__)

FIRST_WAIT_SECONDS: Final = 1.0
MAX_WAIT_SECONDS: Final = 60.0

T = TypeVar("T")


class Publisher(Generic[T]):
    """Keeps the latest value until it is written.

    If `write` raises ClusterError, it is tried again after a wait that doubles up to a maximum. `count` gets the result
    of each attempt: `ok` or `error`.
    """

    def __init__(
        self,
        about: str,
        write: Callable[[T], Awaitable[None]],
        *,
        count: Callable[[str, str], None] = lambda _about, _result: None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        uniform: Callable[[float, float], float] = random.uniform,
    ) -> None:
        self._about = about
        self._write = write
        self._count = count
        self._sleep = sleep
        self._uniform = uniform
        self._latest: T | None = None
        self._changed = asyncio.Event()

    def offer(self, value: T) -> None:
        """Queue a value, in place of an older one."""
        self._latest = value
        self._changed.set()

    async def run(self) -> None:
        """Write until cancelled."""
        wait = FIRST_WAIT_SECONDS
        while True:
            await self._changed.wait()
            self._changed.clear()
            value = self._latest
            if value is None:
                continue
            try:
                await self._write(value)
            except ClusterError as error:
                self._count(self._about, "error")
                level = logging.WARNING if wait == FIRST_WAIT_SECONDS else logging.DEBUG
                logger.log(level, "%s was not written, and is tried again: %s", self._about, error)
                self._changed.set()
                await self._sleep(self._uniform(wait / 2, wait))
                wait = min(2 * wait, MAX_WAIT_SECONDS)
                continue
            if wait != FIRST_WAIT_SECONDS:
                logger.warning("%s is written again", self._about)
            wait = FIRST_WAIT_SECONDS
            self._count(self._about, "ok")
            if self._latest is value:
                self._latest = None
