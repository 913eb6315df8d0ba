"""The load of the GPUs of a lab: each container of a job is a process on the GPUs whose device files it has.

GPUs of a lab compute nothing. The double of NVML gets the utilization and the process from here. It reads neither the
decisions of muster nor the list of the kubelet: only `/dev` of the container.
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
"""In the environment of each job with GPUs. The pods that hold GPUs for fractions do not have it."""


class Node(Protocol):
    """A node whose processes are known, such as NodeGpus."""

    def pids(self) -> Iterable[int]:
        """Return the processes of the node and of its containers."""


@contextmanager
def duty(lab: Lab, nodes: list[str]) -> Iterator[None]:
    """Keep the GPUs of the nodes busy for the length of the block, while containers have them."""
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
    """Return, by the index of the GPU, the first process of the container that has its device file."""
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
    """Return the indices of the device files of a job's process; none of another process."""
    if not any(line.startswith(_VARIABLE) for line in (proc / "environ").read_bytes().split(b"\0")):
        return []
    matches = (_DEVICE.fullmatch(path.name) for path in (proc / "root/dev").iterdir())
    return [int(match[1]) for match in matches if match]


def _number_on_node(proc: Path) -> int:
    """Return the number of the process in its node, which has numbers of its own: `NSpid: MACHINE NODE CONTAINER`."""
    status = (proc / "status").read_text()
    return next(int(line.split()[2]) for line in status.splitlines() if line.startswith("NSpid:"))
