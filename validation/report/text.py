"""Formats expectations, results and reasons as lines of text for every rendering."""

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import msgspec

from orchestrator.progress import printable
from validation.judge.scheduling.expectation import Actual, Expectation
from validation.judge.units import gpus, seconds
from validation.judge.use.utilization import percent_text
from validation.judge.verdict import Verdict

if TYPE_CHECKING:  # the module of the record needs an extra, which the printed plan must not need
    from validation.report.record import CheckResult, Oracle, Report, RequirementResult

DASH = "\N{EN DASH}"
TOGETHER = "\N{NO-BREAK SPACE}"
_PAPER_HOSTS: Final = 2
_PAPER_HOST: Final = ("dgx-1", 8)
"""Model and GPUs of the hosts whose figures the catalogue prints."""
MAX_INVARIANTS: Final = 3
"""If a requirement needs more invariants of a scenario, only their number is shown."""


def inert(text: str) -> str:
    """Return the text on one line, with escapes for control characters and for invisible characters."""
    return TOGETHER.join(printable(part) for part in " ".join(text.split("\n")).split(TOGETHER))


def seconds_or_dash(milliseconds: int | None) -> str:
    """Return seconds such as `12.3 s`, or a dash for None.

    Example: `seconds_or_dash(12_300)` returns `'12.3 s'`.
    """
    return DASH if milliseconds is None else seconds(milliseconds)


def clock(milliseconds: int) -> str:
    """Return the time since the start of the run as `m:ss.s`.

    Example: `clock(83_500)` returns `'1:23.5'`.
    """
    minutes, rest = divmod(milliseconds, 60_000)
    return f"{minutes}:{rest / 1000:04.1f}"


def allocation(allocated_milli: dict[str, int] | None) -> str:
    """Return the allocation in words: `team-a 4, team-b 2`."""
    if not allocated_milli:
        return DASH
    return ", ".join(f"{project}{TOGETHER}{gpus(milli)}" for project, milli in allocated_milli.items())


def expected_lines(expected: Expectation | None) -> list[str]:
    """Return the expectation of a step, one line for each value."""
    if expected is None:
        return []
    lines = [
        allocation(expected.allocated_milli),
        f"{gpus(expected.total_milli)} GPUs in all",
        f"{expected.running} running",
        _names("pending", expected.pending),
    ]
    if expected.evicted:
        lines.append(_names("evicted", expected.evicted))
    if expected.ended_jobs:
        lines.append(_names("ended", sorted(expected.ended_jobs)))
    if expected.gpus_in_use is not None:
        lines.append(f"{expected.gpus_in_use} devices in use")
    lines += [f"one GPU: {', '.join(group)}" for group in expected.same_gpu]
    lines += [f"or: {'; '.join(expected_lines(other))}" for other in expected.or_else or ()]
    return lines


def oracle_lines(oracle: "Oracle | None") -> list[str]:
    """Return the result of the oracle, one line for each value."""
    if oracle is None:
        return []
    shares = ", ".join(f"{project} {share}" for project, share in oracle.fair_share_gpus.items())
    return [
        allocation(oracle.allocated_milli),
        f"{oracle.running} running",
        _names("pending", oracle.pending),
        f"fair shares: {shares}",
    ]


def actual_lines(actual: Actual | None, expected: Expectation | None) -> list[str]:
    """Return the actual values on the cluster, in the order of `expected_lines`."""
    if actual is None:
        return []
    lines = [
        allocation(actual.allocated_milli),
        f"{gpus(actual.total_milli)} GPUs in all",
        f"{actual.running} running",
        _names("pending", actual.pending),
    ]
    if actual.evicted:
        lines.append(_names("evicted", actual.evicted))
    lines.append(f"{actual.gpus_in_use} devices in use")
    for group in expected.same_gpu if expected else ():
        devices_of = {name: " ".join(actual.devices.get(name, ())) or "none" for name in group}
        if len(set(devices_of.values())) == 1:
            lines.append(f"{', '.join(group)} on {next(iter(devices_of.values()))}")
        else:
            lines += [f"{name} on {place}" for name, place in devices_of.items()]
    return lines


def reason_lines(step: "CheckResult") -> list[str]:
    """Return why a step did not pass, in lines."""
    lines = [step.reason] if step.reason else []
    lines += [*step.differences, *(step.volatile.causes or ())]
    lines += [f"oracle: {line}" for line in step.oracle_differences]
    lines += [f"{clock(violation.t_ms)} {violation.message}" for violation in step.volatile.violations]
    return lines


