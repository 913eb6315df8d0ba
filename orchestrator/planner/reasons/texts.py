"""Every sentence about why a workload waits that is not about nodes: projects, limits, gangs, the queue.

Checks return one of these obstacles, or of those in `node_texts`; each knows its code and its words. The words are
facts: what is asked for, what is free, who holds what, what stands in the way. They say that a change would help only
where a field says that this was tried on the ledger of the decision.
"""

from dataclasses import dataclass
from typing import ClassVar, Protocol

from orchestrator.planner.accounting.quota import amount_text
from orchestrator.planner.accounting.terminating_pods import StillCharged
from orchestrator.planner.model import Amounts, Waiting
from orchestrator.planner.reasons.formatting import advice_on_preemptible, amounts_text, is_or_are, some_of


class Obstacle(Protocol):
    """Why a workload waits."""

    @property
    def code(self) -> Waiting:
        """The public word for it."""
        ...

    @property
    def message(self) -> str:
        """The facts in a sentence without a full stop."""
        ...


@dataclass(frozen=True, slots=True)
class LimitReached:
    """A project or department would hold more than its limit; `requested` and the others are amounts of `resource`.

    `is_alone`: with a higher limit it would start, there is room for it.
    """

    project: str
    resource: int
    requested: int
    held: int
    limit: int
    model: str = ""
    is_alone: bool = False
    code: ClassVar[Waiting] = Waiting.PROJECT_LIMIT

    @property
    def message(self) -> str:
        """Both sides of the limit."""
        of_model = f" of {self.model}" if self.model else ""
        alone = f": only the limit of {self.project} is in its way" if self.is_alone else ""
        return (
            f"asks for {amount_text(self.requested, self.resource)}{of_model}; {self.project} holds "
            f"{amount_text(self.held, self.resource)} of its limit of {amount_text(self.limit, self.resource)}"
            f"{' for that model' if self.model else ''}{alone}"
        )


@dataclass(frozen=True, slots=True)
class QuotaReached:
    """Work that cannot be taken back would exceed a quota; `held` is what the project holds of that kind.

    `starts_preemptible`: as preemptible work it would start, there is room for it.
    """

    project: str
    resource: int
    requested: int
    held: int
    quota: int
    starts_preemptible: bool = False
    code: ClassVar[Waiting] = Waiting.OVER_QUOTA

    @property
    def message(self) -> str:
        """Both sides of the quota."""
        return (
            f"asks for {amount_text(self.requested, self.resource)} that cannot be taken back; {self.project} holds "
            f"{amount_text(self.held, self.resource)} of that kind and its quota is "
            f"{amount_text(self.quota, self.resource)}{advice_on_preemptible(starts=self.starts_preemptible)}"
        )


@dataclass(frozen=True, slots=True)
class ModelPromised:
    """Work that cannot be taken back asks for GPUs of a model that is promised to others. As `QuotaReached`."""

    project: str
    model: str
    requested: int
    quota: int
    starts_preemptible: bool = False
    code: ClassVar[Waiting] = Waiting.OVER_QUOTA

    @property
    def message(self) -> str:
        """The project's own quota for the model."""
        return (
            f"asks for {amount_text(self.requested, 0)} of {self.model} that cannot be taken back; what is left of "
            f"that model is promised to others, and the quota of {self.project} for it is {amount_text(self.quota, 0)}"
            f"{advice_on_preemptible(starts=self.starts_preemptible)}"
        )


@dataclass(frozen=True, slots=True)
class ClaimsOvertaken:
    """Its place was decided on, and then something else of the decision took the devices of its claims."""

    code: ClassVar[Waiting] = Waiting.FRAGMENTED

    @property
    def message(self) -> str:
        """That it is decided on again."""
        return "the devices of its resource claims went to others in the same decision; it is decided on again at once"


@dataclass(frozen=True, slots=True)
class LimitReserved:
    """What the project may hold is kept for a workload that has waited for longer."""

    project: str
    requested: Amounts
    reserved: Amounts
    reserved_for: str
    code: ClassVar[Waiting] = Waiting.HELD

    @property
    def message(self) -> str:
        """How much is kept, and for whom."""
        return (
            f"asks for {amounts_text(self.requested)}; {self.project} keeps {amounts_text(self.reserved)} of what it "
            f"may hold for {self.reserved_for}, which has waited longer and goes first"
        )


