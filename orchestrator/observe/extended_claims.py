"""The ResourceClaim that muster creates for a pod's GPUs on a node that publishes them in ResourceSlices. Pure.

For whole GPUs (`nvidia.com/gpu`) the form is kube-scheduler's: one request for each container, named by the positions
of the container and the resource. The kubelet finds a container's devices by the mappings in the pod's status. The API
server accepts only mappings with a resource that the container requests.

So a container that uses the GPU fractions of its pod must have `muster.dev/gpu-part` in its limits. The resource has no
other meaning. The fractions are one request for all such containers together.
"""

from dataclasses import dataclass
from typing import Any, Final

from orchestrator.cluster.objects import Container, Pod
from orchestrator.cluster.quantity import whole_count
from orchestrator.devices.model import Claim, ClaimSpec, Request, RequestChoice
from orchestrator.devices.quantity import format_nano
from orchestrator.names import GPU_PART_RESOURCE, GPU_RESOURCE

NAME_INFIX: Final = "-extended-resources-"
"""Separator between the name of the pod and the unique suffix of the claim's name."""
MADE_ANNOTATION: Final = "resource.kubernetes.io/extended-resource-claim"
MAX_NAME: Final = 253
PART_REQUEST: Final = "gpu-part"
IS_SHAREABLE: Final = "device.allowMultipleAllocations"
"""The selector for fractions.

Without it, a driver that cannot share GPUs would allocate a whole GPU for each fraction.
"""


@dataclass(frozen=True, slots=True)
class ContainerGpus:
    """The number of whole GPUs of one container, and the name of the claim's request for them."""

    container: str
    request: str
    count: int


def containers_with_gpus(pod: Pod) -> tuple[ContainerGpus, ...]:
    """Return the containers that request whole GPUs. Raises ValueError for an unreadable number."""
    starters = len(pod.spec.init_containers)
    listed = []
    for place, container in enumerate(pod.spec.containers, start=starters):
        amounts = _amounts(container)
        count = whole_count(str(amounts.get(GPU_RESOURCE, 0)))
        if count:
            position = sorted(amounts).index(GPU_RESOURCE)
            listed.append(ContainerGpus(container.name, f"container-{place}-request-{position}", count))
    return tuple(listed)


def extended_claim(pod: Pod, class_name: str) -> Claim | None:
    """Return the claim to create for whole GPUs; None if an init container requests GPUs too."""
    if any(_amounts(container).get(GPU_RESOURCE) for container in pod.spec.init_containers):
        return None
    requests = tuple(
        RequestChoice(gpus.request, (Request(gpus.request, gpus.request, class_name, count=gpus.count),))
        for gpus in containers_with_gpus(pod)
    )
    metadata = pod.metadata
    return (
        Claim("", metadata.namespace, f"{metadata.name}{NAME_INFIX}", ClaimSpec(requests))
        if requests
        else None
    )


def part_claim(pod: Pod, class_name: str, devices: int) -> Claim | None:
    """Return the claim to create for fractions of `devices` GPUs, without sizes; None if no container uses them."""
    if not _containers_with_part(pod):
        return None
    request = Request(PART_REQUEST, PART_REQUEST, class_name, selectors=(IS_SHAREABLE,), count=devices)
    metadata = pod.metadata
    spec = ClaimSpec((RequestChoice(PART_REQUEST, (request,)),))
    return Claim("", metadata.namespace, f"{metadata.name}{NAME_INFIX}", spec)


def claim_name(pod: Pod) -> str:
    """Return the name of the claim for the pod's GPUs. It is the same for repeated creations."""
    metadata = pod.metadata
    ending = f"{NAME_INFIX}{metadata.uid[:8]}"
    return f"{metadata.name[: MAX_NAME - len(ending)]}{ending}"


def claim_object(pod: Pod, claim: Claim, api_version: str) -> dict[str, Any]:
    """Return the object to create, with the fields of `api_version`."""
    metadata = pod.metadata
    requests = []
    for choice in claim.spec.requests:
        (request,) = choice.alternatives
        fields: dict[str, Any] = {
            "deviceClassName": request.class_name,
            "allocationMode": request.mode,
            "count": request.count,
        }
        if request.selectors:
            fields["selectors"] = [{"cel": {"expression": listed}} for listed in request.selectors]
        if request.capacity:
            fields["capacity"] = {"requests": {name: format_nano(nano) for name, nano in request.capacity}}
        requests.append(
            {"name": request.name, **(fields if api_version.endswith("v1beta1") else {"exactly": fields})}
        )
    return {
        "apiVersion": api_version,
        "kind": "ResourceClaim",
        "metadata": {
            "name": claim_name(pod),
            "namespace": metadata.namespace,
            "annotations": {MADE_ANNOTATION: "true"},
            "ownerReferences": [
                {
                    "apiVersion": "v1",
                    "kind": "Pod",
                    "name": metadata.name,
                    "uid": metadata.uid,
                    "controller": True,
                }
            ],
        },
        "spec": {"devices": {"requests": requests}},
    }


def request_mappings(pod: Pod) -> list[dict[str, str]]:
    """Return the mappings from containers to requests of the claim, for the pod's status."""
    whole = [(gpus.container, GPU_RESOURCE, gpus.request) for gpus in containers_with_gpus(pod)]
    parts = [(container, GPU_PART_RESOURCE, PART_REQUEST) for container in _containers_with_part(pod)]
    return [
        {"containerName": container, "resourceName": resource, "requestName": request}
        for container, resource, request in whole or parts
    ]


def _containers_with_part(pod: Pod) -> list[str]:
    return [
        container.name
        for container in pod.spec.containers
        if str(_amounts(container).get(GPU_PART_RESOURCE, 0)) != "0"
    ]


def _amounts(container: Container) -> dict[str, str | int]:
    """Return the container's requests, completed by its limits as in Kubernetes."""
    return {**container.resources.limits, **container.resources.requests}
