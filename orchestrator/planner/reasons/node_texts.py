"""Writes the sentences of reasons about nodes: no node matches, no node has enough free, or nodes are reserved."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from orchestrator.planner.accounting.amounts import (
    Figures,
    all_amounts_text,
    amount_text,
    amounts_text,
    gpus,
    scalar_number,
    scalar_text,
)
from orchestrator.planner.accounting.neighbours import Hindrance
from orchestrator.planner.model import DEVICE_MILLI, UNLIMITED, Amounts, PendingReason, Request, Waiting
from orchestrator.planner.placement.reservations import Reservation

POD_SLOT, TOGETHER, SCALAR = 3, 4, 5
"""Other shortages of a node: no pod slot, not all of the resources together, too little of a scalar."""

NO_CAPACITY = PendingReason(Waiting.CLUSTER_FULL, "has no placement yet")
"""Preliminary reason of a workload without a placement; `explain_all` replaces it."""


_UNFIT = {
    "node type": "not of the project's node types",
    "node selector or affinity": "not matching its node selector or affinity",
    "not ready or unhealthy": "not ready or marked unhealthy",
    "cordoned": "cordoned",
    "closed": "closed to new pods",
    "taint": "with a taint that it does not tolerate",
}
"""The words for the counts of `NodeSets.unfit_counts`."""


def no_node_matches(nodes: int, unfit: Mapping[str, int]) -> PendingReason:
    """Return the reason that no node admits one of the workload's pods; `unfit` has the number of nodes by reason."""
    counts = ", ".join(f"{count} {_UNFIT[why]}" for why, count in unfit.items())
    return PendingReason(
        Waiting.NO_NODE_MATCHES,
        f"of {nodes} node{'' if nodes == 1 else 's'} none takes its pods{f': {counts}' if counts else ''}",
    )


def nodes_avoided(whys: Iterable[str]) -> PendingReason:
    """Return the reason that all nodes for one of the workload's pods are avoided after failures."""
    return PendingReason(Waiting.AVOIDED, _some_sentences(whys))


def with_avoided(reason: PendingReason, whys: Iterable[str]) -> PendingReason:
    """Return the reason with the nodes that are avoided after failures added."""
    return PendingReason(reason.code, f"{reason.message}; {_some_sentences(whys)}")


def _some_sentences(whys: Iterable[str]) -> str:
    first, *others = list(whys)
    return first + (f" ({len(others)} more nodes are avoided)" if others else "")


def too_large(request: Request, largest: Amounts, scalars: Mapping[str, int]) -> PendingReason:
    """Return the reason of a workload of which one pod is larger than every empty node that matches.

    `largest` and `scalars` are the largest amounts on one node, without the pods of other schedulers.
    """
    requested = (devices_of(request) * DEVICE_MILLI, request.cpu_milli, request.memory_bytes)
    short = next((resource for resource in range(3) if requested[resource] > largest[resource]), None)
    if short is not None:
        words = (
            f"{amount_text(requested[short], short)}, and the largest node that matches has "
            f"{amount_text(largest[short], short)} to give"
        )
    elif scalar := next(((name, amount) for name, amount in request.scalars if amount > scalars[name]), None):
        words = (
            f"{scalar_text(*scalar)}, and the largest node that matches has "
            f"{scalar_number(scalar[0], scalars[scalar[0]])} to give"
        )
    elif request.gpu_memory_mib:
        memory = amount_text(request.gpu_memory_mib << 20, 2)
        words = f"{memory} of the memory of a GPU, and no GPU on a matching node has that"
    else:
        words = f"{all_amounts_text(requested, request.scalars)}, and no node that matches has all of it"
    return PendingReason(Waiting.TOO_LARGE, f"a pod asks for {words}")


