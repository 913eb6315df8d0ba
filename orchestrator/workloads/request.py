"""What one pod asks for, and where it may run: from the pod's specification to the planner's terms."""

from collections.abc import Callable, Iterable, Mapping

from orchestrator.cluster.objects import Container, Pod
from orchestrator.cluster.quantity import cpu_milli, gpu_milli, memory_bytes
from orchestrator.names import (
    CHECKPOINT_GRACE_ANNOTATION,
    GPU_FRACTION_ANNOTATION,
    GPU_FRACTION_DEVICES_ANNOTATION,
    GPU_MEMORY_ANNOTATION,
    GPU_RESOURCE,
)
from orchestrator.planner.model import Constraints, Request, Toleration
from orchestrator.workloads.node_terms import Terms, both, terms_of

NODE_NAME_LABEL = "metadata.name"
"""Under this pseudo label a node carries its own name, so that terms on fields are matched like terms on labels."""

_MIB = 1 << 20


class UnreadableRequest(ValueError):
    """The pod asks for something that cannot be meant; the message names the annotation or resource."""


def resource_request(pod: Pod) -> Request:
    """What the pod asks of Kubernetes itself, whatever its annotations say. Raises UnreadableRequest."""
    try:
        return Request(
            gpu_count=_total(pod, GPU_RESOURCE, int),
            cpu_milli=_total(pod, "cpu", cpu_milli),
            memory_bytes=_total(pod, "memory", memory_bytes),
        )
    except ValueError as error:
        raise UnreadableRequest(f"its resource requests cannot be read: {error}") from error


def pod_request(pod: Pod) -> Request:
    """What the pod asks for, parts of GPUs included. Raises UnreadableRequest."""
    plain = resource_request(pod)
    annotations = pod.metadata.annotations
    parts = [each for each in (GPU_FRACTION_ANNOTATION, GPU_MEMORY_ANNOTATION) if each in annotations]
    if not parts:
        return plain
    asked = [GPU_RESOURCE, *parts] if plain.gpu_count else parts
    if len(asked) > 1:
        raise UnreadableRequest(f"it asks for {' and for '.join(asked)}: remove one of them")
    return Request(
        gpu_portion_milli=_portion_milli(annotations),
        cpu_milli=plain.cpu_milli,
        memory_bytes=plain.memory_bytes,
        gpu_memory_mib=_gpu_memory_mib(annotations),
        shared_devices=_shared_devices(annotations),
    )


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
            f"its annotation {GPU_FRACTION_ANNOTATION} is {fraction}: allowed is 0.001 to 0.999"
        )
    return portion


def _gpu_memory_mib(annotations: Mapping[str, str]) -> int:
    """A part of a MiB is rounded up."""
    text = annotations.get(GPU_MEMORY_ANNOTATION)
    if text is None:
        return 0
    try:
        mib = -(-memory_bytes(text) // _MIB)
    except ValueError as error:
        raise UnreadableRequest(f"its annotation {GPU_MEMORY_ANNOTATION} cannot be read: {error}") from error
    if mib <= 0:
        raise UnreadableRequest(f"its annotation {GPU_MEMORY_ANNOTATION} is {text}: it must be above 0")
    return mib


def _shared_devices(annotations: Mapping[str, str]) -> int:
    text = annotations.get(GPU_FRACTION_DEVICES_ANNOTATION, "1")
    if not (text.isascii() and text.isdecimal() and int(text[:4]) > 0 and len(text) < 4):
        raise UnreadableRequest(
            f"its annotation {GPU_FRACTION_DEVICES_ANNOTATION} is {text}: allowed is a number of GPUs from 1 up"
        )
    return int(text)


def pod_constraints(pod: Pod, volumes: Terms = ()) -> Constraints:
    """Where the pod may run, if its volumes ask for nodes that match these terms."""
    spec = pod.spec
    affinity = spec.affinity.node_affinity.required if spec.affinity and spec.affinity.node_affinity else None
    return Constraints(
        node_selector=tuple(sorted(spec.node_selector.items())),
        node_terms=both(terms_of(affinity), volumes),
        tolerations=tuple(
            Toleration(each.key, each.operator or "Equal", each.value, each.effect)
            for each in spec.tolerations
        ),
    )


def checkpoint_grace_seconds(pod: Pod, longest_seconds: int) -> int | None:
    """How long the pod may take, once evicted, to save its work; None leaves it its termination grace period."""
    text = pod.metadata.annotations.get(CHECKPOINT_GRACE_ANNOTATION, "").strip()
    if not (text.isascii() and text.isdecimal()):
        return None
    return min(int(text[:9]), longest_seconds)


def grace_seconds(pod: Pod, longest_seconds: int) -> int | None:
    """How long after its eviction the pod may go on; None when nothing says so."""
    asked = checkpoint_grace_seconds(pod, longest_seconds)
    return pod.spec.termination_grace_period_seconds if asked is None else asked


def _total(pod: Pod, resource: str, parse: Callable[[str], int]) -> int:
    """Kubernetes' effective request: containers and sidecars together, or one start-up container if that is more."""
    sidecars = [each for each in pod.spec.init_containers if each.restart_policy == "Always"]
    starters = [each for each in pod.spec.init_containers if each.restart_policy != "Always"]
    running = sum(_asked((*pod.spec.containers, *sidecars), resource, parse))
    starting = max(_asked(starters, resource, parse), default=0)
    return max(running, starting) + _parsed(pod.spec.overhead, resource, parse)


def _asked(containers: Iterable[Container], resource: str, parse: Callable[[str], int]) -> list[int]:
    return [
        _parsed(
            each.resources.requests if resource in each.resources.requests else each.resources.limits,
            resource,
            parse,
        )
        for each in containers
    ]


def _parsed(amounts: Mapping[str, str | int], resource: str, parse: Callable[[str], int]) -> int:
    amount = amounts.get(resource)
    return 0 if amount is None else parse(str(amount))
