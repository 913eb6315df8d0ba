"""Judges the clock source from which the kernel of a host reads the time."""

from collections.abc import Mapping

from hostfacts.findings import fault_of_clock
from validation.judge.check_verdict import Judgement
from validation.judge.hosts.host_facts import NO_HOST, of_faults, some
from validation.judge.verdict import Verdict


def judge_clock_sources(hosts: Mapping[str, str]) -> list[Judgement]:
    """Judge whether the kernel of each host reads the time from a counter of the processor.

    Reading another clock takes longer, which slows jobs down and makes measurements noisy.
    """
    if not hosts:
        return [NO_HOST]
    findings = {f"{name}: {source}": (name, fault_of_clock(source)) for name, source in sorted(hosts.items())}
    unknown = [place for place, (_, finding) in findings.items() if finding is None]
    judgements = [of_faults([f"{name}: {finding}" for name, finding in findings.values() if finding])]
    if unknown:
        reason = f"muster does not know this clock source: {some(unknown)}"
        judgements.append(Judgement(Verdict.INCONCLUSIVE, reason))
    return judgements
