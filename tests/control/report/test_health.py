import asyncio
import socket
from contextlib import ExitStack
from pathlib import Path

import aiohttp

from orchestrator.control.report.health import STUCK_SECONDS, Health, health_pages
from orchestrator.pages import MAX_CONNECTIONS, serving_pages
from tests.cluster.waiting import ManualClock


async def pages(health: Health) -> dict[str, tuple[int, str]]:
    found = {}
    pages_of = health_pages(health)
    async with serving_pages(pages_of, "127.0.0.1", 0) as port, aiohttp.ClientSession() as session:
        for name in ("healthz", "readyz"):
            async with session.get(f"http://127.0.0.1:{port}/{name}") as answer:
                found[name] = (answer.status, (await answer.text()).strip())
    return found


async def test_a_replica_that_stands_by_is_well_however_long_it_waits() -> None:
    clock = ManualClock()
    health = Health(clock)
    clock.now += 10 * STUCK_SECONDS
    assert await pages(health) == {"healthz": (200, "standing by"), "readyz": (200, "standing by")}


async def test_a_leader_whose_loop_stands_still_asks_to_be_restarted() -> None:
    clock = ManualClock()
    health = Health(clock)
    health.leading()
    clock.now += STUCK_SECONDS + 10
    assert await pages(health) == {
        "healthz": (503, "the scheduling loop has stood still for 100 s"),
        "readyz": (503, "the scheduling loop has stood still for 100 s"),
    }
    health.decided()
    assert (await pages(health))["healthz"] == (200, "leading")


async def test_a_decision_that_fails_is_shown_but_no_reason_for_a_restart() -> None:
    health = Health(ManualClock())
    health.leading()
    health.failed("KeyError: 'x'")
    assert await pages(health) == {
        "healthz": (200, "leading"),
        "readyz": (503, "the last decision failed: KeyError: 'x'"),
    }
    health.decided()
    assert (await pages(health))["readyz"] == (200, "leading")


async def test_skipped_objects_are_named_and_make_no_replica_unready() -> None:
    health = Health(ManualClock())
    health.leading()
    health.note_skipped(["Pod a/b: it is odd"])
    assert await pages(health) == {
        "healthz": (200, "leading"),
        "readyz": (200, "leading\n1 object is skipped:\nPod a/b: it is odd"),
    }
    health.note_skipped([f"Pod a/{each}: {'x' * 1000}" for each in range(30)])
    lines = (await pages(health))["readyz"][1].splitlines()
    assert (len(lines), lines[1], lines[-1]) == (23, "30 objects are skipped:", "and 10 more")
    assert max(map(len, lines)) == 300
    health.on_standby()
    assert (await pages(health))["readyz"] == (200, "standing by")


async def test_probes_are_answered_under_2000_silent_connections() -> None:
    """The connections arrive in a burst. One of them sends half a request."""
    pages_of = health_pages(Health(ManualClock()))
    async with serving_pages(pages_of, "127.0.0.1", 0) as port:
        with ExitStack() as stack:
            for number in range(2000):
                opened = stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=5))
                if not number:
                    opened.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\n")
                if number % 50 == 0:
                    await asyncio.sleep(0)
            async with aiohttp.ClientSession() as session, asyncio.timeout(5):
                for _ in range(3):
                    async with session.get(f"http://127.0.0.1:{port}/healthz") as answer:
                        assert answer.status == 200
            assert _open(port) <= 2 * MAX_CONNECTIONS


def _open(port: int) -> int:
    """Return the number of connections that this process has accepted on the port and not closed."""
    rows = [line.split() for line in Path("/proc/self/net/tcp").read_text(encoding="ascii").splitlines()[1:]]
    return sum(row[1].endswith(f":{port:04X}") and row[3] == "01" for row in rows)
