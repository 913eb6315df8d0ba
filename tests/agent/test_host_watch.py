"""The condition of the node: written for each reading, kept over restarts, removed if another system owns it."""

import threading
from collections.abc import AsyncIterator
from typing import Any

import pytest

from orchestrator.agent.host import HostTexts, Text, unread
from orchestrator.agent.host_watch import BLOCKED_SECONDS, HostWatch
from orchestrator.agent.metrics import AgentFigures, render
from orchestrator.agent.model import NodeReading
from orchestrator.cluster.transport import STRATEGIC_MERGE_PATCH, Transport
from tests.agent.host_trees import BOOT
from tests.cluster.fake_api_server import Answer, FakeApiServer, Request, access_to, serving
from tests.cluster.waiting import ManualClock, running, until

NODE, STATUS = "/api/v1/nodes/n1", "/api/v1/nodes/n1/status"
MEMORY = "<0>[ 100.000000] EDAC MC0: 1 UE memory read error\n"
LINKS = Text("/sys/class/infiniband/mlx5_0/ports/1/counters/link_downed:0")


class FakeHost:
    """A host with a kernel's log that a test changes."""

    def __init__(self) -> None:
        self.log = Text(BOOT)
        self.may_answer = threading.Event()
        self.may_answer.set()

    def read(self) -> HostTexts:
        self.may_answer.wait()
        return HostTexts(self.log, LINKS, Text("tsc"))


class Site:
    """An API server that merges conditions as Kubernetes does, and a watch of the host of the node n1."""

    def __init__(self, server: FakeApiServer, transport: Transport) -> None:
        self.transport = transport
        self.clock = ManualClock()
        self.host = FakeHost()
        self.conditions: dict[str, dict[str, Any]] = {"Ready": {"type": "Ready", "status": "True"}}
        self.written: list[dict[str, Any]] = []
        self.types: list[str | None] = []
        server.on("GET", NODE, lambda _request: Answer(self._node()))
        server.on("PATCH", STATUS, self._merge)

    def watch(
        self, host: FakeHost | None, *, booted_at: float = 0, blocked_seconds: float = BLOCKED_SECONDS
    ) -> HostWatch:
        return HostWatch(
            self.transport,
            "n1",
            host,
            wall_clock=self.clock,
            booted_at=booted_at,
            seconds=0.001,
            blocked_seconds=blocked_seconds,
        )

    @property
    def fault(self) -> dict[str, Any]:
        return self.conditions.get("muster.dev/HostFault", {})

    def _node(self) -> dict[str, Any]:
        return {"metadata": {"name": "n1"}, "status": {"conditions": list(self.conditions.values())}}

    def _merge(self, request: Request) -> Answer:
        assert list(request.body) == ["status"]
        (condition,) = request.body["status"]["conditions"]
        self.types.append(request.headers.get("Content-Type"))
        if condition.get("$patch") == "delete":
            del self.conditions[condition["type"]]
        else:
            self.conditions[condition["type"]] = condition
        self.written.append(condition)
        return Answer(self._node())


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    clock = ManualClock()
    async with (
        serving() as server,
        Transport(access_to(server), sleep=clock.sleep, uniform=lambda low, high: low) as transport,
    ):
        yield Site(server, transport)


async def test_a_fault_is_a_condition_with_its_repair_beside_the_other_conditions(site: Site) -> None:
    async with running(site.watch(site.host).run()):
        await until(lambda: site.fault.get("status") == "False")
        began = site.fault["lastTransitionTime"]
        site.clock.now += 100
        await until(lambda: site.fault["lastHeartbeatTime"] != began)
        assert site.fault["lastTransitionTime"] == began
        site.host.log = Text(BOOT + MEMORY)
        await until(lambda: site.fault["status"] == "True")
    assert site.fault["reason"] == "LastingHostFault"
    assert site.fault["message"] == "memory error (1 times) -> replace the memory module"
    assert site.fault["lastTransitionTime"] != began
    assert site.conditions["Ready"] == {"type": "Ready", "status": "True"}
    assert set(site.types) == {STRATEGIC_MERGE_PATCH}


async def test_an_unread_fact_is_unknown_in_the_condition_and_in_the_metrics(site: Site) -> None:
    site.host.log = unread("Operation not permitted").kernel_log
    watch = site.watch(site.host)
    async with running(watch.run()):
        await until(lambda: site.fault.get("status") == "Unknown")
        assert site.fault["message"] == "not read: kernel-log: Operation not permitted"
        page = render(NodeReading(), AgentFigures(), watch.reading)
        assert 'muster_host_fact_read{fact="kernel-log"} 0' in page
        assert 'muster_host_fault{fact="kernel-log"}' not in page
        assert 'muster_host_fault{fact="links"} 0' in page
        assert 'muster_host_link_errors_total{link="mlx5_0/1",counter="link_downed"} 0' in page


async def test_a_host_that_does_not_answer_is_unknown_until_it_does(site: Site) -> None:
    site.host.may_answer.clear()
    async with running(site.watch(site.host, blocked_seconds=0.01).run()):
        await until(lambda: "links: no answer for" in site.fault.get("message", ""))
        assert site.fault["status"] == "Unknown"
        site.host.may_answer.set()
        await until(lambda: site.fault["status"] == "False")


async def test_the_next_agent_keeps_a_fault_of_this_boot_and_forgets_one_of_an_earlier_boot(
    site: Site,
) -> None:
    site.host.log = Text(BOOT + MEMORY)
    async with running(site.watch(site.host).run()):
        await until(lambda: site.fault.get("status") == "True")
    began = site.fault["lastTransitionTime"]
    site.host.log = Text("<6>[ 900.000000] eth0: the ring has lost the beginning\n")
    site.clock.now += 500
    async with running(site.watch(site.host).run()):
        written = len(site.written)
        await until(lambda: len(site.written) > written + 20)
        assert (site.fault["status"], site.fault["lastTransitionTime"]) == ("True", began)
    async with running(site.watch(site.host, booted_at=site.clock.now).run()):
        written = len(site.written)
        await until(lambda: len(site.written) > written)
        assert site.fault["status"] == "False"


async def test_where_another_system_owns_the_hosts_the_condition_is_removed_and_none_is_written(
    site: Site,
) -> None:
    async with running(site.watch(None).run()):
        pass
    assert site.written == []
    async with running(site.watch(site.host).run()):
        await until(lambda: bool(site.fault))
    async with running(site.watch(None).run()):
        await until(lambda: not site.fault)
    assert site.conditions.keys() == {"Ready"}
    assert "muster_host" not in render(NodeReading(), AgentFigures(), site.watch(None).reading)
