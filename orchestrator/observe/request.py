"""The request and the node constraints of one pod in the planner's terms."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from orchestrator.cluster.gpu_fraction import gpu_milli
from orchestrator.cluster.integers import whole_number
from orchestrator.cluster.objects import Pod
from orchestrator.cluster.objects import Toleration as PodToleration
from orchestrator.cluster.quantity import MAX_QUANTITY, memory_bytes, memory_mib, shortened, whole_count
from orchestrator.names import (
    ADMITTED_ANNOTATION,
    GPU_DEVICES_ANNOTATION,
    GPU_FRACTION_ANNOTATION,
    GPU_FRACTION_DEVICES_ANNOTATION,
    GPU_MEMORY_ANNOTATION,
    GPU_PART_RESOURCE,
    GPU_RESOURCE,
    RESERVATION_LABEL,
    SYSTEM_NAMESPACE,
)
from orchestrator.observe.cluster_fields import refuse_unimplemented
from orchestrator.observe.effective_request import effective_request, requested_names, resize_state
from orchestrator.observe.field_rules import is_counted_whole
from orchestrator.observe.node_terms import NO_LABEL, NODE_NAME_LABEL, Terms, both, terms_of
from orchestrator.observe.pod_traits import bound_traits
from orchestrator.observe.resource_checks import GPUS_BY_NAME, is_other_gpu
from orchestrator.observe.unreadable import UnreadableRequest
from orchestrator.planner.model import Constraints, Request, Scalars, Toleration
from orchestrator.planner.traits import NO_TRAITS, PodTraits

__all__ = [
    "GPU_PARTS",
    "MAX_AMOUNT",
    "MAX_DEVICES",
    "NODE_NAME_LABEL",
    "NO_SCALARS",
    "Held",
    "UnreadableRequest",
    "amount_of_scalar",
    "asks_the_same",
    "concerns_gpus",
    "devices_of",
    "gpu_devices",
    "gpu_request",
    "held_on_node",
    "is_admitted",
    "is_reservation",
    "pod_constraints",
    "pod_request",
    "readable_request",
    "resource_request",
]

MAX_AMOUNT: Final = 10**15
"""Maximum request, in thousandths of a CPU or in bytes: a thousand times the size of the largest machines. A pod that
requests more is skipped, because sums with it would reach UNLIMITED.
"""
MAX_DEVICES: Final = 1024
"""Maximum number of GPUs of one node or pod. Nodes have at most 16; with shared GPUs, plugins report hundreds."""
MAX_TOLERATIONS: Final = 128
TOLERATION_OPERATORS: Final = ("Equal", "Exists")
MAX_SELECTOR_LABELS: Final = 64

_MIB = 1 << 20
MAX_SCALARS: Final = 64
"""Maximum number of resources other than GPUs, CPU and memory that one pod requests. People request one to three."""
NO_SCALARS: Final = frozenset(("cpu", "memory", "pods", GPU_RESOURCE, GPU_PART_RESOURCE))
"""Resources with their own fields in requests, and the resource for GPU fractions, which no node has."""
_UNITS: Final = {GPU_RESOURCE: "devices", "cpu": "thousandths of a CPU", "memory": "bytes"}
_MOST: Final = {GPU_RESOURCE: MAX_DEVICES, "cpu": MAX_AMOUNT, "memory": MAX_AMOUNT}
GPU_PARTS: Final = frozenset((GPU_FRACTION_ANNOTATION, GPU_MEMORY_ANNOTATION))
"""The annotations that request GPU fractions."""


@dataclass(frozen=True, slots=True)
class Held:
    """The amounts that a bound pod of another scheduler holds. None: unreadable, which counts as all of the node.

    `scalars` are the other resources; None: nothing is known about them. `traits` are for constraints between pods.
    """

    cpu_milli: int | None
    memory_bytes: int | None
    problem: str = ""
    scalars: Mapping[str, int | None] | None = field(default_factory=dict)
    traits: PodTraits = NO_TRAITS


def resource_request(pod: Pod) -> Request:
    """Return the request in the pod's specification, without GPU fractions. Raises UnreadableRequest."""
    names = scalar_names(pod)
    if len(names) > MAX_SCALARS:
        raise UnreadableRequest(
            f"it requests {len(names)} resources beside GPUs, CPU and memory: at most {MAX_SCALARS} are read"
        )
    others = sorted(filter(is_other_gpu, names))
    if others and not pod.spec.node_name:
        raise UnreadableRequest(f"it requests {others[0]}, which is not implemented: {GPUS_BY_NAME}")
    return Request(
        gpu_count=_resource(pod, GPU_RESOURCE),
        cpu_milli=_resource(pod, "cpu"),
        memory_bytes=_resource(pod, "memory"),
        scalars=_scalars({name: _resource(pod, name) for name in names}) if names else (),
    )


