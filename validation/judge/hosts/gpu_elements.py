"""The elements of nvidia-smi that muster knows (schemas v11 to v13), and their texts on a healthy GPU."""

import re
from enum import StrEnum
from typing import Final, NamedTuple

from hostfacts.repairs import Repair
from validation.judge.verdict import Verdict


class Aspect(StrEnum):
    """The subject of an element of nvidia-smi. One layer judges each subject."""

    STATE = "state"
    MEMORY = "memory"
    FABRIC = "fabric"
    PCIE = "pcie"


class Words(NamedTuple):
    """The words of an element on a healthy GPU, and the verdict on any other word."""

    aspect: Aspect
    healthy: frozenset[str]
    other: Verdict
    repair: Repair


class Count(NamedTuple):
    """The highest number of an element on a healthy GPU, and the verdict on a higher one."""

    aspect: Aspect
    most: int
    higher: Verdict
    repair: Repair


SILENT: Final = frozenset(
    {"N/A", "[N/A]", "Not Supported", "[Not Supported]", "Requested functionality has been deprecated"}
)
"""Texts of an element that has no value."""


def _no(aspect: Aspect, repair: Repair, other: Verdict = Verdict.FAIL) -> Words:
    return Words(aspect, frozenset({"No", "None", "False"}), other, repair)


def _is(aspect: Aspect, repair: Repair, *healthy: str, other: Verdict = Verdict.FAIL) -> Words:
    return Words(aspect, frozenset(healthy), other, repair)


