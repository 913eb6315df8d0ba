from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from orchestrator.cluster.transport import Transport
from tests.cluster.fake_api_server import FakeApiServer, access_to, serving
from tests.cluster.waiting import ManualClock

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


@pytest.fixture
async def server() -> AsyncIterator[FakeApiServer]:
    async with serving() as server:
        yield server


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def transport(server: FakeApiServer, clock: ManualClock) -> AsyncIterator[Transport]:
    """Yield a transport whose pauses take no time, and are recorded by `clock`."""
    async with Transport(access_to(server), sleep=clock.sleep, uniform=lambda low, high: low) as transport:
        yield transport
