"""The latest state reaches the API server, after any delay."""

import asyncio
from typing import TYPE_CHECKING

from orchestrator.agent.publisher import FIRST_WAIT_SECONDS, MAX_WAIT_SECONDS, Publisher
from orchestrator.cluster.errors import Unreachable
from tests.cluster.waiting import running, until

if TYPE_CHECKING:
    from collections.abc import Callable


class Server:
    def __init__(self, failures: int = 0) -> None:
        self.failures = failures
        self.written: list[str] = []
        self.waits: list[float] = []
        self.results: list[str] = []
        self.on_wait: Callable[[], None] = lambda: None
        self.hold: asyncio.Event | None = None

    async def write(self, value: str) -> None:
        if self.hold is not None:
            await self.hold.wait()
        if self.failures:
            self.failures -= 1
            raise Unreachable("nobody there")
        self.written.append(value)

    async def sleep(self, seconds: float) -> None:
        self.waits.append(seconds)
        self.on_wait()
        await asyncio.sleep(0)

    def publisher(self) -> Publisher[str]:
        return Publisher(
            "x",
            self.write,
            count=lambda _about, result: self.results.append(result),
            sleep=self.sleep,
            uniform=lambda _low, high: high,
        )


async def test_while_the_server_is_away_only_the_latest_waits_and_it_is_written_in_the_end() -> None:
    server = Server(failures=12)
    publisher = server.publisher()
    numbers = iter(range(100))
    server.on_wait = lambda: publisher.offer(f"state {next(numbers)}")
    publisher.offer("first")
    async with running(publisher.run()):
        await until(lambda: server.written)
    assert server.written[0] == "state 11"
    assert server.waits[:8] == [FIRST_WAIT_SECONDS * 2**power for power in range(6)] + [60, 60]
    assert max(server.waits) == MAX_WAIT_SECONDS
    assert server.results[:13] == ["error"] * 12 + ["ok"]


async def test_a_report_during_a_write_is_written_after_it() -> None:
    server = Server()
    server.hold = asyncio.Event()
    publisher = server.publisher()

    async with running(publisher.run()):
        publisher.offer("one")
        await asyncio.sleep(0)
        publisher.offer("two")
        publisher.offer("three")
        server.hold.set()
        await until(lambda: len(server.written) == 2)
    assert server.written == ["one", "three"]


async def test_nothing_is_written_twice_and_an_empty_text_is_written() -> None:
    server = Server()
    publisher = server.publisher()
    publisher.offer("")
    async with running(publisher.run()):
        await until(lambda: server.written)
        await asyncio.sleep(0)
    assert server.written == [""]
