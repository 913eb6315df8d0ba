"""A program in the network of the real nodes, or on one of them: `main(SPECIFICATION)`, standard library only."""

import json
import os
import sys
from pathlib import Path

from musterlab.realnodes import kernel


def main(specification: str) -> None:
    """Become the program, or its parent until it ends; it ends with its starter.

    The specification has its `command` and its `environment`. It also has at least one of these:

    - `network`, the file of the network
    - `node`, the number of the process that made the node, for its files and processes
    """
    content = json.loads(Path(specification).read_text())
    kernel.die_with_parent()
    if "network" in content:
        _enter(json.loads(Path(content["network"]).read_text())["namespace"])
    if "node" in content:
        _enter_node(content["node"])
    os.execve(content["command"][0], content["command"], content["environment"])  # noqa: S606 - no shell


def _enter_node(process: int) -> None:
    """Return as a child that sees the node's files and processes: without these its /proc has no `self`."""
    processes = os.open(f"/proc/{process}/ns/pid_for_children", os.O_RDONLY | os.O_CLOEXEC)
    _enter(f"/proc/{process}/ns/mnt")
    kernel.enter(processes)
    child = os.fork()
    if child:
        sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    kernel.die_with_parent()


def _enter(namespace: str) -> None:
    descriptor = os.open(namespace, os.O_RDONLY | os.O_CLOEXEC)
    kernel.enter(descriptor)
    os.close(descriptor)
