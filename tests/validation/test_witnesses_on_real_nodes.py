"""The acceptance test on real kubelets, with NVIDIA's device plugin on the double of NVML, and
an agent on each node.
"""

import asyncio
import json
import os
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from musterlab import binaries
from musterlab.cluster import Lab, start
from musterlab.gpus import shown
from musterlab.gpus.built import GPU_PROGRAMS, LIBRARY
from musterlab.gpus.live import NodeGpus, Process
from musterlab.gpus.models import Gpus
from orchestrator.agent.cgroups import owner_of
from orchestrator.progress import Reporter
from tests.control.operators import MUSTER, prepare
from tests.musterlab.gpu_pods import read
from tests.validation.witnessed_runs import operator, process, validate
from validation.judge.events import GpusSeen
from validation.report import log

pytestmark = [pytest.mark.lab, pytest.mark.real_nodes, pytest.mark.rare]

NODES = ("dgx1-real-1", "dgx1-real-2")


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    library = binaries.find(Reporter(lambda _line: None), GPU_PROGRAMS).paths[LIBRARY]
    gpus = Gpus("v100", 8, "device-plugin")
    running = start(
        "witnessed", nodes=0, real_nodes=len(NODES), detach=False, state_dir=tmp_path / "l", gpus=gpus
    )
    try:
        (tmp_path / "driver/usr/lib64").mkdir(parents=True)
        (tmp_path / "driver/usr/lib64/libnvidia-ml.so.1").symlink_to(library)
        yield running
    finally:
        running.stop()


def test_an_honest_run_is_confirmed_by_the_kubelets_and_the_driver(lab: Lab, tmp_path: Path) -> None:
    account = asyncio.run(prepare(lab.kubeconfig, tmp_path / "operator.kubeconfig"))
    with ExitStack() as stack:
        for number, node in enumerate(NODES):
            stack.enter_context(agent(lab, node, tmp_path, number))
        stack.enter_context(operator(account, tmp_path / "operator.log"))
        stack.enter_context(first_pod_computes(lab))
        run = validate(lab.kubeconfig, tmp_path / "report")
    for invariant in ("kubelet-agrees", "processes-on-own-gpus", "gpu-capacity", "nothing-vanishes"):
        assert run.step(f"invariant/{invariant}") == ("PASS", ""), run.output
    report = json.loads((tmp_path / "report/report.json").read_text())
    assert report["target"]["programs"] == (
        "NVML: muster's double of libnvidia-ml.so; device plugin: NVIDIA's nvidia-device-plugin v0.19.0"
    )
    heard = {event.node for event in log.read_log(tmp_path / "report").events if isinstance(event, GpusSeen)}
    assert heard == set(NODES)


@contextmanager
def agent(lab: Lab, node: str, directory: Path, number: int) -> Iterator[None]:
    """Run the agent of a node during the block."""
    folder = lab.state_directory / "realnodes" / node
    sockets = directory / f"k{number}"  # the path of a socket has at most 107 bytes
    sockets.symlink_to(folder / "kubelet/pod-resources")
    environment = {
        **os.environ,
        shown.VARIABLE: str(folder / "gpus" / shown.FILE),
    }
    command = [
        *MUSTER, "agent", "--kubeconfig", str(lab.kubeconfig), "--node", node, "--port", "0",
        "--pod-resources", str(sockets / "kubelet.sock"), "--driver-root", str(directory / "driver"),
    ]  # fmt: skip
    with process(command, environment, directory / f"agent-{number}.log"):
        yield


@contextmanager
def first_pod_computes(lab: Lab) -> Iterator[None]:
    """Give the double of the driver a process of the first pod that a kubelet names, on a GPU
    that the kubelet gave it.
    """
    over = threading.Event()

    def follow() -> None:
        while not over.wait(0.5):
            for node in read(lab, "gpunodes")["items"]:
                for gpu in node["spec"].get("gpus", ()):
                    for holder in gpu.get("holders", ()):
                        pod = read(lab, "pod", holder["pod"], "-n", holder["namespace"])
                        if number := process_of(pod):
                            gpus = NodeGpus(lab, node["metadata"]["name"])
                            gpus.use(str(gpu["index"]), 80, [Process(number, "train", 4096)])
                            return

    follower = threading.Thread(target=follow)
    follower.start()
    try:
        yield
    finally:
        over.set()
        follower.join()


def process_of(pod: dict[str, Any]) -> int:
    """Return the process id, on this machine, of a process in a pod's container; 0 before it runs."""
    statuses = pod["status"].get("containerStatuses", ())
    containers = {str(status.get("containerID", "")).partition("://")[2] for status in statuses} - {""}
    numbers = (int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit())
    return next((number for number in numbers if owner_of(number).container_id in containers), 0)