def scalar_names(pod: Pod) -> set[str]:
    """Return the names of the resources other than GPUs, CPU and memory that the pod requests."""
    return requested_names(pod) - NO_SCALARS


def amount_of_scalar(name: str, quantity: str) -> int:
    """Return the amount of a resource other than GPUs, CPU and memory, in its unit; bytes are rounded up.

    Raises ValueError if it is not a quantity, is negative, or is a fraction although Kubernetes requires a whole
    number.

    Example: `amount_of_scalar("hugepages-2Mi", "4Mi")` returns `4194304`.
    """
    if is_counted_whole(name):
        return whole_count(quantity)
    amount = memory_bytes(quantity)
    if amount < 0:
        raise ValueError(f"{shortened(quantity)} is negative")
    return amount


def _scalars(amounts: Mapping[str, int]) -> Scalars:
    return tuple(sorted((name, amount) for name, amount in amounts.items() if amount))


def held_on_node(pod: Pod) -> Held:
    """Return the amounts other than GPUs of a bound pod of another scheduler. Each resource is read separately."""
    problems: list[str] = []

    def read(resource: str) -> int | None:
        try:
            return _resource(pod, resource)
        except UnreadableRequest as error:
            problems.append(str(error))
            return None

    read(GPU_RESOURCE)
    cpu, memory, scalars = (
        read("cpu"),
        read("memory"),
        {name: read(name) for name in sorted(scalar_names(pod))},
    )
    return Held(cpu, memory, "; ".join(problems), scalars, bound_traits(pod))


def is_admitted(pod: Pod) -> bool:
    """Return whether muster bound the pod.

    Its annotation then has the pod's own uid, which a template cannot contain.
    """
    return pod.metadata.annotations.get(ADMITTED_ANNOTATION) == pod.metadata.uid


def is_reservation(pod: Pod) -> bool:
    """Return whether the pod is a reservation pod of muster. The pods that share its GPU are counted, not this pod."""
    metadata = pod.metadata
    return metadata.namespace == SYSTEM_NAMESPACE and metadata.labels.get(RESERVATION_LABEL) == "true"


def concerns_gpus(pod: Pod) -> bool:
    """Return whether the pod requests GPUs or fractions, even unreadable ones, or has an annotation with GPUs."""
    if is_reservation(pod):
        return False
    annotations = pod.metadata.annotations
    if annotations and (annotations.get(GPU_DEVICES_ANNOTATION) or not GPU_PARTS.isdisjoint(annotations)):
        return True
    return any(
        GPU_RESOURCE in container.resources.limits or GPU_RESOURCE in container.resources.requests
        for container in (*pod.spec.containers, *pod.spec.init_containers)
    )


def gpu_request(pod: Pod, *, with_parts: bool = True) -> Request:
    """Return only the GPUs of the pod's request, even if its request cannot be read.

    An unreadable number counts as MAX_DEVICES, an unreadable GPU fraction as a whole GPU. Without `with_parts`, GPU
    fractions are left out.
    """
    try:
        count = _resource(pod, GPU_RESOURCE)
    except UnreadableRequest:
        return Request(gpu_count=MAX_DEVICES)
    if count or not with_parts:
        return Request(gpu_count=count)
    try:
        return _parts(pod.metadata.annotations) or Request()
    except UnreadableRequest:
        return Request(gpu_count=1)


def has_gpus_of_plugin(pod: Pod) -> bool:
    """Return whether a bound pod gets its GPUs from a device plugin and not by a ResourceClaim."""
    request = gpu_request(pod)
    asks = bool(request.gpu_count or request.is_shared)
    return asks and pod.status.extended_resource_claim_status is None


