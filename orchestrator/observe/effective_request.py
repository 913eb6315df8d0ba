"""Computes the effective request of a pod as Kubernetes does, with sidecars, init containers, resizes, pod-level
requests and overhead.

kube-scheduler and the kubelet compute the same request: `PodRequests` of k8s.io/component-helpers 0.36. Amounts are in
thousandths of the unit. The API server rounds each quantity up to thousandths when it stores the pod. Pure.
"""

from collections.abc import Mapping
from typing import Final

from orchestrator.cluster.objects import Container, Pod
from orchestrator.cluster.pods import ContainerStatus
from orchestrator.cluster.quantity import shortened, thousandths

Quantities = Mapping[str, str | int]

_AT_POD_LEVEL: Final = ("cpu", "memory")
_HUGEPAGES: Final = "hugepages-"


def effective_request(pod: Pod, resource: str) -> int:
    """Return the request of the pod for the resource, in thousandths. Raises ValueError if a quantity is unreadable."""
    spec = pod.spec
    statuses = _resized(pod)
    running = sum([_of_container(pod, one, statuses.get(one.name), resource) for one in spec.containers])
    sidecars = starting = 0
    for starter in spec.init_containers:
        if starter.restart_policy == "Always":
            amount = _of_container(pod, starter, statuses.get(starter.name), resource)
            running += amount
            sidecars += amount
            starting = max(starting, sidecars)
        else:
            # Sidecars that are declared before an init container run at the same time; later sidecars do not
            # (KEP-753).
            starting = max(starting, sidecars + _of_container(pod, starter, None, resource))
    total = max(running, starting)
    if spec.resources.requests or spec.resources.limits:
        total = _at_pod_level(pod, resource, total)
    return total + _parsed(spec.overhead, resource) if spec.overhead else total


def requested_names(pod: Pod) -> set[str]:
    """Return the names of the resources that the pod requests."""
    spec = pod.spec
    names: set[str] = set()
    for container in spec.containers:
        names.update(container.resources.requests, container.resources.limits)
    for container in spec.init_containers:
        names.update(container.resources.requests, container.resources.limits)
    names.update(spec.overhead)
    if spec.resources.requests or spec.resources.limits:
        names.update(filter(_is_at_pod_level, (*spec.resources.requests, *spec.resources.limits)))
    for status in _resized(pod).values():
        if status.resources is not None:
            names.update(status.resources.requests, status.allocated_resources)
    return names


def resize_state(pod: Pod) -> tuple[object, ...]:
    """Return a key of the status fields that the formula reads: equal keys of one pod mean equal effective requests."""
    status = pod.status
    resized = tuple((name, one.resources, one.allocated_resources) for name, one in _resized(pod).items())
    is_infeasible = bool(resized or status.resources) and _is_infeasible(pod)
    return (resized, status.resources, status.allocated_resources, is_infeasible)


def _resized(pod: Pod) -> dict[str, ContainerStatus]:
    """Return the containers whose resources the kubelet reports, by name."""
    status = pod.status
    if not status.container_statuses and not status.init_container_statuses:
        return {}
    listed = [*status.container_statuses, *status.init_container_statuses]
    return {one.name: one for one in listed if one.resources is not None}


def _of_container(pod: Pod, container: Container, status: ContainerStatus | None, resource: str) -> int:
    resources = container.resources
    # If a container has a limit and no request, the API server uses the limit as the request.
    amount = _parsed(resources.requests if resource in resources.requests else resources.limits, resource)
    if status is None or status.resources is None:
        return amount
    return _effective(pod, amount, status.resources.requests, status.allocated_resources, resource)


def _at_pod_level(pod: Pod, resource: str, total: int) -> int:
    """Return the pod-level request if the pod has one, else the containers' `total`."""
    if not _is_at_pod_level(resource):
        return total
    resources, status = pod.spec.resources, pod.status
    if resource not in resources.requests:
        return total or _parsed(resources.limits, resource)
    amount = _parsed(resources.requests, resource)
    if status.resources is None:
        return amount
    return _effective(pod, amount, status.resources.requests, status.allocated_resources, resource)


def _effective(pod: Pod, desired: int, actual: Quantities, allocated: Quantities, resource: str) -> int:
    """Return the largest of the desired, actual and allocated amounts during a resize.

    An infeasible desired amount does not count.
    """
    held = max(_parsed(actual, resource), _parsed(allocated, resource))
    return held if _is_infeasible(pod) else max(desired, held)


def _is_infeasible(pod: Pod) -> bool:
    pending = (condition for condition in pod.status.conditions if condition.type == "PodResizePending")
    first = next(pending, None)
    return first is not None and first.reason == "Infeasible"


def _is_at_pod_level(resource: str) -> bool:
    return resource in _AT_POD_LEVEL or resource.startswith(_HUGEPAGES)


def _parsed(quantities: Quantities, resource: str) -> int:
    quantity = quantities.get(resource)
    if quantity is None:
        return 0
    amount = thousandths(str(quantity))
    if amount < 0:
        raise ValueError(f"{shortened(str(quantity))} is negative")
    return amount
