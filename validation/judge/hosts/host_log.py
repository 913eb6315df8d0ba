"""Judges the kernel's logs of hosts."""

from collections import Counter
from collections.abc import Mapping

from validation.judge.check_verdict import Judgement
from validation.judge.hosts.host_facts import KernelLog, of_faults, some
from validation.judge.repairs import needs, of_fault
from validation.judge.verdict import Verdict

MAX_LINE_CHARACTERS = 160


def judge_logs(logs: Mapping[str, KernelLog]) -> list[Judgement]:
    """Return FAIL for faults and INCONCLUSIVE for unknown lines. Corrected errors are named, and pass."""
    wrong = [
        needs(f"{name}: {error}{f' on {bus_id}' if bus_id else ''} ({count} times)", repair)
        for name, log in sorted(logs.items())
        for (error, bus_id, repair), count in sorted(
            Counter(
                (fault.name, fault.bus_id, of_fault(fault.kind, fault.code, fault.text))
                for fault in log.faults
            ).items()
        )
    ]
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
