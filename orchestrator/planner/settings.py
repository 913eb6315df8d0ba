"""What decisions go by that an administrator sets; the defaults are here. `muster operator` has the options."""

from dataclasses import dataclass
from typing import Final

from orchestrator.planner.work_bound import MAX_WORK


@dataclass(frozen=True, slots=True)
class Settings:
    """What an administrator may choose. None: no cap.

    `max_consolidation_victims` caps the pods that are moved for one workload, `max_evictions` the pods that one
    decision evicts. `spread` places pods on the emptiest node instead of the fullest. Work on a node that is not ready
    is moved after `not_ready_grace_seconds`. For a workload that asks for more than one GPU, is entitled to them and
    has waited for `reservation_after_seconds`, room is kept; None: never.
    A pod whose containers have not started after `start_timeout_seconds` is evicted; None: never.
    `topology_levels` are the node labels of the cluster's topology from the widest to the closest, which workloads may
    name. `max_work` bounds what one decision does on up to 500 nodes (`work_bound` says how it grows), in units of
    about a microsecond on one processor (a node or a victim that is looked at); None: no bound.
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
