"""Names the repair of each fault of a host, from the documents of the manufacturer of the faulty part.

The sources are in docs/reference/host-repairs.md, read on 2026-11-27.
"""

from enum import StrEnum
from typing import Final


class Repair(StrEnum):
    """The first step of the repair of a fault."""

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


_RESET: Final = frozenset(
    {46, 48, 62, 63, 64, 74, 95, 109, 110, 119, 120, 136, 140, 143, 155, 156, 158, *range(144, 151)}
)
_JOB: Final = frozenset(
    {
        8,
        11,
        13,
        25,
        31,
        32,
        37,
        39,
        40,
        41,
        43,
        45,
        60,
        68,
        69,
        70,
        71,
        72,
        75,
        76,
        77,
        80,
        82,
        83,
        84,
        85,
        86,
        88,
        89,
    }
    | {94, *range(96, 106), *range(126, 136), 137, 139}
)
_REBOOT: Final = frozenset({79, 151})


def of_fault(kind: str, code: int, text: str) -> Repair:
    """Return the first step of the repair of an error in the kernel's log."""
    if kind in _OTHERS:
        return _OTHERS[kind]
    if code == RECOVERY:
        return of_action(text.rpartition(" to ")[2])
    if code in _JOB:
        return Repair.JOB
    if code in _RESET:
        return Repair.RESET
    if code == POWER_CABLE:
        return Repair.COOLING
    return Repair.REBOOT if code in _REBOOT else Repair.SUPPORT


def of_action(text: str) -> Repair:
    """Return the repair that the recovery action of a GPU asks for. Example: `Node Reboot`."""
    return next((repair for word, repair in _ACTIONS.items() if word in text.lower()), Repair.SUPPORT)


RECOVERY: Final = 154
"""Xid that names the new recovery action of a GPU."""
POWER_CABLE: Final = 54
_ACTIONS: Final = {"reboot": Repair.REBOOT, "reset": Repair.RESET, "drain": Repair.RESET}
_OTHERS: Final = {
    "SXid": Repair.REBOOT,
    "off the bus": Repair.COLD_START,
    "RmInitAdapter failed": Repair.REBOOT,
    "no GPU came up": Repair.REBOOT,
    "memory error": Repair.REPLACE_MEMORY,
    "machine check": Repair.REPLACE_HOST_PART,
    "PCIe error": Repair.REPLACE_HOST_PART,
    "host too hot": Repair.COOLING,
    "adapter too hot": Repair.COOLING,
    "adapter error": Repair.RESEAT,
    "slow PCIe link": Repair.REPLACE_HOST_PART,
    "NFS error": Repair.NETWORK,
    "storage error": Repair.REPLACE_HOST_PART,
    "IOMMU fault": Repair.SUPPORT,
    "kernel error": Repair.REBOOT,
}


def needs(finding: str, repair: Repair) -> str:
    """Return the text of a finding with its repair."""
    return f"{finding} -> {repair}"
