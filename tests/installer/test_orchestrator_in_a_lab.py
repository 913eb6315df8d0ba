"""The orchestrator's role on a real API server: foretold, installed, adopted by another controller, and removed."""

import asyncio
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import lab.cluster
from orchestrator.cluster.errors import NotFound
from orchestrator.cluster.kubeconfig import load_access
from orchestrator.cluster.resources import CRDS, NODES, PODS
from orchestrator.cluster.transport import Transport
from tests.installer.conftest import SiteUnderTest

pytestmark = pytest.mark.lab

LAB = Path(__file__).parents[2] / "inventories" / "lab" / "site.yml"
PROJECTS = CRDS.path(None, "projects.muster.dev")


@pytest.fixture
def kubeconfig(tmp_path: Path) -> Iterator[Path]:
    running = lab.cluster.start("installed", nodes=1, detach=False, state_dir=tmp_path / "labs")
    yield running.kubeconfig
    running.stop()


async def start_job(kubeconfig: Path) -> None:
    """A pod that the orchestrator could have placed, and that runs."""
    async with Transport(load_access(kubeconfig)) as transport, asyncio.timeout(60):
        node = (await transport.get(NODES.path()))["items"][0]["metadata"]["name"]
        spec: dict[str, Any] = {
            "schedulerName": "muster",
            "nodeName": node,
            "containers": [{"name": "a", "image": "a"}],
        }
        body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "train"}, "spec": spec}
        await transport.create(PODS.path("default"), body)
        async for event in transport.watch(PODS.path("default"), resource_version="0", timeout_seconds=60):
            if b'"phase":"Running"' in bytes(event.object):
                return


async def is_served(kubeconfig: Path) -> bool:
    async with Transport(load_access(kubeconfig)) as transport:
        try:
            await transport.get(PROJECTS)
        except NotFound:
            return False
    return True


async def test_a_check_foretells_what_an_install_does_and_a_teardown_undoes(
    site: SiteUnderTest, kubeconfig: Path
) -> None:
    site.write(LAB.read_text())
    site.environment["KUBECONFIG"] = str(kubeconfig)
    foretold = site.muster("install", "--check", "--until", "orchestrator")
    assert foretold.returncode == 0, foretold.stderr
    assert "[2/2] orchestrator: controller: 7 ok, 1 would change" in foretold.stderr
    assert not await is_served(kubeconfig)

    done = site.muster("install")
    assert done.returncode == 0, done.stderr
    assert "[2/3] orchestrator: controller: 7 ok, 1 changed" in done.stderr
    assert "deepops: not applicable: the lab brings its own control plane" in done.stderr
    assert await is_served(kubeconfig)
    again = site.muster("install", "--from", "orchestrator", "--until", "orchestrator")
    assert "orchestrator: controller: 7 ok, 0 changed" in again.stderr

    shutil.rmtree(site.state)
    assert "orchestrator done: verified" in " ".join(site.muster("plan").stdout.split()), (
        "the cluster remembers it"
    )

    await start_job(kubeconfig)
    refused = site.muster("teardown", "--yes")
    assert refused.returncode == 1
    assert "1 pods run that the orchestrator has placed" in refused.stderr
    assert await is_served(kubeconfig)
    async with Transport(load_access(kubeconfig)) as transport:
        await transport.delete(PODS.path("default", "train"), grace_seconds=0)
    removed = site.muster("teardown", "--yes")
    assert removed.returncode == 0, removed.stderr
    assert not await is_served(kubeconfig)
    assert "orchestrator run: removed" in " ".join(site.muster("plan").stdout.split())
