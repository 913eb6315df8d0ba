"""A decision waits for changes that arrive together, but not for changes that never end."""

import asyncio

from orchestrator.control.decide.settling import settle
from tests.cluster.waiting import running


async def test_a_decision_waits_for_all_that_arrives_together() -> None:
    changed, arrived = asyncio.Event(), []

    async def arrive() -> None:
        for number in range(20):
            arrived.append(number)
            changed.set()
            await asyncio.sleep(0)

    async with running(arrive()):
        await changed.wait()
        await settle(changed, settled_seconds=0, max_seconds=60)
        assert len(arrived) == 20
        assert not changed.is_set()


async def test_changes_that_do_not_end_are_not_waited_for() -> None:
    changed = asyncio.Event()
    changed.set()

    async def arrive() -> None:
        while True:
            changed.set()
            await asyncio.sleep(0)

    async with running(arrive()), asyncio.timeout(60):
        await settle(changed)
