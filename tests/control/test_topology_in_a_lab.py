"""Annotations for pods that belong together, by the real operator on a real API server."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from musterlab.cluster import Lab, start
from orchestrator.cluster.kubeconfig import load_access
from orchestrator.cluster.objects import Pod
from orchestrator.cluster.reflector import Reflector
from orchestrator.cluster.resources import JOBS, NODES, PODS
from orchestrator.cluster.transport import Transport
from tests.cluster.waiting import running, until
from tests.control.operators import must, operator, prepare

pytestmark = pytest.mark.lab

RACK = "example.com/rack"


@pytest.fixture
def own_lab(tmp_path: Path) -> Iterator[Lab]:
    lab = start("own", nodes=4, detach=False, state_dir=tmp_path / "labs")
    yield lab
    lab.stop()


@pytest.fixture
async def pods(own_lab: Lab, tmp_path: Path) -> AsyncIterator[Reflector[Pod]]:
    """Yield all pods, with two racks of two nodes and an operator that knows racks."""
    account = await prepare(own_lab.kubeconfig, tmp_path / "operator.kubeconfig")
    async with Transport(load_access(own_lab.kubeconfig)) as transport:
        for number in range(4):
            label = {"metadata": {"labels": {RACK: f"r{number // 2}"}}}
            await transport.patch(NODES.path(name=f"dgx1-{number + 1}"), label)
        shown = Reflector(transport, PODS, Pod)
        with operator(account, tmp_path / "operator.log", "operator-0", "--topology-level", RACK):
            async with running(shown.run()):
                await shown.synced()
                yield shown


def job(name: str, pods: int, gpus: int, annotations: dict[str, str]) -> dict[str, Any]:
    """Return an indexed Job as any user may create it."""
    container = {
        "name": "main",
        "image": "none",
        "resources": {"limits": {"nvidia.com/gpu": gpus}, "requests": {"nvidia.com/gpu": gpus}},
    }
    metadata = {
        "labels": {"muster.dev/workload": name},
        "annotations": {f"muster.dev/{key}": text for key, text in annotations.items()},
    }
    template = {
        "metadata": metadata,
        "spec": {"schedulerName": "muster", "restartPolicy": "Never", "containers": [container]},
    }
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name},
        "spec": {
            "parallelism": pods,
            "completions": pods,
            "completionMode": "Indexed",
            "template": template,
        },
    }


async def test_gangs_run_in_one_rack_and_their_parts_apart(own_lab: Lab, pods: Reflector[Pod]) -> None:
    def of(name: str) -> list[Pod]:
        return [
            each for each in pods.objects.values() if each.metadata.labels.get("muster.dev/workload") == name
        ]

    def nodes_of(name: str) -> list[str]:
        return sorted(each.spec.node_name for each in of(name))

    await asyncio.to_thread(must, own_lab.kubeconfig, "project", "create", "team-a", "-g", "32")
    async with Transport(load_access(own_lab.kubeconfig)) as transport:
        path = JOBS.path("muster-team-a")
        await transport.create(path, job("busy", 1, 8, {}))
        await until(lambda: nodes_of("busy") == ["dgx1-1"])
        annotations = {"min-member": "2", "topology-required": "rack"}
        await transport.create(path, job("gang", 2, 8, annotations))
        await until(lambda: nodes_of("gang") == ["dgx1-3", "dgx1-4"])
        tree = '[{"name": "leader"}, {"name": "workers", "size": 2}]'
        await transport.create(path, job("tree", 3, 4, {"sub-groups": tree}))
        await until(lambda: [bool(each.status.conditions) for each in of("tree")] == [True] * 3)
        await transport.create(path, job("pair", 2, 4, {"sub-groups": '[{"name": "both", "size": 2}]'}))
        await until(lambda: nodes_of("pair") == ["dgx1-2", "dgx1-2"])
        assert nodes_of("tree") == ["", "", ""], "two of its three pods would fit, which is not all of them"
        await transport.create(path, job("lost", 1, 1, {"topology-required": "row"}))

        def says_why() -> bool:
            return any(
                "the levels of this cluster are example.com/rack" in condition.message
                for each in of("lost")
                for condition in each.status.conditions
            )

        await until(says_why)
