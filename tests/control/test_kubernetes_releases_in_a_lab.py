"""The lowest and the newest Kubernetes for muster: their real API servers, prepared and used by the command line."""

import asyncio
import json
import re
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


RELEASES = {
    LOWEST_KUBERNETES: build.LOWEST_CONTROL_PLANE,
    build.NEWEST_KUBERNETES: build.NEWEST_CONTROL_PLANE,
}


@pytest.fixture(scope="module", autouse=True, params=RELEASES)
def release(request: pytest.FixtureRequest) -> Iterator[str]:
    """Yield the release of the control plane, which every lab in this file starts."""
    found = binaries.find(Reporter(print), RELEASES[request.param])
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("KUBEBUILDER_ASSETS", str(found.directory))
        yield str(request.param)


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    started = start("release", nodes=2, detach=False, state_dir=tmp_path / "labs")
    yield started
    started.stop()


@pytest.fixture
async def admin(lab: Lab) -> AsyncIterator[Transport]:
    async with Transport(load_access(lab.kubeconfig)) as transport:
        yield transport


def apply(lab: Lab, manifest: str) -> list[str]:
    """Apply a manifest with kubectl; return the result for every object. A warning of the API server fails."""
    command = [str(lab.kubectl_directory / "kubectl"), f"--kubeconfig={lab.kubeconfig}", "apply", "-f", "-"]
    done = subprocess.run(command, input=manifest, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    return [line.rsplit(" ", 1)[1] for line in done.stdout.splitlines()]


async def test_manifests_policies_binding_nomination_and_eviction(
    release: str, lab: Lab, admin: Transport, tmp_path: Path
) -> None:
    assert (await admin.get("/version"))["gitVersion"] == f"v{release}"
    manifest = must(lab.kubeconfig, "operator-yaml", "--cluster", "old", "--replicas", "0")
    first = await asyncio.to_thread(apply, lab, manifest)
    assert len(first) > 30
    assert set(first) == {"created"}
    assert set(await asyncio.to_thread(apply, lab, manifest)) <= {"unchanged", "configured"}
    assert (await policies_in_force(admin)).in_force is True
    account = await service_account_kubeconfig(admin, lab.kubeconfig, tmp_path / "operator.kubeconfig")

    history: list[Change[Pod]] = []
    pods = Reflector(admin, PODS, Pod, on_change=history.append)
    with operator(account, tmp_path / "operator.log"):
        async with running(pods.run()):
            await asyncio.to_thread(
                must_all,
                lab.kubeconfig,
                "project create team-a -g 4",
                "project create team-b -g 12",
                *(f"submit a-{number} -g 4 -i job -p team-a" for number in range(4)),
            )
            await until(lambda: sum(bool(pod.spec.node_name) for pod in pods.objects.values()) == 4)
            for pod in list(pods.objects.values()):
                await admin.patch(PODS.path(pod.metadata.namespace, pod.metadata.name), LEAVES_LATE)
            await asyncio.to_thread(must_all, lab.kubeconfig, "submit b-0 -g 8 -i job -p team-b")
            await until(lambda: _bound(pods) == {"muster-team-a": 2, "muster-team-b": 1})
    nominated = {change.object.metadata.namespace for change in history if nomination_of(change.object)}
    assert "muster-team-b" in nominated
    records = (await admin.get(EVICTION_RECORDS.path()))["items"]
    assert [record["metadata"]["namespace"] for record in records] == ["muster-team-a", "muster-team-a"]
    assert "Traceback" not in (tmp_path / "operator.log").read_text()
    must(lab.kubeconfig, "list", "-A")
    refused = muster(lab.kubeconfig, "submit", "root", "-i", "job", "-p", "team-a", "-v", "/:/host")
    assert refused.returncode != 0
    assert "/" in refused.stderr


STAGES = {
    "stable": ("", "1"), "removed": None, "": None,
    "alpha, off": ("ALPHA", "0"), "beta, off": ("BETA", "0"), "beta, on": ("BETA", "1"),
    "deprecated": ("DEPRECATED", "1"),
}  # fmt: skip


def test_the_documented_differences_are_those_of_the_api_server(release: str, lab: Lab) -> None:
    """The page has columns for the default of the lab and for the newest Kubernetes."""
    if release != build.NEWEST_KUBERNETES:
        pytest.skip("the page compares the default of the lab with the newest Kubernetes")
    page = (Path(__file__).parents[2] / "docs" / "how-to" / "lab.md").read_text()
    table = page.partition(f" | {release} |\n|---|---|---|\n")[2].partition("\n\n")[0]
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in table.splitlines()]
    command = [
        str(lab.kubectl_directory / "kubectl"),
        f"--kubeconfig={lab.kubeconfig}",
        "get",
        "--raw",
        "/metrics",
    ]
    metrics = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout
    pattern = r'kubernetes_feature_enabled\{name="(\w+)",stage="(\w*)"\} (\d)'
    features = {name: (stage, enabled) for name, stage, enabled in re.findall(pattern, metrics)}
    documented = {gate: STAGES[newest] for names, _, newest in rows for gate in re.findall(r"`(\w+)`", names)}
    assert len(documented) > 5
    assert documented == {gate: features.get(gate) for gate in documented}


def _bound(pods: Reflector[Pod]) -> dict[str, int]:
    """Return the number of bound pods that are not terminating, by namespace."""
    counts: dict[str, int] = {}
    for pod in pods.objects.values():
        if pod.spec.node_name and pod.metadata.deletion_timestamp is None and pod.status.phase == "Running":
            counts[pod.metadata.namespace] = counts.get(pod.metadata.namespace, 0) + 1
    return counts


def test_the_papers_fairness_is_replayed_on_it(release: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [*MUSTER, "validate", "--scenario", "tr4858-4.*", "--out", str(tmp_path / "report")],
        capture_output=True, text=True, timeout=540, check=False,
    )  # fmt: skip
    report = json.loads((tmp_path / "report" / "report.json").read_text())
    verdicts = {step["id"]: step["verdict"] for step in report["steps"]}
    # with only three sections, some invariants have no subject
    assert set(verdicts.values()) <= {"PASS", "INCONCLUSIVE", "NOT_APPLICABLE"}, done.stdout
    steps = [verdict for name, verdict in verdicts.items() if "/invariant/" not in name]
    assert len(steps) > 6
    assert set(steps) == {"PASS"}
    assert report["cluster"]["kubernetes"] == f"v{release}"