def readable_request(pod: Pod) -> Request:
    """Return an approximate request of a bound pod whose request is partly unreadable.

    Each resource is read separately. An unreadable amount counts as MAX_AMOUNT.
    """

    def read(resource: str) -> int:
        try:
            return _resource(pod, resource)
        except UnreadableRequest:
            return MAX_AMOUNT

    return replace(
        gpu_request(pod),
        cpu_milli=read("cpu"),
        memory_bytes=read("memory"),
        scalars=_scalars({name: read(name) for name in scalar_names(pod)}),
    )


def gpu_devices(pod: Pod) -> tuple[int, ...]:
    """Return the GPU indices in the pod's annotation; empty without an annotation.

    Raises UnreadableRequest for a text that muster does not write.
    """
    text = pod.metadata.annotations.get(GPU_DEVICES_ANNOTATION, "")
    if not text:
        return ()
    numbers = [whole_number(part) for part in text.split(",", MAX_DEVICES)]
    devices = dict.fromkeys(number for number in numbers if number is not None and number < MAX_DEVICES)
    if len(devices) < len(numbers):
        raise UnreadableRequest(
            f"its annotation {GPU_DEVICES_ANNOTATION} is {shortened(text)}: "
            "muster writes the indices of GPUs there, with commas between them"
        )
    return tuple(devices)


def devices_text(devices: Iterable[int]) -> str:
    """Return the text of the annotation for these GPUs, which `gpu_devices` reads."""
    return ",".join(map(str, devices))


def devices_of(pod: Pod) -> tuple[int, ...]:
    """Return the GPU indices in the pod's annotation; empty without a readable annotation."""
    try:
        return gpu_devices(pod)
    except UnreadableRequest:
        return ()


