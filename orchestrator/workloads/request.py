"""What one pod asks for, and where it may run: from the pod's specification to the planner's terms."""

from collections.abc import Callable, Iterable, Mapping

from orchestrator.cluster.objects import Container, Pod
from orchestrator.cluster.quantity import cpu_milli, gpu_milli, memory_bytes
from orchestrator.names import GPU_FRACTION_ANNOTATION, GPU_RESOURCE
from orchestrator.planner.model import Constraints, LabelRequirement, Request, Toleration

NODE_NAME_LABEL = "metadata.name"
"""Under this pseudo label a node carries its own name, so that terms on fields are matched like terms on labels."""


class UnreadableRequest(ValueError):
    """The pod asks for something that cannot be meant; the message names the annotation or resource."""


def pod_request(pod: Pod) -> Request:
    """What the pod asks for. Raises UnreadableRequest."""
    try:
        cpu = _total(pod, "cpu", cpu_milli)
        memory = _total(pod, "memory", memory_bytes)
        devices = _total(pod, GPU_RESOURCE, int)
    except ValueError as error:
        raise UnreadableRequest(f"its resource requests cannot be read: {error}") from error
    fraction = pod.metadata.annotations.get(GPU_FRACTION_ANNOTATION)
    if fraction is None:
        return Request(gpu_count=devices, cpu_milli=cpu, memory_bytes=memory)
    if devices:
        raise UnreadableRequest(
            f"it asks for {GPU_RESOURCE} and for {GPU_FRACTION_ANNOTATION}: remove one of them"
        )
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
    return Request(gpu_portion_milli=portion, cpu_milli=cpu, memory_bytes=memory)


def pod_constraints(pod: Pod) -> Constraints:
    """Where the pod may run."""
    spec = pod.spec
    terms: tuple[tuple[LabelRequirement, ...], ...] = ()
    affinity = spec.affinity.node_affinity.required if spec.affinity and spec.affinity.node_affinity else None
    if affinity is not None:
        terms = tuple(
            tuple(
                LabelRequirement(each.key, each.operator, tuple(each.values))
                for each in (*term.match_expressions, *term.match_fields)
            )
            for term in affinity.node_selector_terms
        )
    return Constraints(
        node_selector=tuple(sorted(spec.node_selector.items())),
        node_terms=terms,
        tolerations=tuple(
            Toleration(each.key, each.operator or "Equal", each.value, each.effect)
            for each in spec.tolerations
        ),
    )


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
