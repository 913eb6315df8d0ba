"""Reads `nvidia-smi -q -x`, of the schemas v11 (driver 515), v12 (535) and v13 (590), which name things differently."""

import re
from typing import Final
from xml.etree import ElementTree as ET

from validation.errors import LayerError
from validation.judge.hosts.host_facts import HostGpu, HostGpus

MAX_BYTES: Final = 16 << 20
_SLOWDOWNS: Final = ("hw_slowdown", "hw_thermal_slowdown", "hw_power_brake_slowdown", "sw_thermal_slowdown")
_UNCORRECTED: Final = (
    "sram_uncorrectable",
    "sram_uncorrectable_parity",
    "sram_uncorrectable_secded",
    "dram_uncorrectable",
)
_OLD_UNCORRECTED: Final = "double_bit/total"
"""GPUs before Turing count errors by bits, and have a total of each kind."""


def read_nvidia_smi(text: str) -> HostGpus:
    """The GPUs of a host. Raises LayerError if this is not the XML of nvidia-smi."""
    if len(text) > MAX_BYTES or "<!ENTITY" in text:
        raise LayerError("nvidia-smi: this is not its XML: too large, or with entities of its own")
    try:
        root = ET.fromstring(text)  # noqa: S314 - no entities, and expat bounds what it expands
    except ET.ParseError as error:
        raise LayerError(f"nvidia-smi: {error}; its output: {text.strip()[:100]!r}") from error
    if root.tag != "nvidia_smi_log":
        raise LayerError(f"nvidia-smi: the document is a {root.tag}")
    return HostGpus(
        driver=_text(root, "driver_version"),
        attached=_number(root, "attached_gpus") or 0,
        gpus=[_gpu(element) for element in root.findall("gpu")],
    )


def _gpu(gpu: ET.Element) -> HostGpu:
    reasons = _reasons(gpu)
    return HostGpu(
        bus_id=gpu.get("id", ""),
        model=_text(gpu, "product_name"),
        uuid=_text(gpu, "uuid"),
        vbios=_text(gpu, "vbios_version"),
        inforom=_text(gpu, "inforom_version/img_version"),
        memory_mib=_number(gpu, "fb_memory_usage/total") or 0,
        ecc_enabled={"Enabled": True, "Disabled": False}.get(_text(gpu, "ecc_mode/current_ecc")),
        uncorrected_errors=_uncorrected(gpu),
        pages_pending=_flag(gpu, "retired_pages/pending_retirement"),
        rows_pending=_flag(gpu, "remapped_rows/remapped_row_pending"),
        rows_failed=_flag(gpu, "remapped_rows/remapped_row_failure"),
        pcie_generation=_number(gpu, "pci/pci_gpu_link_info/pcie_gen/current_link_gen"),
        pcie_width=_number(gpu, "pci/pci_gpu_link_info/link_widths/current_link_width"),
        is_idle="gpu_idle" in reasons,
        throttles=[name for name in _SLOWDOWNS if name in reasons],
    )


def _reasons(gpu: ET.Element) -> set[str]:
    """Why the clocks are where they are; until v11 they were called throttle reasons."""
    for element in gpu:
        if element.tag in {"clocks_event_reasons", "clocks_throttle_reasons"}:
            prefix = element.tag.removesuffix("s") + "_"
            return {reason.tag.removeprefix(prefix) for reason in element if reason.text == "Active"}
    return set()


def _uncorrected(gpu: ET.Element) -> int | None:
    volatile = gpu.find("ecc_errors/volatile")
    if volatile is None:
        return None
    counts = [_number(volatile, name) for name in (*_UNCORRECTED, _OLD_UNCORRECTED)]
    known = [count for count in counts if count is not None]
    return sum(known) if known else None


def _flag(element: ET.Element, path: str) -> bool | None:
    return {"Yes": True, "No": False}.get(_text(element, path))


def _number(element: ET.Element, path: str) -> int | None:
    match = re.match(r"\d+", _text(element, path))
    return int(match[0]) if match else None


def _text(element: ET.Element, path: str) -> str:
    return (element.findtext(path) or "").strip()
