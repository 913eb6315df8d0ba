"""ctrf.json: the Common Test Report Format (https://ctrf.io), specification 1.0.0, for dashboards that read it."""

import json
from datetime import datetime
from typing import Any, Final

from validation.report import text
from validation.report.record import CheckResult, Report

SPECIFICATION: Final = "1.0.0"
_STATUS: Final = {"PASS": "passed", "NOT_APPLICABLE": "skipped", "WAIVED": "skipped"}
_COUNTED: Final = ("passed", "failed", "skipped", "pending", "other")


def render(report: Report) -> bytes:
    """The report in CTRF. What could not be judged is failed, as readers count nothing else as bad; `rawStatus` has the
    verdict.
    """
    began = _epoch_ms(report.volatile.run.started)
    tests = [_test(step, began) for step in report.steps]
    statuses = [test["status"] for test in tests]
    duration_ms = report.volatile.run.duration_ms
    results = {
        "tool": {"name": report.tool.name, "version": report.tool.version},
        "summary": {
            "tests": len(tests),
            **{status: statuses.count(status) for status in _COUNTED},
            "suites": len(report.scenarios),
            "start": began,
            "stop": began + duration_ms,
            "duration": duration_ms,
            "extra": {
                "verdict": report.verdict,
                "acceptance": report.acceptance,
                "headline": report.headline,
            },
        },
        "tests": tests,
        "environment": {"reportName": report.headline, "testEnvironment": report.scope.profile},
    }
    document = {
        "reportFormat": "CTRF",
        "specVersion": SPECIFICATION,
        "generatedBy": "muster",
        "results": results,
    }
    return json.dumps(document, indent=1, ensure_ascii=False).encode() + b"\n"


def _test(step: CheckResult, began: int) -> dict[str, Any]:
    started, ended = step.volatile.started_ms, step.volatile.ended_ms
    test: dict[str, Any] = {
        "name": step.id,
        "status": _STATUS.get(step.verdict, "failed") if step.required else "skipped",
        "duration": max(0, (ended or 0) - (started or 0)),
        "suite": [step.scenario or "none"],
        "rawStatus": step.verdict,
        "type": step.kind,
    }
    if started is not None and ended is not None:
        test |= {"start": began + started, "stop": began + ended}
    if step.requirements:
        test["labels"] = {"requirements": step.requirements}
    reasons = text.reason_lines(step)
    if reasons:
        test["message"] = "\n".join(reasons)
    return test


def _epoch_ms(moment: str) -> int:
    return int(datetime.fromisoformat(moment).timestamp() * 1000)
