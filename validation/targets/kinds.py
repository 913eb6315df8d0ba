"""The kinds of target, as `--target` names them."""

from typing import Final

LAB: Final = "lab"
CLUSTER: Final = "cluster"
