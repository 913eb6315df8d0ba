"""Failures on a real API server, all at the same time: a refused binding, a rejecting kubelet, a dead kubelet.

The pods of other projects start meanwhile. A Node object that no kubelet serves stands for the dead kubelet.
"""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from musterlab.cluster import Lab
from orchestrator.cluster.errors import Forbidden, Invalid
from orchestrator.cluster.kubeconfig import load_access
from orchestrator.cluster.objects import Node, Pod
from orchestrator.cluster.reflector import Reflector
from orchestrator.cluster.resources import (
    DEPLOYMENTS,
    JOBS,
    NODES,
    PODS,
)
from orchestrator.cluster.transport import STRATEGIC_MERGE_PATCH, Transport
from orchestrator.manifests.install import apply
from orchestrator.manifests.render import documents, render
from orchestrator.names import OUT_OF_SERVICE_TAINT
from tests.cluster.waiting import running, until
from tests.control.operators import must, operator, prepare
from tests.control.refused import refuse_bindings

pytestmark = [pytest.mark.lab, pytest.mark.rare]

NAMESPACE = "muster-team-a"
REJECTED = {"status": {"phase": "Failed", "reason": "UnexpectedAdmissionError"}}


class Site:
    """The lab with its operator. A watch keeps the pods up to date."""

    def __init__(self, lab: Lab, transport: Transport, pods: Reflector[Pod], account: Path) -> None:
        self.lab, self.transport, self._pods, self.account = lab, transport, pods, account

    def of(self, name: str) -> list[Pod]:
        return [each for each in self._pods.objects.values() if each.metadata.name.startswith(f"{name}-")]

    def nodes_of(self, name: str) -> list[str]:
        """Return the nodes of the pods that have not failed and are not terminating."""
        return [
            each.spec.node_name
            for each in self.of(name)
            if each.spec.node_name
            and each.status.phase != "Failed"
            and each.metadata.deletion_timestamp is None
        ]

    def said(self, name: str, kind: str, status: str) -> list[str]:
        return [
            condition.message
            for each in self.of(name)
            for condition in each.status.conditions
            if (condition.type, condition.status) == (kind, status)
        ]

    async def run(self, *arguments: str) -> str:
        return await asyncio.to_thread(must, self.lab.kubeconfig, *arguments)

    async def deploy(self, name: str, node: str = "", **container: Any) -> None:
        labels = {"app": name}
        spec = {
            "schedulerName": "muster",
            "nodeSelector": {"kubernetes.io/hostname": node} if node else {},
            "containers": [{"name": "c", "image": "none", "resources": {"limits": {"nvidia.com/gpu": 1}}}],
            **container,
        }
        template = {"metadata": {"labels": labels}, "spec": spec}
        await self.transport.create(
            DEPLOYMENTS.path(NAMESPACE),
            {
                "apiVersion": "apps/v1",
                "kind": "Deployment",
                "metadata": {"name": name},
                "spec": {"replicas": 1, "selector": {"matchLabels": labels}, "template": template},
            },
        )


@pytest.fixture
async def site(own_lab: Lab, tmp_path: Path) -> AsyncIterator[Site]:
    account = await prepare(own_lab.kubeconfig, tmp_path / "operator.kubeconfig")
    async with Transport(load_access(own_lab.kubeconfig)) as transport:
        for body in documents(render("tests", replicas=0, taints_nodes=True)):
            if "nodes" in body["metadata"]["name"] or body["metadata"]["name"] == "muster-operator":
                await apply(transport, body)
        pods = Reflector(transport, PODS, Pod)
        options = ("--out-of-service-after", "1s")
        with operator(account, tmp_path / "operator.log", "operator-0", *options):
            async with running(pods.run()):
                await pods.synced()
                made = Site(own_lab, transport, pods, account)
                await made.run("project", "create", "team-a", "-g", "4", "--limit", "4")
                yield made


