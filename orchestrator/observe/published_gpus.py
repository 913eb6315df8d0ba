"""The GPUs that a driver publishes in slices, by node: their order, memory, model and problems. Pure.

Drivers list devices in any order, which changes when they start again. GPUs are counted in the order of their names.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from orchestrator.devices.model import Device, DeviceId, ResourceSlice
from orchestrator.devices.quantity import MIB_NANO
from orchestrator.names import GPU_DRIVER

_KEEPS_AWAY: Final = frozenset({"NoSchedule", "NoExecute"})
_NUMBERS: Final = re.compile(r"([0-9]+)")


@dataclass(frozen=True, slots=True)
class PublishedGpus:
    """The GPUs of one node by index. Their driver keeps new claims off those in `tainted`.

    `samples` are some of the devices: each kind of GPU is among them. `uuids` are as the driver says, "" where it does
    not.
    """

    ids: tuple[DeviceId, ...]
    memory_mib: int = 0
    model: str = ""
    tainted: tuple[int, ...] = ()
    samples: tuple[Device, ...] = field(default=(), compare=False)
    uuids: tuple[str, ...] = ()


def gpus_by_node(slices: Iterable[ResourceSlice]) -> dict[str, PublishedGpus]:
    """Return the GPUs of each node that has some, of the newest generation of its pools."""
    newest: dict[tuple[str, str], int] = {}
    listed = [
        published for published in slices if published.driver == GPU_DRIVER and published.nodes.node_name
    ]
    for published in listed:
        newest[published.pool_id] = max(newest.get(published.pool_id, 0), published.generation)
    devices: dict[str, dict[DeviceId, Device]] = {}
    for published in listed:
        if published.generation == newest[published.pool_id]:
            of_node = devices.setdefault(published.nodes.node_name or "", {})
            of_node.update(
                ((*published.pool_id, device.name), device)
                for device in published.devices
                if _text(device, "type") == "gpu"
            )
    return {node: _gpus(of_node) for node, of_node in devices.items() if of_node}


def _gpus(devices: dict[DeviceId, Device]) -> PublishedGpus:
    ids = tuple(sorted(devices, key=lambda device_id: _in_natural_order(device_id[2])))
    memory_mib = min(_memory_mib(device) for device in devices.values())
    models = {_text(device, "productName") for device in devices.values()}
    return PublishedGpus(
        ids,
        memory_mib,
        # as NVIDIA's feature discovery writes it into the label for the model
        models.pop().replace(" ", "-") if len(models) == 1 else "",
        tuple(
            index
            for index, device_id in enumerate(ids)
            if any(taint.effect in _KEEPS_AWAY for taint in devices[device_id].taints)
        ),
        tuple({_kind(device): device for device in devices.values()}.values()),
        tuple(_text(devices[device_id], "uuid") for device_id in ids),
    )


def _kind(device: Device) -> tuple[object, ...]:
    return _text(device, "productName"), _memory_mib(device), device.shareable


def _memory_mib(device: Device) -> int:
    for name in ("memory", f"{GPU_DRIVER}/memory"):
        if name in device.capacity:
            return device.capacity[name].value_nano // MIB_NANO
    return 0


def _text(device: Device, name: str) -> str:
    attribute = device.attributes.get(name) or device.attributes.get(f"{GPU_DRIVER}/{name}")
    return str(attribute.values[0]) if attribute is not None and attribute.values else ""


def _in_natural_order(name: str) -> tuple[tuple[int, str], ...]:
    """`gpu-10` after `gpu-9`.

    Example: `sorted(["gpu-10", "gpu-9"], key=_in_natural_order)` returns `['gpu-9', 'gpu-10']`.
    """
    parts = _NUMBERS.split(name)
    return tuple((int(part), "") if part.isdecimal() else (-1, part) for part in parts)
