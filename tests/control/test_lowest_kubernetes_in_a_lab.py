"""The lowest Kubernetes for muster: its real API server, prepared and used by the command line."""

import asyncio
import json
import os
import subprocess
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from musterlab import binaries, build
from musterlab.cluster import Lab, start
from orchestrator.client.policies_in_force import policies_in_force
from orchestrator.cluster.kubeconfig import load_access
from orchestrator.cluster.objects import Pod
from orchestrator.cluster.reflector import Change, Reflector
from orchestrator.cluster.resources import EVICTION_RECORDS, PODS
from orchestrator.cluster.transport import Transport
from orchestrator.manifests.install import service_account_kubeconfig
from orchestrator.names import LOWEST_KUBERNETES
from orchestrator.observe.nominations import nomination_of
from orchestrator.progress import Reporter
from tests.cluster.waiting import running, until
from tests.control.operators import MUSTER, must, must_all, muster, operator

pytestmark = [pytest.mark.lab, pytest.mark.rare]

LEAVES_LATE = {"metadata": {"annotations": {"muster.dev/lab-stop-seconds": "3"}}}
"""A victim that terminates slowly, so that its placement is nominated before it is free."""


@pytest.fixture(scope="module", autouse=True)
def programs() -> Iterator[binaries.Binaries]:
    """Yield the old control plane, which every lab in this file starts."""
    old = binaries.find(Reporter(print), build.LOWEST_CONTROL_PLANE)
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("KUBEBUILDER_ASSETS", str(old.directory))
        yield old


@pytest.fixture
def lowest(tmp_path: Path) -> Iterator[Lab]:
    lab = start("lowest", nodes=2, detach=False, state_dir=tmp_path / "labs")
    yield lab
    lab.stop()


@pytest.fixture
async def admin(lowest: Lab) -> AsyncIterator[Transport]:
    async with Transport(load_access(lowest.kubeconfig)) as transport:
        yield transport


def apply(lab: Lab, manifest: str) -> list[str]:
    """Apply a manifest with kubectl; return the result for every object. A warning of the API server fails."""
    command = [str(lab.kubectl_directory / "kubectl"), f"--kubeconfig={lab.kubeconfig}", "apply", "-f", "-"]
    done = subprocess.run(command, input=manifest, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    return [line.rsplit(" ", 1)[1] for line in done.stdout.splitlines()]


async def test_manifests_policies_binding_nomination_and_eviction(
    lowest: Lab, admin: Transport, tmp_path: Path
) -> None:
    assert (await admin.get("/version"))["gitVersion"] == f"v{LOWEST_KUBERNETES}"
    manifest = must(lowest.kubeconfig, "operator-yaml", "--cluster", "old", "--replicas", "0")
    first = await asyncio.to_thread(apply, lowest, manifest)
    assert len(first) > 30
    assert set(first) == {"created"}
    assert set(await asyncio.to_thread(apply, lowest, manifest)) <= {"unchanged", "configured"}
    assert (await policies_in_force(admin)).in_force is True
    account = await service_account_kubeconfig(admin, lowest.kubeconfig, tmp_path / "operator.kubeconfig")

    history: list[Change[Pod]] = []
    pods = Reflector(admin, PODS, Pod, on_change=history.append)
    with operator(account, tmp_path / "operator.log"):
        async with running(pods.run()):
            await asyncio.to_thread(
                must_all,
                lowest.kubeconfig,
                "project create team-a -g 4",
                "project create team-b -g 12",
                *(f"submit a-{number} -g 4 -i job -p team-a" for number in range(4)),
            )
            await until(lambda: sum(bool(pod.spec.node_name) for pod in pods.objects.values()) == 4)
            for pod in list(pods.objects.values()):
                await admin.patch(PODS.path(pod.metadata.namespace, pod.metadata.name), LEAVES_LATE)
            await asyncio.to_thread(must_all, lowest.kubeconfig, "submit b-0 -g 8 -i job -p team-b")
            await until(lambda: _bound(pods) == {"muster-team-a": 2, "muster-team-b": 1})
    nominated = {change.object.metadata.namespace for change in history if nomination_of(change.object)}
    assert "muster-team-b" in nominated
    records = (await admin.get(EVICTION_RECORDS.path()))["items"]
    assert [record["metadata"]["namespace"] for record in records] == ["muster-team-a", "muster-team-a"]
    assert "Traceback" not in (tmp_path / "operator.log").read_text()
    must(lowest.kubeconfig, "list", "-A")
    refused = muster(lowest.kubeconfig, "submit", "root", "-i", "job", "-p", "team-a", "-v", "/:/host")
    assert refused.returncode != 0
    assert "/" in refused.stderr


def _bound(pods: Reflector[Pod]) -> dict[str, int]:
    """Return the number of bound pods that are not terminating, by namespace."""
    counts: dict[str, int] = {}
    for pod in pods.objects.values():
        if pod.spec.node_name and pod.metadata.deletion_timestamp is None and pod.status.phase == "Running":
            counts[pod.metadata.namespace] = counts.get(pod.metadata.namespace, 0) + 1
    return counts


def test_the_papers_fairness_is_replayed_on_it(programs: binaries.Binaries, tmp_path: Path) -> None:
    done = subprocess.run(
        [*MUSTER, "validate", "--scenario", "tr4858-4.*", "--out", str(tmp_path / "report")],
        env={**os.environ, "KUBEBUILDER_ASSETS": str(programs.directory)},
        capture_output=True, text=True, timeout=540, check=False,
    )  # fmt: skip
    report = json.loads((tmp_path / "report" / "report.json").read_text())
    verdicts = {step["id"]: step["verdict"] for step in report["steps"]}
    # with only three sections, some invariants have no subject
    assert set(verdicts.values()) <= {"PASS", "INCONCLUSIVE", "NOT_APPLICABLE"}, done.stdout
    steps = [verdict for name, verdict in verdicts.items() if "/invariant/" not in name]
    assert len(steps) > 6
    assert set(steps) == {"PASS"}
    assert report["cluster"]["kubernetes"] == f"v{LOWEST_KUBERNETES}"
