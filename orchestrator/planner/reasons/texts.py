"""Every sentence about why a workload waits. Checks return one of these obstacles; each knows its code and its words.

The words are facts: what is asked for, what is free, who holds what, what stands in the way. They say that a change
would help only where a field says that this was tried on the ledger of the decision.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol

from orchestrator.planner.accounting.quota import amount_text, gpus
from orchestrator.planner.model import DEVICE_MILLI, UNLIMITED, Amounts, Waiting

_SHOWN_NODES = 4
POD_SLOT, CPU_AND_MEMORY = 3, 4
"""Beside the resources, what a node may lack: a slot for one more pod, or both where it has enough of either."""


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
            f"{amount_text(self.quota, self.resource)}{_preemptible(starts=self.starts_preemptible)}"
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
            f"{_preemptible(starts=self.starts_preemptible)}"
        )


@dataclass(frozen=True, slots=True)
class LimitKept:
    """What the project may hold is kept for a workload that has waited for longer."""

    project: str
    requested: Amounts
    reserved: Amounts
    kept_for: str
    code: ClassVar[Waiting] = Waiting.HELD

    @property
    def message(self) -> str:
        """How much is kept, and for whom."""
        return (
            f"asks for {amounts_text(self.requested)}; {self.project} keeps {amounts_text(self.reserved)} of what it "
            f"may hold for {self.kept_for}, which has waited longer and goes first"
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
    """Room is made for it on these nodes, and what holds it has still to go."""

    promised: Amounts
    nodes: tuple[str, ...]
    code: ClassVar[Waiting] = Waiting.RELEASING

    def plus(self, other: "Nominated") -> "Nominated":
        """Both as one."""
        first, second = self.promised, other.promised
        return Nominated(
            (first[0] + second[0], first[1] + second[1], first[2] + second[2]),
            tuple(dict.fromkeys((*self.nodes, *other.nodes))),
        )

    @property
    def message(self) -> str:
        """Where, and how much."""
        plural = "s" if len(self.nodes) > 1 else ""
        return (
            f"is nominated to node{plural} {_some(self.nodes)} with {amounts_text(self.promised)}, "
            "and waits for the pods to go that hold them"
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
class NoNodeMatches:
    """None of the nodes admits one of its pods."""

    nodes: int
    code: ClassVar[Waiting] = Waiting.NO_NODE_MATCHES

    @property
    def message(self) -> str:
        """Out of how many."""
        nodes = f"{self.nodes} node{'' if self.nodes == 1 else 's'}"
        return f"of {nodes} none is ready and matches its selector, tolerations and node type"


@dataclass(frozen=True, slots=True)
class TooLarge:
    """A pod that no matching node could hold if it were empty; `largest` is what the largest has of the resource.

    What other schedulers hold is not counted.

    `resource` None: there are nodes with so many GPUs, so much CPU and so much memory, but none with all of it.
    """

    requested: Amounts
    resource: int | None
    largest: int
    code: ClassVar[Waiting] = Waiting.TOO_LARGE

    @property
    def message(self) -> str:
        """What it asks for, and what there is."""
        if self.resource is None:
            return f"a pod asks for {_all_amounts(self.requested)}, and no node that matches has all of it"
        requested, largest = (
            amount_text(amount, self.resource) for amount in (self.requested[self.resource], self.largest)
        )
        return f"a pod asks for {requested}, and the largest node that matches has {largest} to give"


@dataclass(frozen=True, slots=True)
class GpuMemoryTooLarge:
    """A pod asks for more memory of one GPU than any has."""

    asked_mib: int
    code: ClassVar[Waiting] = Waiting.TOO_LARGE

    @property
    def message(self) -> str:
        """What it asks for."""
        memory = amount_text(self.asked_mib << 20, 2)
        return f"a pod asks for {memory} of the memory of a GPU, and none on a node that matches has so much"


@dataclass(frozen=True, slots=True)
class NoRoom:
    """It found no place so far. What is said of that is worked out when the decision is complete."""

    code: ClassVar[Waiting] = Waiting.CLUSTER_FULL

    @property
    def message(self) -> str:
        """That it has no place."""
        return "has found no place"


@dataclass(frozen=True, slots=True)
class Full:
    """Less is free than it asks for; amounts of `resource` on the nodes that match, `is_part`: not all nodes do.

    `is_at_share`: with it the project would hold more than it may while others want it. `is_counted`: what is missing
    can be said, because the request counts the same on every node.
    """

    resource: int
    requested: Amounts
    pods: int
    free: int
    capacity: int
    is_part: bool
    is_counted: bool
    project: str
    held: int
    quota: int
    share: int
    is_at_share: bool

    @property
    def code(self) -> Waiting:
        """Whether the project has its share, or the cluster is full."""
        return Waiting.AT_FAIR_SHARE if self.is_at_share else Waiting.CLUSTER_FULL

    @property
    def message(self) -> str:
        """What is free, and where the project stands."""
        free = _number(self.free, self.resource)
        if not self.is_at_share:
            free += f" of {_number(self.capacity, self.resource)}"
        missing = self.requested[self.resource] - self.free
        more = ""
        if self.is_counted and missing > 0:
            has = "has" if missing == DEVICE_MILLI and self.resource == 0 else "have"
            more = f": at least {_number(missing, self.resource)} more {has} to come free"
        return (
            f"{_asks(self.requested, self.pods)}; {free} {_are(self.free, self.resource)} free"
            f"{' on the nodes that match' if self.is_part else ''} and {self.project} holds "
            f"{_number(self.held, self.resource)} (quota {_number(self.quota, self.resource)}, fair share "
            f"{_number(self.share, self.resource)}){more}"
        )


@dataclass(frozen=True, slots=True)
class Fragmented:
    """Enough is free in total, but not where it is needed.

    `lack` is what no node has enough of for one pod: a resource, POD_SLOT or CPU_AND_MEMORY; None: one pod would fit.
    `pod` is what that pod asks for, `devices` and `part_milli` its GPUs (each whole if 0), `nodes` those that have its
    GPUs, `most` what one of them has of the resource at most. `level` is the topology that its pods have to share.
    """

    requested: Amounts
    pods: int
    free: Amounts
    whole_devices: int
    lack: int | None
    pod: Amounts
    devices: int
    part_milli: int
    nodes: int
    most: int
    level: str
    code: ClassVar[Waiting] = Waiting.FRAGMENTED

    @property
    def message(self) -> str:
        """What is free, and what is short where."""
        if self.devices:
            whole = f", {self.whole_devices} of them whole," if self.whole_devices else ""
            free = f"{gpus(self.free[0])} {_are(self.free[0], 0)} free{whole} but {self._shortage()}"
        else:
            resource = _leading(self.requested)
            free = f"{amount_text(self.free[resource], resource)} are free in all, but {self._shortage()}"
        return f"{_asks(self.requested, self.pods)}; {free}"

    def _shortage(self) -> str:
        if self.lack is None:
            within = f" inside one {self.level}" if self.level else ""
            return (
                f"its {self.pods} pods did not find places together{within}"
                if self.pods > 1
                else "it did not find a place in this decision"
            )
        if self.lack == 0:
            return self._short_of_gpus()
        having = f"{self.nodes} node{' has' if self.nodes == 1 else 's have'}"
        if self.lack == POD_SLOT:
            return (
                f"{having} the GPUs but no pod slot" if self.devices else "no node has a pod slot beside them"
            )
        if self.lack == CPU_AND_MEMORY:
            both = f"{amount_text(self.pod[1], 1)} and {amount_text(self.pod[2], 2)} together"
            return f"{having} the GPUs but not {both}" if self.devices else f"no node has {both}"
        most = f"at most {amount_text(self.most, self.lack)} are free"
        if not self.devices:
            return f"{most} on one node"
        return f"{having} the GPUs but not {amount_text(self.pod[self.lack], self.lack)}: {most} there"

    def _short_of_gpus(self) -> str:
        if self.part_milli:
            return (
                f"no GPU has {gpus(self.part_milli)} free"
                if self.devices == 1
                else f"no node has {self.devices} GPUs of which {gpus(self.part_milli)} are free"
            )
        return "none as a whole" if self.devices == 1 else f"no node has {self.devices} whole ones"


@dataclass(frozen=True, slots=True)
class HeldForOther:
    """So much of what is free is held for another that it finds no place.

    `fitting_minutes`: if its pods declare that they end within so many minutes it starts at once; 0: not known.
    """

    requested: Amounts
    pods: int
    free: int
    reserved: int
    other: str
    other_project: str
    waited_us: int
    fitting_minutes: int = 0
    code: ClassVar[Waiting] = Waiting.HELD

    @property
    def message(self) -> str:
        """How much is held, and for whom."""
        in_time = (
            f": starts at once if its pods declare that they end within {self.fitting_minutes} min "
            "(activeDeadlineSeconds)"
            if self.fitting_minutes
            else ""
        )
        return (
            f"{_asks(self.requested, self.pods)}; {gpus(self.reserved)} of the {gpus(self.free)} that are free are "
            f"held for {self.other} of {self.other_project}, which has waited {_minutes(self.waited_us)}{in_time}"
        )


@dataclass(frozen=True, slots=True)
class NodesKept:
    """Nodes are held for it on which something has still to end. `until_us`: by then at the latest, 0: not known."""

    requested: Amounts
    pods: int
    waited_us: int
    reserved_devices: int
    used_devices: int
    nodes: tuple[str, ...]
    until_us: int
    code: ClassVar[Waiting] = Waiting.RESERVED

    @property
    def message(self) -> str:
        """How much is held where, and what still uses it."""
        end = (
            f"; what it waits for ends at the latest in {_minutes(self.until_us)}"
            if self.until_us > 0
            else ""
        )
        held, use = ("is" if count == 1 else "are" for count in (self.reserved_devices, self.used_devices))
        return (
            f"{_asks(self.requested, self.pods)} and has waited {_minutes(self.waited_us)}: "
            f"{amount_text(self.reserved_devices * DEVICE_MILLI, 0)} on {_some(self.nodes)} {held} held for it, "
            f"{self.used_devices} of them {use} still in use{end}"
        )


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


def amounts_text(amounts: Amounts) -> str:
    """The GPUs; of what asks for none, CPU and memory."""
    if amounts[0]:
        return amount_text(amounts[0], 0)
    return _all_amounts(amounts)


def _all_amounts(amounts: Amounts) -> str:
    words = [amount_text(amount, resource) for resource, amount in enumerate(amounts) if amount]
    return " and ".join(filter(None, (", ".join(words[:-1]), *words[-1:]))) or "a place"


def _preemptible(*, starts: bool) -> str:
    return ": there is room for it if you submit it as preemptible" if starts else ""


def _asks(requested: Amounts, pods: int) -> str:
    return f"asks for {amounts_text(requested)}" + (f" in {pods} pods together" if pods > 1 else "")


def _leading(amounts: Amounts) -> int:
    """The resource that a request is about: GPUs, else CPU, else memory."""
    return next((resource for resource, amount in enumerate(amounts) if amount), 1)


def _number(amount: int, resource: int) -> str:
    """GPUs without their unit, which is said before."""
    return gpus(amount) if resource == 0 else amount_text(amount, resource)


def _are(amount: int, resource: int) -> str:
    one = amount in (DEVICE_MILLI, UNLIMITED) and resource < 2
    return "is" if one else "are"


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - _SHOWN_NODES} more" if len(names) > _SHOWN_NODES else ""
    return f"{', '.join(names[:_SHOWN_NODES])}{more}"


def _minutes(span_us: int) -> str:
    """A span of time in minutes, above ten hours in hours; the part of one that is left counts as a whole one."""
    minutes = -(-max(0, span_us) // 60_000_000)
    return f"{minutes} min" if minutes < 600 else f"{-(-minutes // 60)} h"
