"""The last lines of a run: the proven and unproven requirements in plain words, and three next commands."""

from collections import Counter
from pathlib import Path
from typing import Final

from validation.judge.verdict import Verdict
from validation.report.record import Report, RequirementResult

_FURTHER: Final = {
    "planner": (
        "muster lab up",
        "a cluster on this machine; docs/tutorials/first-job.md submits a job to it",
    ),
    "lab": (
        "muster validate --real-nodes 2",
        "with real kubelets and containers, as root after `make image`",
    ),
}
"""The command that proves more than a run with this profile."""
_FAILED: Final = (Verdict.ERROR, Verdict.FAIL, Verdict.BLOCKED)


def conclusion(report: Report, directory: Path) -> list[str]:
    """Return the lines. A requirement without a verdict is never among the proven ones."""
    passed = [each for each in report.requirements if each.verdict in (Verdict.PASS, Verdict.WAIVED)]
    failed = [each for each in report.requirements if each.verdict in _FAILED]
    open_ = [each for each in report.requirements if each.verdict == Verdict.INCONCLUSIVE]
    excluded = [each for each in report.requirements if each.verdict == Verdict.NOT_APPLICABLE]
    inside = sum(each.in_part for each in passed)
    beside = f"; {inside} of them in the chosen parts" if inside < len(passed) else ""
    lines = ["", f"proven:      {_parts(passed)}{beside}"]
    if failed:
        lines.append(f"failed:      {_parts(failed)}")
    if open_:
        lines.append(f"not proven:  {_parts(open_)}; did not run, or no check exists")
    if report.verdict == Verdict.INCONCLUSIVE and not failed:
        lines.append(f"{'':13}{_way_to_a_verdict(passed, open_)}")
    if excluded:
        lines.append(f"excluded:    {_parts(excluded)}; the profile {report.scope.profile} cannot have them")
    commands = _after_failure(directory) if failed else _after_success(report, directory)
    width = max(len(command) for command, _ in commands)
    lines += ["", "next:"]
    return lines + [f"  {command:<{width}}  # {why}" for command, why in commands]


def _way_to_a_verdict(passed: list[RequirementResult], open_: list[RequirementResult]) -> str:
    """Return the sentence that says how the next run is not INCONCLUSIVE."""
    unproven = {_part(each) for each in open_ if each.in_part}
    complete = sorted({_part(each) for each in passed if each.in_part} - unproven)
    option = "; or ask for less: add " + " ".join(f"--part {part}" for part in complete) if complete else ""
    return f"the verdict is INCONCLUSIVE until these pass too: leave out --scenario and --scenarios{option}"


def _part(requirement: RequirementResult) -> str:
    return requirement.id.partition(".")[0]


def _after_failure(directory: Path) -> list[tuple[str, str]]:
    return [
        (f"muster report show {directory}", "each failed check with its reason"),
        (f"muster report rejudge {directory}", "every verdict again, from the events"),
        ("muster validate --fail-fast", "repeat the run, up to the first failure"),
    ]


def _after_success(report: Report, directory: Path) -> list[tuple[str, str]]:
    third = _FURTHER.get(report.scope.profile) or (
        f"muster report sign {directory} --key KEY",
        "sign the record",
    )
    return [
        (f"muster report show {directory}", "the verdict of each requirement and check"),
        (f"muster report verify {directory}", "that no file changed, and every verdict follows"),
        third,
    ]


def _parts(requirements: list[RequirementResult]) -> str:
    """Return `11 requirements (fairness 9, gangs 2)`, the largest part first, at most five of them."""
    count = len(requirements)
    if not count:
        return "nothing"
    parts = Counter(map(_part, requirements)).most_common()
    named = ", ".join(f"{part} {number}" for part, number in parts[:5])
    more = f", {len(parts) - 5} more parts" if len(parts) > 5 else ""
    return f"{count} requirement{'' if count == 1 else 's'} ({named}{more})"
