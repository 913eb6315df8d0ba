"""A real node with NVIDIA's device plugin, muster's agent and operator: GPU fractions, and their reservations."""

import asyncio
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from musterlab import binaries
from musterlab.cluster import Lab
from musterlab.gpus import shown
from musterlab.gpus.built import GPU_PROGRAMS, LIBRARY
from musterlab.gpus.live import NodeGpus
from musterlab.realnodes import images
from orchestrator import names
from orchestrator.agent.pod_resources import HeldDevice, list_devices
from orchestrator.progress import Reporter
from tests.cluster.waiting import poll
from tests.control.operators import MUSTER, prepare
from tests.musterlab.gpu_pods import read
from tests.musterlab.node_processes import processes

NODE: Final = "dgx1-real-1"


class Site:
    """The lab's node with its agent and operator, each of which can be killed and restarted."""

    def __init__(self, lab: Lab, directory: Path) -> None:
        self.lab = lab
        self.gpus = NodeGpus(lab)
        self._directory = directory
        self._folder = lab.state_directory / "realnodes" / NODE
        near = directory / "k"  # the path of a socket has at most 107 bytes
        near.symlink_to(self._folder / "kubelet/pod-resources")
        self.socket = near / "kubelet.sock"
        libraries = directory / "driver/usr/lib64"
        libraries.mkdir(parents=True)
        found = binaries.find(Reporter(lambda _line: None), GPU_PROGRAMS)
        (libraries / "libnvidia-ml.so.1").symlink_to(found.paths[LIBRARY])
        self._account = asyncio.run(prepare(lab.kubeconfig, directory / "operator.kubeconfig"))
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, name: str) -> None:
        """Start `operator` or `agent`."""
        if name == "operator":
            command = [*MUSTER, "operator"]
            environment = {
                "KUBECONFIG": str(self._account),
                "POD_NAME": "operator-0",
                names.IMAGE_VARIABLE: images.SHELL,
            }
        else:
            command = [
                *MUSTER, "agent", "--kubeconfig", str(self.lab.kubeconfig), "--node", NODE, "--port", "0",
                "--pod-resources", str(self.socket), "--driver-root", str(self._directory / "driver"),
            ]  # fmt: skip
            environment = {
                shown.VARIABLE: str(self._folder / "gpus" / shown.FILE),
            }
        with (self._directory / f"{name}.log").open("ab") as log:
            self._processes[name] = subprocess.Popen(
                command, env={**os.environ, **environment}, stdout=log, stderr=log
            )

    def kill(self, name: str) -> None:
        """Kill `operator` or `agent` without a shutdown, as a power failure would."""
        process = self._processes.pop(name)
        process.kill()
        process.wait()

    def kill_kubelet(self) -> None:
        """Kill the node's kubelet; the node restarts it."""
        for pid in processes(self.lab, NODE, "kubelet"):
            os.kill(pid, signal.SIGKILL)

    def held(self) -> list[HeldDevice]:
        """Return the containers with their GPUs, from the kubelet."""
        return asyncio.run(list_devices(self.socket))

    def log(self, name: str) -> str:
        return (self._directory / f"{name}.log").read_text()

    def close(self) -> None:
        for name in list(self._processes):
            self.kill(name)


@contextmanager
def site(lab: Lab, directory: Path) -> Iterator[Site]:
    """Run the agent and the operator on a lab with a device plugin.

    The operator starts after the agent's first report: without a report, it reserves no GPU for a fraction.
    """
    made = Site(lab, directory)
    try:
        made.start("agent")
        poll(lambda: read(lab, "gpunodes")["items"], "the agent's first report")
        made.start("operator")
        yield made
    finally:
        made.close()


def part_of(pod: dict[str, Any]) -> tuple[list[str], float]:
    """Return the UUIDs of the GPUs of which a bound pod has a fraction, and the size of the fraction."""
    annotations = pod["metadata"].get("annotations", {})
    uuids = annotations.get(names.GPU_UUIDS_ANNOTATION, "")
    return [uuid for uuid in uuids.split(",") if uuid], float(
        annotations.get(names.GPU_FRACTION_ANNOTATION, 0)
    )
