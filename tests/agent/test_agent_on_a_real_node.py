"""The agent as a process on a real node: the double of NVML, NVIDIA's device plugin, and the kubelet."""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from musterlab import binaries
from musterlab.cluster import Lab, start
from musterlab.gpus import shown
from musterlab.gpus.built import GPU_PROGRAMS, LIBRARY
from musterlab.gpus.live import NodeGpus, Process
from musterlab.gpus.models import Gpus, Stack
from orchestrator.agent.cgroups import owner_of
from orchestrator.cluster.kubeconfig import load_access
from orchestrator.cluster.quantity import parse_time
from orchestrator.cluster.transport import Transport
from orchestrator.manifests.install import install
from orchestrator.progress import Reporter
from tests.cluster.waiting import poll
from tests.control.operators import must
from tests.musterlab.gpu_pods import create, pod, read, wait_until_ready

pytestmark = [pytest.mark.lab, pytest.mark.real_nodes]

NODE = "dgx1-real-1"
MUSTER = [sys.executable, "-P", "-c", "import sys; from orchestrator.cli.main import main; sys.exit(main())"]
MAX_RESIDENT_BYTES = 60 << 20
WAIT_SECONDS = 120


class Watched:
    """A lab of one node with eight GPUs, and an agent there."""

    def __init__(self, lab: Lab, log: Path) -> None:
        self.lab = lab
        self.gpus = NodeGpus(lab)
        self.log = log

    def gpu_node(self) -> dict[str, Any]:
        """Return the GpuNode that the agent wrote last."""
        objects = read(self.lab, "gpunodes")["items"]
        spec: dict[str, Any] = objects[0]["spec"] if objects else {}
        return spec

    def states(self) -> list[dict[str, Any]]:
        return list(self.gpu_node().get("gpus", ()))

    def holders(self) -> dict[str, str]:
        """Return by UUID the pod to which the kubelet gave the GPU."""
        return {gpu["uuid"]: gpu["holders"][0]["pod"] for gpu in self.states() if gpu.get("holders")}

    def failed(self) -> str | None:
        """Return the node's annotation on failed GPUs."""
        annotations = read(self.lab, "node", NODE)["metadata"].get("annotations", {})
        failed: str | None = annotations.get("muster.dev/failed-gpus")
        return failed


@pytest.fixture
def eventually() -> Callable[[Callable[[], bool], str], None]:
    """Return a function that polls the cluster until a condition is true."""
    return poll


def library() -> Path:
    return binaries.find(Reporter(lambda _line: None), GPU_PROGRAMS).paths[LIBRARY]


async def prepare(lab: Lab) -> None:
    async with Transport(load_access(lab.kubeconfig)) as transport:
        await install(transport, "tests", replicas=0)


@pytest.fixture
def watched(tmp_path: Path) -> Iterator[Callable[[Stack], Watched]]:
    running: list[Lab] = []
    agents: list[subprocess.Popen[bytes]] = []

    def begin(stack: Stack) -> Watched:
        path = library()
        lab = start(
            "agent",
            nodes=0,
            real_nodes=1,
            detach=False,
            state_dir=tmp_path / "l",
            gpus=Gpus("v100", 8, stack),
        )
        running.append(lab)
        folder = lab.state_directory / "realnodes" / NODE
        (tmp_path / "k").symlink_to(
            folder / "kubelet/pod-resources"
        )  # the path of a socket has at most 107 bytes
        (tmp_path / "driver/usr/lib64").mkdir(parents=True)
        (tmp_path / "driver/usr/lib64/libnvidia-ml.so.1").symlink_to(path)
        environment = {
            **os.environ,
            shown.VARIABLE: str(folder / "gpus" / shown.FILE),
            "MALLOC_ARENA_MAX": "1",
        }
        command = [
            *MUSTER, "agent", "--kubeconfig", str(lab.kubeconfig), "--node", NODE, "--port", "0",
            "--pod-resources", str(tmp_path / "k/kubelet.sock"), "--driver-root", str(tmp_path / "driver"),
        ]  # fmt: skip
        log = tmp_path / "agent.log"
        with log.open("wb") as output:
            agents.append(subprocess.Popen(command, env=environment, stdout=output, stderr=output))
        return Watched(lab, log)

    yield begin
    for agent in agents:
        agent.terminate()
        assert agent.wait(timeout=WAIT_SECONDS) == 0
        usage = (tmp_path / "agent.log").read_text()
        assert "Traceback" not in usage
    for lab in running:
        lab.stop()