def check_lines(checks: Sequence[str]) -> list[str]:
    """Return the checks that prove a requirement.

    For a scenario with more than MAX_INVARIANTS of them, return their number.
    """
    invariants = Counter(scenario for check in checks if (scenario := _scenario_of_invariant(check)))
    lines: dict[str, None] = {}
    for check in checks:
        scenario = _scenario_of_invariant(check)
        many = invariants[scenario] > MAX_INVARIANTS
        lines[f"{scenario}: {invariants[scenario]} invariants" if many else check] = None
    return list(lines)


def _scenario_of_invariant(check: str) -> str:
    """Return the scenario of the check if it is an invariant, else "".

    Example: `_scenario_of_invariant("muster-gang/invariant/gpu-capacity")` returns `'muster-gang'`.
    """
    scenario, invariant, _ = check.partition("/invariant/")
    return scenario if invariant else ""


BESIDE_STEPS = {
    "api": "Answers of the API server",
    "view": "Lists and pages of the orchestrator, against the API server",
    "training": "Result of the training job",
    "utilization": "Use of the GPUs",
}
"""The kinds of checks of a scenario, except steps and invariants, in order, with the captions of their tables."""


def figure(entry: "RequirementResult", report: "Report") -> str:
    """Return the printed figure of a requirement.

    It is empty if the requirement passed on a site of another size, because the figure was not measured there.

    Example: on eight hosts no check measures `16 GPUs, 8 on every host`.
    """
    scaled = {scenario.id for scenario in report.scenarios if scenario.size}
    hosts = report.scope.hosts.site.hosts if report.scope.hosts else []
    others = len(hosts) != _PAPER_HOSTS or any((host.model, host.gpus) != _PAPER_HOST for host in hosts)
    is_other = any(
        check.partition("/")[0] in scaled or ("/layer/" in check and others) for check in entry.checks
    )
    return "" if is_other and entry.verdict == Verdict.PASS else entry.number


def use_lines(step: "CheckResult") -> list[str]:
    """Return the utilization of GPUs: of all GPUs, by node with its GPUs, by pod, and the unknown times."""
    use = step.volatile.utilization
    if isinstance(use, msgspec.UnsetType):
        return []
    held = f"{len(use.gpus)} of {use.gpus_total} GPUs held"
    spread = "" if use.median is None else f"; of the time, median {use.median} %, lowest 5 % {use.low} %"
    lines = [f"{percent_text(use.centi_percent)} over {seconds(use.until_ms - use.from_ms)}, {held}{spread}"]
    for node in dict.fromkeys(gpu.node for gpu in use.gpus):
        each = (f"{gpu.gpu}: {percent_text(gpu.centi_percent)}" for gpu in use.gpus if gpu.node == node)
        lines.append(f"{node}: {percent_text(use.nodes.get(node))} (GPU {', '.join(each)})")
    lines += [f"{pod}: {percent_text(centi_percent)}" for pod, centi_percent in use.pods.items()]
    if use.gpus:
        gap = max(use.gpus, key=lambda gpu: gpu.max_gap_ms)
        idle = max(use.gpus, key=lambda gpu: gpu.max_idle_ms)
        lines.append(f"longest time of which nothing is known: {seconds(gap.max_gap_ms)} of {gap.name}")
        lines.append(f"longest time held and idle: {seconds(idle.max_idle_ms)} of {idle.name}")
    return lines


def evidence_line(step: "CheckResult") -> str:
    """Return the evidence of the verdict beside the required minimum; empty if nothing was judged."""
    evidence, least = step.volatile.evidence, step.least
    if not evidence.nodes and not evidence.events:
        return ""
    if step.kind == "layer":
        return f"evidence: {evidence.nodes} hosts, {evidence.gpus} GPUs, {evidence.events} outputs"
    numbers = [
        f"{evidence.count(name)} {name}"
        + (f" of {least.count(name)}" if name in {"nodes", "gpus", "samples"} else "")
        for name in evidence.__struct_fields__
        if getattr(evidence, name) is not msgspec.UNSET
    ]
    subjects = f", {step.volatile.subjects} subjects" if step.kind == "invariant" else ""
    return f"evidence: {', '.join(numbers)}{subjects}".replace("gpus", "GPUs")


def _names(subject: str, names: list[str] | tuple[str, ...]) -> str:
    return f"{subject}: {', '.join(names)}" if names else f"none {subject}"
