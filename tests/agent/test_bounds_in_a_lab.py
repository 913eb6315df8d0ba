"""The permitted writes of the agents' account, tried with tokens of pods on a real API server; and that the agent
works.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
import yaml

from musterlab.cluster import Lab
from orchestrator.agent.agent import Agent, AgentOptions
from orchestrator.cluster.errors import ClusterError, Forbidden, Invalid, NotFound
from orchestrator.cluster.gpu_nodes import GpuNode
from orchestrator.cluster.kubeconfig import load_access
from orchestrator.cluster.objects import Node
from orchestrator.cluster.resources import GPU_NODES, NODES, PODS
from orchestrator.cluster.transport import Transport
from orchestrator.manifests.install import apply
from orchestrator.manifests.render import documents, render
from orchestrator.names import AGENT_ACCOUNT, AGENT_NAMESPACE, FAILED_GPUS_ANNOTATION, LOST_GPUS_ANNOTATION
from tests.agent.doubles import FakeDriver, uuid
from tests.agent.kubelets import Kubelet, listening, pod
from tests.cluster.waiting import DEADLINE_SECONDS, running
from tests.control.operators import must, prepare, until_granted

pytestmark = pytest.mark.lab

ACCOUNT = f"system:serviceaccount:{AGENT_NAMESPACE}:{AGENT_ACCOUNT}"
TOKENS = f"/api/v1/namespaces/{AGENT_NAMESPACE}/serviceaccounts/{AGENT_ACCOUNT}/token"


class Site:
    """Two nodes, an administrator, and the first node's agent, with the token of a pod there or of no pod."""

    def __init__(
        self, lab: Lab, admin: Transport, agent: Transport, podless: Transport, nodes: list[str]
    ) -> None:
        self.lab = lab
        self.admin = admin
        self.agent = agent
        self.podless = podless
        self.ours, self.theirs = nodes


@pytest.fixture
async def site(shared_lab: Lab, tmp_path: Path) -> AsyncIterator[Site]:
    kubeconfig = shared_lab.kubeconfig
    account = await prepare(kubeconfig, tmp_path / "operator.kubeconfig")
    async with AsyncExitStack() as stack:
        admin = await stack.enter_async_context(Transport(load_access(kubeconfig)))
        for body in documents(render("tests", agent=True)):
            if body["kind"] not in ("Deployment", "DaemonSet"):
                await apply(admin, body)
        await until_granted(admin, ACCOUNT, "patch", NODES)
        await until_granted(admin, ACCOUNT, "create", GPU_NODES)
        nodes = sorted(node.metadata.name for node in (await admin.list(NODES.path(), Node)).items)[:2]
        body = await admin.create(PODS.path(AGENT_NAMESPACE), agent_pod(nodes[0]))
        bound = {
            "apiVersion": "v1",
            "kind": "Pod",
            "name": body["metadata"]["name"],
            "uid": body["metadata"]["uid"],
        }
        transports = []
        for number, spec in enumerate(({"boundObjectRef": bound}, {})):
            answer = await admin.create(TOKENS, {"spec": spec})
            own = tmp_path / f"agent-{number}.kubeconfig"
            document = yaml.safe_load(account.read_text())
            document["users"][0]["user"]["token"] = answer["status"]["token"]
            own.write_text(yaml.safe_dump(document))
            transports.append(await stack.enter_async_context(Transport(load_access(own), "muster-agent")))
        yield Site(shared_lab, admin, transports[0], transports[1], nodes)
        await admin.delete(PODS.path(AGENT_NAMESPACE, bound["name"]), grace_seconds=0)
        await admin.patch(NODES.path(name=nodes[0]), annotation(None))
        with contextlib.suppress(NotFound):
            await admin.delete(GPU_NODES.path(name=nodes[0]))


def agent_pod(node: str) -> dict[str, Any]:
    spec = {
        "nodeName": node,
        "serviceAccountName": AGENT_ACCOUNT,
        "containers": [{"name": "agent", "image": "muster"}],
        "tolerations": [{"operator": "Exists"}],
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"generateName": "agent-"}, "spec": spec}


def annotation(text: str | None, key: str = FAILED_GPUS_ANNOTATION) -> dict[str, Any]:
    return {"metadata": {"annotations": {key: text}}}


def gpu_node(name: str) -> dict[str, Any]:
    return {
        "apiVersion": GPU_NODES.api_version,
        "kind": GPU_NODES.kind,
        "metadata": {"name": name},
        "spec": {"gpus": [{"index": 0, "failure": "lost"}]},
    }


async def refused(attempt: Any, by: str) -> None:
    with pytest.raises((Forbidden, Invalid)) as caught:
        await attempt
    assert by in str(caught.value)


