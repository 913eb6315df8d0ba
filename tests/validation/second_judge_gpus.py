"""The part of the second judge for the words of nvidia-smi and of the kernel's log.

It imports nothing of muster, and is written only from docs/reference/record-layers.md.
"""

import math
import re
from collections.abc import Iterator
from xml.etree import ElementTree as ET

WORDS = """
state FAIL None gpu_recovery_action
state FAIL - reset_required drain_and_reset_recommended
state INCONCLUSIVE Disabled current_mig pending_mig
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
"""Each line: aspect, the verdict on other words, the healthy word (-: No, None or False), and the elements."""
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
memory FAIL 0 volatile_count/sram_uncorrectable
memory FAIL 0 volatile/sram_uncorrectable_secded volatile/dram_uncorrectable
memory INCONCLUSIVE 0 row_remapper_histogram_low
memory INCONCLUSIVE 255 remapped_row_unc
memory INCONCLUSIVE 14 double_bit_retirement/retired_count
memory INCONCLUSIVE 59 multiple_single_bit_retirement/retired_count
memory INCONCLUSIVE 9 aggregate/sram_uncorrectable aggregate/sram_uncorrectable_parity aggregate/dram_uncorrectable
memory INCONCLUSIVE 9 aggregate/sram_uncorrectable_secded
memory INCONCLUSIVE 9 sram_sources/sram_l2 sram_sources/sram_sm sram_sources/sram_microcontroller
memory INCONCLUSIVE 9 sram_sources/sram_pcie sram_sources/sram_other
memory INCONCLUSIVE 511 remapped_row_corr
memory INCONCLUSIVE 9999 sram_correctable dram_correctable single_bit/*
memory INCONCLUSIVE 9 double_bit/*
pcie INCONCLUSIVE 80 replay_counter replay_rollover_counter
"""
COUNTS = {
    name: (aspect, higher, int(most))
    for aspect, higher, most, *names in (line.split() for line in MOST.strip().splitlines())
    for name in names
}
SILENT = ["N/A", "[N/A]", "Not Supported", "[Not Supported]", "Requested functionality has been deprecated"]
GONE = ("unknown error", "require reset", "requires reset", "is lost", "fallen off", "not initialized")
SICK = (
    r"not found|not loaded|mismatch|in use by|no data"
    r"|err|fail|(?<!de)fault|lost|crash|unknown|invalid|corrupt|degrad|\bbad\b|dead|panic|timeout|hung|unhealthy|reset"
    r"|missing|abort|broken|critical|fatal"
)
AMOUNT = r"-?[0-9]+(\.[0-9]+)?(x| ?(MHz|C|W|mV|MiB|[KMG]B/s|%|us|ms|bank\(s\)))?"
MEASURED = """
accounting_mode_buffer_size attached_gpus average_fps average_latency average_power_draw
clocks_event_reasons_counters_hw_power_brake clocks_event_reasons_counters_hw_therm_slowdown
clocks_event_reasons_counters_sw_power_cap clocks_event_reasons_counters_sw_therm_slowdown
clocks_event_reasons_counters_sync_boost compute_instance_id copy_engine_count current_link_gen
current_link_width current_power_limit decoder_count decoder_util default_power_limit device_current_link_gen
edpp_multiplier encoder_count encoder_util enforced_power_limit fan_speed free gpu_instance_id gpu_module_id
gpu_target_temp_max gpu_target_temp_min gpu_target_temperature gpu_temp gpu_temp_max_gpu_threshold
gpu_temp_max_gpu_tlimit_threshold gpu_temp_max_mem_threshold gpu_temp_max_mem_tlimit_threshold
gpu_temp_max_threshold gpu_temp_max_tlimit_threshold gpu_temp_slow_threshold gpu_temp_slow_tlimit_threshold
gpu_temp_tlimit gpu_util graphics_clock graphics_volt host_id index instant_power_draw jpeg_util jpg_count
latest_duration max_device_link_gen max_host_link_gen max_link_gen max_link_width max_memory_usage
max_power_limit mem_clock memory_temp memory_util min_power_limit minor_number module_id multiprocessor_count
ofa_count ofa_util pci_base_class pci_sub_class pid power_draw power_limit remapped_row_corr_inactive
remapped_row_unc_inactive requested_power_limit reserved row_remapper_histogram_high
row_remapper_histogram_partial rx_util session_count slot_number sm_clock supported_graphics_clock time total
tray_index tx_util used used_memory value video_clock
"""
FREE = """
accounted_processes accounting_mode addressing_mode atomic_caps_inbound atomic_caps_outbound auto_boost
auto_boost_default board_id board_part_number bridge_chip_fw bridge_chip_type c2c_mode chassis_serial_number
cliqueId clocks_event_reasons clusterUuid cuda_version current_dm current_dram_encryption current_gom
display_active display_attached display_mode driver_version ecc_object egm gpu_fabric_guid gpu_fru_part_number
gpu_part_number gsp_firmware_version host_vgpu_mode img_version is_running latest_timestamp mig_devices
multigpu_board oem_object partition_assigned pci_bus pci_bus_id pci_device pci_device_id pci_domain
pci_sub_system_id pdi peer_type pending_dm pending_dram_encryption pending_gom performance_state
power_management power_profile_enforced_profiles power_profile_requested_profiles power_smoothing power_state
process_name processes product_architecture product_brand product_name pwr_object relaxed_ordering_mode
remapped_rows retired_pagelist row_remapper_histogram serial sparse_operation_mode supported_clocks timestamp
type uuid vbios_version vgpu_heterogeneous_mode virtualization_mode
"""
GROUPS = """
accounted_process_info accounted_processes aggregate aggregate_uncorrectable_sram_sources applications_clocks
bar1_memory_usage capabilities cc_protected_memory_usage clock_policy clocks clocks_event_reasons
clocks_event_reasons_counters default_applications_clocks deferred_clocks device_attributes double_bit
double_bit_retirement dram_encryption_mode driver_model ecc_error_count ecc_errors ecc_mode encoder_stats fabric
fb_memory_usage fbc_stats gpu_memory_power_readings gpu_operation_mode gpu_power_readings gpu_reset_status
gpu_virtualization_mode health ibmnpu inforom_bbx_flush inforom_version link_widths max_clocks
max_customer_boost_clocks mig_device mig_devices mig_mode module_power_readings multiple_single_bit_retirement
pci pci_bridge_chip pci_gpu_link_info pcie_gen platformInfo power_profiles power_readings process_info processes
remapped_rows retired_pages row_remapper_histogram shared single_bit supported_clocks supported_gpu_target_temp
supported_mem_clock temperature utilization volatile volatile_count voltage
"""


