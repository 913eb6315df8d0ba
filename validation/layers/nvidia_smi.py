"""Reads `nvidia-smi -q -x` of the schemas v11 (driver 515), v12 (535) and v13 (590), which differ in the names of
elements.
"""

import re
from collections.abc import Iterator
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
"""Element of GPUs before Turing, which count errors of single and double bits, with a total for each."""
_COMMENT: Final = re.compile(r"<!--(.*?)-->", re.DOTALL)
_END: Final = "</nvidia_smi_log>"
_DOCUMENT: Final = re.compile(r"(?=<\?xml\b)")


def read_nvidia_smi(text: str) -> HostGpus:
    """Return the GPUs of a host. Raises LayerError if this is not the XML of nvidia-smi."""
    if len(text) > MAX_BYTES or "<!ENTITY" in text:
        raise LayerError("nvidia-smi: this is not its XML: too large, or with entities of its own")
    try:
        root = ET.fromstring(text)  # noqa: S314 - no entities, and expat bounds what it expands
    except ET.ParseError as error:
        shown = text.partition(_END)[2].strip() or text.strip()
        raise LayerError(f"nvidia-smi: {error}; its output: {shown[:100]!r}") from error
    if root.tag != "nvidia_smi_log":
        raise LayerError(f"nvidia-smi: the document is a {root.tag}")
    beside = [found for child in root if child.tag != "gpu" for found in _leaf(child, "")]
    texts = [root.text, *(child.tail for child in root)]
    stray = [("text", text.strip()) for text in texts if text and text.strip()]
    stray += [("comment", words.strip()) for words in _COMMENT.findall(text)]
    return HostGpus(
        driver=_text(root, "driver_version"),
        attached=_number(root, "attached_gpus") or 0,
        gpus=[_gpu(element) for element in root.findall("gpu")],
        elements=[*beside, *stray],
    )


def read_samples(text: str) -> list[HostGpus]:
    """Return the readings that were taken one after another. Raises LayerError if none is complete.

    The load may end while the last reading is printed, so the last one may be cut.
    """
    documents = [part for part in _DOCUMENT.split(text) if part.strip()]
    samples = [read_nvidia_smi(part) for part in documents[:-1]]
    try:
        samples += [read_nvidia_smi(part) for part in documents[-1:]]
    except LayerError:
        if not samples or _END in documents[-1]:
            raise
    if not samples:
        raise LayerError("nvidia-smi: nothing was read while the load ran")
    return samples


def _gpu(gpu: ET.Element) -> HostGpu:
    beside = [("text", gpu.text.strip())] if gpu.text and gpu.text.strip() else []
    elements = list(dict.fromkeys([*beside, *_leaves(gpu, "")]))
    active = {
        path.rpartition("/")[2].removeprefix("clocks_event_reason_")
        for path, text in elements
        if path.startswith("clocks_event_reasons/") and text == "Active"
    }
    return HostGpu(
        bus_id=gpu.get("id", ""),
        model=_text(gpu, "product_name"),
        uuid=_text(gpu, "uuid"),
        vbios=_text(gpu, "vbios_version"),
        inforom=_text(gpu, "inforom_version/img_version"),
        memory_mib=_number(gpu, "fb_memory_usage/total", " MiB") or 0,
        ecc_enabled={"Enabled": True, "Disabled": False}.get(_text(gpu, "ecc_mode/current_ecc")),
        uncorrected_errors=_uncorrected(gpu),
        pages_pending=_flag(gpu, "retired_pages/pending_retirement"),
        rows_pending=_flag(gpu, "remapped_rows/remapped_row_pending"),
        rows_failed=_flag(gpu, "remapped_rows/remapped_row_failure"),
        pcie_generation=_generation(gpu),
        pcie_width=_number(gpu, "pci/pci_gpu_link_info/link_widths/current_link_width", "x"),
        is_idle="gpu_idle" in active,
        throttles=[name for name in _SLOWDOWNS if name in active],
        elements=elements,
    )


def _leaves(parent: ET.Element, path: str) -> Iterator[tuple[str, str]]:
    """Yield path and text of each leaf below an element, and text that stands between elements."""
    for child in parent:
        yield from _leaf(child, path)
        if child.tail and child.tail.strip():
            yield f"{path}text", child.tail.strip()


def _leaf(child: ET.Element, path: str) -> Iterator[tuple[str, str]]:
    # until v11 the reasons for which clocks are low were called throttle reasons
    name = child.tag.replace("clocks_throttle_reason", "clocks_event_reason")
    text = (child.text or "").strip()
    yield from ((f"{path}{name}@{key}", value) for key, value in child.attrib.items())
    if len(child):
        if text:
            yield f"{path}{name}/text", text
        yield from _leaves(child, f"{path}{name}/")
    else:
        yield f"{path}{name}", text


def _uncorrected(gpu: ET.Element) -> int | None:
    volatile = gpu.find("ecc_errors/volatile")
    if volatile is None:
        return None
    counts = [_number(volatile, name) for name in (*_UNCORRECTED, _OLD_UNCORRECTED)]
    known = [count for count in counts if count is not None]
    return sum(known) if known else None


def _flag(element: ET.Element, path: str) -> bool | None:
    return {"Yes": True, "No": False}.get(_text(element, path))


def _generation(gpu: ET.Element) -> int | None:
    """Return the PCIe generation of the link: the lower one of the two that its ends report.

    None if the GPU reports none.
    """
    names = ("current_link_gen", "device_current_link_gen")
    current, device = (_number(gpu, f"pci/pci_gpu_link_info/pcie_gen/{name}") for name in names)
    return current if current is None or device is None else min(current, device)


def _number(element: ET.Element, path: str, unit: str = "") -> int | None:
    match = re.fullmatch(rf"([0-9]+){unit}", _text(element, path))
    return int(match[1]) if match else None


def _text(element: ET.Element, path: str) -> str:
    return (element.findtext(path) or "").strip()
