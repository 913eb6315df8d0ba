"""Covers `musterweb.sights`: few users read their lists at the same time, and each keeps its slot for a limited
time.
"""

import asyncio

from musterweb.sights import ReadingSlots
from tests.cluster.waiting import DEADLINE_SECONDS


async def enter(slots: ReadingSlots, entered: asyncio.Event) -> None:
    async with slots.one():
        entered.set()


async def test_whose_lists_hang_keeps_others_waiting_for_a_while_only() -> None:
    slots = ReadingSlots(count=1, seconds=0)
    async with asyncio.timeout(DEADLINE_SECONDS), slots.one():
        await enter(slots, asyncio.Event())


async def test_others_wait_until_a_place_is_given_back() -> None:
    slots, entered = ReadingSlots(count=1, seconds=DEADLINE_SECONDS), asyncio.Event()
    async with slots.one():
        waiting = asyncio.create_task(enter(slots, entered))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert not entered.is_set()
    await waiting
    assert entered.is_set()