def leaves(node: ET.Element, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield each element without children, and text beside elements, with its path."""
    for child in node:
        here = (*path, child.tag.replace("throttle_reason", "event_reason"))
        words = (child.text or "").strip()
        for key, value in child.attrib.items():
            yield (*path, f"{here[-1]}@{key}"), value
        if len(child) == 0:
            yield here, words
        else:
            if words:
                yield (*here, "text"), words
            yield from leaves(child, here)
        if child.tail and child.tail.strip():
            yield (*path, "text"), child.tail.strip()


def says(path: tuple[str, ...], text: str) -> tuple[str, str] | None:
    """Return the aspect and the verdict of an element; None if it reports nothing bad."""
    name, pair, lower = path[-1], "/".join(path[-2:]), text.lower()
    pair = pair.replace("aggregate_uncorrectable_", "")
    if any(words in lower for words in GONE) or re.search(r"\berr!", lower) or "uninitialized" in lower:
        return "state", "FAIL"
    if text in SILENT and name != "gpu_temp":
        return None
    return judged(path, name, pair, text)


def judged(path: tuple[str, ...], name: str, pair: str, text: str) -> tuple[str, str] | None:
    """Return the aspect and the verdict of an element with a text."""
    if pair in RULES or name in RULES:
        aspect, other, healthy = RULES.get(pair) or RULES[name]
        if text in (["No", "None", "False"] if healthy == "-" else [healthy]):
            return None
        return (aspect, other) if text else (aspect, "INCONCLUSIVE")
    old = f"{path[-2]}/*" if len(path) > 1 and name in OLD.split() else pair
    if pair in COUNTS or name in COUNTS or old in COUNTS:
        return counted(text, *(COUNTS.get(pair) or COUNTS.get(old) or COUNTS[name]))
    if name == "row_remapper_histogram_max":
        return counted(text, "memory", "INCONCLUSIVE", -1, least=1)
    if REASONS.fullmatch(name):
        return None if text in ["Active", "Not Active"] else ("state", "INCONCLUSIVE")
    return None if heard(path, text) else ("state", "INCONCLUSIVE")


OLD = "device_memory register_file l1_cache l2_cache texture_memory texture_shm cbu total"


def counted(text: str, aspect: str, higher: str, most: int, least: int = 0) -> tuple[str, str] | None:
    digits = re.fullmatch(r"([0-9]+)( bank\(s\))?", text)
    if digits is None:
        return aspect, "INCONCLUSIVE"
    bad = int(digits[1]) < least if least else int(digits[1]) > most
    return (aspect, higher) if bad else None


def heard(path: tuple[str, ...], text: str) -> bool:
    """Return whether an element in no other table is known, with a valid text."""
    name = path[-1]
    if any(group not in GROUPS.split() for group in path[:-1]):
        return False
    if name in MEASURED.split():
        bounds = {"gpu_temp": (1, 94), "memory_temp": (0, 104)}.get(name, (-math.inf, math.inf))
        return (
            bool(re.fullmatch(AMOUNT, text))
            and bounds[0] <= float(re.split("[ x]", text)[0].rstrip("%")) <= bounds[1]
        )
    if name in {"process_name", "retired_pagelist"}:
        return True
    return name in FREE.split() and "\n" not in text and not re.search(SICK, text, re.IGNORECASE)


VARIES = (
    "processes",
    "process_info",
    "mig_device",
    "supported_",
    "retired_pagelist",
    "inforom_bbx_flush",
    "accounted_",
)


def spoken_of(texts: list[tuple[str, str]]) -> set[str]:
    """Return the elements that have a finding, among those that all GPUs of a model have."""
    return {
        path
        for path, text in texts
        if text and text not in SILENT and not any(word in path for word in VARIES)
    }
