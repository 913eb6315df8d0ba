"""Judges the readings of nvidia-smi under load."""

from collections.abc import Mapping, Sequence
from typing import Final

from hostfacts.repairs import Repair, needs
from validation.judge.check_verdict import Judgement
from validation.judge.hosts.gpu_elements import Aspect
from validation.judge.hosts.gpu_state import Said, read_elements
from validation.judge.hosts.host_compare import below_median, median
from validation.judge.hosts.host_facts import HostGpu, HostGpus, all_gpus, of_faults, some
from validation.judge.verdict import Verdict

CLOCK_PERCENT: Final = 80
"""Minimum clock and power of a GPU under load, in percent of the median of its model."""


def judge_load(
    samples: Mapping[str, Sequence[HostGpus]], models: Mapping[str, str], gpus: Mapping[str, int] = {}
) -> list[Judgement]:
    """Judge the readings of hosts under load: clocks, throttling, temperature, power, errors of memory, and all words
    that are judged at rest.

    `gpus` has the number of GPUs of each host that each reading must have.
    """
    wrong = dict.fromkeys(_absent(samples, gpus))
    said = _said(samples)
    wrong |= dict.fromkeys(one.finding for one in said if one.verdict == Verdict.FAIL)
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
    unread |= dict.fromkeys(one.finding for one in said if one.verdict != Verdict.FAIL)
    unread |= dict.fromkeys(_resting(samples))
    if unread:
        judgements.append(Judgement(Verdict.INCONCLUSIVE, some(list(unread))))
    return judgements


def _absent(samples: Mapping[str, Sequence[HostGpus]], gpus: Mapping[str, int]) -> list[str]:
    """Return the findings about readings with another number of GPUs than the host has."""
    return [
        needs(f"{name} showed {len(reading.gpus)} of {gpus[name]} GPUs under load", Repair.REBOOT)
        for name, readings in sorted(samples.items())
        for reading in readings
        if gpus.get(name) and len(reading.gpus) != gpus[name]
    ]


def _resting(samples: Mapping[str, Sequence[HostGpus]]) -> list[str]:
    """Return the findings about GPUs that are idle in each reading, although another GPU of the host is not."""
    found = []
    for name, readings in sorted(samples.items()):
        every = [(place, gpu.is_idle) for reading in readings for place, gpu in all_gpus({name: reading})]
        busy = {place for place, is_idle in every if not is_idle}
        idle = dict.fromkeys(place for place, _ in every if busy and place not in busy)
        found += [f"{place} was idle in each reading under load" for place in idle]
    return found


def _said(samples: Mapping[str, Sequence[HostGpus]]) -> list[Said]:
    """Return the elements whose texts are not those of a healthy GPU, each text once for a GPU.

    The check `pcie` judges the elements of PCIe.
    """
    texts: dict[str, dict[tuple[str, str], None]] = {}
    for name, readings in sorted(samples.items()):
        for reading in readings:
            texts.setdefault(f"{name} under load", {}).update(dict.fromkeys(reading.elements))
            for place, gpu in all_gpus({name: reading}):
                texts.setdefault(f"{place} under load", {}).update(dict.fromkeys(gpu.elements))
    every = [said for place, elements in texts.items() for said in read_elements(place, elements)]
    return [said for said in every if said.aspect != Aspect.PCIE]


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
