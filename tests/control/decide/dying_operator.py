"""The real operator, whose process is killed when its planner decides on a pending workload named `poison…`.

It is also killed when it reads a pod named `unreadable…`.

This stands for faults that no exception handler sees: the memory limit of the container, or a fault in a library.
"""

import os
import signal
import sys
from typing import Any

from orchestrator.cli.main import main
from orchestrator.cluster.objects import Pod
from orchestrator.cluster.reflector import Change
from orchestrator.observe.reader import Reader
from orchestrator.planner import Planner
from orchestrator.planner.model import Plan, PodState, Snapshot

_decide = Planner.plan


def plan(self: Planner, snapshot: Snapshot) -> Plan:
    """Kill this process if it decides on a workload named `poison…`; otherwise return the plan."""
    for workload in snapshot.workloads:
        is_pending = any(pod.state is PodState.PENDING for pod in workload.pods)
        if is_pending and workload.name.startswith("poison"):
            os.kill(os.getpid(), signal.SIGKILL)
    return _decide(self, snapshot)


_note = Reader.note


def note(self: Reader, change: Change[Any]) -> None:
    """Kill this process if it reads a pod named `unreadable…`."""
    if isinstance(change.object, Pod) and change.object.metadata.name.startswith("unreadable"):
        os.kill(os.getpid(), signal.SIGKILL)
    _note(self, change)


if __name__ == "__main__":
    Reader.note = note  # type: ignore[method-assign]
    Planner.plan = plan  # type: ignore[method-assign]
    sys.exit(main())
