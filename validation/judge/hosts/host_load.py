"""Judges the readings of nvidia-smi under load."""

from collections.abc import Mapping, Sequence
from typing import Final

from validation.judge.check_verdict import Judgement
from validation.judge.hosts.host_compare import below_median, median
from validation.judge.hosts.host_facts import HostGpu, HostGpus, all_gpus, of_faults, some
from validation.judge.repairs import Repair, needs
from validation.judge.verdict import Verdict

CLOCK_PERCENT: Final = 80
"""Minimum clock and power of a GPU under load, in percent of the median of its model."""


def judge_load(samples: Mapping[str, Sequence[HostGpus]], models: Mapping[str, str]) -> list[Judgement]:
    """Judge the readings of hosts under load: clocks, throttling, temperature, power, errors of memory."""
    wrong: dict[str, None] = {}
    figures: dict[str, dict[str, list[int]]] = {"SM clock": {}, "power": {}}
    kinds: dict[str, str] = {}
    unread: dict[str, None] = {}
    for name, readings in sorted(samples.items()):
        for reading in readings:
            for place, gpu in all_gpus({name: reading}):
                kinds[place] = models.get(name, "")
                wrong |= dict.fromkeys(_wrong(place, gpu))
                if gpu.is_idle:
                    continue
                for figure, text in (
                    ("SM clock", gpu.text("clocks/sm_clock")),
                    ("power", gpu.text(*DRAWS)),
                ):
                    number = number_of(text)
                    if number is not None:
                        figures[figure].setdefault(place, []).append(number)
                    elif text not in {"", "N/A"}:
                        unread[f"{place}: {figure} is {text!r}"] = None
    for figure, of_each in figures.items():
        usual = {place: median(values) for place, values in of_each.items()}
        for place, value, of_kind in below_median(usual, CLOCK_PERCENT, kinds):
            finding = f"{place}: {figure} {value} under load, the median is {of_kind}"
            wrong[needs(finding, Repair.COOLING)] = None
    judgements = [of_faults(list(wrong))]
    if unread:
        judgements.append(Judgement(Verdict.INCONCLUSIVE, some(list(unread))))
    return judgements


DRAWS: Final = tuple(
    f"{group}/{name}"
    for group in ("gpu_power_readings", "power_readings")
    for name in ("average_power_draw", "power_draw", "instant_power_draw")
)


def _wrong(place: str, gpu: HostGpu) -> list[str]:
    wrong = []
    if gpu.throttles:
        finding = f"{place} was throttled under load: {', '.join(gpu.throttles)}"
        wrong.append(needs(finding, Repair.COOLING))
    if gpu.uncorrected_errors:
        wrong.append(needs(f"{place} had uncorrected errors under load", Repair.RESET))
    now = number_of(gpu.text("temperature/gpu_temp"))
    slow = number_of(gpu.text("temperature/gpu_temp_slow_threshold"))
    left = gpu.text("temperature/gpu_temp_tlimit")
    if (now is not None and slow is not None and now >= slow) or left.startswith("-") or left == "0 C":
        wrong.append(needs(f"{place} was too hot under load: {now} C", Repair.COOLING))
    return wrong


def number_of(text: str) -> int | None:
    """Return the whole number of MHz, W or C in the text; None if it is another text."""
    digits, _, unit = text.partition(" ")
    whole = digits.partition(".")[0]
    return int(whole) if whole.isdecimal() and unit in {"MHz", "W", "C"} else None
