"""The reasons of pending workloads, as data; `reasons/sentences.py` has the words for each obstacle."""

from dataclasses import dataclass
from typing import ClassVar, NamedTuple, Protocol

from orchestrator.planner.model import Amounts, Waiting


class Obstacle(Protocol):
    """The reason of a pending workload: one of the classes below, or a `PendingReason` with a ready sentence."""

    @property
    def code(self) -> Waiting:
        """The public code of the reason."""
        ...


class StillCharged(NamedTuple):
    """Terminating pods still use `amount` of the project's limit or quota.

    With a `model`, the bound is for GPUs of this model.

    `bound` is `limit` or `quota`.
    """

    project: str
    bound: str
    resource: int
    amount: int
    model: str = ""


@dataclass(frozen=True, slots=True)
class LimitReached:
    """A project or department would exceed its limit. `requested`, `held` and `limit` are amounts of `resource`.

    `is_alone`: only this limit keeps the workload from starting.
    """

    project: str
    resource: int
    requested: int
    held: int
    limit: int
    model: str = ""
    is_alone: bool = False
    code: ClassVar[Waiting] = Waiting.PROJECT_LIMIT


@dataclass(frozen=True, slots=True)
class QuotaReached:
    """A non-preemptible workload would exceed a quota; `held` is the amount of non-preemptible workloads.

    `starts_preemptible`: the workload would start if it were preemptible.
    """

    project: str
    resource: int
    requested: int
    held: int
    quota: int
    starts_preemptible: bool = False
    code: ClassVar[Waiting] = Waiting.OVER_QUOTA


@dataclass(frozen=True, slots=True)
class ModelReserved:
    """A non-preemptible workload requests GPUs of a model that are guaranteed to others. See `QuotaReached`."""

    project: str
    model: str
    requested: int
    quota: int
    starts_preemptible: bool = False
    code: ClassVar[Waiting] = Waiting.OVER_QUOTA


@dataclass(frozen=True, slots=True)
class LimitReserved:
    """The rest of the project's limit is reserved for a workload that has been pending for longer."""

    project: str
    requested: Amounts
    reserved: Amounts
    reserved_for: str
    code: ClassVar[Waiting] = Waiting.HELD


@dataclass(frozen=True, slots=True)
class GangIncomplete:
    """Only `present` of the `needed` pods of a gang exist. `needed` is None if sub-groups define the minimum."""

    present: int
    needed: int | None
    terminating: int
    code: ClassVar[Waiting] = Waiting.INCOMPLETE_GANG


@dataclass(frozen=True, slots=True)
class GangEvicted:
    """Pods of a gang are evicted in this decision, and the others cannot start without them."""

    code: ClassVar[Waiting] = Waiting.RELEASING


@dataclass(frozen=True, slots=True)
class ClaimsOvertaken:
    """After the pod was placed, another pod of the same decision took the devices of the first pod's ResourceClaims."""

    code: ClassVar[Waiting] = Waiting.FRAGMENTED


@dataclass(frozen=True, slots=True)
class ConstraintsOvertaken:
    """After the pods were placed, the same decision changed the pods that their required constraints depend on."""

    code: ClassVar[Waiting] = Waiting.POD_CONSTRAINTS


@dataclass(frozen=True, slots=True)
class NoProject:
    """The workload's project does not exist."""

    name: str
    code: ClassVar[Waiting] = Waiting.UNKNOWN_PROJECT


@dataclass(frozen=True, slots=True)
class Nominated:
    """The nodes to which the workload is nominated until terminating pods have ended.

    `charged` is set if the devices are free, and terminating pods only count in a limit or quota.
    """

    requested: Amounts
    nodes: tuple[str, ...]
    charged: StillCharged | None = None
    code: ClassVar[Waiting] = Waiting.RELEASING

    def plus(self, other: "Nominated") -> "Nominated":
        """Return one nomination with the amounts and nodes of both."""
        first, second = self.requested, other.requested
        return Nominated(
            (first[0] + second[0], first[1] + second[1], first[2] + second[2]),
            tuple(dict.fromkeys((*self.nodes, *other.nodes))),
            self.charged and other.charged,
        )


@dataclass(frozen=True, slots=True)
class Overtaken:
    """A more urgent workload of the same project gets the placement of this decision."""

    by: str
    code: ClassVar[Waiting] = Waiting.CLUSTER_FULL


@dataclass(frozen=True, slots=True)
class Hindrances:
    """The obstacles to evictions for a workload: disruption budgets, and the maximum number of evictions (`cap`).

    `pods_over_cap` is the size of the smallest set of victims that the `cap` refused, 0 if it refused none. `spent` is
    the number of pods that the decision has evicted for other workloads.
    """

    budgets: tuple[str, ...] = ()
    cap: int = 0
    pods_over_cap: int = 0
    spent: int = 0
