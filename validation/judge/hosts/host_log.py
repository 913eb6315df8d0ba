"""Judges the kernel's logs of hosts."""

from collections.abc import Mapping

from hostfacts.findings import faults_of_log
from hostfacts.log import KernelLog
from validation.judge.check_verdict import Judgement
from validation.judge.hosts.host_facts import of_faults, some
from validation.judge.verdict import Verdict

MAX_LINE_CHARACTERS = 160


def judge_logs(logs: Mapping[str, KernelLog]) -> list[Judgement]:
    """Return FAIL for faults and INCONCLUSIVE for unknown lines. Corrected errors are named, and pass."""
    wrong = [f"{name}: {finding}" for name, log in sorted(logs.items()) for finding in faults_of_log(log)]
    judgements = [of_faults(wrong)]
    cut = [name for name, log in sorted(logs.items()) if not log.is_whole]
    if cut:
        judgements.append(
            Judgement(Verdict.INCONCLUSIVE, f"the kernel's log no longer begins with the boot: {some(cut)}")
        )
    unknown = [
        f"{name}: {line[:MAX_LINE_CHARACTERS]}"
        for name, log in sorted(logs.items())
        for line in dict.fromkeys(log.unknown)
    ]
    if unknown:
        judgements.append(
            Judgement(Verdict.INCONCLUSIVE, f"lines that muster does not know: {some(unknown)}")
        )
    notes = [
        f"{name}: {line[:MAX_LINE_CHARACTERS]}" for name, log in sorted(logs.items()) for line in log.notes
    ]
    if notes:
        judgements.append(Judgement(Verdict.PASS, f"no fault by itself: {some(notes)}"))
    return judgements
