"""A placement: the node and the devices of a pod."""

from dataclasses import dataclass

from orchestrator.planner.model import Pod


@dataclass(frozen=True, slots=True)
class Placement:
    """A node and devices for a pod; `waits` if terminating pods still use a part of them."""

    node: str
    devices: tuple[int, ...]
    waits: bool = False


Placed = list[tuple[Pod, Placement]]
"""Pods with their placements."""
