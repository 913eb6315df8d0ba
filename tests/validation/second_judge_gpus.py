"""The second judge's part for the words of nvidia-smi and of the kernel's log.

Imports nothing of muster's; written from docs/record.md alone, as the rest of it.
"""

import re
from collections.abc import Iterator
from xml.etree import ElementTree as ET

WORDS = """
state FAIL - gpu_recovery_action reset_required drain_and_reset_recommended
state INCONCLUSIVE - current_mig pending_mig
state INCONCLUSIVE Enabled persistence_mode
state FAIL Default compute_mode
memory INCONCLUSIVE Enabled current_ecc pending_ecc
memory FAIL - sram_threshold_exceeded channel_repair_pending tpc_repair_pending unrepairable_memory
memory FAIL - pending_retirement pending_blacklist remapped_row_pending remapped_row_failure
fabric FAIL Completed fabric/state
fabric FAIL Success fabric/status
fabric FAIL Healthy health/summary
fabric FAIL Full health/bandwidth
fabric FAIL - health/route_recovery_in_progress health/route_unhealthy health/access_timeout_recovery
fabric FAIL - health/incorrect_configuration
"""
"""Aspect, what another word than the healthy one means, the healthy one (-: a word of QUIET), elements."""
RULES = {
    name: (aspect, other, healthy)
    for aspect, other, healthy, *names in (line.split() for line in WORDS.strip().splitlines())
    for name in names
}
REASONS = re.compile(
    r"clocks_event_reason_(gpu_idle|applications_clocks_setting|display_clocks_setting|sync_boost|sw_power_cap"
    r"|hw_slowdown|hw_thermal_slowdown|hw_power_brake_slowdown|sw_thermal_slowdown)"
)
MOST = """
memory FAIL 0 row_remapper_histogram_none volatile/sram_uncorrectable volatile/sram_uncorrectable_parity
memory FAIL 0 volatile/sram_uncorrectable_secded volatile/dram_uncorrectable
memory INCONCLUSIVE 0 row_remapper_histogram_low
memory INCONCLUSIVE 255 remapped_row_unc
memory INCONCLUSIVE 14 double_bit_retirement/retired_count
memory INCONCLUSIVE 59 multiple_single_bit_retirement/retired_count
memory INCONCLUSIVE 9 aggregate/sram_uncorrectable aggregate/sram_uncorrectable_parity aggregate/dram_uncorrectable
memory INCONCLUSIVE 9 aggregate/sram_uncorrectable_secded
pcie INCONCLUSIVE 80 replay_counter replay_rollover_counter
"""
COUNTS = {
    name: (aspect, higher, int(most))
    for aspect, higher, most, *names in (line.split() for line in MOST.strip().splitlines())
    for name in names
}
DEPRECATED = "Requested functionality has been deprecated"
QUIET = ["", "N/A", "[N/A]", "None", "No", "False", "Not Active", "Disabled", "Not Supported"]
QUIET += ["[Not Supported]", DEPRECATED]
GONE = ("unknown error", "require reset", "requires reset", "is lost", "fallen off", "not initialized")
ILL = (
    r"err|fail|uncorr|pending|retire|remap|degrad|lost|exceed|replay|unhealthy|repair|recover"
    r"|violation|slowdown|poison|contain|quarantin|bad|alarm|critical|fatal|timeout|health|reset|(?<!de)fault"
)
FREE = """
accounting_mode addressing_mode atomic_caps_inbound atomic_caps_outbound auto_boost auto_boost_default board_id
board_part_number bridge_chip_fw bridge_chip_type c2c_mode chassis_serial_number cliqueId clusterUuid
cuda_version current_dm current_dram_encryption current_gom display_active display_attached display_mode
driver_version ecc_object egm gpu_fabric_guid gpu_fru_part_number gpu_part_number gsp_firmware_version
host_vgpu_mode img_version latest_timestamp mig_devices multigpu_board oem_object partition_assigned pci_bus
pci_bus_id pci_device pci_device_id pci_domain pci_sub_system_id pdi peer_type pending_dm
pending_dram_encryption pending_gom performance_state power_management power_profile_enforced_profiles
power_profile_requested_profiles power_smoothing power_state process_name product_architecture product_brand
product_name pwr_object relaxed_ordering_mode remapped_row_corr remapped_row_corr_inactive
remapped_row_unc_inactive retired_pagelist row_remapper_histogram_high row_remapper_histogram_max
row_remapper_histogram_partial serial sparse_operation_mode timestamp type uuid vbios_version
vgpu_heterogeneous_mode virtualization_mode
"""


def leaves(node: ET.Element, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], str]]:
    """Every element without elements in it, and text that stands beside elements."""
    for child in node:
        here = (*path, child.tag.replace("throttle_reason", "event_reason"))
        words = (child.text or "").strip()
        if len(child) == 0:
            yield here, words
        else:
            if words:
                yield (*here, "text"), words
            yield from leaves(child, here)
        if child.tail and child.tail.strip():
            yield (*path, "text"), child.tail.strip()


