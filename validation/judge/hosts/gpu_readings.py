"""Judges figures of nvidia-smi: errors of memory, clocks that hardware holds down, PCIe links."""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from hostfacts.repairs import Repair, needs
from validation.judge.check_verdict import Judgement
from validation.judge.hosts.host_facts import NO_GPU, HostGpu, HostGpus, all_gpus, of_faults, some
from validation.judge.verdict import Verdict


def judge_memory_errors(hosts: Mapping[str, HostGpus]) -> Judgement:
    """Judge whether there are no uncorrected errors, and no pages or rows that must be retired or remapped.

    If ECC is off, nothing counts errors, so the verdict is INCONCLUSIVE.
    """
    gpus = all_gpus(hosts)
    if not gpus:
        return NO_GPU
    wrong = [
        needs(f"{place} has {gpu.uncorrected_errors} uncorrected errors", Repair.RESET)
        for place, gpu in gpus
        if gpu.uncorrected_errors
    ]
    for finding, (read, repair) in _MEMORY_FLAGS.items():
        wrong += [needs(f"{place}: {finding}", repair) for place, gpu in gpus if read(gpu)]
    if wrong:
        return of_faults(wrong)
    off = [place for place, gpu in gpus if not gpu.ecc_enabled]
    if off:
        return Judgement(Verdict.INCONCLUSIVE, f"ECC is off, so nothing counts errors: {some(off)}")
    silent = [place for place, gpu in gpus if not _counts_errors(gpu)]
    if silent:
        return Judgement(Verdict.INCONCLUSIVE, f"not all counters of errors can be read: {some(silent)}")
    return Judgement(Verdict.PASS)


def _counts_errors(gpu: HostGpu) -> bool:
    """Return whether nvidia-smi gives the uncorrected errors of SRAM and DRAM or, for GPUs before Turing, their
    total.
    """
    counted = {
        path.removeprefix("ecc_errors/volatile/")
        for path, text in gpu.elements
        if path.startswith("ecc_errors/volatile/") and re.fullmatch("[0-9]+", text)
    }
    return any(names <= counted for names in _COUNTERS)


_COUNTERS: Final = (
    {"dram_uncorrectable", "sram_uncorrectable"},
    {"dram_uncorrectable", "sram_uncorrectable_parity", "sram_uncorrectable_secded"},
    {"double_bit/total"},
)


_MEMORY_FLAGS: Final[dict[str, tuple[Callable[[HostGpu], bool | None], Repair]]] = {
    "pages wait to be retired": (lambda gpu: gpu.pages_pending, Repair.RESET),
    "a row waits to be remapped": (lambda gpu: gpu.rows_pending, Repair.RESET),
    "a row could not be remapped": (lambda gpu: gpu.rows_failed, Repair.REPLACE),
}


def judge_throttles(hosts: Mapping[str, HostGpus]) -> Judgement:
    """Judge whether no hardware slows down the clocks of a GPU. If a GPU does not report this, the verdict is
    INCONCLUSIVE.
    """
    wrong = [
        needs(f"{place} is throttled: {', '.join(gpu.throttles)}", Repair.COOLING)
        for place, gpu in all_gpus(hosts)
        if gpu.throttles
    ]
    silent = [place for place, gpu in all_gpus(hosts) if gpu.text(_SLOWDOWN) not in {"Active", "Not Active"}]
    if silent and not wrong:
        return Judgement(Verdict.INCONCLUSIVE, f"nothing says whether clocks are held down: {some(silent)}")
    return of_faults(wrong)


_SLOWDOWN: Final = "clocks_event_reasons/clocks_event_reason_hw_slowdown"


def judge_pcie(
    hosts: Mapping[str, HostGpus],
    *,
    generation: int,
    width: int,
    samples: Mapping[str, Sequence[HostGpus]] = {},
) -> Judgement:
    """Judge whether each link has its generation and width. The link of an idle GPU can be slow, so it proves nothing.

    `samples` are readings under load. If a sample of a GPU has the full generation, its link is proven, even if the
    link was slow while the GPU was idle. A lower generation under load is a fault.
    """
    gpus = all_gpus(hosts)
    if not gpus:
        return NO_GPU
    loaded = [
        (f"{place} under load", gpu)
        for name in sorted(samples)
        for sample in samples[name]
        for place, gpu in all_gpus({name: sample})
        if not gpu.is_idle
    ]
    proven = {gpu.uuid for _, gpu in loaded if (gpu.pcie_generation or 0) >= generation}
    gpus = [*gpus, *loaded]
    narrow = [
        f"{place} has {gpu.pcie_width} of {width} lanes"
        for place, gpu in gpus
        if (gpu.pcie_width or 0) < width
    ]
    narrow += [
        f"{place}: {path.rpartition('/')[2]} is {match[1]} of {least}"
        for place, gpu in gpus
        for path, text in gpu.elements
        if (match := re.fullmatch("([0-9]+)x?", text)) and path.startswith(_LINK)
        if int(match[1]) < (least := width if path.endswith("_width") else generation)
        if path.rpartition("/")[2].startswith("max_")
    ]
    slow = [(place, gpu) for place, gpu in gpus if (gpu.pcie_generation or 0) < generation]
    wrong = narrow + [
        f"{place} runs at generation {gpu.pcie_generation} of {generation}"
        for place, gpu in slow
        if not gpu.is_idle
    ]
    if wrong:
        faults = [needs(finding, Repair.REPLACE_HOST_PART) for finding in dict.fromkeys(wrong)]
        return of_faults(faults)
    idle = [place for place, gpu in slow if gpu.uuid not in proven]
    if idle:
        return Judgement(
            Verdict.INCONCLUSIVE,
            f"idle, so its link may rest: {some(idle)}; --host-test nccl puts a load on it",
        )
    return Judgement(Verdict.PASS)


_LINK: Final = "pci/pci_gpu_link_info/"
"""Path of the elements of the PCIe link. The elements whose names begin with `max_` have the maximum of GPU and
host.
"""
