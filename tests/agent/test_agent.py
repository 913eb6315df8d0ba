"""The whole process of the agent, with a kubelet and an API server that come and go."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from orchestrator.agent.agent import BLOCKED_SECONDS, Agent, AgentOptions
from orchestrator.cluster.transport import Transport
from tests.agent.doubles import FakeDriver, uuid
from tests.agent.kubelets import Kubelet, listening, pod
from tests.cluster.fake_api_server import Answer, FakeApiServer, Request, access_to, serving
from tests.cluster.waiting import ManualClock, running, until

NODE, GPU_NODE = "/api/v1/nodes/n1", "/apis/muster.dev/v1alpha1/gpunodes/n1"


class Site:
    """An API server that stores the written objects, and an agent of the node n1."""

    def __init__(self, server: FakeApiServer, transport: Transport, socket: Path) -> None:
        self.server = server
        self.transport = transport
        self.driver = FakeDriver(2)
        self.clock = ManualClock()
        self.gpu_node: dict[str, Any] = {}
        self.annotations: list[Any] = []
        self.lost: list[Any] = []
        self.is_down = False
        self.node = new_node("u1")
        self.kubelet = Kubelet()
        self.socket = socket
        server.on("GET", NODE, lambda _request: self._answer(self.node))
        server.on("GET", GPU_NODE, lambda _request: self._answer(self.gpu_node))
        server.on("PATCH", GPU_NODE, self._keep)
        server.on("PATCH", NODE, self._annotate)

    def agent(self, *, node_seconds: float = 60.0) -> Agent:
        options = AgentOptions(
            "n1", socket=self.socket, sample_seconds=0.001, kubelet_seconds=0.001, node_seconds=node_seconds
        )
        return Agent(self.transport, options, driver=self.driver, clock=self.clock, wall_clock=self.clock)

    def spec(self) -> dict[str, Any]:
        spec: dict[str, Any] = self.gpu_node.get("spec", {})
        return spec

    def _answer(self, body: dict[str, Any]) -> Answer:
        return Answer({}, 503) if self.is_down else Answer(body) if body else Answer({}, 404)

    def _keep(self, request: Request) -> Answer:
        if not self.is_down:
            self.gpu_node = request.body
        return self._answer({"metadata": {}})

    def _annotate(self, request: Request) -> Answer:
        if not self.is_down:
            written = request.body["metadata"]["annotations"]
            self.node["metadata"]["annotations"] = {key: text for key, text in written.items() if text}
            self.annotations.append(written["muster.dev/failed-gpus"])
            self.lost.append(written["muster.dev/lost-gpus"])
        return self._answer({"metadata": {}})


def new_node(uid: str) -> dict[str, Any]:
    return {"metadata": {"name": "n1", "uid": uid}}


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    clock = ManualClock()
    async with (
        serving() as server,
        Transport(access_to(server), sleep=clock.sleep, uniform=lambda low, high: low) as transport,
    ):
        yield Site(server, transport, tmp_path / "kubelet.sock")


async def test_the_report_is_written_with_the_node_as_its_owner(site: Site) -> None:
    pod(site.kubelet.response, "train-0", uuid(1))
    async with listening(site.kubelet, site.socket), running(site.agent().run()):
        await until(lambda: site.spec().get("gpus", [{}, {}])[1].get("holders"))
    assert site.gpu_node["metadata"] == {
        "name": "n1",
        "ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": "u1"}],
    }
    assert site.spec()["driverVersion"] == "550.1"
    assert site.spec()["observedAt"] == "1970-01-01T00:16:40Z"
    (first, second) = site.spec()["gpus"]
    assert first["uuid"] == uuid(0)
    assert second["holders"] == [{"namespace": "team-a", "pod": "train-0", "container": "main"}]


async def test_a_failed_gpu_is_on_the_node_at_once_and_is_removed_when_it_is_well(site: Site) -> None:
    async with running(site.agent().run()):
        await until(lambda: site.annotations == [None])
        site.driver.problems[1] = "lost"
        await until(lambda: site.annotations == [None, "1"])
        del site.driver.problems[1]
        site.clock.now += 1
        await until(lambda: site.annotations == [None, "1"])
        samples = site.driver.samples
        await until(lambda: site.driver.samples > samples + 4)
        site.clock.now += 100
        await until(lambda: site.annotations == [None, "1", None])
    assert site.lost == site.annotations


async def test_an_xid_is_known_to_the_next_agent_until_the_object_is_deleted(site: Site) -> None:
    site.driver.events.append((0, 79))
    async with running(site.agent().run()):
        await until(
            lambda: (
                site.annotations[-1:] == ["0"] and site.spec().get("gpus", [{}])[0].get("failure") == "xid-79"
            )
        )
    async with running(site.agent().run()):
        await until(lambda: len(site.annotations) == 2)
    assert site.annotations == ["0", "0"]
    assert site.lost == [None, None], "one with an Xid answers all the same"
    site.gpu_node = {}
    async with running(site.agent().run()):
        await until(lambda: len(site.annotations) == 3)
    assert site.annotations[-1] is None


async def test_a_node_that_is_registered_anew_says_all_again(site: Site) -> None:
    """The annotations vanished with the Node, and so did the GpuNode that it owned."""
    site.driver.problems[1] = "lost"
    async with running(site.agent(node_seconds=0.001).run()):
        await until(lambda: "annotations" in site.node["metadata"] and bool(site.spec()))
        site.gpu_node, site.node = {}, new_node("u2")
        await until(lambda: "annotations" in site.node["metadata"] and bool(site.spec()))
    assert site.gpu_node["metadata"]["ownerReferences"][0]["uid"] == "u2"
    assert set(site.node["metadata"]["annotations"].values()) == {"1"}


async def test_values_that_others_remove_from_the_node_are_written_again(site: Site) -> None:
    site.driver.events.append((0, 79))
    async with running(site.agent(node_seconds=0.001).run()):
        await until(lambda: "annotations" in site.node["metadata"])
        site.node["metadata"].pop("annotations")
        await until(lambda: "annotations" in site.node["metadata"])
    assert site.node["metadata"]["annotations"] == {"muster.dev/failed-gpus": "0"}


async def test_without_the_driver_the_object_says_why_and_the_nodes_annotation_remains(site: Site) -> None:
    site.driver.is_missing = True
    agent = site.agent()
    async with running(agent.run()):
        await until(lambda: site.spec().get("problem"))
    assert site.spec()["problem"] == "NVML: NVML Shared Library Not Found"
    assert site.annotations == []
    assert agent.ready_page().status == 200
    assert "NVML Shared Library Not Found" in agent.ready_page().text
    assert 'muster_agent_source_up{source="nvml"} 0' in agent.metrics_page().text


async def test_the_last_holders_remain_while_the_kubelet_restarts(site: Site) -> None:
    pod(site.kubelet.response, "train-0", uuid(0))
    agent = site.agent()
    async with running(agent.run()):
        async with listening(site.kubelet, site.socket):
            await until(lambda: agent.reading.gpus and agent.reading.gpus[0].holders)
        await until(lambda: "does not answer" in agent.reading.kubelet_problem)
        assert agent.reading.gpus[0].holders
        pod(site.kubelet.response, "train-1", uuid(1))
        async with listening(site.kubelet, site.socket):
            await until(lambda: agent.reading.gpus[1].holders and not agent.reading.kubelet_problem)


async def test_changes_during_an_outage_of_the_api_server_are_written_when_it_is_back(site: Site) -> None:
    site.is_down = True
    agent = site.agent()
    async with running(agent.run()):
        await until(lambda: 'object="GpuNode",result="error"} 0' not in agent.metrics_page().text)
        site.driver.events.append((1, 48))
        await until(lambda: agent.reading.gpus[1].failure)
        site.is_down = False
        await until(lambda: site.annotations)
        await until(site.spec)
    assert site.annotations == ["1"]
    assert site.spec()["gpus"][1]["failure"] == "xid-48"


async def test_an_agent_that_reads_nothing_asks_to_be_restarted(site: Site) -> None:
    agent = site.agent()
    assert agent.health_page().status == 200
    site.clock.now += 61
    assert agent.health_page().status == 503
    assert BLOCKED_SECONDS < 60
