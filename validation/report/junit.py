"""junit.xml for CI: a test per step and invariant, in the layout that Jenkins and GitLab read."""

from xml.etree import ElementTree as Xml

from validation.report import text
from validation.report.record import CheckResult, Report

_FAILURES = {"FAIL"}
_ERRORS = {"ERROR", "INCONCLUSIVE", "BLOCKED"}
_SKIPS = {"NOT_APPLICABLE", "WAIVED"}


def render(report: Report) -> bytes:
    """Return the report as JUnit XML. Only FAIL is a failure. A check without a judgement is an error, never a skip."""
    totals = {
        "name": "muster validate",
        **_counts(report.steps),
        "time": _time(report.volatile.run.duration_ms),
    }
    root = Xml.Element("testsuites", totals)
    for scenario in report.scenarios:
        steps = [step for step in report.steps if step.scenario == scenario.id]
        lasted = (scenario.volatile.ended_ms or 0) - (scenario.volatile.started_ms or 0)
        counts = {"name": text.inert(scenario.id), **_counts(steps), "time": _time(lasted)}
        suite = Xml.SubElement(root, "testsuite", counts)
        for step in steps:
            _case(suite, step)
    Xml.indent(root)
    document: bytes = Xml.tostring(root, encoding="utf-8", xml_declaration=True)
    return document + b"\n"


def _case(suite: Xml.Element, step: CheckResult) -> None:
    lasted = (step.volatile.ended_ms or 0) - (step.volatile.started_ms or 0)
    name = text.inert(step.id.removeprefix(f"{step.scenario}/"))
    scenario = text.inert(step.scenario)
    case = Xml.SubElement(suite, "testcase", classname=scenario, name=name, time=_time(lasted))
    reasons = [_clean(line) for line in text.reason_lines(step)]
    message = f"{step.verdict}: {reasons[0]}" if reasons else step.verdict
    if step.verdict in _SKIPS or not step.required:
        Xml.SubElement(case, "skipped", message=message)
    elif step.verdict in _FAILURES | _ERRORS:
        tag = "failure" if step.verdict in _FAILURES else "error"
        detail = Xml.SubElement(case, tag, message=message, type=step.verdict)
        expected = text.inert("; ".join(text.expected_lines(step.expected)))
        actual = text.inert("; ".join(text.actual_lines(step.actual, step.expected)))
        body = [f"expected: {expected}", f"actual:   {actual}"] if step.expected is not None else []
        detail.text = "\n".join([*reasons, *body])


def _counts(steps: list[CheckResult]) -> dict[str, str]:
    return {
        "tests": str(len(steps)),
        "failures": str(sum(step.verdict in _FAILURES for step in steps)),
        "errors": str(sum(step.verdict in _ERRORS and step.required for step in steps)),
        "skipped": str(sum(step.verdict in _SKIPS or not step.required for step in steps)),
    }


def _time(milliseconds: int) -> str:
    return f"{max(0, milliseconds) / 1000:.3f}"


def _clean(line: str) -> str:
    """Return the line without the control characters that XML 1.0 forbids, and with escapes for those that a terminal
    obeys.
    """
    return text.inert("".join(letter for letter in line if letter in "\t\n" or letter >= " "))
