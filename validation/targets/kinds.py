"""The kinds of target: the values of `--target`, and the kind of a lab with `--real-nodes`."""

from typing import Final

LAB: Final = "lab"
CLUSTER: Final = "cluster"
PLANNER: Final = "planner"

TARGETS: Final = (LAB, CLUSTER, PLANNER)

REAL_LAB: Final = "lab-real"
"""A lab whose nodes run containers. The record has this kind, and profiles name it."""

GPUS: Final = "v100x8"
"""The GPUs of each real node without `--gpus`: the GPUs of a DGX-1."""