@dataclass(frozen=True, slots=True)
class GangIncomplete:
    """Not all pods that a gang needs have been made: `present` of `needed`, None where sub-groups need them."""

    present: int
    needed: int | None
    leaving: int
    code: ClassVar[Waiting] = Waiting.INCOMPLETE_GANG

    @property
    def message(self) -> str:
        """How many pods are there."""
        leaving = f" ({self.leaving} more are on their way out)" if self.leaving else ""
        there = (
            f"its sub-groups need more pods than the {self.present} that are there{leaving}"
            if self.needed is None
            else f"{self.present} of the {self.needed} pods that its gang needs are there{leaving}"
        )
        return f"{there}: it cannot start before the missing ones have been made"


@dataclass(frozen=True, slots=True)
class GangEvicted:
    """Pods of a gang are evicted in this decision, and the others cannot start without them."""

    code: ClassVar[Waiting] = Waiting.RELEASING

    @property
    def message(self) -> str:
        """What the others wait for."""
        return "pods of its gang have to make way: the others wait until these can start with them"


@dataclass(frozen=True, slots=True)
class NoProject:
    """The workload's project does not exist."""

    name: str
    code: ClassVar[Waiting] = Waiting.UNKNOWN_PROJECT

    @property
    def message(self) -> str:
        """Which one."""
        if not self.name:
            return "its namespace belongs to no project: nothing starts there"
        return f"there is no project {self.name!r}: nothing of it starts before that is created"


@dataclass(frozen=True, slots=True)
class Nominated:
    """The nodes to which the workload is nominated until terminating pods have ended.

    `charged` is set if the devices are free and only a limit or quota still charges such pods.
    """

    promised: Amounts
    nodes: tuple[str, ...]
    charged: StillCharged | None = None
    code: ClassVar[Waiting] = Waiting.RELEASING

    def plus(self, other: "Nominated") -> "Nominated":
        """Both as one."""
        first, second = self.promised, other.promised
        return Nominated(
            (first[0] + second[0], first[1] + second[1], first[2] + second[2]),
            tuple(dict.fromkeys((*self.nodes, *other.nodes))),
            self.charged and other.charged,
        )

    @property
    def message(self) -> str:
        """The nodes and the amount, and the devices or the bound that terminating pods use."""
        plural = "s" if len(self.nodes) > 1 else ""
        place = f"is nominated to node{plural} {some_of(self.nodes)} with {amounts_text(self.promised)}"
        if self.charged is None:
            return f"{place}; terminating pods still hold them"
        amount, resource = self.charged.amount, self.charged.resource
        of_model = f" of {self.charged.model}" if self.charged.model else ""
        return (
            f"{place}; {self.charged.bound} of {self.charged.project}: {amount_text(amount, resource)}{of_model} "
            f"{is_or_are(amount, resource)} still held by terminating pods"
        )


@dataclass(frozen=True, slots=True)
class Overtaken:
    """What it was given in this decision goes to more urgent work of its project."""

    by: str
    code: ClassVar[Waiting] = Waiting.CLUSTER_FULL

    @property
    def message(self) -> str:
        """To whom."""
        return f"{self.by} of the same project is more urgent and takes its place"


@dataclass(frozen=True, slots=True)
class Hindrances:
    """What kept evictions for a workload from being made: budgets for disruption, and the cap of one decision.

    `pods_over_cap` is how many pods the smallest set was found to have that did not keep to the `cap`, 0 if none; of
    the cap `spent` pods were evicted for others.
    """

    budgets: tuple[str, ...] = ()
    cap: int = 0
    pods_over_cap: int = 0
    spent: int = 0

    @property
    def message(self) -> str:
        """To be added to a reason."""
        words: list[str] = []
        if self.pods_over_cap > self.cap:
            words.append(
                f"the room that could be made for it takes {self.pods_over_cap} evictions or more, and one decision "
                f"makes {self.cap} at most (--max-evictions)"
            )
        elif self.pods_over_cap:
            words.append(
                f"of the {self.cap} evictions that one decision makes at most (--max-evictions) {self.spent} were made "
                "for others"
            )
        if self.budgets:
            words.append(f"what could make way is protected by {', '.join(self.budgets)}")
        return "".join(f"; {word}" for word in words)


LEFT_OVER = (
    "; this decision did not look for evictions for it any more: it is among the first in the next one"
)
"""Added to the reason of what the bound on work did not let a decision reach."""
