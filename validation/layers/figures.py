"""Gathers the figures and facts of hosts that are compared between records, from the output of their tools."""

import re
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from validation.errors import LayerError
from validation.judge.events import Event, ToolRan
from validation.judge.hosts.drift import MeasuredGpu, MeasuredHost
from validation.judge.hosts.host_compare import median
from validation.judge.hosts.host_facts import HostGpu, HostGpus
from validation.judge.hosts.host_layer import DeclaredHost, HostScope
from validation.judge.hosts.host_load import DRAWS, number_of
from validation.layers.bounds import read_bounded
from validation.layers.burn_in import read_burn_in
from validation.layers.fio import read_fio
from validation.layers.nccl import read_nccl
from validation.layers.nvidia_smi import read_samples
from validation.layers.readings import Readings
from validation.layers.tools import BURN_IN, FIO, NCCL, SAMPLES

UNITS: Final = {
    "nccl-all-reduce": "MB/s",
    "fio-read": "MB/s",
    "burn-in": "Gflop/s",
    "burn-in-clock": "MHz",
    "burn-in-power": "W",
    "burn-in-temperature": "C",
    "corrected-errors": "errors",
    "remapped-rows": "rows",
    "retired-pages": "pages",
    "pcie-replays": "replays",
}
"""The figures and their units."""
RISING: Final = frozenset(
    {"burn-in-temperature", "corrected-errors", "remapped-rows", "retired-pages", "pcie-replays"}
)
"""The figures that are higher on a worse host or GPU. The others are lower."""
_MEASURED: Final = frozenset({"nvidia-smi", NCCL, FIO, BURN_IN, SAMPLES})
"""The tools whose output has figures."""
_LARGEST: Final = (1 << 53) - 1
"""The largest integer of a record.

A larger figure is left out, because a record that contains it as its baseline would not verify.
"""
_COUNTS: Final = {
    "corrected-errors": re.compile(
        r"ecc_errors/aggregate/(?:sram_correctable|dram_correctable|single_bit/total)"
    ),
    "remapped-rows": re.compile(r"remapped_rows/remapped_row_(?:corr|unc)"),
    "retired-pages": re.compile(r"retired_pages/\w+/retired_count"),
    "pcie-replays": re.compile(r"pci/replay_counter"),
}
"""The elements of nvidia-smi whose numbers are added."""


def measure(scope: HostScope, events: Sequence[Event]) -> list[MeasuredHost]:
    """Return the figures and facts of each host whose nvidia-smi can be read, in the order of the site file."""
    tools: dict[str, list[ToolRan]] = {}
    for event in events:
        if isinstance(event, ToolRan) and event.tool in _MEASURED:
            tools.setdefault(event.host, []).append(event)
    measured = (_measured(host, scope, tools.get(host.name, ())) for host in scope.site.hosts)
    return [host for host in measured if host is not None]


def _measured(host: DeclaredHost, scope: HostScope, tools: Sequence[ToolRan]) -> MeasuredHost | None:
    """Return the figures and facts of a host; None if its nvidia-smi cannot be read."""
    site = msgspec.structs.replace(scope.site, hosts=[host])
    readings = Readings(msgspec.structs.replace(scope, site=site), tools)
    name, printed = host.name, readings.gpus().get(host.name)
    if printed is None:
        return None
    figures: dict[str, float] = {}
    if (reduced := readings.read(NCCL, read_nccl).get(name)) is not None:
        largest = max(reduced.rows, key=lambda row: row.size_bytes)
        figures["nccl-all-reduce"] = largest.bus_gbytes_per_second * 1000
    if read := readings.read(FIO, read_fio).get(name):
        figures["fio-read"] = sum(job.read_bytes_per_second for job in read) // 10**6
    burned = readings.read(BURN_IN, read_burn_in).get(name)
    rates = burned.gflops if burned is not None else []
    under_load = _under_load(_burn_in_samples(tools))
    gpus = [
        MeasuredGpu(
            gpu.uuid,
            _whole(_counts(gpu) | under_load.get(gpu.uuid, {}) | _rate(rates, number, len(printed.gpus))),
            _facts(gpu),
        )
        for number, gpu in enumerate(printed.gpus)
    ]
    return MeasuredHost(name, _whole(figures), {"driver": printed.driver}, gpus)


def _whole(figures: Mapping[str, float]) -> dict[str, int]:
    """Return the figures as integers, without those above `_LARGEST`."""
    return {name: int(value) for name, value in figures.items() if abs(value) <= _LARGEST}


def _rate(rates: Sequence[int], number: int, gpus: int) -> dict[str, int]:
    """Return the rate of a GPU in gpu_burn, which numbers GPUs like nvidia-smi. The result is empty if gpu_burn had
    another number of GPUs.
    """
    return {"burn-in": rates[number]} if len(rates) == gpus else {}


def _burn_in_samples(tools: Sequence[ToolRan]) -> list[HostGpus]:
    """Return the readings of nvidia-smi beside the last burn-in. They are recorded after their load."""
    load, found = "", list[HostGpus]()
    for event in tools:
        if event.tool in {NCCL, BURN_IN}:
            load = event.tool
        elif event.tool == SAMPLES and load == BURN_IN and not (event.problem or event.exit_code):
            try:
                found = read_bounded(read_samples, event.output)
            except LayerError:
                continue
    return found


def _under_load(samples: Sequence[HostGpus]) -> dict[str, dict[str, int]]:
    """Return median clock and power, and the highest temperature, of each GPU that was not idle."""
    values: dict[str, dict[str, list[int]]] = {}
    for gpu in (gpu for sample in samples for gpu in sample.gpus if not gpu.is_idle):
        of_gpu = values.setdefault(gpu.uuid, {})
        for name, text in (
            ("burn-in-clock", gpu.text("clocks/sm_clock")),
            ("burn-in-power", gpu.text(*DRAWS)),
            ("burn-in-temperature", gpu.text("temperature/gpu_temp")),
        ):
            number = number_of(text)
            if number is not None:
                of_gpu.setdefault(name, []).append(number)
    return {
        uuid: {
            name: max(numbers) if name == "burn-in-temperature" else median(numbers)
            for name, numbers in of_gpu.items()
        }
        for uuid, of_gpu in values.items()
    }


def _counts(gpu: HostGpu) -> dict[str, int]:
    """Return the counters of the GPU that nvidia-smi prints as numbers."""
    counts: dict[str, int] = {}
    for path, text in gpu.elements:
        digits = re.fullmatch("[0-9]+", text)
        for name, pattern in _COUNTS.items():
            if digits and pattern.fullmatch(path):
                counts[name] = counts.get(name, 0) + int(text)
    return counts


def _facts(gpu: HostGpu) -> dict[str, str]:
    """Return the facts of the GPU that change only with its hardware, firmware or settings."""
    limit = gpu.text(*(f"{group}/{name}" for group in _POWER for name in _LIMITS))
    facts: Mapping[str, str] = {
        "product": gpu.model,
        "vbios": gpu.vbios,
        "inforom": gpu.inforom,
        "memory": f"{gpu.memory_mib} MiB",
        "ecc": {True: "on", False: "off", None: ""}[gpu.ecc_enabled],
        "power limit": limit,
        "mig": gpu.text("mig_mode/current_mig"),
    }
    return {name: text for name, text in facts.items() if text}


_POWER: Final = ("gpu_power_readings", "power_readings")
_LIMITS: Final = ("current_power_limit", "enforced_power_limit", "power_limit")
