"""Names the repair of each fault of a host, by the documents of its maker.

The sources stand in docs/reference/host-repairs.md, read on 2026-11-27.
"""

from enum import StrEnum
from typing import Final


class Repair(StrEnum):
    """The first step that puts a fault right."""

    JOB = "look at the job"
    RESET = "reset the GPU"
    REBOOT = "reboot the host"
    COLD_START = "switch the host off and on"
    RESEAT = "reseat or replace the cable"
    REPLACE = "replace the GPU"
    REPLACE_MEMORY = "replace the memory module"
    REPLACE_HOST_PART = "reseat or replace the part"
    COOLING = "check cooling and power"
    SETTING = "correct the setting"
    FABRIC = "restart the fabric manager"
    NETWORK = "check network and server"
    SUPPORT = "ask support"


_RESET: Final = frozenset({46, 48, 61, 62, 63, 64, 94, 95, 109, 110, 119, 120, 136, 140, 143, 155, 156, 158})
_JOB: Final = frozenset({13, 31, 32, 43, 45, 68, 69})
_NVLINK: Final = frozenset({74, 144, 145, 146, 147, 148, 149, 150})


def of_xid(kind: str, code: int) -> Repair:
    """Return the first step of the repair of an error that the driver logged."""
    if kind in _OTHERS:
        return _OTHERS[kind]
    if code in _JOB:
        return Repair.JOB
    if code in _RESET or code in _NVLINK:
        return Repair.RESET
    if code in {54, 60}:
        return Repair.COOLING
    return Repair.REBOOT if code in {79, 151} else Repair.SUPPORT


_OTHERS: Final = {
    "SXid": Repair.FABRIC,
    "off the bus": Repair.COLD_START,
    "RmInitAdapter failed": Repair.REBOOT,
    "no GPU came up": Repair.REBOOT,
    "memory error": Repair.REPLACE_MEMORY,
    "machine check": Repair.REPLACE_HOST_PART,
    "PCIe error": Repair.REPLACE_HOST_PART,
    "adapter error": Repair.RESEAT,
    "slow PCIe link": Repair.REPLACE_HOST_PART,
    "NFS error": Repair.NETWORK,
    "kernel error": Repair.REBOOT,
}


def needs(finding: str, repair: Repair) -> str:
    """Return a finding with its repair."""
    return f"{finding} -> {repair}"
