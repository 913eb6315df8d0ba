"""Every sentence about why a workload waits that is about nodes: none admits it, none has room, or it is kept."""

from dataclasses import dataclass
from typing import ClassVar

from orchestrator.planner.accounting.quota import amount_text, gpus
from orchestrator.planner.model import DEVICE_MILLI, Amounts, Waiting
from orchestrator.planner.reasons.formatting import (
    all_amounts_text,
    is_or_are,
    leading_resource,
    minutes_text,
    number_text,
    requests_text,
    some_of,
)

POD_SLOT, CPU_AND_MEMORY = 3, 4
"""Beside the resources, what a node may lack: a slot for one more pod, or both where it has enough of either."""


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
            return (
                f"a pod asks for {all_amounts_text(self.requested)}, and no node that matches has all of it"
            )
        requested, largest = (
            amount_text(amount, self.resource) for amount in (self.requested[self.resource], self.largest)
        )
        return f"a pod asks for {requested}, and the largest node that matches has {largest} to give"


@dataclass(frozen=True, slots=True)
class GpuMemoryTooLarge:
    """A pod asks for more memory of one GPU than any has."""

    requested_mib: int
    code: ClassVar[Waiting] = Waiting.TOO_LARGE

    @property
    def message(self) -> str:
        """What it asks for."""
        memory = amount_text(self.requested_mib << 20, 2)
        return f"a pod asks for {memory} of the memory of a GPU, and none on a node that matches has so much"


@dataclass(frozen=True, slots=True)
class ClaimsNotAllocatable:
    """Its resource claims cannot be allocated, whatever becomes free; `why` is the allocator's reason."""

    why: str
    code: ClassVar[Waiting] = Waiting.CLAIMS

    @property
    def message(self) -> str:
        """The allocator's reason."""
        return f"its resource claims cannot be allocated: {self.why}"


@dataclass(frozen=True, slots=True)
class NoClaimMade:
    """The nodes that it may use give GPUs by claims only; it names none, and none can be made for it."""

    is_part: bool
    code: ClassVar[Waiting] = Waiting.CLAIMS

    @property
    def message(self) -> str:
        """What is missing for a claim."""
        limits = ", and one of its containers muster.dev/gpu-part: 1 in its limits" if self.is_part else ""
        return (
            "its nodes give GPUs by claims, and none can be made for it: that needs a DeviceClass with "
            f"extendedResourceName: nvidia.com/gpu{limits}"
        )


@dataclass(frozen=True, slots=True)
class DevicesTaken:
    """Nodes have enough GPUs, CPU and memory, but not the devices that its claims ask for."""

    claims: int
    code: ClassVar[Waiting] = Waiting.FRAGMENTED

    @property
    def message(self) -> str:
        """What is not free together."""
        claims = "resource claim asks" if self.claims == 1 else f"{self.claims} resource claims ask"
        return f"no node that matches has all devices free that its {claims} for"


@dataclass(frozen=True, slots=True)
class PartRefused:
    """On a node there is room for its part of a GPU, and no device that its driver would share."""

    node: str
    code: ClassVar[Waiting] = Waiting.FRAGMENTED

    @property
    def message(self) -> str:
        """What the driver has to do."""
        return (
            f"there is room for its part of a GPU on node {self.node}, and no GPU there that the driver shares by "
            "memory (NVIDIA's driver: --consumable-shares=memory), or none with so much of it left"
        )


@dataclass(frozen=True, slots=True)
class NoCapacity:
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
        free = number_text(self.free, self.resource)
        if not self.is_at_share:
            free += f" of {number_text(self.capacity, self.resource)}"
        missing = self.requested[self.resource] - self.free
        more = ""
        if self.is_counted and missing > 0:
            has = "has" if missing == DEVICE_MILLI and self.resource == 0 else "have"
            more = f": at least {number_text(missing, self.resource)} more {has} to come free"
        return (
            f"{requests_text(self.requested, self.pods)}; {free} {is_or_are(self.free, self.resource)} free"
            f"{' on the nodes that match' if self.is_part else ''} and {self.project} holds "
            f"{number_text(self.held, self.resource)} (quota {number_text(self.quota, self.resource)}, fair share "
            f"{number_text(self.share, self.resource)}){more}"
        )


@dataclass(frozen=True, slots=True)
class Fragmented:
    """Enough is free in total, but not where it is needed.

    `shortage` is what no node has enough of for one pod: a resource, POD_SLOT or CPU_AND_MEMORY; None: one would fit.
    `pod` is what that pod asks for, `devices` and `part_milli` its GPUs (each whole if 0), `nodes` those that have its
    GPUs, `most` what one of them has of the resource at most. `level` is the topology that its pods have to share.
    """

    requested: Amounts
    pods: int
    free: Amounts
    whole_devices: int
    shortage: int | None
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
            free = f"{gpus(self.free[0])} {is_or_are(self.free[0], 0)} free{whole} but {self._shortage()}"
        else:
            resource = leading_resource(self.requested)
            free = f"{amount_text(self.free[resource], resource)} are free in all, but {self._shortage()}"
        return f"{requests_text(self.requested, self.pods)}; {free}"

    def _shortage(self) -> str:
        if self.shortage is None:
            within = f" inside one {self.level}" if self.level else ""
            return (
                f"its {self.pods} pods did not find places together{within}"
                if self.pods > 1
                else "it did not find a place in this decision"
            )
        if self.shortage == 0:
            return self._short_of_gpus()
        having = f"{self.nodes} node{' has' if self.nodes == 1 else 's have'}"
        if self.shortage == POD_SLOT:
            return (
                f"{having} the GPUs but no pod slot" if self.devices else "no node has a pod slot beside them"
            )
        if self.shortage == CPU_AND_MEMORY:
            both = f"{amount_text(self.pod[1], 1)} and {amount_text(self.pod[2], 2)} together"
            return f"{having} the GPUs but not {both}" if self.devices else f"no node has {both}"
        most = f"at most {amount_text(self.most, self.shortage)} are free"
        if not self.devices:
            return f"{most} on one node"
        return (
            f"{having} the GPUs but not {amount_text(self.pod[self.shortage], self.shortage)}: {most} there"
        )

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
            f"{requests_text(self.requested, self.pods)}; {gpus(self.reserved)} of the {gpus(self.free)} that are "
            f"free are held for {self.other} of {self.other_project}, "
            f"which has waited {minutes_text(self.waited_us)}{in_time}"
        )


@dataclass(frozen=True, slots=True)
class NodesReserved:
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
            f"; what it waits for ends at the latest in {minutes_text(self.until_us)}"
            if self.until_us > 0
            else ""
        )
        held, use = ("is" if count == 1 else "are" for count in (self.reserved_devices, self.used_devices))
        return (
            f"{requests_text(self.requested, self.pods)} and has waited {minutes_text(self.waited_us)}: "
            f"{amount_text(self.reserved_devices * DEVICE_MILLI, 0)} on {some_of(self.nodes)} {held} held for it, "
            f"{self.used_devices} of them {use} still in use{end}"
        )
