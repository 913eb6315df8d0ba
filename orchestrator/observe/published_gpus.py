"""The GPUs that a DRA driver publishes in ResourceSlices, by node: order, memory, model and taints. Pure.

Drivers list devices in an order that can change after a restart. So the index of a GPU is its position when sorted by
name.
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
    """The GPUs of one node by index. GPUs in `tainted` have taints of the driver that exclude new ResourceClaims.

    `samples` has at least one device of each kind of GPU. `uuids` are the UUIDs from the driver, "" if it publishes
    none.
    """

    ids: tuple[DeviceId, ...]
    memory_mib: int = 0
    model: str = ""
    tainted: tuple[int, ...] = ()
    samples: tuple[Device, ...] = field(default=(), compare=False)
    uuids: tuple[str, ...] = ()


def gpus_by_node(slices: Iterable[ResourceSlice]) -> dict[str, PublishedGpus]:
    """Return the GPUs of each node with published GPUs, from the newest generation of each pool."""
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
        # NVIDIA's feature discovery writes the model in this form into its label
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
    """Return a sort key with numbers in numeric order: `gpu-10` after `gpu-9`.

    Example: `sorted(["gpu-10", "gpu-9"], key=_in_natural_order)` returns `['gpu-9', 'gpu-10']`.
    """
    parts = _NUMBERS.split(name)
    return tuple((int(part), "") if part.isdecimal() else (-1, part) for part in parts)
