"""Without policies, pods that bypass the scheduler still count for their project, and GPUs above its quota are
reclaimed.

The attempts are plain API calls, and a real API server accepts all of them. Nodes are simulated: every pod that is
bound to a node runs there, even if a kubelet would refuse it.
"""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from musterlab.cluster import start
from orchestrator.cluster.errors import Invalid
from orchestrator.cluster.kubeconfig import load_access
from orchestrator.cluster.objects import Event, Pod, Project
from orchestrator.cluster.reflector import Reflector
from orchestrator.cluster.resources import (
    ADMISSION_POLICIES,
    ADMISSION_POLICY_BINDINGS,
    EVENTS,
    JOBS,
    PODS,
    PROJECTS,
)
from orchestrator.cluster.transport import Transport
from tests.cluster.waiting import DEADLINE_SECONDS, running, until
from tests.control.operators import must, must_all, muster, operator, prepare

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

    from musterlab.cluster import Lab

pytestmark = pytest.mark.lab

NODE = "dgx1-1"
A, B = "muster-team-a", "muster-team-b"
DEVICES, ADMITTED = "muster.dev/gpu-devices", "muster.dev/admitted"
BY_HAND = {"nodeName": NODE, "schedulerName": "muster"}
ALL = ",".join(map(str, range(8)))

ATTEMPTS: dict[str, dict[str, Any]] = {
    "a: without the scheduler's name": {"gpus": 8, "spec": {"nodeName": NODE}},
    "b: not preemptible": {"gpus": 8, "spec": BY_HAND, "annotations": {"muster.dev/preemptible": "false"}},
    "c: a fraction that is none": {
        "gpus": 8,
        "spec": BY_HAND,
        "annotations": {"muster.dev/gpu-fraction": "x"},
    },
    "e: no devices": {"gpus": 8, "spec": BY_HAND, "annotations": {DEVICES: ""}},
    "g: a year of grace": {"gpus": 8, "spec": {**BY_HAND, "terminationGracePeriodSeconds": 31_536_000}},
}


def job(
    name: str, gpus: int, *, annotations: dict[str, str] | None = None, spec: dict[str, Any] | None = None
) -> dict[str, Any]:
    """Return a Job of one pod with this number of GPUs."""
    resources = {"limits": {"nvidia.com/gpu": str(gpus)}} if gpus else {}
    pod = {
        "restartPolicy": "Never",
        "containers": [{"name": "main", "image": "quickstart", "resources": resources}],
        **(spec or {}),
    }
    template = {"metadata": {"annotations": annotations or {}}, "spec": pod}
    return {
        "apiVersion": JOBS.api_version,
        "kind": JOBS.kind,
        "metadata": {"name": name},
        "spec": {"template": template},
    }


@dataclass
class Cluster:
    """A node of eight GPUs, two projects with quotas of four GPUs each, an operator, and no policies."""

    kubeconfig: Path
    transport: Transport
    pods: Reflector[Pod]
    projects: Reflector[Project]

    def allocated(self) -> dict[str, float]:
        """Return the GPUs that the operator counts for each project."""
        found = {
            each.metadata.name: float(each.status.allocated_gpu) for each in self.projects.objects.values()
        }
        assert all(gpus <= 8 for gpus in found.values()), found
        return found

    def pod_of(self, name: str) -> Pod | None:
        """Return a pod of the Job that does not terminate, or None."""
        return next(
            (
                pod
                for pod in self.pods.objects.values()
                if pod.metadata.labels.get("batch.kubernetes.io/job-name") == name
                and pod.metadata.deletion_timestamp is None
            ),
            None,
        )

    def runs(self, name: str) -> bool:
        pod = self.pod_of(name)
        return pod is not None and pod.status.phase == "Running"

    async def clear(self) -> None:
        """Delete all Jobs, and wait until no project holds GPUs."""
        for namespace in (A, B):
            page = await self.transport.get(JOBS.path(namespace))
            for each in page["items"]:
                path = JOBS.path(namespace, each["metadata"]["name"])
                await self.transport.delete(path)
        await until(lambda: not self.pods.objects and self.allocated() == {"team-a": 0, "team-b": 0})

    async def warned(self, namespace: str) -> str:
        """Return the operator's warnings about pods that do not count as their annotations say."""
        page = await self.transport.list(EVENTS.path(namespace), Event)
        return "\n".join(each.message for each in page.items if each.reason == "Skipped")

    async def until_warned(self, namespace: str, words: str) -> None:
        """Wait for a warning with these words. The operator writes Events only after it has
        carried out its decision.
        """
        async with asyncio.timeout(DEADLINE_SECONDS):
            while True:
                if words in await self.warned(namespace):
                    return
                await asyncio.sleep(0.05)


