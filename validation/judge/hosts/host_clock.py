"""Judges the clock source from which the kernel of a host reads the time."""

from collections.abc import Mapping
from typing import Final

from validation.judge.check_verdict import Judgement
from validation.judge.hosts.host_facts import NO_HOST, of_faults, some
from validation.judge.repairs import Repair, needs
from validation.judge.verdict import Verdict


def judge_clock_sources(hosts: Mapping[str, str]) -> list[Judgement]:
    """Judge whether the kernel of each host reads the time from a counter of the processor.

    Reading another clock takes longer, which slows jobs down and makes measurements noisy.
    """
    if not hosts:
        return [NO_HOST]
    wrong = [
        needs(f"{name}: clock source is {source}, neither {' nor '.join(_GOOD)}", Repair.SETTING)
        for name, source in sorted(hosts.items())
        if source in _SLOW
    ]
    unknown = [
        f"{name}: {source}" for name, source in sorted(hosts.items()) if source not in {*_GOOD, *_SLOW}
    ]
    judgements = [of_faults(wrong)]
    if unknown:
        reason = f"muster does not know this clock source: {some(unknown)}"
        judgements.append(Judgement(Verdict.INCONCLUSIVE, reason))
    return judgements


_GOOD: Final = ("tsc", "arch_sys_counter")
"""The counters of processors: x86, arm64."""
_SLOW: Final = frozenset({"hpet", "acpi_pm", "pit", "jiffies", "refined-jiffies"})
"""The sources to which a kernel falls back. They are costly to read or coarse."""
