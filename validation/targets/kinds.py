"""The kinds of target for `--target`, and the kinds of operators in a lab for `--operator`."""

from typing import Final

LAB: Final = "lab"
CLUSTER: Final = "cluster"
PLANNER: Final = "planner"

TARGETS: Final = (LAB, CLUSTER, PLANNER)

PROCESS: Final = "process"
IMAGE: Final = "image"
