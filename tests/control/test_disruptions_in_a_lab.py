"""What moves or stops running work, through the real operator on a real API server."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from lab.cluster import Lab, start
from orchestrator.cluster.kubeconfig import load_access
from orchestrator.cluster.objects import Event, Pod
from orchestrator.cluster.reflector import Reflector
from orchestrator.cluster.resources import EVENTS, NODES, PODS
from orchestrator.cluster.transport import Transport
from tests.cluster.waiting import running, until
from tests.control.operators import must, operator, prepare

pytestmark = pytest.mark.lab


class Site:
    """A lab of two nodes with an operator, its pods as a watch shows them, and the command line."""

    def __init__(self, lab: Lab, transport: Transport, pods: Reflector[Pod]) -> None:
        self.lab = lab
        self.transport = transport
        self.pods = pods

    async def run(self, *arguments: str) -> str:
        return await asyncio.to_thread(must, self.lab.kubeconfig, *arguments)

    async def json(self, *arguments: str) -> Any:
        return json.loads(await self.run(*arguments, "--json"))

    def of(self, workload: str) -> list[Pod]:
        """The pods of a workload that have not ended."""
        return [
            each
            for each in self.pods.objects.values()
            if each.metadata.labels.get("muster.dev/workload") == workload
            and each.status.phase not in ("Succeeded", "Failed")
        ]

    def nodes_of(self, workload: str) -> list[str]:
        """Where its pods are that nobody has told to go."""
        return sorted(
            each.spec.node_name for each in self.of(workload) if not each.metadata.deletion_timestamp
        )


@pytest.fixture
def own_lab(tmp_path: Path) -> Iterator[Lab]:
    lab = start("own", nodes=2, detach=False, state_dir=tmp_path / "labs")
    yield lab
    lab.stop()


@pytest.fixture
async def site(own_lab: Lab, tmp_path: Path) -> AsyncIterator[Site]:
    account = await prepare(own_lab.kubeconfig, tmp_path / "operator.kubeconfig")
    async with Transport(load_access(own_lab.kubeconfig)) as transport:
        pods = Reflector(transport, PODS, Pod)
        with operator(account, tmp_path / "operator.log"):
            async with running(pods.run()):
                await pods.synced()
                yield Site(own_lab, transport, pods)


async def test_jobs_leave_an_unhealthy_gpu_and_an_unhealthy_node(site: Site) -> None:
    await site.run("project", "create", "team-a", "-g", "8")
    for name, gpus, *kind in (("job", "2"), ("desk", "1", "--interactive"), ("hit", "1")):
        await site.run("submit", name, "-i", "quickstart", "-g", gpus, "-p", "team-a", *kind)
    await until(lambda: all(site.nodes_of(each) == ["dgx1-1"] for each in ("job", "desk", "hit")), seconds=30)

    gpu = site.of("hit")[0].metadata.annotations["muster.dev/gpu-devices"]
    mark = {"metadata": {"annotations": {"muster.dev/unhealthy-gpus": gpu}}}
    await site.transport.patch(NODES.path(name="dgx1-1"), mark)
    await until(lambda: not site.nodes_of("hit"), seconds=10)
    assert site.nodes_of("job") == ["dgx1-1"], "its GPUs are healthy"

    mark = {"metadata": {"labels": {"muster.dev/unhealthy": "xid-79"}}}
    await site.transport.patch(NODES.path(name="dgx1-1"), mark)
    await until(lambda: site.nodes_of("job") == site.nodes_of("hit") == ["dgx1-2"], seconds=40)
    assert site.nodes_of("desk") == ["dgx1-1"], "interactive work is not preemptible and stays"
    told = await site.json("explain", "desk", "-p", "team-a")
    assert "dgx1-1 is unhealthy (label muster.dev/unhealthy=xid-79)" in told["endangered"]
    for name, why in (("hit", f"GPU {gpu} of dgx1-1 is unhealthy"), ("job", "xid-79")):
        records = await site.json("why-evicted", name, "-p", "team-a")
        assert [each["rule"] for each in records] == ["unhealthy"]
        assert why in records[0]["message"]
    events = (await site.transport.list(EVENTS.path("muster-team-a"), Event)).items
    assert {"MovedOffUnhealthy", "OnUnhealthyHardware"} <= {each.reason for each in events}
