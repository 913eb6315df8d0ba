"""The kinds of target, as `--target` names them, and of operators in a lab, as `--operator` does."""

from typing import Final

LAB: Final = "lab"
CLUSTER: Final = "cluster"
PLANNER: Final = "planner"

TARGETS: Final = (LAB, CLUSTER, PLANNER)

PROCESS: Final = "process"
IMAGE: Final = "image"
