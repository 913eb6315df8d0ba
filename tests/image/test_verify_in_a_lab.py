"""Sites whose GPUs NVIDIA's DRA driver or device plugin announces: `muster verify`, and a lost GPU.

With the DRA driver also quotas and the fairness suite.

Covers roles/verify and `muster validate --target cluster`. The two nodes are real and have the double of NVML. Their
agents run from the image, and the operator is a process.
"""

import asyncio
import json
import re
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from musterlab.cluster import Lab, start
from musterlab.gpus.live import NodeGpus
from musterlab.gpus.models import Gpus, Stack
from musterlab.realnodes import driver, images
from tests.control.operators import must, muster, operator
from tests.deployment.conftest import MUSTER
from tests.deployment.running import inherited
from tests.image.test_gpu_memory_in_a_lab import Eventually, eventually, operators_access
from tests.musterlab.gpu_labs import check_nvidias_dra_driver
from tests.musterlab.gpu_pods import kube_scheduler_of, kubectl, read

__all__ = ["eventually"]

pytestmark = [pytest.mark.lab, pytest.mark.real_nodes]

NODES: Final = ("dgx1-real-1", "dgx1-real-2")
NODE: Final = NODES[0]
SITE: Final = f"""schema: 1
name: here
versions:
  kubernetes: "1.36.3"
  driver: "580"
  dra: "{{dra}}"
orchestrator:
  replicas: 0
not_applicable:
  driver: the node has a double of NVIDIA's library
  container_toolkit: containerd of the lab does CDI
  deepops: the lab brings its own control plane
  ontap: there is no storage system
  trident: there is no storage system
vars:
  preflight_kubernetes: ""
{{nodes}}  verify_gpus_by_host: {{{{{", ".join(f"{node}: 8" for node in NODES)}}}}}
"""
WITH_DRA: Final = pytest.mark.parametrize("site", ["dra"], indirect=True)


@dataclass
class Site:
    lab: Lab
    directory: Path
    stack: Stack

    def verify(self) -> subprocess.CompletedProcess[str]:
        arguments = (
            "verify",
            "-i",
            str(self.directory),
            "--state-dir",
            str(self.directory / "state"),
            "--json",
        )
        environment = inherited() | {
            "XDG_CACHE_HOME": str(self.directory / "cache"),
            "KUBECONFIG": str(self.lab.kubeconfig),
        }
        return subprocess.run(
            [*MUSTER, *arguments], env=environment, capture_output=True, text=True, timeout=300, check=False
        )


@pytest.fixture(scope="module", params=["dra", "device-plugin"])
def site(
    archive: Path, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Site]:
    with_dra = request.param == "dra"
    if with_dra:
        check_nvidias_dra_driver()
    directory = tmp_path_factory.mktemp("v")
    nodes = f"  dra_nodes: [{', '.join(NODES)}]\n" if with_dra else ""
    (directory / "site.yml").write_text(SITE.format(dra="auto" if with_dra else "off", nodes=nodes))
    with ExitStack() as stack:
        lab = start(
            "verify", nodes=0, real_nodes=len(NODES), detach=False, state_dir=directory / "l", image_archives=[archive],
            gpus=Gpus("v100", 8, request.param),
        )  # fmt: skip
        stack.callback(lab.stop)
        kubectl(lab, "label", "node", *NODES, "nvidia.com/gpu.present=true")  # as the role dra does
        stack.enter_context(kube_scheduler_of(lab, directory))
        rendered = must(
            lab.kubeconfig, "operator-yaml", "--cluster", "here", "--replicas=0", "--agent",
            f"--agent-driver-root={driver.ROOT}",
        )  # fmt: skip
        kubectl(lab, "apply", "-f", "-", given=rendered)
        kubectl(lab, "wait", "--for=condition=Established", "crd/projects.muster.dev", "--timeout=60s")
        account = asyncio.run(operators_access(lab, directory / "operator.kubeconfig"))
        stack.enter_context(operator(account, directory / "operator.log"))
        yield Site(lab, directory, request.param)


