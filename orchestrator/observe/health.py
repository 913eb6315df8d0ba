"""The health of a node and its usable GPUs, from its conditions, labels, taints, annotations and resources."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from orchestrator.cluster.integers import whole_number
from orchestrator.cluster.objects import Node
from orchestrator.cluster.quantity import parse_time, whole_count
from orchestrator.cluster.wire import has_condition
from orchestrator.names import (
    FAILED_GPUS_ANNOTATION,
    GPU_MEMORY_LABEL,
    GPU_RESOURCE,
    HOST_FAULT_CONDITION,
    LOST_GPUS_ANNOTATION,
    UNHEALTHY_GPUS_ANNOTATION,
    UNHEALTHY_KEY,
)
from orchestrator.observe.published_gpus import PublishedGpus
from orchestrator.observe.request import MAX_AMOUNT, MAX_DEVICES
from orchestrator.progress import printable

NEVER_US: Final = 1 << 62
"""A time later than all others, for a node whose NotReady state has an unknown start. The grace period of this node
never ends, so its pods stay.
"""


MAX_FAULT_CHARACTERS: Final = 300


@dataclass(frozen=True, slots=True)
class NodeHealth:
    """The node has `gpu_count` GPUs with indices from 0. `unhealthy_gpus` are unusable. `lost_gpus` is the number of
    further unusable GPUs, whose indices are unknown.

    `unhealthy` is the problem of the whole node ("": none). `since_us` is the time since which it is not ready, in
    microseconds since the epoch. It is 0 if a person marked the node, and `NEVER_US` if the time is unknown.
    """

    gpu_count: int
    unhealthy: str = ""
    since_us: int = 0
    unhealthy_gpus: tuple[int, ...] = ()
    lost_gpus: int = 0


def gives_gpus_twice(node: Node, published: PublishedGpus | None) -> bool:
    """Return whether both a device plugin and a DRA driver give the node's GPUs to pods."""
    return published is not None and str(node.status.allocatable.get(GPU_RESOURCE, 0)) != "0"


def node_health(node: Node, published: PublishedGpus | None = None) -> NodeHealth:
    """Return a node's health. GPUs that are in its capacity but not allocatable, and not marked as unhealthy, count as
    lost.

    If a driver publishes the node's GPUs, these count instead, and tainted GPUs are unhealthy. Raises ValueError if the
    number of GPUs cannot be read.
    """
    if published is not None:
        marked = named_gpus(marked_gpus(node), len(published.ids))
        unhealthy, since_us = _whole_node(node)
        return NodeHealth(
            len(published.ids), unhealthy, since_us, tuple(sorted({*marked, *published.tainted}))
        )
    allocatable = whole_count(str(node.status.allocatable.get(GPU_RESOURCE, 0)))
    count = max(allocatable, whole_count(str(node.status.capacity.get(GPU_RESOURCE, 0))))
    if count > MAX_DEVICES:
        raise ValueError(f"it says that it has {count} GPUs: at most {MAX_DEVICES} are believed")
    unhealthy_gpus = named_gpus(marked_gpus(node), count)
    unhealthy, since_us = _whole_node(node)
    return NodeHealth(
        gpu_count=count,
        unhealthy=unhealthy,
        since_us=since_us,
        unhealthy_gpus=unhealthy_gpus,
        lost_gpus=max(0, count - allocatable - len(unhealthy_gpus)),
    )


def marked_gpus(node: Node) -> str:
    """Return the annotations of administrators and of the node's agent about unusable GPUs, as one list."""
    keys = (UNHEALTHY_GPUS_ANNOTATION, FAILED_GPUS_ANNOTATION)
    return ",".join(node.metadata.annotations.get(key, "") for key in keys)


def lost_gpus(node: Node) -> str:
    """Return the agent's annotation about GPUs that no longer answer."""
    return node.metadata.annotations.get(LOST_GPUS_ANNOTATION, "")


def host_fault(node: Node) -> tuple[str, int]:
    """Return the fault that the node's agent reports, and the time since which it reports one; "" without a fault.

    `Unknown` is no fault. Example: `("memory error (2 times) -> replace the memory module", 1700000000000000)`.
    """
    condition = has_condition(node.status.conditions, HOST_FAULT_CONDITION)
    if condition is None:
        return "", 0
    words = condition.message or condition.reason or "no reason"
    since_us = _time_us(condition.last_transition_time)
    return printable(words[:MAX_FAULT_CHARACTERS]), since_us


def refuses_pods(node: Node, published: PublishedGpus | None) -> tuple[int, ...]:
    """Return the GPUs that keep the node from starting any pod with GPUs, although its other GPUs are healthy.

    NVIDIA's device plugin queries all GPUs of a node to choose the best set, and fails if one does not answer. The
    kubelet then rejects each pod that is bound there.
    """
    return () if published is not None else named_gpus(lost_gpus(node), MAX_DEVICES)


def named_gpus(text: str, count: int) -> tuple[int, ...]:
    """Return the indices in a text such as `3,5`, sorted, without indices that the node lacks and without other text.

    Example: `named_gpus("3, 5, 9, x", 8)` returns `(3, 5)`.
    """
    parts = (part.strip() for part in text.split(","))
    indices = {whole_number(part) for part in parts}
    return tuple(sorted(index for index in indices if index is not None and index < count))


def _whole_node(node: Node) -> tuple[str, int]:
    marked = next((taint for taint in node.spec.taints if taint.key == UNHEALTHY_KEY), None)
    if marked is not None:
        return _marked("taint", marked.value), 0
    label = node.metadata.labels.get(UNHEALTHY_KEY)
    if label is not None and label != "false":
        return _marked("label", label), 0
    ready = next((condition for condition in node.status.conditions if condition.type == "Ready"), None)
    if ready is None:
        return "it has not said that it is ready", NEVER_US
    if ready.status == "True":
        return "", 0
    reason = f": {ready.reason}" if ready.reason else ""
    return f"not ready{reason}", _time_us(ready.last_transition_time)


def _marked(how: str, value: str) -> str:
    return f"{how} {UNHEALTHY_KEY}" + (f"={value}" if value and value != "true" else "")


def _time_us(timestamp: str | None) -> int:
    try:
        return parse_time(timestamp) if timestamp else NEVER_US
    except ValueError:
        return NEVER_US


def gpu_memory_mib(node: Node, published: PublishedGpus | None = None) -> int:
    """Return the memory of each of the node's GPUs in MiB; 0 if neither its driver nor a label names it."""
    if published is not None and published.memory_mib:
        return published.memory_mib
    return labelled_memory_mib(node.metadata.labels)


def labelled_memory_mib(labels: Mapping[str, str]) -> int:
    """Return the memory of each GPU in MiB from the labels of a node; 0 if unknown."""
    mib = whole_number(labels.get(GPU_MEMORY_LABEL, ""))
    return mib if mib is not None and mib <= MAX_AMOUNT >> 20 else 0
