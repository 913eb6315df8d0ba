"""The state of the GPUs of a running lab: changes of the file that the double of NVML reads.

A process of the node or of its containers sees a change at its next call of the library.
"""

import contextlib
import json
import os
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from musterlab.cluster import Lab
from musterlab.errors import StateError
from musterlab.gpus import shown
from musterlab.realnodes import plan
from orchestrator.errors import UsageError

FALLEN_OFF_BUS_XID: Final = 79

_MIB = 1 << 20


@dataclass(frozen=True)
class Process:
    """A process on a GPU, as the library names it."""

    pid: int
    name: str
    memory_mib: int


@dataclass(frozen=True)
class GpuState:
    """One GPU of a node: its properties and changes."""

    index: int
    uuid: str
    changes: dict[str, Any]


class NodeGpus:
    """The GPUs of one real node of a lab. A GPU is its index, its UUID, or `all`."""

    def __init__(self, lab: Lab, node: str | None = None) -> None:
        """Find the node. `node` can be omitted if the lab has only one.

        Raises:
            UsageError: the lab has no such node, no node with GPUs, or several and `node` is omitted.
        """
        nodes = sorted(path.parent.name for path in (lab.state_directory / plan.FOLDER).glob("*/gpus/"))
        if not nodes:
            raise UsageError(f"lab {lab.name!r} was not started with --gpus: its GPUs have no state")
        if node is None and len(nodes) > 1:
            raise UsageError(
                f"lab {lab.name!r} has several nodes with GPUs: give --node, one of {', '.join(nodes)}"
            )
        self.node = node or nodes[0]
        if self.node not in nodes:
            raise UsageError(f"lab {lab.name!r} has no node {self.node!r} with GPUs, but {', '.join(nodes)}")
        self._folder = plan.gpu_configuration(lab.state_directory, self.node)
        specification = json.loads((self._folder.parent / "specification.json").read_text())
        self._plugin = specification["gpus"]["plugin"]["command"][0]
        self._cgroups = {Path(folder).name for folder in specification["cgroups"]}

    def states(self) -> list[GpuState]:
        """Return all GPUs in their order."""
        changes = shown.read_changes(self._folder)
        return [
            GpuState(index, fields["uuid"], changes.get(index, {}))
            for index, fields in enumerate(shown.read_gpus(self._folder))
        ]

    def use(self, gpu: str, utilization_percent: int | None, processes: Sequence[Process]) -> None:
        """Show a GPU as busy, and show exactly these processes as users of its memory."""
        fields: dict[str, Any] = {
            "processes": [f"{process.pid} {process.memory_mib} {process.name}" for process in processes],
            "memory_used": sum(process.memory_mib for process in processes) * _MIB,
        }
        if utilization_percent is not None:
            fields |= {"utilization": utilization_percent, "memory_utilization": utilization_percent}

        def change(changes: shown.Changes, index: int, started: Mapping[str, Any]) -> None:
            now = {**started, **changes.gpus.get(index, {})}
            if fields["memory_used"] + now.get("memory_reserved", 0) > now["memory_total"]:
                raise UsageError(
                    f"the processes hold {fields['memory_used'] // _MIB} MiB, more than the GPU has"
                )
            changes.set(index, fields)

        self._change(gpu, change)

    def set_ecc_errors(self, gpu: str, count: int) -> None:
        """Show this number of uncorrectable ECC errors on a GPU."""
        self.set(gpu, {"ecc_uncorrected": count})

    def send_xid(self, gpu: str, code: int) -> None:
        """Let the driver report an error by its number; the GPU continues."""
        self._change(gpu, lambda changes, index, _started: changes.send_xid(index, code))

    def lose(self, gpu: str, code: int = FALLEN_OFF_BUS_XID) -> None:
        """Make a GPU fall off the bus: the library then answers only queries for its UUID."""

        def change(changes: shown.Changes, index: int, _started: Mapping[str, Any]) -> None:
            changes.send_xid(index, code)
            changes.set(index, {"lost": 1})

        self._change(gpu, change)

    def set(self, gpu: str, fields: Mapping[str, int]) -> None:
        """Change numbers of a GPU, such as temperature. Raises UsageError if there is no such number."""
        unknown = sorted(set(fields) - set(shown.NUMBERS))
        if unknown:
            raise UsageError(f"GPUs have no {unknown[0]!r} to change, but {', '.join(shown.NUMBERS)}")
        self._change(gpu, lambda changes, index, _started: changes.set(index, fields))

    def restore(self, gpu: str) -> None:
        """Undo all changes of a GPU."""
        self._change(gpu, lambda changes, index, _started: changes.gpus.pop(index, None))

    def restart_plugin(self) -> None:
        """Kill the device plugin or DRA driver; the node starts it again a second later.

        Raises:
            StateError: it does not run.
        """
        for pid in self.pids():
            # a process that ends at this moment is not the plugin
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                program = Path(f"/proc/{pid}/cmdline").read_bytes().partition(b"\0")[0]
                if program.decode(errors="replace") == self._plugin:
                    os.kill(pid, signal.SIGKILL)
                    return
        raise StateError(f"{self._plugin} does not run on {self.node}: see log/{self.node}-gpus.log")

    def pids(self) -> Iterator[int]:
        """Yield the processes of the node and of its containers, by their numbers on this machine."""
        for path in Path("/proc").glob("[0-9]*/cgroup"):
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                if self._holds(path.read_text()):
                    yield int(path.parent.name)

    def _holds(self, cgroups: str) -> bool:
        return any(folder in line.split("/") for line in cgroups.splitlines() for folder in self._cgroups)

    def _change(self, gpu: str, change: Callable[[shown.Changes, int, Mapping[str, Any]], object]) -> None:
        gpus = shown.read_gpus(self._folder)
        if gpu == "all":
            chosen = list(range(len(gpus)))
        else:
            chosen = [index for index, fields in enumerate(gpus) if gpu in (str(index), fields["uuid"])]
        if not chosen:
            raise UsageError(f"{self.node} has no GPU {gpu!r}: give 0 to {len(gpus) - 1}, a UUID, or all")
        with shown.changes(self._folder) as changes:
            for index in chosen:
                change(changes, index, gpus[index])
