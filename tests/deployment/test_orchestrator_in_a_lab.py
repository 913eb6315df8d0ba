"""The role orchestrator on a real API server: check mode, installation, adoption by another controller, and removal."""

import asyncio
import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import musterlab.cluster
from orchestrator.cluster.errors import NotFound
from orchestrator.cluster.kubeconfig import load_access
from orchestrator.cluster.resources import CRDS, LEASES, NODES, PODS
from orchestrator.cluster.resources import PROJECTS as PROJECTS_OF_MUSTER
from orchestrator.cluster.transport import Transport
from tests.control.operators import operator
from tests.deployment.conftest import SiteUnderTest

pytestmark = pytest.mark.lab

LAB = Path(__file__).parents[2] / "inventories" / "lab" / "site.yml"
PROJECTS = CRDS.path(None, "projects.muster.dev")


@pytest.fixture
def kubeconfig(tmp_path: Path) -> Iterator[Path]:
    running = musterlab.cluster.start("installed", nodes=1, detach=False, state_dir=tmp_path / "labs")
    yield running.kubeconfig
    running.stop()


async def start_job(kubeconfig: Path) -> None:
    """Create a running pod, as if the orchestrator had bound it."""
    async with Transport(load_access(kubeconfig)) as transport, asyncio.timeout(240):
        node = (await transport.get(NODES.path()))["items"][0]["metadata"]["name"]
        spec: dict[str, Any] = {
            "schedulerName": "muster",
            "nodeName": node,
            "containers": [{"name": "a", "image": "a"}],
        }
        body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "train"}, "spec": spec}
        await transport.create(PODS.path("default"), body)
        async for event in transport.watch(PODS.path("default"), resource_version="0", timeout_seconds=240):
            if b'"phase":"Running"' in bytes(event.object):
                return


async def is_served(kubeconfig: Path) -> bool:
    async with Transport(load_access(kubeconfig)) as transport:
        try:
            await transport.get(PROJECTS)
        except NotFound:
            return False
    return True


async def names(kubeconfig: Path, path: str) -> list[str]:
    async with Transport(load_access(kubeconfig)) as transport:
        answer: dict[str, Any] = await transport.get(path)
    return [each["metadata"]["name"] for each in answer["items"]]


async def arguments(kubeconfig: Path) -> list[str]:
    """Return the operator's arguments in the Deployment that the role wrote."""
    async with Transport(load_access(kubeconfig)) as transport:
        path = "/apis/apps/v1/namespaces/muster-system/deployments/muster-operator"
        answer: dict[str, Any] = await transport.get(path)
    return list(answer["spec"]["template"]["spec"]["containers"][0]["args"])


async def leads(kubeconfig: Path) -> None:
    """Wait until an operator holds the lease."""
    async with Transport(load_access(kubeconfig)) as transport, asyncio.timeout(240):
        async for event in transport.watch(
            LEASES.path("muster-system"), resource_version="0", timeout_seconds=240
        ):
            if b"muster-operator" in bytes(event.object) and b"holderIdentity" in bytes(event.object):
                return


def journal(site: SiteUnderTest) -> str:
    return (site.state / "lab" / "journal.jsonl").read_text()


@pytest.mark.rare  # takes two minutes
async def test_a_check_foretells_the_changes_of_an_install_and_a_teardown_undoes_them(
    site: SiteUnderTest, kubeconfig: Path, tmp_path: Path
) -> None:
    reached = "orchestrator:\n  ingress: {class: traefik, domain: gpus.example.com}\n"
    site.write(LAB.read_text().replace("orchestrator:\n", reached))
    site.environment["KUBECONFIG"] = str(kubeconfig)
    foretold = site.muster("install", "--check", "--until", "orchestrator")
    assert foretold.returncode == 0, foretold.stderr
    assert "[2/2] orchestrator: controller: 7 ok, 1 would change" in foretold.stderr
    assert not await is_served(kubeconfig)

    done = site.muster("install")
    assert done.returncode == 0, done.stderr
    assert "[2/3] orchestrator: controller: 13 ok, 1 changed" in done.stderr
    assert "deepops: not applicable: the lab brings its own control plane" in done.stderr
    assert await is_served(kubeconfig)
    assert {"--ingress-class=traefik", "--ingress-domain=gpus.example.com"} <= set(
        await arguments(kubeconfig)
    )
    assert "not proved: no job was run, for nobody leads it" in journal(site)
    again = site.muster("install", "--from", "orchestrator", "--until", "orchestrator")
    assert "orchestrator: controller: 13 ok, 0 changed" in again.stderr

    shutil.rmtree(site.state)
    assert re.search("orchestrator +done: verified", site.muster("plan").stdout), "the cluster remembers it"

    with operator(kubeconfig, tmp_path / "operator.log"):
        await leads(kubeconfig)
        verified = site.muster("verify", "--json")
    assert verified.returncode == 0, verified.stderr
    proved = {each["stage"]: each["proved"] for each in json.loads(verified.stdout)["stages"]}
    assert re.search(r"a job on 1 GPU ran on \S+, placed by muster", " ".join(proved["verify"])), proved
    assert "projects are served" in proved["orchestrator"][0]
    assert "the policies" in proved["orchestrator"][1]
    assert "no container of a project chooses its own GPUs" in proved["orchestrator"][2]
    assert not [name for name in await names(kubeconfig, PROJECTS_OF_MUSTER.path()) if name == "verify"]

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
    assert re.search("orchestrator +run: removed", site.muster("plan").stdout)
