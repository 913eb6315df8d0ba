"""Judges the words of nvidia-smi about the health of a GPU. An unknown word is no proof of health."""

import re
from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Final, NamedTuple

from validation.judge.check_verdict import Judgement
from validation.judge.hosts.host_facts import HostGpus, some
from validation.judge.hosts.repairs import Repair, needs
from validation.judge.verdict import Verdict


class Aspect(StrEnum):
    """The subject of an element of nvidia-smi. Each is judged by one layer."""

    STATE = "state"
    MEMORY = "memory"
    FABRIC = "fabric"
    PCIE = "pcie"


class _Words(NamedTuple):
    """The words of an element on a healthy GPU, and the verdict on any other word."""

    aspect: Aspect
    healthy: frozenset[str]
    other: Verdict
    repair: Repair


class _Count(NamedTuple):
    """The highest number of an element on a healthy GPU, and the verdict on a higher one."""

    aspect: Aspect
    most: int
    higher: Verdict
    repair: Repair


class Said(NamedTuple):
    """An element that is not as on a healthy GPU."""

    aspect: Aspect
    verdict: Verdict
    finding: str


QUIET: Final = frozenset(
    {"", "N/A", "[N/A]", "None", "No", "False", "Not Active", "Disabled", "Not Supported", "[Not Supported]"}
    | {"Requested functionality has been deprecated"}
)
"""Texts that say nothing, or that something is not so."""
_GOOD: Final = QUIET | {"Default", "Healthy", "Success", "OK"}
_LOST: Final = re.compile(
    r"unknown error|requires? reset|is lost|\bERR!|fallen off|not initialized|uninitialized", re.IGNORECASE
)
"""Words for any value of a GPU that does not answer."""
_NUMBER: Final = re.compile(r"-?(\d+)(?:[.,]\d+)*(?: ?[^\s\d]\S*)?")
_ILL: Final = re.compile(
    r"err|fail|(?<!de)fault|uncorr|pending|retire|remap|degrad|lost|exceed|replay|unhealthy|repair|recover|violation"
    r"|slowdown|poison|contain|quarantin|bad|alarm|critical|fatal|timeout|health|reset"
)
"""Parts of names of elements whose number should be 0."""


def _no(aspect: Aspect, repair: Repair, other: Verdict = Verdict.FAIL) -> _Words:
    return _Words(aspect, QUIET, other, repair)


def _is(aspect: Aspect, repair: Repair, *healthy: str, other: Verdict = Verdict.FAIL) -> _Words:
    return _Words(aspect, frozenset({"", "N/A", *healthy}), other, repair)


_UNKNOWN: Final = Verdict.INCONCLUSIVE
_STATE, _MEMORY, _FABRIC, _PCIE = Aspect
_REASONS: Final = """
gpu_idle applications_clocks_setting display_clocks_setting sync_boost sw_power_cap hw_slowdown hw_thermal_slowdown
hw_power_brake_slowdown sw_thermal_slowdown
"""
"""Why clocks are low. Those that hardware has are judged by the layer `faults`."""
_UNCORRECTED: Final = (
    "sram_uncorrectable sram_uncorrectable_parity sram_uncorrectable_secded dram_uncorrectable"
)
_WORDS: Final = {
    "gpu_recovery_action": _no(_STATE, Repair.RESET),
    "reset_required": _no(_STATE, Repair.RESET),
    "drain_and_reset_recommended": _no(_STATE, Repair.RESET),
    "persistence_mode": _is(_STATE, Repair.SETTING, "Enabled", other=_UNKNOWN),
    "compute_mode": _is(_STATE, Repair.SETTING, "Default"),
    "current_mig": _no(_STATE, Repair.SETTING, other=_UNKNOWN),
    "pending_mig": _no(_STATE, Repair.SETTING, other=_UNKNOWN),
    **{
        f"clocks_event_reason_{reason}": _is(_STATE, Repair.SETTING, "Active", "Not Active", other=_UNKNOWN)
        for reason in _REASONS.split()
    },
    "current_ecc": _is(_MEMORY, Repair.SETTING, "Enabled", other=_UNKNOWN),
    "pending_ecc": _is(_MEMORY, Repair.SETTING, "Enabled", other=_UNKNOWN),
    "sram_threshold_exceeded": _no(_MEMORY, Repair.REPLACE),
    "channel_repair_pending": _no(_MEMORY, Repair.RESET),
    "tpc_repair_pending": _no(_MEMORY, Repair.RESET),
    "unrepairable_memory": _no(_MEMORY, Repair.REPLACE),
    "pending_retirement": _no(_MEMORY, Repair.RESET),
    "pending_blacklist": _no(_MEMORY, Repair.RESET),
    "remapped_row_pending": _no(_MEMORY, Repair.RESET),
    "remapped_row_failure": _no(_MEMORY, Repair.REPLACE),
    "fabric/state": _is(_FABRIC, Repair.FABRIC, "Completed"),
    "fabric/status": _is(_FABRIC, Repair.FABRIC, "Success"),
    "health/summary": _is(_FABRIC, Repair.FABRIC, "Healthy"),
    "health/bandwidth": _is(_FABRIC, Repair.FABRIC, "Full"),
    "health/route_recovery_in_progress": _no(_FABRIC, Repair.FABRIC),
    "health/route_unhealthy": _no(_FABRIC, Repair.FABRIC),
    "health/access_timeout_recovery": _no(_FABRIC, Repair.FABRIC),
    "health/incorrect_configuration": _no(_FABRIC, Repair.FABRIC),
}
_LIFETIME_ERRORS: Final = 10
"""Uncorrected errors over its life from which on a GPU is INCONCLUSIVE."""
_COUNTS: Final = {
    "row_remapper_histogram_none": _Count(_MEMORY, 0, Verdict.FAIL, Repair.REPLACE),
    "row_remapper_histogram_low": _Count(_MEMORY, 0, _UNKNOWN, Repair.SUPPORT),
    "remapped_row_unc": _Count(_MEMORY, 255, _UNKNOWN, Repair.SUPPORT),
    "double_bit_retirement/retired_count": _Count(_MEMORY, 14, _UNKNOWN, Repair.SUPPORT),
    "multiple_single_bit_retirement/retired_count": _Count(_MEMORY, 59, _UNKNOWN, Repair.REPLACE),
    **{
        f"aggregate/{name}": _Count(_MEMORY, _LIFETIME_ERRORS - 1, _UNKNOWN, Repair.SUPPORT)
        for name in _UNCORRECTED.split()
    },
    **{f"volatile/{name}": _Count(_MEMORY, 0, Verdict.FAIL, Repair.RESET) for name in _UNCORRECTED.split()},
    # NVIDIA DCGM's own test of PCIe takes 80 (diag-skus.yaml, max_pcie_replays)
    "replay_counter": _Count(_PCIE, 80, _UNKNOWN, Repair.REPLACE_HOST_PART),
    "replay_rollover_counter": _Count(_PCIE, 80, _UNKNOWN, Repair.REPLACE_HOST_PART),
}
_FREE: Final = (
    "accounting_mode|addressing_mode|atomic_caps_inbound|atomic_caps_outbound|auto_boost|auto_boost_default|board_id"
    "|board_part_number|bridge_chip_fw|bridge_chip_type|c2c_mode|chassis_serial_number|cliqueId|clusterUuid"
    "|cuda_version|current_dm|current_dram_encryption|current_gom|display_active|display_attached|display_mode"
    "|driver_version|ecc_object|egm|gpu_fabric_guid|gpu_fru_part_number|gpu_part_number|gsp_firmware_version"
    "|host_vgpu_mode|img_version|latest_timestamp|mig_devices|multigpu_board|oem_object|partition_assigned|pci_bus"
    "|pci_bus_id|pci_device|pci_device_id|pci_domain|pci_sub_system_id|pdi|peer_type|pending_dm"
    "|pending_dram_encryption|pending_gom|performance_state|power_management|power_profile_enforced_profiles"
    "|power_profile_requested_profiles|power_smoothing|power_state|process_name|product_architecture|product_brand"
    "|product_name|pwr_object|relaxed_ordering_mode|remapped_row_corr|remapped_row_corr_inactive"
    "|remapped_row_unc_inactive|retired_pagelist|row_remapper_histogram_high|row_remapper_histogram_max"
    "|row_remapper_histogram_partial|serial|sparse_operation_mode|timestamp|type|uuid|vbios_version"
    "|vgpu_heterogeneous_mode|virtualization_mode"
)
"""Elements that say nothing of health: names, versions, positions, processes. Their words may be any."""
FREE: Final = frozenset(_FREE.split("|"))