def says(path: tuple[str, ...], text: str) -> tuple[str, str] | None:
    """Of what an element speaks, and which verdict follows; None if it says nothing ill."""
    name, pair, lower = path[-1], "/".join(path[-2:]), text.lower()
    if (
        any(words in lower for words in GONE)
        or re.search(r"\bERR!", text, re.IGNORECASE)
        or "uninitialized" in lower
    ):
        return "state", "FAIL"
    if pair in RULES or name in RULES:
        aspect, other, healthy = RULES.get(pair) or RULES[name]
        fine = QUIET if healthy == "-" else ["", "N/A", "[N/A]", DEPRECATED, healthy]
        return None if text in fine else (aspect, other)
    if pair in COUNTS or name in COUNTS:
        return counted(text, *(COUNTS.get(pair) or COUNTS[name]))
    fine = ["", "N/A", "[N/A]", DEPRECATED, "Active", "Not Active"]
    if REASONS.fullmatch(name):
        return None if text in fine else ("state", "INCONCLUSIVE")
    return unheard(path, text)


def counted(text: str, aspect: str, higher: str, most: int) -> tuple[str, str] | None:
    digits = re.fullmatch(r"(\d+)( .*)?", text)
    if digits is None:
        return None if text in QUIET else (aspect, "INCONCLUSIVE")
    return (aspect, higher) if int(digits[1]) > most else None


def unheard(path: tuple[str, ...], text: str) -> tuple[str, str] | None:
    """The same of an element that no table names."""
    if path[-1] in FREE.split() or text in [*QUIET, "Default", "Healthy", "Success", "OK"]:
        return None
    ill = re.search(ILL, path[-1].lower()) and re.search("[1-9]", text)
    if re.fullmatch(r"-?\d+([.,]\d+)*( ?[^\s\d]\S*)?", text):
        return ("state", "INCONCLUSIVE") if ill and "clocks_event_reasons_counters" not in path[:-1] else None
    return "state", "INCONCLUSIVE"


BUS = r"[0-9a-fA-F:.]+"
FATAL = re.compile(
    rf"\bXid \((?:PCI:)?{BUS}[^)]*\): \d+(?:,.*)?$|SXid \((?:PCI:)?{BUS}[^)]*\): \d+, Fatal\b"
    r"|fallen off the bus|GPU is lost"
    r"|RmInitAdapter failed|NVRM: .*(?:probe routine failed|No NVIDIA (?:GPU|devices))|nvidia: probe of .* failed"
    r"|Kernel panic|\bBUG: |\bOops: |(?:soft|hard) lockup|hard LOCKUP|I/O error"
    r"|EDAC .*\bUE\b|Memory failure: |Uncorrect\w+ memory error"
    r"|(?:AER|PCIe Bus Error|DPC): .*(?:Uncorrect|[Ff]atal)"
    r"|\[Hardware Error\]: .*(?:[Uu]ncorrect|severity: (?:fatal|recoverable)|\bPCC\b)|mce: .*(?:[Uu]ncorrect|[Ff]atal)"
    r"|mlx[45]_\w+ .*(?:limited by .* PCIe|event\[error\]|health compromised|[Ff]atal error|assert_var"
    r"|device is in error|internal error|syndrome|firmware .*(?:failed|hang|dead)|timed? ?out|timeout)"
    r"|\bnfs\d?: server .* (?:not responding|timed out)"
    r"|\b(?:NFS|nfs|RPC|lockd)\w*: .*(?:[Uu]nhandled error|timed out|not responding)"
)
WATCHED = re.compile(
    r"\bNVRM|\bnvidia[-_a-z0-9]*:|\bnvidia 0|SXid|\bEDAC\b|\bmce\b|\[Hardware Error\]|\bAER\b|\bDPC\b|PCIe Bus Error"
    r"|\bpcieport\b|\bmlx[45]_|\bnfs\w*:|\bNFS\w*:|\bRPC\w*:|\blockd\b|\bGHES\b|\binfiniband\b"
)
HARMLESS = re.compile(
    r"NVRM: loading NVIDIA|NVRM: GPU at (?:PCI:)?[0-9a-fA-F:.]+: GPU-|NVRM: GPU Board Serial Number"
    r"|NVRM: Persistence mode is deprecated|module verification failed|loading out-of-tree module|: module license"
    r"|AER: enabled with IRQ|(?:DPC|pciehp|PME): .*(?:enabled|Signaling|Slot)|EDAC MC: Ver|EDAC .*Giving out device"
    r"|mce: CPU\d* supports|MCE: In-kernel|Error Record Serialization|RAS: Correctable Errors collector"
    r"|_OSC: OS (?:supports|now controls|assumes)"
    r"|AER: (?:Multiple )?Corrected|severity=Corrected|\bCorrected error|severity: corrected|EDAC .*\bCE\b"
    r"|SXid \(.*\): \d+, Non-fatal|nfs\d?: server .* OK$|Port module event: .*Cable plugged|: Link (?:up|down)\b"
)
SICK_WORDS = re.compile(
    r"error|fail|fatal|\bfault|time[d]? ?out|fallen|\blost\b|uncorrect|corrupt|unhealthy|degrad|not respond|assert|hung"
    r"|stuck|panic|invalid|unable|cannot|can't|could not|overheat|over.?temp|high temp|throttl|abort|\bdead\b|\bdown\b"
    r"|exceed|unplugged|\bwarn|critical|violation|\bbad\b|denied|unexpected|unknown|unsupported|inaccessible|compromised"
    r"|alarm|poison",
    re.IGNORECASE,
)


def of_log(text: str) -> str:
    """The verdict on a kernel's log."""
    lines = [line.strip() for line in text.splitlines()]
    if any(FATAL.search(line) for line in lines):
        return "FAIL"
    watched = [line for line in lines if WATCHED.search(line) and not HARMLESS.search(line)]
    return "INCONCLUSIVE" if any("NVRM" in line or SICK_WORDS.search(line) for line in watched) else "PASS"