def claims_not_allocatable(why: str) -> PendingReason:
    """Return the reason of a workload whose ResourceClaims cannot be allocated, even on empty nodes.

    `why` is the allocator's reason.
    """
    return PendingReason(Waiting.CLAIMS, f"its resource claims cannot be allocated: {why}")


def no_claim_made(*, is_part: bool) -> PendingReason:
    """Return the reason that nodes give GPUs only to ResourceClaims, and the pod has none and can get none."""
    limits = ", and one of its containers muster.dev/gpu-part: 1 in its limits" if is_part else ""
    return PendingReason(
        Waiting.CLAIMS,
        "its nodes give GPUs by claims, and none can be made for it: that needs a DeviceClass with "
        f"extendedResourceName: nvidia.com/gpu{limits}",
    )


def devices_taken(claims: int) -> PendingReason:
    """Return the reason that nodes have enough GPUs, CPU and memory, but not the devices that the pod's
    ResourceClaims request.
    """
    asking = "resource claim asks" if claims == 1 else f"{claims} resource claims ask"
    return PendingReason(
        Waiting.FRAGMENTED, f"no node that matches has all devices free that its {asking} for"
    )


def part_refused(node: str) -> PendingReason:
    """Return the reason that the node has enough of a GPU free, but its driver would not share that device."""
    return PendingReason(
        Waiting.FRAGMENTED,
        f"its GPU fraction would fit on node {node}, but no GPU there with enough free memory is shared by "
        "the driver (NVIDIA's driver: --consumable-shares=memory)",
    )


@dataclass(frozen=True, slots=True)
class Asking:
    """The beginning of a reason: the number of pods in the chunk, and the amounts that they request together."""

    requested: Amounts
    pods: int

    def reason(self, code: Waiting, words: str) -> PendingReason:
        """Return the reason with these words after the request."""
        return PendingReason(code, f"{requests_text(self.requested, self.pods)}{words}")


def full(
    asking: Asking,
    resource: int,
    *,
    free: int,
    capacity: int,
    is_part: bool,
    is_counted: bool,
    project: str,
    figures: Figures,
    is_at_share: bool,
) -> PendingReason:
    """Return the reason that matching nodes have too little of a resource free. `is_part`: some nodes do not match.

    `is_at_share`: with the workload, the project would exceed its entitlement; the reason then names the amount that
    it would hold. `is_counted`: the request is the same amount on every node (false for GPU memory), so the reason
    names the missing amount.
    """

    def number(amount: int) -> str:
        return number_text(amount, resource)

    of_all = "" if is_at_share else f" of {number(capacity)}"
    requested, held = asking.requested[resource], figures.held[resource]
    with_it = f", with this request {number(held + requested)}" if is_at_share else ""
    missing = requested - free
    more = ""
    if is_counted and missing > 0:
        has = "has" if missing == DEVICE_MILLI and resource == 0 else "have"
        more = f": at least {number(missing)} more {has} to come free"
    return asking.reason(
        Waiting.AT_FAIR_SHARE if is_at_share else Waiting.CLUSTER_FULL,
        f"; {number(free)}{of_all} {is_or_are(free, resource)} free{' on the nodes that match' if is_part else ''} and "
        f"{project} holds {number(held)} (quota {number(figures.quota[resource])}, fair share "
        f"{number(figures.share[resource])}{with_it}){more}",
    )


@dataclass(frozen=True, slots=True)
class Shortage:
    """The resource of which no node has enough for one pod: an index of amounts, POD_SLOT, TOGETHER or SCALAR.

    `nodes` is the number of nodes with enough GPUs for the pod. `most` is the largest free amount of the resource on
    one of these nodes. `scalar` is the name of the resource if `resource` is SCALAR.
    """

    request: Request
    resource: int
    nodes: int
    most: int
    scalar: str = ""


