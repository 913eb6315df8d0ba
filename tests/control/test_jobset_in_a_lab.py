"""JobSet's real controller and the real operator, with only the rights that its manifest grants."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from musterlab.cluster import Lab, start
from orchestrator.cluster.kubeconfig import load_access
from orchestrator.cluster.objects import Pod
from orchestrator.cluster.reflector import Change, Reflector
from orchestrator.cluster.resources import CRDS, PODS, Resource
from orchestrator.cluster.transport import Transport
from tests.cluster.waiting import running, until
from tests.control.operators import must, muster, operator, prepare
from tests.upstream import jobset_controller

pytestmark = pytest.mark.lab

JOBSETS = Resource("jobset.x-k8s.io", "v1alpha2", "jobsets", "JobSet")
NAMESPACE = "muster-team-a"


@pytest.fixture
def own_lab(tmp_path: Path) -> Iterator[Lab]:
    """Yield a lab for this test, with two nodes of eight GPUs. Skips the test without JobSet's controller."""
    jobset_controller.program()
    lab = start("jobset", nodes=2, detach=False, state_dir=tmp_path / "labs")
    yield lab
    lab.stop()


@pytest.fixture
async def admin(own_lab: Lab) -> AsyncIterator[Transport]:
    async with Transport(load_access(own_lab.kubeconfig)) as transport:
        yield transport


def jobset(name: str, **jobs: tuple[int, int]) -> dict[str, Any]:
    """Return a JobSet; for each replicated job, the number of its pods and the GPUs of each pod."""
    return {
        "apiVersion": JOBSETS.api_version,
        "kind": JOBSETS.kind,
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {
            "network": {"enableDNSHostnames": False},
            "successPolicy": {"operator": "All"},
            "replicatedJobs": [
                {
                    "name": replicated,
                    "replicas": 1,
                    "template": {
                        "spec": {
                            "completionMode": "Indexed",
                            "parallelism": pods,
                            "completions": pods,
                            "template": _template(gpus),
                        }
                    },
                }
                for replicated, (pods, gpus) in jobs.items()
            ],
        },
    }


def _template(gpus: int) -> dict[str, Any]:
    limits = {"nvidia.com/gpu": str(gpus)}
    container = {"name": "main", "image": "quickstart", "resources": {"limits": limits}}
    return {"spec": {"schedulerName": "muster", "restartPolicy": "Never", "containers": [container]}}


class Bindings:
    """The pods of JobSets, and the number of pods of each JobSet that were bound at every event."""

    def __init__(self, transport: Transport) -> None:
        self.pods = Reflector(transport, PODS, Pod, namespace=NAMESPACE, on_change=self._see)
        self.first: dict[str, int] = {}
        """By JobSet, how many of its pods were there when the first of them got a node."""

    def _see(self, change: Change[Pod]) -> None:
        name = self._jobset(change.object)
        if change.object.spec.node_name:
            self.first.setdefault(name, len(self.of(name)))

    def of(self, name: str) -> list[Pod]:
        return [pod for pod in self.pods.objects.values() if self._jobset(pod) == name]

    def bound(self, name: str) -> int:
        return sum(bool(pod.spec.node_name) for pod in self.of(name))

    @staticmethod
    def _jobset(pod: Pod) -> str:
        return pod.metadata.labels.get("jobset.sigs.k8s.io/jobset-name", "")


async def test_the_replicated_jobs_of_a_jobset_start_together_or_not_at_all(
    own_lab: Lab, admin: Transport, tmp_path: Path
) -> None:
    account = await prepare(own_lab.kubeconfig, tmp_path / "operator.kubeconfig")
    seen = Bindings(admin)
    with operator(account, tmp_path / "operator.log"):
        await asyncio.to_thread(must, own_lab.kubeconfig, "project", "create", "team-a", "-g", "16")
        # the definition follows the operator, as on a site that installs JobSet later
        await admin.create(CRDS.path(), jobset_controller.definition())
        await until_served(admin)
        folder = tmp_path / "jobset"
        folder.mkdir()
        with jobset_controller.running(own_lab.kubeconfig, folder):
            async with running(seen.pods.run()):
                await admin.create(JOBSETS.path(NAMESPACE), jobset("large", driver=(1, 8), workers=(2, 8)))
                await until(lambda: len(seen.of("large")) == 3)
                await admin.create(JOBSETS.path(NAMESPACE), jobset("small", driver=(1, 2), workers=(2, 6)))
                await until(lambda: seen.bound("small") == 3)
                assert (seen.first["small"], seen.bound("large")) == (3, 0), "two of three would have fitted"
                await until(lambda: reason(seen.of("large")))
                listed = await asyncio.to_thread(
                    must, own_lab.kubeconfig, "list", "-p", "team-a", "-o", "name"
                )
                assert sorted(listed.split()) == ["large", "small"]
                answer = await asyncio.to_thread(
                    muster, own_lab.kubeconfig, "explain", "large", "-p", "team-a"
                )
                assert answer.stdout.startswith("large of team-a waits: 24 GPUs in 3 pods."), answer.stderr
                await admin.delete(JOBSETS.path(NAMESPACE, "large"))
                await admin.delete(JOBSETS.path(NAMESPACE, "small"))


def reason(pods: list[Pod]) -> str:
    return next((each.message for pod in pods for each in pod.status.conditions if each.message), "")


async def until_served(transport: Transport) -> None:
    """Wait until the API server serves the new kind."""
    async with asyncio.timeout(60):
        while True:
            found = await transport.get(CRDS.path(name="jobsets.jobset.x-k8s.io"))
            conditions = found.get("status", {}).get("conditions") or []
            if any(each["type"] == "Established" and each["status"] == "True" for each in conditions):
                return
            await asyncio.sleep(0.02)
