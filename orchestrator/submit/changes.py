"""Changes the image and the GPUs of a submitted job in its pod template. Pure."""

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, Final

from orchestrator import names
from orchestrator.cluster.gpu_fraction import DEVICE_MILLI, format_gpu, gpu_milli
from orchestrator.cluster.quantity import cpu_milli, format_bytes, format_cpu, memory_bytes
from orchestrator.errors import InvalidField
from orchestrator.submit.code import code_name
from orchestrator.submit.manifest import default_cpu_milli, default_memory_bytes
from orchestrator.submit.values import DEVICES_VARIABLE

Manifest = dict[str, Any]

_GPU_COUNT_VARIABLE: Final = "RUNAI_NUM_OF_GPUS"
_PREFIX: Final = "muster-"
_GPU_VENDOR: Final = names.GPU_RESOURCE.partition("/")[0] + "/"
"""The prefix of the resources that are GPUs too, such as those of MIG profiles."""


@dataclass(frozen=True, slots=True)
class Change:
    """The new values of a job; None keeps the present one. `priority` is a PriorityClass of muster."""

    gpu_milli: int | None = None
    image: str | None = None
    priority: str | None = None

    def __post_init__(self) -> None:
        if self.priority is not None:
            _check_priority(self.priority, self.priority)

    @property
    def is_of_pods(self) -> bool:
        """Whether the pods must be created again for the change."""
        return self.gpu_milli is not None or self.image is not None


def parse_priority(text: str) -> str:
    """Return the PriorityClass of a text, which can lack the prefix of muster. Raises InvalidField.

    Example: `parse_priority("interactive")` returns `"muster-interactive"`.
    """
    name = text if text.startswith(_PREFIX) else f"{_PREFIX}{text}"
    _check_priority(name, text)
    return name


def _check_priority(name: str, text: str) -> None:
    if name not in names.PRIORITY_CLASSES:
        raise InvalidField(
            "{priority} {word!r} is not possible: use one of {words}",
            word=text,
            words=", ".join(known.removeprefix(_PREFIX) for known in names.PRIORITY_CLASSES),
        )


def changed_template(template: Mapping[str, Any], change: Change) -> Manifest:
    """Return the pod template with the change. Raises InvalidField if these GPUs need another container."""
    changed: Manifest = deepcopy(dict(template))
    container = changed["spec"]["containers"][0]
    if change.image is not None:
        container["image"] = change.image
        for unpacking in changed["spec"].get("initContainers", []):
            # This init container unpacks the files of --code. It runs in the job's image.
            if unpacking["name"] == code_name(container["name"]):
                unpacking["image"] = change.image
    if change.gpu_milli is not None:
        annotations = changed.setdefault("metadata", {}).setdefault("annotations", {})
        _set_gpus(container, annotations, change.gpu_milli)
    return changed


def _set_gpus(container: Manifest, annotations: dict[str, str], new_milli: int) -> None:
    if names.GPU_MEMORY_ANNOTATION in annotations:
        raise InvalidField(
            "{gpu_milli} is not possible: the job asks for memory of GPUs; delete it and submit it again"
        )
    fraction = annotations.get(names.GPU_FRACTION_ANNOTATION)
    resources = container.setdefault("resources", {})
    for name in (*resources.get("limits", {}), *resources.get("requests", {})):
        if name.startswith(_GPU_VENDOR) and name != names.GPU_RESOURCE:
            raise InvalidField(
                "{gpu_milli} is not possible: the job asks for {name}; delete it and submit it again",
                name=name,
            )
    count = resources.get("limits", {}).get(names.GPU_RESOURCE, "0")
    try:
        old_milli = gpu_milli(fraction) if fraction else int(count) * DEVICE_MILLI
        devices = int(annotations.get(names.GPU_FRACTION_DEVICES_ANNOTATION, "1"))
    except ValueError as error:
        raise InvalidField(
            "{gpu_milli} is not possible: the present request of the job cannot be read: {problem}",
            problem=str(error),
        ) from error
    if bool(fraction) != (new_milli < DEVICE_MILLI):
        old = f"{fraction} of a GPU" if fraction else "whole GPUs" if old_milli else "no GPU"
        raise InvalidField(
            "{gpu_milli} {new} is not possible: the container of the job was made for {old}; delete the job and submit "
            "it again",
            new=format_gpu(new_milli),
            old=old,
        )
    if fraction:
        annotations[names.GPU_FRACTION_ANNOTATION] = format_gpu(new_milli)
    else:
        number = str(new_milli // DEVICE_MILLI)
        resources.setdefault("limits", {})[names.GPU_RESOURCE] = number
        if names.GPU_RESOURCE in resources.get("requests", {}):
            resources["requests"][names.GPU_RESOURCE] = number
    _set_defaults(resources, old_milli * devices, new_milli * devices)
    _set_variables(container, new_milli)


def _set_defaults(resources: Manifest, old_milli: int, new_milli: int) -> None:
    """Replace the default requests of CPU and memory for the old GPUs by those for the new."""
    requests = resources.setdefault("requests", {})
    limits = resources.get("limits", {})
    for name, default in (("cpu", _cpu), ("memory", _memory)):
        limit, present = limits.get(name, "0"), requests.get(name)
        if (old_milli and present == default(old_milli, limit)) or not (old_milli or present):
            requests[name] = default(new_milli, limit)


def _cpu(milli: int, limit: str) -> str:
    return format_cpu(default_cpu_milli(milli, cpu_milli(limit)))


def _memory(milli: int, limit: str) -> str:
    return format_bytes(default_memory_bytes(milli, memory_bytes(limit)))


def _set_variables(container: Manifest, new_milli: int) -> None:
    variables = [
        variable
        for variable in container.get("env", [])
        if variable["name"] != _GPU_COUNT_VARIABLE
        # "void" is muster's value for a job without GPUs
        and (variable["name"], variable.get("value")) != (DEVICES_VARIABLE, "void")
    ]
    container["env"] = [*variables, {"name": _GPU_COUNT_VARIABLE, "value": format_gpu(new_milli)}]