def fragmented(
    asking: Asking,
    first: Request,
    shortage: Shortage | None,
    *,
    free: Amounts,
    whole: int,
    level: str,
    short_scalar: tuple[str, int, int] | None = None,
) -> PendingReason:
    """Return the reason that enough is free, but not on one node or in one domain. `first` is the largest request.

    If `shortage` is None, each pod alone would fit. `level` is the required topology level. `short_scalar` is another
    resource of which the nodes together have too little: its name, the requested amount and the free amount.
    """
    request = first if shortage is None else shortage.request
    if shortage is not None:
        short = _shortage_text(shortage)
    elif asking.pods > 1:
        within = f" inside one {level}" if level else ""
        short = _short_together(asking, free, short_scalar)
        short = short or f"its {asking.pods} pods do not fit at the same time{within}"
    else:
        short = "no placement was found in this decision"
    if devices_of(request):
        wholly = f", {whole} of them whole," if whole else ""
        words = f"{gpus(free[0])} {is_or_are(free[0], 0)} free{wholly} but {short}"
    else:
        resource = leading_resource(asking.requested)
        words = f"{amount_text(free[resource], resource)} are free in all, but {short}"
    return asking.reason(Waiting.FRAGMENTED, f"; {words}")


def _short_together(asking: Asking, free: Amounts, short_scalar: tuple[str, int, int] | None) -> str:
    """Return, as text, the first resource other than GPUs of which all nodes together have too little for the pods; ""
    if there is none.
    """
    if short_scalar is not None:
        name, requested, left = short_scalar
        free_text = scalar_number(name, left)
        return f"its {asking.pods} pods ask for {scalar_text(name, requested)}: {free_text} are free in all"
    for resource in (1, 2):
        if asking.requested[resource] > free[resource]:
            requested_text = amount_text(asking.requested[resource], resource)
            free_text = amount_text(free[resource], resource)
            return f"its {asking.pods} pods ask for {requested_text}: {free_text} are free in all"
    return ""


def _shortage_text(shortage: Shortage) -> str:
    request, resource, nodes = shortage.request, shortage.resource, shortage.nodes
    devices = devices_of(request)
    if resource == 0:
        return _gpu_shortage_text(devices, request.gpu_portion_milli)
    having = f"{nodes} node{' has' if nodes == 1 else 's have'}"
    if resource == POD_SLOT:
        return f"{having} the GPUs but no pod slot" if devices else "no node has a pod slot beside them"
    if resource == TOGETHER:
        together = f"{all_amounts_text((0, *request.amounts[1:]), request.scalars)} together"
        return f"{having} the GPUs but not {together}" if devices else f"no node has {together}"
    if resource == SCALAR:
        requested = scalar_text(shortage.scalar, dict(request.scalars)[shortage.scalar])
        free = scalar_number(shortage.scalar, shortage.most)
    else:
        requested = amount_text(request.amounts[resource], resource)
        free = amount_text(shortage.most, resource)
    if not devices:
        of = f" of {requested}" if resource == SCALAR else ""
        return f"at most {free}{of} are free on one node"
    return f"{having} the GPUs but not {requested}: at most {free} are free there"


def _gpu_shortage_text(devices: int, part_milli: int) -> str:
    if part_milli:
        return (
            f"no GPU has {gpus(part_milli)} free"
            if devices == 1
            else f"no node has {devices} GPUs of which {gpus(part_milli)} are free"
        )
    return "none as a whole" if devices == 1 else f"no node has {devices} whole ones"


def kept_apart(
    asking: Asking, request: Request, nodes: int, hindrances: Sequence[Hindrance]
) -> PendingReason:
    """Return the reason that constraints between pods exclude all `nodes` (a number) with capacity for a pod.

    If `nodes` is 0, each pod alone has a node, but the constraints leave too few nodes for all pods together.
    """
    named = dict.fromkeys(
        f"{one.constraint} ({one.topology_key})" if one.topology_key else one.constraint for one in hindrances
    )
    constraints = " and ".join(named)
    verb = "keep" if len(named) > 1 else "keeps"
    if not nodes:
        return asking.reason(
            Waiting.POD_CONSTRAINTS,
            f"; no set of nodes has the capacity and meets {constraints} for all pods",
        )
    capacity = "the GPUs" if devices_of(request) else "the CPU and memory"
    having = f"{nodes} node{' has' if nodes == 1 else 's have'}"
    return asking.reason(
        Waiting.POD_CONSTRAINTS, f"; {having} {capacity} but {constraints} {verb} the pod away"
    )