def judge_elements(hosts: Mapping[str, HostGpus], aspect: Aspect) -> Judgement:
    """Judge the elements of this aspect; FAIL names a fault, INCONCLUSIVE an unknown word."""
    said: list[Said] = []
    for name, host in sorted(hosts.items()):
        said += read_elements(name, host.elements)
        for gpu in host.gpus:
            said += read_elements(f"{name} {gpu.bus_id}", gpu.elements)
    for verdict in (Verdict.FAIL, Verdict.INCONCLUSIVE):
        found = [one.finding for one in said if (one.aspect, one.verdict) == (aspect, verdict)]
        if found:
            return Judgement(verdict, some(found))
    return Judgement(Verdict.PASS)


def read_elements(place: str, elements: Iterable[tuple[str, str]]) -> list[Said]:
    """Return the elements that are not as on a healthy GPU."""
    found = (_said(place, path, text) for path, text in elements)
    return [said for said in found if said is not None]


def _said(place: str, path: str, text: str) -> Said | None:
    name = path.rpartition("/")[2]
    if _LOST.search(text):
        return Said(Aspect.STATE, Verdict.FAIL, needs(f"{place}: {name} is {text}", Repair.RESET))
    key = "/".join(path.split("/")[-2:])
    words = _WORDS.get(key) or _WORDS.get(name)
    count = _COUNTS.get(key) or _COUNTS.get(name)
    if words is not None:
        healthy = text in words.healthy or text in {"[N/A]", "Requested functionality has been deprecated"}
        if healthy:
            return None
        return Said(words.aspect, words.other, needs(f"{place}: {name} is {text}", words.repair))
    if count is not None:
        return _counted(place, name, text, count)
    return _unknown(place, path, name, text)


def _counted(place: str, name: str, text: str, count: _Count) -> Said | None:
    if text in QUIET:
        return None
    match = re.fullmatch(r"(\d+)(?: .*)?", text)
    if match is None:
        return Said(
            count.aspect, Verdict.INCONCLUSIVE, f"{place}: {name} is {text[:60]!r}, which is no number"
        )
    if int(match[1]) <= count.most:
        return None
    return Said(count.aspect, count.higher, needs(f"{place}: {name} is {text}", count.repair))


def _unknown(place: str, path: str, name: str, text: str) -> Said | None:
    """Return the finding on an element without a rule; None if it is free, or has a number or word of no fault."""
    if name in FREE or text in _GOOD:
        return None
    match = _NUMBER.fullmatch(text)
    is_reason = "clocks_event_reasons_counters/" in path
    if match is not None and (is_reason or not _ILL.search(name.lower()) or not re.search(r"[1-9]", text)):
        return None
    return Said(
        Aspect.STATE, Verdict.INCONCLUSIVE, f"{place}: {path} is {text[:60]!r}, which muster does not know"
    )
