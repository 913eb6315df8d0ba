"""Writes the lines of progress with the results of checks."""

from collections.abc import Mapping, Sequence

from orchestrator.progress import Reporter
from validation.judge.units import seconds
from validation.judge.verdict import Verdict
from validation.planned_checks import Check
from validation.report import record


class ResultLines:
    """Writes a line for each result.

    Invariants that passed share one line. Blocked checks share one line for each cause.
    """

    def __init__(self, progress: Reporter, checks: Sequence[Check]) -> None:
        self._progress = progress
        self._checks = checks
        self._reported_reasons: set[str] = set()

    def write(self, result: record.CheckResult, results: Mapping[str, record.CheckResult]) -> None:
        """Write the lines of the result, which is the last of `results`."""
        quiet = {Verdict.PASS, Verdict.NOT_APPLICABLE}
        if result.kind == "invariant" and (result.verdict in quiet or not result.required):
            self._sum_up(result.scenario, results)
            return
        if result.verdict == Verdict.BLOCKED:
            if result.reason not in self._reported_reasons:
                self._progress(f"{result.id} and the checks that need it: {result.reason}")
            self._reported_reasons.add(result.reason)
            return
        duration_ms = (result.volatile.ended_ms or 0) - (result.volatile.started_ms or 0)
        self._progress(f"{result.id}: {result.verdict} ({seconds(duration_ms)})")
        for line in result.reasons:
            self._progress(f"    {line}")

    def _sum_up(self, scenario: str, results: Mapping[str, record.CheckResult]) -> None:
        """After the last invariant of the scenario, write how many passed."""
        ended = [r for r in results.values() if r.scenario == scenario and r.kind == "invariant"]
        if len(ended) != sum(
            bool(check.invariant) and check.scenario.id == scenario for check in self._checks
        ):
            return
        passed = sum(invariant.verdict == Verdict.PASS for invariant in ended)
        idle = sum(not invariant.required for invariant in ended)
        apply = sum(invariant.verdict != Verdict.NOT_APPLICABLE for invariant in ended)
        without = f"; {idle} had no subject and count for nothing" if idle else ""
        self._progress(f"{scenario}: {passed} of {apply} invariants held on every event{without}")
