"""What the GPUs of a running lab do: changed by NVIDIA's own program for its mock, seen by all that asks the library.

The library reads the changes anew each second, in every process of the node and of its containers.
"""

import contextlib
import json
import os
import signal
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from musterlab.cluster import Lab
from musterlab.errors import StateError
from musterlab.gpus import recipe
from musterlab.realnodes import plan
from orchestrator.errors import UsageError

FALLEN_OFF_BUS_XID: Final = 79

_SECONDS = 30
_MIB = 1 << 20


@dataclass(frozen=True)
class Process:
    """A process on a GPU, as the library names it."""

    pid: int
    name: str
    memory_mib: int


@dataclass(frozen=True)
class GpuState:
    """One GPU of a node: what it is, and what was changed of it."""

    index: int
    uuid: str
    changes: dict[str, Any]


class NodeGpus:
    """The GPUs of one real node of a lab. A GPU is its index, its UUID, or `all`."""

    def __init__(self, lab: Lab, node: str | None = None) -> None:
        """Find the node; with only one in the lab it need not be named.

        Raises:
            UsageError: the lab has no such node, several to choose from, or none with GPUs by NVIDIA's programs.
        """
        nodes = sorted(path.parent.name for path in (lab.state_directory / plan.FOLDER).glob("*/gpus/"))
        if not nodes:
            raise UsageError(f"lab {lab.name!r} was not started with --gpus: nothing asks what its GPUs do")
        if node is None and len(nodes) > 1:
            raise UsageError(
                f"lab {lab.name!r} has several nodes with GPUs: give --node, one of {', '.join(nodes)}"
            )
        self.node = node or nodes[0]
        if self.node not in nodes:
            raise UsageError(f"lab {lab.name!r} has no node {self.node!r} with GPUs, but {', '.join(nodes)}")
        self._folder = plan.gpu_configuration(lab.state_directory, self.node)
        specification = json.loads((self._folder.parent / "specification.json").read_text())
        self._program = specification["programs"][recipe.MOCK_CONTROL]
        self._plugin = specification["gpus"]["plugin"]["command"][0]
        self._cgroups = {Path(folder).name for folder in specification["cgroups"]}

    def states(self) -> list[GpuState]:
        """Return all GPUs in their order."""
        configuration = json.loads((self._folder / "config.yaml").read_text())
        overrides = self._folder / "overrides.yaml"
        changed = yaml.safe_load(overrides.read_text()) if overrides.exists() else None
        changes = (changed or {}).get("devices") or {}
        return [
            GpuState(
                device["index"],
                device["uuid"],
                {**changes.get("all", {}), **changes.get(str(device["index"]), {})},
            )
            for device in configuration["devices"]
        ]

    def use(self, gpu: str, utilization_percent: int | None, processes: Sequence[Process]) -> None:
        """Let a GPU be busy, and let these processes, and no others, hold memory of it."""
        if utilization_percent is not None:
            self._change("util", gpu, str(utilization_percent))
        memory = json.loads((self._folder / "config.yaml").read_text())["device_defaults"]["memory"]
        used_bytes = sum(process.memory_mib for process in processes) * _MIB
        free_bytes = memory["total_bytes"] - memory["reserved_bytes"] - used_bytes
        if free_bytes < 0:
            raise UsageError(f"the processes hold {used_bytes // _MIB} MiB, more than the GPU has")
        listed = [
            {"pid": process.pid, "type": "C", "name": process.name, "used_memory_mib": process.memory_mib}
            for process in processes
        ]
        self.set(
            gpu,
            f"processes={json.dumps(listed)}",
            f"memory.used_bytes={used_bytes}",
            f"memory.free_bytes={free_bytes}",
        )

    def set_ecc_errors(self, gpu: str, count: int) -> None:
        """Let a GPU have so many ECC errors that could not be corrected."""
        self.set(gpu, *(f"ecc.errors.{kind}.double_bit.total={count}" for kind in ("volatile", "aggregate")))

    def send_xid(self, gpu: str, code: int) -> None:
        """Let the driver tell of an error by its number; the GPU goes on, with ECC errors that grow."""
        self._change("fail", gpu, "--mode", "ecc_uncorrectable", "--xid", str(code))

    def lose(self, gpu: str, code: int = FALLEN_OFF_BUS_XID) -> None:
        """Let a GPU fall off the bus: nothing can be asked of it any more."""
        self._change("fail", gpu, "--mode", "fallen_off_bus", "--xid", str(code))

    def set(self, gpu: str, *changes: str) -> None:
        """Change fields of the mock's profile, `thermal.temperature_gpu_c=85`."""
        self._change("set", gpu, *changes)

    def restore(self, gpu: str) -> None:
        """Undo all that was changed of a GPU."""
        self._change("reset", gpu)

    def restart_plugin(self) -> None:
        """Kill NVIDIA's device plugin or DRA driver; the node starts it again a second later.

        Raises:
            StateError: it does not run.
        """
        for command_line in Path("/proc").glob("[0-9]*/cmdline"):
            # one that ends while it is looked at is not the one
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                program = command_line.read_bytes().partition(b"\0")[0].decode(errors="replace")
                if program == self._plugin and self._holds(command_line.with_name("cgroup").read_text()):
                    os.kill(int(command_line.parent.name), signal.SIGKILL)
                    return
        raise StateError(f"{self._plugin} does not run on {self.node}: see log/{self.node}-gpus.log")

    def _holds(self, cgroups: str) -> bool:
        return any(folder in line.split("/") for line in cgroups.splitlines() for folder in self._cgroups)

    def _change(self, verb: str, gpu: str, *arguments: str) -> None:
        command = [self._program, verb, "--gpu", gpu, *arguments]
        environment = {
            **os.environ,
            "MOCK_NVML_CONFIG": str(self._folder / "config.yaml"),
            "MOCK_NVML_OVERRIDES": str(self._folder / "overrides.yaml"),
        }
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, check=False, timeout=_SECONDS
        )
        if done.returncode != 0:
            lines = done.stderr.strip().splitlines() or [f"status {done.returncode}"]
            raise StateError(f"GPU {gpu} of {self.node} cannot be changed: {lines[0]}")