def test_the_device_plugins_gpus_their_pods_their_processes_and_their_failures(
    watched: Callable[[Stack], Watched], eventually: Callable[[Callable[[], bool], str], None]
) -> None:
    site = watched("device-plugin")
    asyncio.run(prepare(site.lab))
    eventually(lambda: len(site.states()) == 8, "the agent writes the eight GPUs")
    assert {gpu["model"] for gpu in site.states()} == {"Tesla V100-SXM2-32GB"}
    assert [gpu["uuid"] for gpu in site.states()] == [state.uuid for state in site.gpus.states()]
    two = {"limits": {"nvidia.com/gpu": "2"}}
    one = {"limits": {"nvidia.com/gpu": "1"}}
    create(site.lab, pod("one", [one], nodeName=NODE), pod("two", [two], nodeName=NODE))
    wait_until_ready(site.lab, "one", "two")
    eventually(
        lambda: sorted(site.holders().values()) == ["one", "two", "two"], "the kubelet's answer is written"
    )
    assert site.holders() == allotted(site.lab)

    (mine,) = [
        gpu
        for gpu in site.states()
        if gpu["uuid"] in [u for u, name in site.holders().items() if name == "one"]
    ]
    container = read(site.lab, "pod", "one")["status"]["containerStatuses"][0]["containerID"].partition(
        "://"
    )[2]
    site.gpus.use(str(mine["index"]), 80, [Process(process_of(container), "sleep", 4096)])
    eventually(
        lambda: bool(site.states()[mine["index"]].get("users")), "its process is known by its container"
    )
    (user,) = site.states()[mine["index"]]["users"]
    assert (user["containerId"], user["memoryMib"]) == (container, 4096)
    shown = must(site.lab.kubeconfig, "get", "node", NODE)
    assert mine["uuid"] in shown
    assert "default/one" in shown

    site.gpus.send_xid("5", 48)
    eventually(lambda: site.failed() == "5", "the GPU with an Xid is named on the node")
    site.gpus.lose("6")
    eventually(lambda: site.failed() == "5,6", "and the one that fell off the bus")

    def failures() -> dict[int, str]:
        return {gpu["index"]: gpu["failure"] for gpu in site.states() if gpu.get("failure")}

    eventually(
        lambda: failures() == {5: "xid-48", 6: "xid-79"}, "its Xid is told, which may come after its silence"
    )
    assert parse_time(site.gpu_node()["observedAt"])


def allotted(lab: Lab) -> dict[str, str]:
    """Return by UUID the pod with the GPU, from the kubelet's own checkpoint."""
    checkpoint = (
        lab.state_directory / "realnodes" / NODE / "kubelet/device-plugins/kubelet_internal_checkpoint"
    )
    names = {read(lab, "pod", name)["metadata"]["uid"]: name for name in ("one", "two")}
    return {
        uuid: names[entry["PodUID"]]
        for entry in json.loads(checkpoint.read_text())["Data"]["PodDeviceEntries"]
        for uuids in entry["DeviceIDs"].values()
        for uuid in uuids
    }


def process_of(container: str) -> int:
    """Return the process id, on this machine, of a process in a container."""
    numbers = [int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit()]
    return next(number for number in numbers if owner_of(number).container_id == container)
