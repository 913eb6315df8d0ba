"""Other resources of nodes and required constraints between pods, by the real operator on a real API server."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from musterlab.cluster import Lab
from orchestrator.cluster.kubeconfig import load_access
from orchestrator.cluster.objects import Pod
from orchestrator.cluster.reflector import Reflector
from orchestrator.cluster.resources import DEPLOYMENTS, JOBS, NODES, PODS
from orchestrator.cluster.transport import Transport
from tests.cluster.waiting import running, until
from tests.control.operators import must, operator, prepare

pytestmark = pytest.mark.lab

CONTAINER = "c"


@pytest.fixture
async def pods(own_lab: Lab, tmp_path: Path) -> AsyncIterator[Reflector[Pod]]:
    """Yield all pods; dgx1-1 has one RDMA device and 1Gi of hugepages, dgx1-2 has none."""
    account = await prepare(own_lab.kubeconfig, tmp_path / "operator.kubeconfig")
    async with Transport(load_access(own_lab.kubeconfig)) as transport:
        amounts = {"rdma/hca": "1", "hugepages-2Mi": "1Gi"}
        status = {"status": {"capacity": amounts, "allocatable": amounts}}
        await transport.patch(f"{NODES.path(name='dgx1-1')}/status", status)
        shown = Reflector(transport, PODS, Pod)
        with operator(account, tmp_path / "operator.log", "operator-0"):
            async with running(shown.run()):
                await shown.synced()
                yield shown


def job(name: str, pods: int, resources: dict[str, Any], *starters: dict[str, Any]) -> dict[str, Any]:
    """Return a Job as any user may create it."""
    spec = {
        "schedulerName": "muster",
        "restartPolicy": "Never",
        "initContainers": list(starters),
        "containers": [{"name": CONTAINER, "image": "none", "resources": resources}],
    }
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name},
        "spec": {"parallelism": pods, "completions": pods, "template": {"spec": spec}},
    }


def starter(name: str, cpu: int, **fields: str) -> dict[str, Any]:
    return {"name": name, "image": "none", "resources": {"requests": {"cpu": cpu}}, **fields}


def deployment(name: str, replicas: int, **spec: Any) -> dict[str, Any]:
    """Return a Deployment of pods with one GPU, as users apply it for inference."""
    labels = {"app": name}
    resources = {"requests": {"cpu": 1}, "limits": {"nvidia.com/gpu": 1}}
    containers = [{"name": CONTAINER, "image": "none", "resources": resources}]
    template = {
        "metadata": {"labels": labels},
        "spec": {"schedulerName": "muster", "containers": containers, **spec},
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name},
        "spec": {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template},
    }


def apart(name: str) -> dict[str, Any]:
    """Return a constraint: no two pods with this name on one node."""
    term = {"labelSelector": {"matchLabels": {"app": name}}, "topologyKey": "kubernetes.io/hostname"}
    return {"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}}


def evenly(name: str) -> dict[str, Any]:
    """Return a constraint: the numbers of pods with this name on two nodes differ by at most one."""
    constraint = {
        "maxSkew": 1,
        "topologyKey": "kubernetes.io/hostname",
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": name}},
    }
    return {"topologySpreadConstraints": [constraint]}


async def test_amounts_of_nodes_and_required_constraints_are_obeyed(
    own_lab: Lab, pods: Reflector[Pod]
) -> None:
    def of(name: str) -> list[Pod]:
        return [each for each in pods.objects.values() if each.metadata.name.startswith(f"{name}-")]

    def nodes_of(name: str) -> list[str]:
        return sorted(each.spec.node_name for each in of(name) if each.spec.node_name)

    def reasons_of(name: str) -> list[str]:
        return [
            condition.message
            for each in of(name)
            for condition in each.status.conditions
            if condition.type == "PodScheduled" and condition.status == "False"
        ]

    await asyncio.to_thread(must, own_lab.kubeconfig, "project", "create", "team-a", "-g", "16")
    gpu = {"nvidia.com/gpu": 1}
    huge = {"cpu": 1, "memory": "1Gi", "hugepages-2Mi": "4Gi", **gpu}
    jobs = [
        job("rdma", 3, {"limits": {**gpu, "rdma/hca": 1}}),
        job("scratch", 3, {"requests": {"ephemeral-storage": "300Gi"}, "limits": gpu}),
        job("huge", 1, {"limits": huge}),
        job(
            "peak", 1, {"requests": {"cpu": 1}, "limits": gpu},
            starter("side", 40, restartPolicy="Always"), starter("init", 60),
        ),
    ]  # fmt: skip
    async with Transport(load_access(own_lab.kubeconfig)) as transport:
        for each in jobs:
            await transport.create(JOBS.path("muster-team-a"), each)
        for name, count, words in (
            ("rdma", 2, "1 rdma/hca"),
            ("scratch", 1, "300 GiB of ephemeral-storage"),
            ("huge", 1, "4 GiB of hugepages-2Mi"),
            ("peak", 1, "100 CPUs"),
        ):
            await until(lambda: len(reasons_of(name)) == count)  # noqa: B023 - called at once
            assert all(words in reason for reason in reasons_of(name))
        assert nodes_of("rdma") == ["dgx1-1"]
        assert nodes_of("scratch") == ["dgx1-1", "dgx1-2"]
        assert nodes_of("huge") == nodes_of("peak") == []
        services = [deployment("serve", 3, **apart("serve")), deployment("spread", 4, **evenly("spread"))]
        for each in services:
            await transport.create(DEPLOYMENTS.path("muster-team-a"), each)
        await until(lambda: nodes_of("spread") == ["dgx1-1", "dgx1-1", "dgx1-2", "dgx1-2"])
        await until(lambda: len(reasons_of("serve")) == 1)
        assert nodes_of("serve") == ["dgx1-1", "dgx1-2"]
        assert "anti-affinity" in reasons_of("serve")[0]
