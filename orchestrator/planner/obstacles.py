"""The reasons of pending workloads, as data; `reasons/sentences.py` has the words for each obstacle."""

from dataclasses import dataclass
from typing import ClassVar, NamedTuple, Protocol

from orchestrator.planner.model import Amounts, Waiting


class Obstacle(Protocol):
    """The reason of a pending workload: one of the classes below, or a `PendingReason`, which has its words already."""

    @property
    def code(self) -> Waiting:
        """The public word for it."""
        ...


class StillCharged(NamedTuple):
    """The `amount` that terminating pods hold of a `bound` of the project; a `model` narrows it to those GPUs.

    `bound` is `limit` or `quota`.
    """

    project: str
    bound: str
    resource: int
    amount: int
    model: str = ""


@dataclass(frozen=True, slots=True)
class LimitReached:
    """A project or department would exceed its limit; `requested` and the others are amounts of `resource`.

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

    `starts_preemptible`: it would start as a preemptible workload.
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
    """A non-preemptible workload asks for GPUs of a model that quotas of others cover. As `QuotaReached`."""

    project: str
    model: str
    requested: int
    quota: int
    starts_preemptible: bool = False
    code: ClassVar[Waiting] = Waiting.OVER_QUOTA


@dataclass(frozen=True, slots=True)
class LimitReserved:
    """The rest of the project's limit is reserved for a workload that has waited longer."""

    project: str
    requested: Amounts
    reserved: Amounts
    reserved_for: str
    code: ClassVar[Waiting] = Waiting.HELD


@dataclass(frozen=True, slots=True)
class GangIncomplete:
    """Only `present` of the `needed` pods of a gang exist; `needed` is None where sub-groups need them."""

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
    """After the pod was placed, another pod of the same decision took the devices of its claims."""

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

    `charged` is set if the devices are free and only a limit or quota still charges such pods.
    """

    requested: Amounts
    nodes: tuple[str, ...]
    charged: StillCharged | None = None
    code: ClassVar[Waiting] = Waiting.RELEASING

    def plus(self, other: "Nominated") -> "Nominated":
        """Both as one."""
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
    """The obstacles to evictions for a workload: disruption budgets, and the cap of one decision.

    `pods_over_cap` is the size of the smallest set of victims that exceeds the `cap`, 0 if no set does. `spent` is
    the number of pods that were evicted for other workloads.
    """

    budgets: tuple[str, ...] = ()
    cap: int = 0
    pods_over_cap: int = 0
    spent: int = 0
