"""Reads loaded modules (`lsmod`) and access control of PCIe bridges (`lspci -vvv`), both for GPUDirect RDMA."""

import re
from typing import Final

from validation.errors import LayerError
from validation.judge.hosts.host_adapters import NO_ANSWER

_MODULE: Final = re.compile(r"(\w+)\s+\d+(?:\s.*)?")
_DEVICE: Final = re.compile(r"((?:[0-9a-f]{4,8}:)?[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]) (.+)")
_OURS: Final = re.compile(r"NVIDIA|Mellanox")
"""The makers of GPUs and adapters. A device of another maker can sleep, and then does not answer either."""
_CONTROL: Final = re.compile(r"ACSCtl:\s*(.+)")


def read_modules(text: str) -> list[str]:
    """Return the names of the loaded modules. Raises LayerError if there is none."""
    matches = [_MODULE.fullmatch(line.strip()) for line in text.splitlines()]
    modules = [match[1] for match in matches if match is not None]
    if not modules:
        raise LayerError(f"lsmod: no module in its output: {text.strip()[:100]!r}")
    return modules


def read_access_control(text: str) -> dict[str, list[str]]:
    """Return the ACS controls of each PCIe bridge, such as `ReqRedir+`, and `NO_ANSWER` of a GPU or adapter.

    Raises LayerError if no device is described.
    """
    bridges: dict[str, list[str]] = {}
    devices, bridge = 0, ""
    for line in text.splitlines():
        if device := _DEVICE.match(line):
            devices += 1
            bridge = device[1] if "PCI bridge" in device[2] else ""
            if f"({NO_ANSWER})" in device[2] and _OURS.search(device[2]):
                bridges[device[1]] = [NO_ANSWER]
        elif bridge and (control := _CONTROL.search(line)):
            bridges[bridge] = control[1].split()
    if not devices:
        raise LayerError(f"lspci: no device in its output: {text.strip()[:100]!r}")
    return bridges
