"""Starts a program in the network of the real nodes, or on one of them: `main(SPECIFICATION)`.

Standard library only.
"""

import json
import os
import sys
from pathlib import Path

from musterlab.realnodes import kernel


def main(specification: str) -> None:
    """Replace this process by the program, or wait for the program as its parent. The program dies with its starter.

    The specification has the program's `command` and `environment`. It also has at least one of these:

    - `network`: the file with the path of the network namespace
    - `node`: the process id of the node, for a program that needs the node's files and processes
    """
    content = json.loads(Path(specification).read_text())
    kernel.die_with_parent()
    if "network" in content:
        _enter(json.loads(Path(content["network"]).read_text())["namespace"])
    if "node" in content:
        _enter_node(content["node"])
    os.execve(content["command"][0], content["command"], content["environment"])  # noqa: S606 - no shell


def _enter_node(process: int) -> None:
    """Return in a child process that sees the node's files and processes. The parent exits with the child.

    The node's `/proc` has `self` only for processes in the node's process namespace.
    """
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
