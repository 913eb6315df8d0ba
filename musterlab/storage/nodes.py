"""The real nodes of a lab, and the mounts that the lab's CSI driver makes on them."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from musterlab.cluster import Lab
from musterlab.errors import LabError
from musterlab.realnodes import machine, plan
from musterlab.storage.volumes import run

_BIND: Final = 'mkdir -p -- "$2"; mountpoint -q -- "$2" || mount --bind -o "$0" -- "$1" "$2"'
_UNBIND: Final = 'if mountpoint -q -- "$0"; then umount -- "$0"; fi; if [ -e "$0" ]; then rmdir -- "$0"; fi'


@dataclass(frozen=True)
class Node:
    """A node, and a way to find a process that sees its files."""

    name: str
    process: Callable[[], int]
    """Returns the id of a process that sees the node's files. It changes when the node restarts."""

    async def bind(self, source: Path, target: str, *, read_only: bool) -> None:
        """Show a folder also at `target`, by a bind mount. Raises GRPCError."""
        await self._run(_BIND, "ro" if read_only else "rw", str(source), target)

    async def unbind(self, target: str) -> None:
        """Undo `bind`, as far as it was done. Raises GRPCError."""
        await self._run(_UNBIND, target)

    async def _run(self, script: str, *arguments: str) -> None:
        namespaces = f"/proc/{self.process()}/ns"
        # `mount` reads /proc/self, which the node's /proc has only for processes in its process namespace
        inside = ("nsenter", f"--mount={namespaces}/mnt", f"--pid={namespaces}/pid_for_children")
        await run(*inside, "sh", "-ec", script, *arguments)


def real_nodes(lab: Lab) -> dict[str, int]:
    """Return for each real node, by name, the id of a process that sees its files.

    Raises:
        LabError: no real node runs.
    """
    folder = lab.state_directory / plan.FOLDER
    processes = lab.status().processes
    nodes = {
        process.name: process.pid
        for process in processes
        if (folder / process.name / "specification.json").is_file() and process.state == "running"
    }
    if not nodes:
        raise LabError(f"lab {lab.name!r} has no real node that runs: start it with 'lab up --real-nodes 1'")
    return nodes


def check_visible(*paths: Path) -> None:
    """Raise LabError for a path that real nodes do not see."""
    for path in paths:
        top = path.resolve().parts[1]
        if top in machine.OWN:
            raise LabError(
                f"{path} cannot be seen on real nodes, which have a /{top} of their own: "
                "give another --state-dir, or set XDG_CACHE_HOME"
            )
