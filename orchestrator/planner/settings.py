"""The settings of an administrator with their defaults, and the bound on the work of one decision.

The bound is `Settings.max_work`, in units of about a microsecond on one processor. On more than 500 nodes it grows to
twice as much. It is counted and not timed, so a decision depends on the snapshot alone.

Each action may use a part of it. Workloads that an action does not reach are the first ones of the next decision.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

MAX_WORK: Final = 350_000
"""The default of `Settings.max_work`."""

_LEAST_TURNS = 8
"""So many workloads have their turn in each action whatever they cost: on a large cluster counting its nodes alone may
use up the bound."""

_NODES = 500


def work_of_decision(max_work: int | None, node_count: int) -> int | None:
    """`max_work` on up to 500 nodes, twice as much from 1,000 on: counting the nodes uses up the smaller."""
    if max_work is None:
        return None
    return max_work * min(max(node_count, _NODES), 2 * _NODES) // _NODES


@dataclass(slots=True)
class Allowance:
    """What an action may still do, None for no bound, and how many workloads had their turn in it."""

    left: int | None
    turn_count: int = 0


class WorkBound:
    """What is left of the bound for one action after another; `looked_at` counts the nodes that placing looked at."""

    def __init__(self, max_work: int | None, looked_at: Callable[[], int]) -> None:
        self._max_work = max_work
        self._looked_at = looked_at
        self._counted = 0
        self._current = Allowance(None)

    def allow(self, percent: int) -> None:
        """Let what follows use this part of the bound, or as much as _LEAST_TURNS workloads need."""
        self._switch(self.part(percent))

    def part(self, percent: int) -> Allowance:
        """This part of the bound, for `within`."""
        return Allowance(None if self._max_work is None else self._max_work * percent // 100)

    @contextmanager
    def within(self, allowance: Allowance) -> Iterator[None]:
        """Count what is done meanwhile against this allowance alone."""
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
        """Take so much of the bound."""
        if self._current.left is not None:
            self._current.left -= work

    @property
    def is_used_up(self) -> bool:
        """Whether the action has done what it may."""
        current = self._current
        if current.left is None or current.turn_count <= _LEAST_TURNS:
            return False
        return current.left < self._looked_at() - self._counted

    def take_turn(self) -> bool:
        """Count one more workload that has its turn in the action; False when the bound is reached."""
        self._current.turn_count += 1
        return not self.is_used_up


@dataclass(frozen=True, slots=True)
class Settings:
    """What an administrator may choose. None: no cap.

    `max_consolidation_victims` caps the pods that are moved for one workload, `max_evictions` the pods that one
    decision evicts. `spread` places pods on the emptiest node instead of the fullest. Work on a node that is not ready
    is moved after `not_ready_grace_seconds`. For a workload that asks for more than one GPU, is entitled to them and
    has waited for `reservation_after_seconds`, room is kept; None: never.
    A pod whose containers have not started after `start_timeout_seconds` is evicted; None: never.
    `topology_levels` are the node labels of the cluster's topology from the widest to the closest, which workloads may
    name. `max_work` is the bound on the work of one decision, as the top of this module describes it; None: no bound.
    """

    max_consolidation_victims: int | None = 16
    max_evictions: int | None = None
    stale_grace_seconds: int = 60
    spread: bool = False
    not_ready_grace_seconds: int = 120
    reservation_after_seconds: int | None = 600
    topology_levels: tuple[str, ...] = ()
    start_timeout_seconds: int | None = 1800
    max_work: int | None = MAX_WORK


DEFAULT_SETTINGS: Final = Settings()
