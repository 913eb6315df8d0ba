"""Events about pending pods: one for each kind of reason, and a limited number."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from orchestrator.cluster.kubeconfig import Access
from orchestrator.cluster.objects import Pod
from orchestrator.cluster.transport import Transport
from orchestrator.control.report.conditions import ConditionWriter
from orchestrator.control.report.events import EVENTS_PER_SECOND, MAX_WAITING, Announcer
from tests.cli.memory_api_server import serving
from tests.cluster.waiting import ManualClock, running, until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from tests.cli.memory_api_server import MemoryApiServer


@pytest.fixture
def server() -> Iterator[MemoryApiServer]:
    with serving() as server:
        yield server


@pytest.fixture
async def transport(server: MemoryApiServer) -> AsyncIterator[Transport]:
    access = Access(server=server.url, namespace="", context="", user="", ssl=None, token=lambda: None)
    async with Transport(access) as transport:
        yield transport


def a_pod(name: str = "one-x", message: str = "") -> Pod:
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}
    body: dict[str, Any] = {"metadata": {"name": name, "namespace": "muster-a", "uid": f"uid-{name}"}}
    return msgspec.convert(body | {"status": {"conditions": [condition] if message else []}}, Pod)


async def test_a_pod_that_waits_has_one_event_for_every_kind_of_reason(
    server: MemoryApiServer, transport: Transport
) -> None:
    clock = ManualClock()
    announcer = Announcer(transport, clock=clock, sleep=clock.sleep)
    async with running(announcer.run()):
        for message in ("ClusterFull: 0 free", "AtFairShare: wait", "ClusterFull: 1 free"):
            announcer.waits(a_pod(), message)
        await until(lambda: len(clock.slept) == 3)
    assert [each["message"] for each in server.all("events")] == ["ClusterFull: 0 free", "AtFairShare: wait"]
    event = server.all("events")[0]
    assert (event["type"], event["reason"]) == ("Warning", "Unschedulable")
    assert event["involvedObject"]["uid"] == "uid-one-x"
    assert event["metadata"]["name"] == event["metadata"]["name"].lower()


async def test_events_are_paced_and_the_oldest_of_a_flood_are_dropped(
    server: MemoryApiServer, transport: Transport
) -> None:
    clock = ManualClock()
    announcer = Announcer(transport, clock=clock, sleep=clock.sleep)
    for number in range(MAX_WAITING + 10):
        announcer.waits(a_pod(f"pod-{number}"), "ClusterFull: none")
    async with running(announcer.run()):
        await until(lambda: len(clock.slept) == MAX_WAITING)
    assert set(clock.slept) == {1 / EVENTS_PER_SECOND}
    names = [each["involvedObject"]["name"] for each in server.all("events")]
    assert names == [f"pod-{number}" for number in range(10, MAX_WAITING + 10)]


async def test_an_event_that_is_refused_costs_nothing_but_itself(
    server: MemoryApiServer, transport: Transport
) -> None:
    clock = ManualClock()
    announcer = Announcer(transport, clock=clock, sleep=clock.sleep)
    server.refuse("POST", "/api/v1/namespaces/muster-a/events", 403, "Forbidden")
    async with running(announcer.run()) as task:
        announcer.waits(a_pod(), "ClusterFull: none")
        await until(lambda: clock.slept)
        assert not task.done()
    assert server.all("events") == []


@pytest.mark.parametrize(
    ("said", "announced"), [("", 1), ("ClusterFull: 0 free", 0), ("AtFairShare: wait", 1)]
)
async def test_only_another_kind_of_reason_is_announced(
    said: str, announced: int, server: MemoryApiServer, transport: Transport
) -> None:
    pod = a_pod(message=said)
    server.add({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "one-x", "namespace": "muster-a"}})
    messages: list[str] = []
    fetched = asyncio.Event()

    async def done() -> None:
        fetched.set()

    writer = ConditionWriter(
        transport,
        {"uid": pod},
        is_leader=lambda: True,
        bindings_done=done,
        clock=lambda: 1000.0,
        on_new_reason=lambda _pod, message: messages.append(message),
    )
    writer.want({"uid": ("ClusterFull", "1 free")})
    async with running(writer.run()):
        await until(lambda: "uid" in writer._written)
        await until(lambda: len(messages) == announced)
    assert messages == ["ClusterFull: 1 free"] * announced