_UNKNOWN: Final = Verdict.INCONCLUSIVE
_STATE, _MEMORY, _FABRIC, _PCIE = Aspect
_REASONS: Final = """
gpu_idle applications_clocks_setting display_clocks_setting sync_boost sw_power_cap hw_slowdown hw_thermal_slowdown
hw_power_brake_slowdown sw_thermal_slowdown
"""
"""Reasons of low clocks. The layer `faults` judges the reasons that hardware causes."""
_UNCORRECTED: Final = (
    "sram_uncorrectable sram_uncorrectable_parity sram_uncorrectable_secded dram_uncorrectable"
)
WORDS: Final = {
    "gpu_recovery_action": _is(_STATE, Repair.RESET, "None"),
    "reset_required": _no(_STATE, Repair.RESET),
    "drain_and_reset_recommended": _no(_STATE, Repair.RESET),
    "persistence_mode": _is(_STATE, Repair.SETTING, "Enabled", other=_UNKNOWN),
    "compute_mode": _is(_STATE, Repair.SETTING, "Default"),
    "current_mig": _is(_STATE, Repair.SETTING, "Disabled", other=_UNKNOWN),
    "pending_mig": _is(_STATE, Repair.SETTING, "Disabled", other=_UNKNOWN),
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
"""A GPU with at least this number of uncorrected errors in its lifetime is INCONCLUSIVE."""
_CORRECTED: Final = 9999
"""A GPU with more corrected errors is INCONCLUSIVE. The number is a choice: no document has a figure."""
_OLD_COUNTS: Final = "device_memory register_file l1_cache l2_cache texture_memory texture_shm cbu total"
COUNTS: Final = {
    "row_remapper_histogram_none": Count(_MEMORY, 0, Verdict.FAIL, Repair.REPLACE),
    "row_remapper_histogram_low": Count(_MEMORY, 0, _UNKNOWN, Repair.SUPPORT),
    "remapped_row_unc": Count(_MEMORY, 255, _UNKNOWN, Repair.SUPPORT),
    "double_bit_retirement/retired_count": Count(_MEMORY, 14, _UNKNOWN, Repair.SUPPORT),
    "multiple_single_bit_retirement/retired_count": Count(_MEMORY, 59, _UNKNOWN, Repair.REPLACE),
    **{
        f"aggregate/{name}": Count(_MEMORY, _LIFETIME_ERRORS - 1, _UNKNOWN, Repair.SUPPORT)
        for name in _UNCORRECTED.split()
    },
    **{f"volatile/{name}": Count(_MEMORY, 0, Verdict.FAIL, Repair.RESET) for name in _UNCORRECTED.split()},
    **{
        f"aggregate_uncorrectable_sram_sources/{name}": Count(
            _MEMORY, _LIFETIME_ERRORS - 1, _UNKNOWN, Repair.SUPPORT
        )
        for name in ("sram_l2", "sram_sm", "sram_microcontroller", "sram_pcie", "sram_other")
    },
    "volatile_count/sram_uncorrectable": Count(_MEMORY, 0, Verdict.FAIL, Repair.RESET),
    # a GPU has spare rows for 512 remapped rows (NVIDIA, GPU memory error management)
    "remapped_row_corr": Count(_MEMORY, 511, _UNKNOWN, Repair.SUPPORT),
    **{
        name: Count(_MEMORY, _CORRECTED, _UNKNOWN, Repair.SUPPORT)
        for name in ("sram_correctable", "dram_correctable")
    },
    **{
        f"{bits}/{name}": Count(_MEMORY, most, _UNKNOWN, Repair.SUPPORT)
        for bits, most in (("single_bit", _CORRECTED), ("double_bit", _LIFETIME_ERRORS - 1))
        for name in _OLD_COUNTS.split()
    },
    # the limit of NVIDIA DCGM's own test of PCIe is 80 (diag-skus.yaml, max_pcie_replays)
    "replay_counter": Count(_PCIE, 80, _UNKNOWN, Repair.REPLACE_HOST_PART),
    "replay_rollover_counter": Count(_PCIE, 80, _UNKNOWN, Repair.REPLACE_HOST_PART),
}
LEAST: Final = {"row_remapper_histogram_max": Count(_MEMORY, 1, _UNKNOWN, Repair.SUPPORT)}
"""The minimum of an element on a healthy GPU: the number of banks that have all their spare rows."""
_MEASURED: Final = (
    "accounting_mode_buffer_size|attached_gpus|average_fps|average_latency|average_power_draw"
    "|copy_engine_count|clocks_event_reasons_counters_hw_power_brake"
    "|clocks_event_reasons_counters_hw_therm_slowdown|clocks_event_reasons_counters_sw_power_cap"
    "|clocks_event_reasons_counters_sw_therm_slowdown|clocks_event_reasons_counters_sync_boost"
    "|compute_instance_id|current_link_gen|current_link_width|current_power_limit|decoder_count|decoder_util"
    "|default_power_limit|device_current_link_gen|edpp_multiplier|encoder_count|encoder_util"
    "|enforced_power_limit|fan_speed|free|gpu_instance_id|gpu_module_id|gpu_target_temp_max"
    "|gpu_target_temp_min|gpu_target_temperature|gpu_temp|gpu_temp_max_gpu_threshold"
    "|gpu_temp_max_gpu_tlimit_threshold|gpu_temp_max_mem_threshold|gpu_temp_max_mem_tlimit_threshold"
    "|gpu_temp_max_threshold|gpu_temp_max_tlimit_threshold|gpu_temp_slow_threshold"
    "|gpu_temp_slow_tlimit_threshold|gpu_temp_tlimit|gpu_util|graphics_clock|graphics_volt|host_id|index"
    "|instant_power_draw|jpeg_util|jpg_count|latest_duration|max_device_link_gen|max_host_link_gen"
    "|max_link_gen|max_link_width|max_memory_usage|max_power_limit|mem_clock|memory_temp|memory_util"
    "|min_power_limit|minor_number|module_id|multiprocessor_count|ofa_count|ofa_util|pci_base_class"
    "|pci_sub_class|pid|power_draw|power_limit|remapped_row_corr_inactive|remapped_row_unc_inactive"
    "|requested_power_limit|reserved|row_remapper_histogram_high|row_remapper_histogram_partial|rx_util"
    "|session_count|slot_number|sm_clock|supported_graphics_clock|time|total|tray_index|tx_util|used"
    "|used_memory|value|video_clock"
)
MEASURED: Final = frozenset(_MEASURED.split("|"))
"""Elements whose text is a number, most with a unit."""
RANGES: Final = {"gpu_temp": (1, 94), "memory_temp": (0, 104)}
"""The range of a sensor on a healthy GPU. On all models, a slowdown begins below the upper bound."""
NEEDED: Final = frozenset({"gpu_temp"})
"""Elements that must have a value on every GPU."""
_FREE: Final = (
    "accounted_processes|accounting_mode|addressing_mode|atomic_caps_inbound|atomic_caps_outbound|auto_boost"
    "|auto_boost_default|board_id|board_part_number|bridge_chip_fw|bridge_chip_type|c2c_mode"
    "|chassis_serial_number|cliqueId|clocks_event_reasons|clusterUuid|cuda_version|current_dm"
    "|current_dram_encryption|current_gom|display_active|display_attached|display_mode|driver_version"
    "|ecc_object|egm|gpu_fabric_guid|gpu_fru_part_number|gpu_part_number|gsp_firmware_version|host_vgpu_mode"
    "|img_version|is_running|latest_timestamp|mig_devices|multigpu_board|oem_object|partition_assigned|pci_bus"
    "|pci_bus_id|pci_device|pci_device_id|pci_domain|pci_sub_system_id|pdi|peer_type|pending_dm"
    "|pending_dram_encryption|pending_gom|performance_state|power_management|power_profile_enforced_profiles"
    "|power_profile_requested_profiles|power_smoothing|power_state|process_name|processes|product_architecture"
    "|product_brand|product_name|pwr_object|relaxed_ordering_mode|remapped_rows|retired_pagelist"
    "|row_remapper_histogram|serial|sparse_operation_mode|supported_clocks|timestamp|type|uuid|vbios_version"
    "|vgpu_heterogeneous_mode|virtualization_mode"
)
FREE: Final = frozenset(_FREE.split("|"))
"""Elements that do not concern health: names, versions, positions, processes."""
ANY: Final = frozenset({"process_name", "retired_pagelist"})
"""Elements that can contain any word, because the driver does not write their text."""
_PARENTS: Final = (
    "accounted_process_info|accounted_processes|aggregate|aggregate_uncorrectable_sram_sources"
    "|applications_clocks|bar1_memory_usage|capabilities|cc_protected_memory_usage|clock_policy|clocks"
    "|clocks_event_reasons|clocks_event_reasons_counters|default_applications_clocks|deferred_clocks"
    "|device_attributes|double_bit|double_bit_retirement|dram_encryption_mode|driver_model|ecc_error_count"
    "|ecc_errors|ecc_mode|encoder_stats|fabric|fb_memory_usage|fbc_stats|gpu_memory_power_readings"
    "|gpu_operation_mode|gpu_power_readings|gpu_reset_status|gpu_virtualization_mode|health|ibmnpu"
    "|inforom_bbx_flush|inforom_version|link_widths|max_clocks|max_customer_boost_clocks|mig_device"
    "|mig_devices|mig_mode|module_power_readings|multiple_single_bit_retirement|pci|pci_bridge_chip"
    "|pci_gpu_link_info|pcie_gen|platformInfo|power_profiles|power_readings|process_info|processes"
    "|remapped_rows|retired_pages|row_remapper_histogram|shared|single_bit|supported_clocks"
    "|supported_gpu_target_temp|supported_mem_clock|temperature|utilization|volatile|volatile_count|voltage"
)
PARENTS: Final = frozenset(_PARENTS.split("|"))
"""Elements that contain other elements."""
VARIES: Final = re.compile(
    r"processes\b|process_info|mig_device|supported_|retired_pagelist|inforom_bbx_flush|accounted_"
)
"""Elements that can be missing on some GPUs of a model."""
ALIKE: Final = re.compile(
    r"(?:max_clocks|applications_clocks|default_applications_clocks)/\w+|bar1_memory_usage/total|c2c_mode"
    r"|addressing_mode|gsp_firmware_version|gpu_virtualization_mode/virtualization_mode"
    r"|(?:gpu_)?power_readings/(?:min|max|default)_power_limit"
)
"""Settings and maxima that are the same on all GPUs of a model with the same driver."""