def _resource(pod: Pod, resource: str) -> int:
    """Return the pod's request of the resource, CPU in thousandths. Raises UnreadableRequest."""
    if resource == GPU_RESOURCE and is_reservation(pod):
        return 0
    try:
        amount = effective_request(pod, resource)
    except ValueError as error:
        raise UnreadableRequest(f"its request of {resource} cannot be read: {error}") from error
    if resource != "cpu":
        if resource == GPU_RESOURCE and amount % 1000:
            raise UnreadableRequest(
                f"its request of {resource} cannot be read: it is no whole number of things"
            )
        amount = -(-amount // 1000)
    most = _MOST.get(resource, MAX_QUANTITY)
    if not 0 <= amount <= most:
        unit = _UNITS.get(resource)
        in_unit = f", in {unit}" if unit else ""
        raise UnreadableRequest(f"it asks for {amount} of {resource}{in_unit}: allowed is {most}")
    return amount


def pod_request(pod: Pod) -> Request:
    """Return the pod's request, including GPU fractions. Raises UnreadableRequest."""
    plain = resource_request(pod)
    annotations = _parts_in(pod.metadata.annotations)
    if plain.gpu_count and annotations:
        raise _several([GPU_RESOURCE, *annotations])
    parts = _parts(pod.metadata.annotations)
    if parts is None:
        return plain
    return replace(parts, cpu_milli=plain.cpu_milli, memory_bytes=plain.memory_bytes, scalars=plain.scalars)


def asks_the_same(before: Pod, after: Pod) -> bool:
    """Return whether `pod_request` returns the same for two states of one pod.

    The comparison is cheaper than parsing.
    """
    one, other = before.spec, after.spec
    return (
        one.containers == other.containers
        and one.init_containers == other.init_containers
        and one.resources == other.resources
        and one.overhead == other.overhead
        and before.metadata.labels == after.metadata.labels
        and (before.status is after.status or resize_state(before) == resize_state(after))
        and all(
            before.metadata.annotations.get(key) == after.metadata.annotations.get(key)
            for key in (*GPU_PARTS, GPU_FRACTION_DEVICES_ANNOTATION)
        )
    )


def _parts(annotations: Mapping[str, str]) -> Request | None:
    """Return the request for GPU fractions in the annotations, or None. Raises UnreadableRequest."""
    parts = _parts_in(annotations)
    if not parts:
        return None
    if len(parts) > 1:
        raise _several(parts)
    return Request(
        gpu_portion_milli=_portion_milli(annotations),
        gpu_memory_mib=_gpu_memory_mib(annotations),
        shared_devices=_shared_devices(annotations),
    )


def _parts_in(annotations: Mapping[str, str]) -> list[str]:
    return [
        annotation
        for annotation in (GPU_FRACTION_ANNOTATION, GPU_MEMORY_ANNOTATION)
        if annotation in annotations
    ]


def _several(requests: Iterable[str]) -> UnreadableRequest:
    return UnreadableRequest(f"it asks for {' and for '.join(requests)}: remove one of them")


def _portion_milli(annotations: Mapping[str, str]) -> int:
    fraction = annotations.get(GPU_FRACTION_ANNOTATION)
    if fraction is None:
        return 0
    try:
        portion = gpu_milli(fraction)
    except ValueError as error:
        raise UnreadableRequest(
            f"its annotation {GPU_FRACTION_ANNOTATION} cannot be read: {error}"
        ) from error
    if not 0 < portion < 1000:
        raise UnreadableRequest(
            f"its annotation {GPU_FRACTION_ANNOTATION} is {shortened(fraction)}: allowed is 0.001 to 0.999"
        )
    return portion


def _gpu_memory_mib(annotations: Mapping[str, str]) -> int:
    text = annotations.get(GPU_MEMORY_ANNOTATION)
    if text is None:
        return 0
    try:
        mib = memory_mib(text)
    except ValueError as error:
        raise UnreadableRequest(f"its annotation {GPU_MEMORY_ANNOTATION} cannot be read: {error}") from error
    if mib <= 0:
        raise UnreadableRequest(
            f"its annotation {GPU_MEMORY_ANNOTATION} is {shortened(text)}: it must be above 0"
        )
    if mib > MAX_AMOUNT // _MIB:
        raise UnreadableRequest(
            f"its annotation {GPU_MEMORY_ANNOTATION} is {shortened(text)}: no GPU has that much memory"
        )
    return mib


def _shared_devices(annotations: Mapping[str, str]) -> int:
    text = annotations.get(GPU_FRACTION_DEVICES_ANNOTATION, "1")
    devices = whole_number(text)
    if devices is None or not 0 < devices < 1000:
        raise UnreadableRequest(
            f"its annotation {GPU_FRACTION_DEVICES_ANNOTATION} is {shortened(text)}: "
            "allowed is a number of GPUs from 1 up"
        )
    return devices


def pod_constraints(pod: Pod, volumes: Terms = ()) -> Constraints:
    """Return the node constraints of the pod. `volumes` are the terms of its PVCs and ResourceClaims.

    Raises UnreadableRequest for more conditions than a decision can evaluate for every node, and for an unimplemented
    condition.
    """
    refuse_unimplemented(pod)
    spec = pod.spec
    for count, most, subject in (
        (len(spec.tolerations), MAX_TOLERATIONS, "tolerations"),
        (len(spec.node_selector), MAX_SELECTOR_LABELS, "labels in its node selector"),
    ):
        if count > most:
            raise UnreadableRequest(f"it has {count} {subject}: at most {most} are read")
    if NODE_NAME_LABEL in spec.node_selector:
        raise UnreadableRequest(NO_LABEL)
    affinity = spec.affinity.node_affinity.required if spec.affinity and spec.affinity.node_affinity else None
    return Constraints(
        node_selector=tuple(sorted(spec.node_selector.items())),
        node_terms=both(terms_of(affinity), volumes),
        tolerations=tuple(map(_toleration, spec.tolerations)),
    )


def _toleration(toleration: PodToleration) -> Toleration:
    """Return the toleration. Raises UnreadableRequest for a new operator, such as Lt and Gt of Kubernetes 1.35."""
    operator = toleration.operator or "Equal"
    if operator not in TOLERATION_OPERATORS:
        raise UnreadableRequest(
            f"its toleration of {shortened(toleration.key)} has the operator {shortened(operator)}: "
            f"allowed are {' and '.join(TOLERATION_OPERATORS)}"
        )
    return Toleration(toleration.key, operator, toleration.value, toleration.effect)