async def until_no_policy_holds(transport: Transport) -> None:
    """Wait until the API server no longer enforces the deleted policies, and accepts a request that they would deny."""
    forbidden = job("forbidden", 8, annotations={DEVICES: ALL}, spec=BY_HAND)
    async with asyncio.timeout(DEADLINE_SECONDS):
        while True:
            try:
                await transport.create(JOBS.path(A), forbidden, params={"dryRun": "All"})
            except Invalid:
                await asyncio.sleep(0.05)
            else:
                return


@pytest.fixture
def own_lab(tmp_path: Path) -> Iterator[Lab]:
    lab = start("own", nodes=1, detach=False, state_dir=tmp_path / "labs")
    yield lab
    lab.stop()


@pytest.fixture
async def cluster(own_lab: Lab, tmp_path: Path) -> AsyncIterator[Cluster]:
    account = await prepare(own_lab.kubeconfig, tmp_path / "operator.kubeconfig")
    async with Transport(load_access(own_lab.kubeconfig)) as transport:
        for resource in (ADMISSION_POLICY_BINDINGS, ADMISSION_POLICIES):
            page = await transport.get(resource.path())
            for each in page["items"]:
                await transport.delete(resource.path(None, each["metadata"]["name"]))
        pods, projects = Reflector(transport, PODS, Pod), Reflector(transport, PROJECTS, Project)
        with operator(account, tmp_path / "operator.log"):
            lines = ("project create team-a -g 4", "project create team-b -g 4")
            await asyncio.to_thread(must_all, own_lab.kubeconfig, *lines)
            async with running(pods.run()), running(projects.run()):
                await pods.synced()
                await projects.synced()
                await until_no_policy_holds(transport)
                yield Cluster(own_lab.kubeconfig, transport, pods, projects)
        assert "the decision failed" not in (tmp_path / "operator.log").read_text()


async def test_a_pod_bound_by_hand_is_charged_and_evicted_for_a_quota(cluster: Cluster) -> None:
    for number, (attempt, fields) in enumerate(ATTEMPTS.items()):
        taker, claim = f"taker-{number}", f"claim-{number}"
        await cluster.transport.create(JOBS.path(A), job(taker, **fields))
        await until(lambda: cluster.allocated() == {"team-a": 8, "team-b": 0})
        taken = cluster.pod_of(taker)
        assert taken is not None, attempt
        await cluster.transport.create(JOBS.path(B), job(claim, 4, spec={"schedulerName": "muster"}))
        await until(lambda: cluster.runs(claim))  # noqa: B023 - awaited
        served = cluster.pod_of(claim)
        assert served is not None
        assert served.metadata.annotations[ADMITTED] == served.metadata.uid
        assert len(served.metadata.annotations[DEVICES].split(",")) == 4
        left = cluster.pods.objects.get(taken.metadata.uid)
        assert left is None or left.metadata.deletion_timestamp is not None, attempt
        await until(lambda: cluster.allocated()["team-b"] == 4)
        evictions = json.loads(
            await asyncio.to_thread(must, cluster.kubeconfig, "why-evicted", taker, "-p", "team-a", "--json")
        )
        assert {each["rule"] for each in evictions} <= {"quota", "fair-share"}, attempt
        assert evictions[0]["graceSeconds"] <= 600
        await cluster.clear()
    assert "another scheduler bound it" in await cluster.warned(A)
    status = await asyncio.to_thread(muster, cluster.kubeconfig, "cluster", "status")
    assert status.returncode == 1
    assert status.stdout.startswith("The policies are NOT in force: ")


async def test_no_more_is_counted_than_the_node_has_and_forged_devices_are_nobodys(cluster: Cluster) -> None:
    forged = job("forged", 0, annotations={DEVICES: ALL}, spec={"schedulerName": "muster"})
    await cluster.transport.create(JOBS.path(A), forged)
    await until(lambda: cluster.runs("forged"))
    pod = cluster.pod_of("forged")
    assert pod is not None
    assert pod.metadata.annotations[DEVICES] == "", "the binding took it off"

    await cluster.transport.create(JOBS.path(A), job("by-hand", 0, annotations={DEVICES: ALL}, spec=BY_HAND))
    await cluster.transport.create(JOBS.path(A), job("mine", 4, spec={"schedulerName": "muster"}))
    await until(lambda: cluster.runs("mine"))

    await cluster.transport.create(JOBS.path(B), job("eight", 8, annotations={DEVICES: ""}, spec=BY_HAND))
    await until(lambda: cluster.allocated() == {"team-a": 4, "team-b": 4})
    mine = cluster.pod_of("mine")
    assert mine is not None
    assert mine.metadata.deletion_timestamp is None, "what its quota covers stays"
    await cluster.until_warned(B, "its node dgx1-1 has no more for it; it counts as holding 4 GPUs")
    await cluster.transport.create(JOBS.path(A), job("more", 1, spec={"schedulerName": "muster"}))
    await until(lambda: "PodScheduled" in str(cluster.pod_of("more")))
    assert not cluster.runs("more")
    assert cluster.allocated() == {"team-a": 4, "team-b": 4}