def gpus(site: Site, node: str = NODE) -> list[dict[str, str]]:
    nodes = {shown["metadata"]["name"]: shown for shown in read(site.lab, "gpunodes")["items"]}
    return list(nodes[node]["spec"].get("gpus", ())) if node in nodes else []


@pytest.fixture(scope="module")
def watched(site: Site, eventually: Eventually) -> Site:
    """Return the site once its agents have reported all GPUs."""
    eventually(lambda: all(len(gpus(site, node)) == 8 for node in NODES), "the agents write their eight GPUs")
    return site


@pytest.mark.rare  # takes three minutes
@WITH_DRA
def test_the_fairness_suite_passes_where_whole_gpus_and_parts_come_by_claims(
    watched: Site, tmp_path: Path
) -> None:
    done = muster(
        watched.lab.kubeconfig, "validate", "--target", "cluster", "--part", "fairness", "--patience", "4",
        "--out", str(tmp_path / "report"),
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
    assert done.stdout.startswith("PASS of ")
    print(done.stdout)


@pytest.mark.rare
@WITH_DRA
def test_quotas_are_of_the_gpus_that_come_by_claims(watched: Site, eventually: Eventually) -> None:
    access = watched.lab.kubeconfig
    refused = muster(access, "project", "create", "too-large", "-g", "17")
    assert refused.returncode == 1
    assert "17" in refused.stderr
    assert "16" in refused.stderr
    must(access, "project", "create", "four", "-g", "4")
    sleep = ("--command", "--", "sleep", "3600")
    must(access, "submit", "all", "-p", "four", "-g", "4", "-i", images.SHELL, *sleep)
    kubectl(
        watched.lab, "wait", "--for=condition=Ready", "pod", "--all", "-n", "muster-four", "--timeout=120s"
    )
    (pod,) = read(watched.lab, "pods", "-n", "muster-four")["items"]
    (claim,) = read(watched.lab, "resourceclaims", "-n", "muster-four")["items"]
    held = {device["device"] for device in claim["status"]["allocation"]["devices"]["results"]}
    seen = kubectl(
        watched.lab, "exec", "-n", "muster-four", pod["metadata"]["name"], "--", "ls", "/dev"
    ).split()
    assert {name.replace("nvidia", "gpu-") for name in seen if re.fullmatch(r"nvidia\d+", name)} == held
    assert len(held) == 4

    def allocated() -> float:
        projects = json.loads(must(access, "project", "list", "-o", "json"))
        return sum(float(one["status"]["allocatedGpu"]) for one in projects if one["name"] == "four")

    eventually(lambda: allocated() == 4, "the project has its quota")
    must(access, "project", "delete", "four", "--force")


@pytest.mark.rare  # takes a minute, mostly in Ansible
def test_a_site_is_green_with_all_its_gpus_and_names_the_one_that_is_lost(
    watched: Site, eventually: Eventually
) -> None:
    site = watched
    green = site.verify()
    assert green.returncode == 0, green.stderr
    proved = {stage["stage"]: " ".join(stage["proved"]) for stage in json.loads(green.stdout)["stages"]}
    assert f"muster gives 8 on {NODE}" in proved["verify"]
    assert re.search(r"a job on 1 GPU ran on dgx1-real-[12], placed by muster", proved["verify"])
    claims = "a container got the GPU of its claim, another half of a GPU"
    assert (claims in proved["verify"]) == (site.stack == "dra")

    ended = read(site.lab, "events", "-A", "--field-selector", "reason=BackOff")["items"]
    assert not ended, "the jobs of `verify` end because they are ended"

    address = gpus(site)[5]["busId"]
    NodeGpus(site.lab, NODE).lose("5")
    eventually(lambda: bool(gpus(site)[5].get("failure")), "the agent writes what is lost")
    red = site.verify()
    assert red.returncode == 1
    assert f"{NODE} gives 7 of 8 GPUs: {address} " in red.stderr, red.stderr
