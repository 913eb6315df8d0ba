"""The API server's checks of requests and limits: names of resources, page sizes, and the relation of both. Pure."""

from collections.abc import Iterator
from typing import Any, Final

from orchestrator.cluster.quantity import shortened, thousandths
from orchestrator.names import GPU_FRACTION_ANNOTATION, GPU_RESOURCE
from orchestrator.observe.field_checks import is_label_key
from orchestrator.observe.field_rules import Place, is_counted_whole, quantities

_STANDARD: Final = ("cpu", "memory", "ephemeral-storage")
_AT_POD_LEVEL: Final = ("cpu", "memory")
_HUGEPAGES: Final = "hugepages-"
_OF_A_QUOTA: Final = "requests."

GPUS_BY_NAME: Final = (
    f"request whole GPUs as {GPU_RESOURCE}, or a part of one by the annotation {GPU_FRACTION_ANNOTATION}"
)
_OTHER_GPUS: Final = ("nvidia.com/gpu", "nvidia.com/mig-")
"""The beginnings of the names that NVIDIA's device plugin gives shared GPUs and MIG devices. The policy `gpu-resource`
refuses them too.
"""

Problems = Iterator[tuple[Place, str]]


def is_other_gpu(name: str) -> bool:
    """Return whether the resource is a GPU of NVIDIA's device plugin that quotas do not count.

    Example: for the resource of a MIG device, the result is true.
    """
    return name.startswith(_OTHER_GPUS) and name != GPU_RESOURCE


def named_quantities(value: Any, place: Place) -> Problems:
    """Check the names and quantities of resources that a container can request."""
    yield from quantities(value, place)
    for name, quantity in value.items() if isinstance(value, dict) else ():
        where = (*place, name)
        if name.startswith(_HUGEPAGES):
            yield from ((where, f"{name}: {problem}") for problem in _of_pages(name, quantity))
        elif name not in _STANDARD and ("/" not in name or not is_label_key(name)):
            yield where, f"{shortened(name)} is no resource of a container: write it like nvidia.com/gpu"
        elif is_other_gpu(name):
            yield where, f"{name} is not implemented: {GPUS_BY_NAME}"
        elif name.startswith(_OF_A_QUOTA):
            yield where, f"{name} is a name for a ResourceQuota: write it without `{_OF_A_QUOTA}`"


def of_container(value: Any, place: Place) -> Problems:
    """Check that no request is above its limit, and that requests of whole things are equal to their limits.

    Hugepages must come with CPU or memory.
    """
    requests, limits = value.get("requests"), value.get("limits")
    named = {name: part for part in ("limits", "requests") for name in value.get(part) or () if value[part]}
    pages = next((name for name in named if name.startswith(_HUGEPAGES)), None)
    if pages is not None and named.keys().isdisjoint(_AT_POD_LEVEL):
        yield (*place, named[pages], pages), f"{pages}: cpu or memory must be requested beside hugepages"
    if not isinstance(requests, dict) or not isinstance(limits, dict):
        return
    for name in requests.keys() & limits.keys():
        request, limit = _amount(requests[name]), _amount(limits[name])
        where = (*place, "requests", name)
        if request is None or limit is None or request == limit:
            continue
        if is_counted_whole(name):
            yield where, f"{name}: {requests[name]} is not the limit, {limits[name]}: both must be equal"
        elif request > limit:
            yield where, f"{name}: {requests[name]} is above the limit, {limits[name]}"


def of_pod(value: Any, place: Place) -> Problems:
    """Check the requests and limits of a whole pod: those of containers, of CPU, memory and hugepages only."""
    for field in ("requests", "limits"):
        part = value.get(field)
        for name in part if isinstance(part, dict) else ():
            if name not in _AT_POD_LEVEL and not name.startswith(_HUGEPAGES):
                yield (
                    (*place, field, name),
                    f"{name}: a pod has no resource of this name: write it in a container",
                )
    yield from of_container(value, place)


def _of_pages(name: str, quantity: Any) -> Iterator[str]:
    """Yield the reason why the quantity is no multiple of the size of a page."""
    size, amount = _amount(name.removeprefix(_HUGEPAGES)), _amount(quantity)
    if not size or size < 0:
        yield "the name has no size of a page, such as 2Mi"
    elif amount is not None and amount % size:
        yield f"{quantity} is no multiple of the size of a page"


def _amount(quantity: Any) -> int | None:
    """Return the quantity in thousandths; None if it cannot be read."""
    try:
        return thousandths(str(quantity))
    except ValueError:
        return None