def held_for_other(
    asking: Asking, other: Reservation, *, free: int, reserved: int, fitting_minutes: int
) -> PendingReason:
    """Return the reason that too much of the free capacity is reserved for another workload.

    `fitting_minutes`: the workload would start if its pods declared that they end within this time; 0: unknown.
    """
    in_time = (
        f": starts at once if its pods declare that they end within {fitting_minutes} min "
        "(activeDeadlineSeconds)"
        if fitting_minutes
        else ""
    )
    return asking.reason(
        Waiting.HELD,
        f"; {gpus(reserved)} of the {gpus(free)} that are free are held for {other.workload.name} of "
        f"{other.workload.project}, which has waited {minutes_text(other.waited_us)}{in_time}",
    )


def nodes_reserved(
    asking: Asking, waited_us: int, *, reserved: int, used: int, nodes: tuple[str, ...], until_us: int
) -> PendingReason:
    """Return the reason of a workload for which nodes are reserved. `used` is the number of reserved GPUs that are
    still in use, at most for `until_us` (0: unknown).
    """
    end = f"; these end at the latest in {minutes_text(until_us)}" if until_us > 0 else ""
    held, use = ("is" if count == 1 else "are" for count in (reserved, used))
    return asking.reason(
        Waiting.RESERVED,
        f" and has waited {minutes_text(waited_us)}: {amount_text(reserved * DEVICE_MILLI, 0)} on {some_of(nodes)} "
        f"{held} held for it, {used} of them {use} still in use{end}",
    )


def devices_of(request: Request) -> int:
    """Return the number of GPUs that the request uses, whole or a fraction of each."""
    return request.shared_devices if request.is_shared else request.gpu_count


_SHOWN_NAMES = 4


def requests_text(requested: Amounts, pods: int) -> str:
    """Return the amounts that a workload requests, as the beginning of a sentence."""
    return f"asks for {amounts_text(requested)}" + (f" in {pods} pods together" if pods > 1 else "")


def leading_resource(amounts: Amounts) -> int:
    """Return the index of the first requested resource: GPUs, else CPU, else memory."""
    return next((resource for resource, amount in enumerate(amounts) if amount), 1)


def number_text(amount: int, resource: int) -> str:
    """Return the amount as text, GPUs without the unit, which the sentence has already.

    Example: `number_text(2500, 0)` returns `'2.5'`.
    """
    return gpus(amount) if resource == 0 else amount_text(amount, resource)


def is_or_are(amount: int, resource: int) -> str:
    """Return the verb that follows an amount: `is` or `are`.

    Example: `is_or_are(1000, 0)` returns `'is'`.
    """
    one = amount in (DEVICE_MILLI, UNLIMITED) and resource < 2
    return "is" if one else "are"


def some_of(names: Sequence[str]) -> str:
    """Return the first names, and the number of further names, as text."""
    more = f" and {len(names) - _SHOWN_NAMES} more" if len(names) > _SHOWN_NAMES else ""
    return f"{', '.join(names[:_SHOWN_NAMES])}{more}"


def minutes_text(span_us: int) -> str:
    """Return a span of time as text: in minutes, above ten hours in hours, rounded up.

    Example: `minutes_text(90_000_000)` returns `'2 min'`.
    """
    minutes = -(-max(0, span_us) // 60_000_000)
    return f"{minutes} min" if minutes < 600 else f"{-(-minutes // 60)} h"
