"""Makes the charts of a report: one per group of scenarios that share a state."""

from validation.report.chart import Mark, Plot, render
from validation.report.record import Report, ScenarioRecord

MAX_MARKS = 200
"""Maximum number of checks of a group whose chart has marks for steps. More marks would merge into a surface."""


def charts(report: Report) -> list[tuple[str, str]]:
    """Return title and SVG of every chart, in the order of the scenarios.

    Scenarios that did not start, and groups without a project, have no chart.
    """
    plots = [_plot(report, group) for group in _groups(report)]
    return [(plot.title, render(plot)) for plot in plots if plot.quotas_milli]


def _groups(report: Report) -> list[list[ScenarioRecord]]:
    groups: list[list[ScenarioRecord]] = []
    for scenario in report.scenarios:
        if scenario.volatile.started_ms is None:
            continue
        joined = next((g for g in groups if scenario.continues and g[-1].id == scenario.continues), None)
        if joined is None:
            groups.append([scenario])
        else:
            joined.append(scenario)
    return groups


def _plot(report: Report, group: list[ScenarioRecord]) -> Plot:
    names = {scenario.id for scenario in group}
    steps = [step for step in report.steps if step.scenario in names and step.volatile.started_ms is not None]
    marks = [Mark(s.volatile.started_ms or 0, s.id, section=True) for s in group]
    marks += [
        Mark(step.volatile.started_ms or 0, step.id.rpartition("/")[2])
        for step in steps
        if step.kind == "step" and len(steps) <= MAX_MARKS
    ]
    ends = [s.volatile.ended_ms for s in group if s.volatile.ended_ms is not None]
    ends += [step.volatile.ended_ms or 0 for step in steps]
    first = group[0].volatile.started_ms or 0
    quotas = {project: milli for s in group for project, milli in s.quotas_milli.items()}
    sections = ", ".join(scenario.id for scenario in group)
    return Plot(
        title=f"GPUs per project over time: {sections}",
        start_ms=first,
        end_ms=max([*ends, first + 1000]),
        points=report.volatile.series,
        quotas_milli=quotas,
        marks=marks,
        capacity_milli=report.cluster.get("gpus", 0) * 1000 or sum(quotas.values()),
    )
