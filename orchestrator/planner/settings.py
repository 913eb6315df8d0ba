"""The settings of an administrator with their defaults, and the bound on the work of one decision.

The bound is `Settings.max_work`, in units of about a microsecond on one processor. From 500 to 1,000 nodes, the bound
grows to twice as much. The units are counted and not timed, so a decision depends on the snapshot alone.

Each action may use a part of the bound. Workloads that an action does not reach come first in the next decision.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

MAX_WORK: Final = 350_000
"""The default of `Settings.max_work`."""

_LEAST_WORKLOADS = 8
"""Number of workloads that each action serves even if the bound is used up.

On a large cluster, counting the nodes alone can use up the bound.
"""

_NODES = 500


def work_of_decision(max_work: int | None, node_count: int) -> int | None:
    """Return `max_work` for up to 500 nodes, twice as much from 1,000 nodes on, and a value between for others.

    Example: `work_of_decision(350_000, 750)` returns `525000`.
    """
    if max_work is None:
        return None
    return max_work * min(max(node_count, _NODES), 2 * _NODES) // _NODES


@dataclass(slots=True)
class Allowance:
    """The remaining work of an action (None: no bound) and the number of workloads that it has served."""

    left: int | None
    workload_count: int = 0


class WorkBound:
    """The remaining work of the current action. `looked_at` returns the number of nodes that placements have
    examined.
    """

    def __init__(self, max_work: int | None, looked_at: Callable[[], int]) -> None:
        self._max_work = max_work
        self._looked_at = looked_at
        self._counted = 0
        self._current = Allowance(None)

    def allow(self, percent: int) -> None:
        """Give the next action this percentage of the bound. The action serves at least _LEAST_WORKLOADS workloads
        anyway.
        """
        self._switch(self.part(percent))

    def part(self, percent: int) -> Allowance:
        """Return this percentage of the bound as an allowance for `within`."""
        return Allowance(None if self._max_work is None else self._max_work * percent // 100)

    @contextmanager
    def within(self, allowance: Allowance) -> Iterator[None]:
        """Count the work inside the block against this allowance alone."""
        outer = self._current
        self._switch(allowance)
        yield
        self._switch(outer)

    def _switch(self, allowance: Allowance) -> None:
        looked_at = self._looked_at()
        if self._current.left is not None:
            self._current.left -= looked_at - self._counted
        self._counted = looked_at
        self._current = allowance

    def spend(self, work: int) -> None:
        """Subtract this amount from the remaining work."""
        if self._current.left is not None:
            self._current.left -= work

    @property
    def is_used_up(self) -> bool:
        """Whether the action has used its work and served its minimum of workloads."""
        current = self._current
        if current.left is None or current.workload_count <= _LEAST_WORKLOADS:
            return False
        return current.left < self._looked_at() - self._counted

    def count_workload(self) -> bool:
        """Count one more workload that the action serves. Return false if the bound is reached."""
        self._current.workload_count += 1
        return not self.is_used_up


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings that an administrator can choose. None means no maximum.

    - `max_consolidation_victims`: maximum number of pods that are migrated for one workload.
    - `max_evictions`: maximum number of pods that one decision evicts.
    - `spread`: place pods on the emptiest node, not on the fullest.
    - `not_ready_grace_seconds`: time after which pods are migrated from a node that is not ready.
    - `max_unhealthy_nodes`: maximum number of unhealthy nodes at a time from which pods are migrated.
    - `reservation_after_seconds`: pending time after which nodes are reserved for a workload that requests more than
      one GPU and is entitled to them. None: never.
    - `start_timeout_seconds`: time after which a pod is evicted whose containers have not started. None: never.
    - `topology_levels`: the node labels of the cluster's topology that workloads may name, from the widest level to
      the closest.
    - `max_work`: the bound on the work of one decision, in the unit of this module's docstring. None: no bound.
    """

    max_consolidation_victims: int | None = 16
    max_evictions: int | None = None
    stale_grace_seconds: int = 60
    spread: bool = False
    not_ready_grace_seconds: int = 120
    reservation_after_seconds: int | None = 600
    topology_levels: tuple[str, ...] = ()
    start_timeout_seconds: int | None = 1800
    max_unhealthy_nodes: int | None = None
    max_work: int | None = MAX_WORK


DEFAULT_SETTINGS: Final = Settings()
