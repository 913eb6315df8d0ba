"""The permitted writes of the agents' account, tried with tokens of pods on a real API server; and that the agent
works.
"""

import asyncio
import contextlib
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from musterlab.cluster import Lab
from orchestrator.agent.agent import Agent, AgentOptions
from orchestrator.cluster.errors import ClusterError, Forbidden, Invalid, NotFound
from orchestrator.cluster.gpu_nodes import GpuNode
from orchestrator.cluster.kubeconfig import load_access
from orchestrator.cluster.objects import Node, Pod
from orchestrator.cluster.resources import GPU_NODES, NODES, PODS
from orchestrator.cluster.transport import STRATEGIC_MERGE_PATCH, Transport
from orchestrator.cluster.wire import has_condition
from orchestrator.manifests.install import apply
from orchestrator.manifests.render import documents, render
from orchestrator.names import (
    AGENT_ACCOUNT,
    AGENT_NAMESPACE,
    FAILED_GPUS_ANNOTATION,
    HOST_FAULT_CONDITION,
    LOST_GPUS_ANNOTATION,
)
from tests.agent.doubles import FakeDriver, uuid
from tests.agent.host_trees import BOOT, make_tree
from tests.agent.kubelets import Kubelet, listening, pod
from tests.cluster.waiting import DEADLINE_SECONDS, running
from tests.control.operators import MUSTER, must, operator, prepare, until_granted

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
    await refused(site.agent.delete(ours), "delete")


async def test_of_a_nodes_status_the_agent_writes_one_condition(site: Site) -> None:
    ours, theirs = (NODES.path(name=name, subresource="status") for name in (site.ours, site.theirs))

    async def write(path: str, transport: Transport = site.agent, **status: Any) -> None:
        await transport.patch(path, {"status": status}, content_type=STRATEGIC_MERGE_PATCH)

    fault = {"type": HOST_FAULT_CONDITION, "status": "True", "message": "memory error"}
    async with asyncio.timeout(DEADLINE_SECONDS):
        while True:
            try:
                await write(theirs, conditions=[{"type": HOST_FAULT_CONDITION, "status": "Unknown"}])
            except ClusterError as error:
                if "changes no other node" in str(error):
                    break
            await asyncio.sleep(0.1)
    before = (await site.admin.get(NODES.path(name=site.ours), Node)).status
    await write(ours, conditions=[fault])
    after = (await site.admin.get(NODES.path(name=site.ours), Node)).status
    assert has_condition(after.conditions, HOST_FAULT_CONDITION)
    assert {one.type for one in after.conditions} == {
        *(one.type for one in before.conditions),
        HOST_FAULT_CONDITION,
    }
    assert after.allocatable == before.allocatable
    bounds = "muster-agent-bounds"
    await refused(write(ours, site.podless, conditions=[fault]), "changes no other node")
    await refused(write(ours, conditions=[{"type": "Ready", "status": "False"}]), "no condition but")
    await refused(write(ours, conditions=[{"type": "Other", "status": "True"}]), "no condition but")
    await refused(write(ours, conditions=[{"type": "Ready", "$patch": "delete"}]), "no condition but")
    await refused(write(ours, allocatable={"nvidia.com/gpu": "64"}), bounds)
    await refused(write(ours, capacity=None), bounds)
    await refused(write(ours, addresses=[{"type": "InternalIP", "address": "10.9.9.9"}]), bounds)
    labels = {"metadata": {"labels": {"muster.dev/unhealthy": "x"}}}
    await refused(site.agent.patch(ours, labels), bounds)
    await refused(site.agent.patch(ours, annotation("3")), bounds)
    await write(ours, conditions=[{"type": HOST_FAULT_CONDITION, "$patch": "delete"}])
    left = (await site.admin.get(NODES.path(name=site.ours), Node)).status
    assert not [one for one in left.conditions if one.type == HOST_FAULT_CONDITION]


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


@contextmanager
def agent_process(site: Site, folder: Path, *options: str) -> Iterator[None]:
    """Run the real agent of the first node during the block, with the rights of its pod. The node has no driver."""
    words = ("--node", site.ours, "--kubeconfig", str(folder / "agent-0.kubeconfig"), "--port", "0")
    with (folder / "agent.log").open("ab") as output:
        process = subprocess.Popen(
            [*MUSTER, "agent", *words, "--pod-resources", str(folder / "none.sock"), *options],
            stdout=output,
            stderr=output,
        )
    try:
        yield
    finally:
        process.terminate()
        process.wait(timeout=DEADLINE_SECONDS)


async def said(site: Site, status: str) -> str:
    """Wait until the condition of the first node has the status ("": until it is removed), and return its message."""
    async with asyncio.timeout(DEADLINE_SECONDS):
        while True:
            conditions = (await site.admin.get(NODES.path(name=site.ours), Node)).status.conditions
            mine = next((one for one in conditions if one.type == HOST_FAULT_CONDITION), None)
            if (mine.status if mine else "") == status:
                return mine.message if mine else ""
            await asyncio.sleep(0.1)


async def test_a_host_with_a_fault_gets_no_new_job_and_people_see_why(site: Site, tmp_path: Path) -> None:
    root, log = make_tree(tmp_path / "host"), tmp_path / "kernel.log"
    reads = ("--host-root", str(root), "--kernel-log", str(log))
    kubeconfig = site.lab.kubeconfig

    async def run(*words: str) -> str:
        return await asyncio.to_thread(must, kubeconfig, *words)

    with agent_process(site, tmp_path, *reads):
        assert await said(site, "Unknown") == "not read: kernel-log: No such file or directory"
    log.write_text(BOOT)
    with agent_process(site, tmp_path, *reads):
        assert await said(site, "False") == "read: kernel-log, links, clock-source, ports, memory"
    log.write_text(BOOT + "<0>[  100.000000] EDAC MC0: 1 UE memory read error\n")
    with (
        agent_process(site, tmp_path, *reads),
        operator(tmp_path / "operator.kubeconfig", tmp_path / "operator.log"),
    ):
        why = "memory error (1 times) -> replace the memory module"
        assert await said(site, "True") == why
        try:
            await run("project", "create", "hosts", "-g", "16")
            for name in ("first", "second"):
                await run("submit", name, "-p", "hosts", "-i", "none", "-g", "8")
            sentence = f"node {site.ours} is avoided: it reports a host fault: {why}"
            async with asyncio.timeout(DEADLINE_SECONDS):
                while sentence not in await run("explain", "second", "-p", "hosts"):
                    pass
            assert f"1 node reports a host fault:\n{site.ours}: {why}" in await run("top", "node")
            pods = (await site.admin.list(PODS.path("muster-hosts"), Pod)).items
            assert {one.spec.node_name for one in pods} == {site.theirs, ""}
        finally:
            await run("project", "delete", "hosts", "--force")
    with agent_process(site, tmp_path):
        assert await said(site, "") == "", "another system owns the health of hosts"


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
