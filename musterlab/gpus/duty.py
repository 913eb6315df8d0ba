"""Simulates load on the GPUs of a lab. If a container of a job has the device file of a GPU, the GPU is busy.

GPUs of a lab compute nothing. This module sends the utilization and the process to the test double of NVML. It reads
only `/dev` of the containers, so its result is independent of muster's decisions and of the kubelet.
"""

import re
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Protocol

from musterlab.cluster import Lab
from musterlab.gpus.live import NodeGpus, Process
from orchestrator.agent.cgroups import owner_of

UTILIZATION_PERCENT: Final = 97
MEMORY_MIB: Final = 4096
PERIOD_SECONDS: Final = 2.0

_DEVICE: Final = re.compile(r"nvidia(\d+)")
_VARIABLE: Final = b"RUNAI_NUM_OF_GPUS="
"""Each job with GPUs has this environment variable. Reservation pods, which hold GPUs for fractions, do not."""


class Node(Protocol):
    """A node whose processes are known, such as NodeGpus."""

    def pids(self) -> Iterable[int]:
        """Return the processes of the node and of its containers."""


@contextmanager
def duty(lab: Lab, nodes: list[str]) -> Iterator[None]:
    """Inside the block, keep each GPU busy while a container has its device file."""
    over = threading.Event()

    def follow() -> None:
        before = {node: dict[int, Process]() for node in nodes}
        gpus = {node: NodeGpus(lab, node) for node in nodes}
        while not over.wait(PERIOD_SECONDS):
            for node in nodes:
                before[node] = _show(gpus[node], before[node])

    follower = threading.Thread(target=follow, name="duty")
    follower.start()
    try:
        yield
    finally:
        over.set()
        follower.join()


def _show(gpus: NodeGpus, before: dict[int, Process]) -> dict[int, Process]:
    """Tell the double of NVML the changes since `before`; return the present processes by the index of the GPU."""
    now = processes_of(gpus)
    for index in before.keys() | now.keys():
        if before.get(index) != now.get(index):
            process = now.get(index)
            gpus.use(str(index), UTILIZATION_PERCENT if process else 0, [process] if process else [])
    return now


def processes_of(node: Node, proc: Path = Path("/proc")) -> dict[int, Process]:
    """Return, for each GPU by index, the first process of a container with the device file of this GPU."""
    found: dict[int, Process] = {}
    for pid in sorted(node.pids()):
        folder = proc / str(pid)
        try:
            for index in _devices(folder) if owner_of(pid, proc).container_id else ():
                found.setdefault(index, Process(_number_on_node(folder), "job", MEMORY_MIB))
        except OSError:
            continue  # it has ended
    return found


def _devices(proc: Path) -> list[int]:
    """Return the GPU indices of the device files that the process sees.

    Return an empty list if the process belongs to no job.
    """
    if not any(line.startswith(_VARIABLE) for line in (proc / "environ").read_bytes().split(b"\0")):
        return []
    matches = (_DEVICE.fullmatch(path.name) for path in (proc / "root/dev").iterdir())
    return [int(match[1]) for match in matches if match]


def _number_on_node(proc: Path) -> int:
    """Return the PID of the process in the PID namespace of its node.

    `NSpid` lists the PIDs in the machine, the node and the container.
    """
    status = (proc / "status").read_text()
    return next(int(line.split()[2]) for line in status.splitlines() if line.startswith("NSpid:"))
