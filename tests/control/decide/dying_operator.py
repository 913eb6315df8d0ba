"""The real operator, whose process is killed when its planner decides on a pending workload named `poison…`.

It stands for a fault that no exception handler sees: the memory limit of the container, or a fault of a library.
"""

import os
import signal
import sys

from orchestrator.cli.main import main
from orchestrator.planner import Planner
from orchestrator.planner.model import Plan, PodState, Snapshot

_decide = Planner.plan


def plan(self: Planner, snapshot: Snapshot) -> Plan:
    """Kill this process if it decides on such a workload."""
    for workload in snapshot.workloads:
        is_pending = any(pod.state is PodState.PENDING for pod in workload.pods)
        if is_pending and workload.name.startswith("poison"):
            os.kill(os.getpid(), signal.SIGKILL)
    return _decide(self, snapshot)


if __name__ == "__main__":
    Planner.plan = plan  # type: ignore[method-assign]
    sys.exit(main())
