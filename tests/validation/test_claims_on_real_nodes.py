"""The pod of Google's page, unchanged, on real kubelets with NVIDIA's DRA driver.

The images are stand-ins for CUDA's samples: they print PASSED without a GPU that computes.
"""

import asyncio
from pathlib import Path

import pytest

from musterlab.cluster import start
from musterlab.gpus.models import Gpus
from orchestrator.cluster.kubeconfig import load_access
from orchestrator.cluster.resources import NODES
from orchestrator.cluster.transport import MERGE_PATCH, Transport
from tests.control.operators import muster, prepare
from tests.musterlab.gpu_labs import check_nvidias_dra_driver
from tests.musterlab.gpu_pods import kube_scheduler_of
from tests.validation.replay import assert_second_judge_agrees
from tests.validation.witnessed_runs import operator
from validation.judge.events import RequestAnswered
from validation.report import log, record
from validation.report.verify import verify

pytestmark = [pytest.mark.lab, pytest.mark.real_nodes, pytest.mark.rare]


async def label_nodes(kubeconfig: Path) -> None:
    """Label the nodes as NVIDIA's feature discovery does, which does not run here."""
    labels = {"nvidia.com/gpu.present": "true", "nvidia.com/gpu.count": "8"}
    async with Transport(load_access(kubeconfig)) as transport:
        for node in (await transport.get(NODES.path()))["items"]:
            path = NODES.path(name=node["metadata"]["name"])
            await transport.patch(path, {"metadata": {"labels": labels}}, content_type=MERGE_PATCH)


def test_the_pod_of_the_page_uses_the_gpu_of_its_claim(tmp_path: Path) -> None:
    check_nvidias_dra_driver()  # `muster validate` does not count devices of the example driver as GPUs
    out = tmp_path / "r"
    options = ("--target", "cluster", "--profile", "current", "--scenario", "dra", "--size", "1x8")
    gpus = Gpus("v100", 8, "dra")
    lab = start("claims", nodes=0, real_nodes=1, detach=False, state_dir=tmp_path / "l", gpus=gpus)
    try:
        account = asyncio.run(prepare(lab.kubeconfig, tmp_path / "operator.kubeconfig"))
        asyncio.run(label_nodes(lab.kubeconfig))
        with kube_scheduler_of(lab, tmp_path), operator(account, tmp_path / "operator.log"):
            done = muster(lab.kubeconfig, "validate", *options, "--out", str(out), timeout=600)
    finally:
        lab.stop()
    report = record.read(out)
    assert {step.id: step.verdict for step in report.steps} == {
        "dra/api/version": "PASS",
        "dra/api/driver": "PASS",
        "dra/api/claim": "PASS",
        "dra/api/pod": "PASS",
    }, ([step.reasons for step in report.steps], done.stderr)
    assert next(entry for entry in report.requirements if entry.id == "dra.pod").verdict == "PASS"
    events = [event for event in log.read_log(out).events if isinstance(event, RequestAnswered)]
    printed = {event.path.rpartition("=")[2]: event.answer for event in events if "/log?" in event.path}
    assert printed == {"ctr0": "Test PASSED", "ctr1": "Detected 1 CUDA Capable device(s)\nResult = PASS"}
    assert verify(out).problems == []
    assert_second_judge_agrees(out)