async def test_each_failure_costs_its_owner_only(site: Site) -> None:
    await refuse_bindings(site.transport)
    spec = {
        "schedulerName": "muster",
        "restartPolicy": "Never",
        "containers": [{"name": "c", "image": "none", "resources": {"limits": {"nvidia.com/gpu": 1}}}],
    }
    for name in ("doomed", "fine"):
        job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}}
        await site.transport.create(JOBS.path(NAMESPACE), {**job, "spec": {"template": {"spec": spec}}})
    await site.deploy("reject")
    await until(lambda: site.nodes_of("fine"))
    await until(
        lambda: any("site policy says no" in said for said in site.said("doomed", "PodScheduled", "False"))
    )
    explained = await site.run("explain", "doomed", "-p", "team-a")
    assert "site policy says no" in explained
    assert "It starts now" not in explained

    # rejects pods as a kubelet with a broken device plugin does
    rejected: set[str] = set()
    await until(lambda: site.nodes_of("reject"))
    first = site.nodes_of("reject")[0]
    while not set(site.nodes_of("reject")) - {first}:
        for pod in site.of("reject"):
            if pod.spec.node_name == first and pod.status.phase != "Failed":
                rejected.add(pod.metadata.uid)
                path = PODS.path(NAMESPACE, pod.metadata.name, "status")
                await site.transport.patch(path, REJECTED, content_type=STRATEGIC_MERGE_PATCH)
        await asyncio.sleep(0.05)
    assert len(rejected) == 2
    (other,) = site.nodes_of("reject")
    assert {first, other} == {"dgx1-1", "dgx1-2"}
    line = next(row for row in (await site.run("list", "-p", "team-a")).splitlines() if "reject" in row)
    assert " 1 " in line, "the failed pods hold nothing"


async def test_the_pod_of_a_dead_kubelet_is_neither_charged_nor_waited_for(site: Site) -> None:
    amounts = {"nvidia.com/gpu": "8", "cpu": "80", "memory": "64Gi", "pods": "110"}
    labels = {"kubernetes.io/hostname": "lost"}
    await site.transport.create(
        NODES.path(), {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "lost", "labels": labels}}
    )

    async def ready(status: str) -> None:
        condition = {"type": "Ready", "status": status, "lastTransitionTime": "2026-01-01T00:00:00Z"}
        body = {"status": {"capacity": amounts, "allocatable": amounts, "conditions": [condition]}}
        await site.transport.patch(f"{NODES.path(name='lost')}/status", body)

    await ready("True")
    limits = {"resources": {"limits": {"nvidia.com/gpu": 4}}}
    affinity = {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [
                    {
                        "matchExpressions": [
                            {"key": "kubernetes.io/hostname", "operator": "In", "values": names}
                        ]
                    }
                    for names in (["lost"], ["dgx1-2"])
                ]
            }
        }
    }
    await site.transport.patch(NODES.path(name="dgx1-2"), {"spec": {"unschedulable": True}})
    await site.deploy("web", containers=[{"name": "c", "image": "none", **limits}], affinity=affinity)
    await until(lambda: site.nodes_of("web") == ["lost"])
    await site.transport.patch(NODES.path(name="dgx1-2"), {"spec": {"unschedulable": False}})
    await ready("False")
    (pod,) = site.of("web")
    await until(lambda: site.said("web", "muster.dev/Stuck", "True"))
    assert "kubectl taint node lost" in site.said("web", "muster.dev/Stuck", "True")[0]
    listed = await site.run("list", "-p", "team-a")
    assert "NodeNotReady" in listed
    await site.transport.delete(PODS.path(NAMESPACE, pod.metadata.name))
    await until(lambda: site.nodes_of("web") == ["dgx1-2"])
    await until(lambda: len(site.of("web")) == 1, seconds=300)

    lost: Node = await site.transport.get(NODES.path(name="lost"), Node)
    assert [taint.value for taint in lost.spec.taints if taint.key == OUT_OF_SERVICE_TAINT] == ["muster"]
    async with Transport(load_access(site.account)) as operated:
        for body in ({"metadata": {"labels": {"a": "b"}}}, {"spec": {"unschedulable": True}}):
            with pytest.raises((Invalid, Forbidden), match="muster-operator-bounds"):
                await operated.patch(NODES.path(name="lost"), body)