async def test_the_agent_writes_its_own_node_and_no_other_and_of_it_two_annotations(site: Site) -> None:
    ours, theirs = NODES.path(name=site.ours), NODES.path(name=site.theirs)
    async with asyncio.timeout(DEADLINE_SECONDS):  # the API server learns of policies by watches of its own
        while await is_allowed(site.podless, theirs):  # noqa: ASYNC110 - polls a server
            await asyncio.sleep(0.1)
    await site.agent.patch(ours, annotation("3"))
    await site.agent.patch(ours, annotation("3", LOST_GPUS_ANNOTATION))
    await refused(site.agent.patch(theirs, annotation("3")), "changes no other node")
    await refused(site.podless.patch(ours, annotation("4")), "changes no other node")
    bounds = "muster-agent-bounds"
    await refused(site.agent.patch(ours, annotation("3", "muster.dev/unhealthy-gpus")), bounds)
    await refused(site.agent.patch(ours, {"metadata": {"labels": {"muster.dev/unhealthy": "x"}}}), bounds)
    await refused(site.agent.patch(ours, {"spec": {"unschedulable": True}}), bounds)
    taint = {"key": "muster.dev/unhealthy", "effect": "NoExecute"}
    await refused(site.agent.patch(ours, {"spec": {"taints": [taint]}}), bounds)
    await refused(
        site.agent.patch(NODES.path(name=site.ours, subresource="status"), {"status": {}}), "nodes/status"
    )
    await refused(site.agent.delete(ours), "delete")


async def is_allowed(transport: Transport, node: str) -> bool:
    try:
        await transport.patch(node, annotation(None))
    except ClusterError:
        return False
    return True


async def test_the_agent_writes_no_other_nodes_gpus_and_reads_no_pods(site: Site) -> None:
    async def write(transport: Transport, name: str) -> None:
        await transport.apply(GPU_NODES.path(name=name), gpu_node(name), field_manager="muster-agent")

    async with asyncio.timeout(DEADLINE_SECONDS):
        while True:
            try:
                await write(site.podless, site.ours)
            except ClusterError:
                break
            await asyncio.sleep(0.05)
    await write(site.agent, site.ours)
    await refused(write(site.agent, site.theirs), "writes no other node's GpuNode")
    await refused(write(site.podless, site.ours), "writes no other node's GpuNode")
    await refused(site.agent.get(PODS.path(AGENT_NAMESPACE)), "pods")
    await refused(site.agent.get("/api/v1/secrets"), "secrets")
    await refused(site.agent.delete(GPU_NODES.path(name=site.ours)), "delete")


async def test_no_agent_writes_more_than_pods_can_be_told(site: Site) -> None:
    """With such a name or number of a GPU, the annotations on pods would say something else, or nothing."""
    path = GPU_NODES.path(name=site.ours)
    for gpu in (
        {"index": 0, "uuid": "GPU-1,GPU-2"},
        {"index": 0, "uuid": "GPU-1\n* 99999999999"},
        {"index": 0, "uuid": "GPU-1 GPU-2"},
        {"index": 1024},
        {"index": -1},
        {"index": 0, "memoryMib": -1},
        {"index": 0, "utilizationPercent": 101},
        {"index": 0, "holders": [{"pod": "of-no-namespace"}]},
    ):
        body = {**gpu_node(site.ours), "spec": {"gpus": [gpu]}}
        await refused(site.agent.apply(path, body, field_manager="muster-agent"), "spec.gpus[0]")


async def test_the_agent_keeps_its_node_current_and_people_see_it(site: Site, tmp_path: Path) -> None:
    driver, kubelet, socket = FakeDriver(2), Kubelet(), tmp_path / "kubelet.sock"
    driver.utilization[0] = 42
    pod(kubelet.response, "train-0", uuid(0))
    options = AgentOptions(site.ours, socket=socket, sample_seconds=0.01, kubelet_seconds=0.01)
    path = GPU_NODES.path(name=site.ours)
    async with listening(kubelet, socket), running(Agent(site.agent, options, driver=driver).run()):
        await seen(site.admin, path, lambda node: bool(node.spec.gpus and node.spec.gpus[0].holders))
        driver.events.append((1, 79))
        node = await seen(site.admin, path, lambda node: bool(node.spec.gpus[1].failure))
    assert node.spec.gpus[1].failure == "xid-79"
    assert node.spec.gpus[0].utilization_percent == 42
    assert node.metadata.owner_references[0].name == site.ours
    mine = await site.admin.get(NODES.path(name=site.ours), Node)
    assert mine.metadata.annotations[FAILED_GPUS_ANNOTATION] == "1"
    table = await asyncio.to_thread(must, site.lab.kubeconfig, "get", "node", site.ours)
    assert "xid-79" in table
    assert uuid(0) in table


async def seen(transport: Transport, path: str, condition: Any) -> GpuNode:
    async with asyncio.timeout(DEADLINE_SECONDS):
        while True:
            try:
                node = await transport.get(path, GpuNode)
            except ClusterError:
                node = GpuNode()
            if node.spec.gpus and condition(node):
                return node
            await asyncio.sleep(0.05)
