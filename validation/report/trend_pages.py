"""Writes the trend of a site: a table for the terminal, and a page with one chart for each figure."""

from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Final

from markupsafe import Markup

from validation.errors import ReportError
from validation.report.chart import COLOURS, DASHES, escape
from validation.report.html import brief, environment
from validation.report.trend import FigureTrend, Series, SiteTrend, Trend, TrendRun, decline

NAMED: Final = 6
"""Maximum number of hosts or GPUs with a line of their own: those with the largest decline. The JSON output has all."""
_WIDTH, _HEIGHT, _LEFT, _RIGHT, _TOP, _BOTTOM = 1100, 300, 80, 290, 20, 40
_LEGEND: Final = 30
"""The height of a name at the right: a line for the host, and a smaller one for the GPU."""


def table(trend: Trend) -> list[str]:
    """Return the lines for a terminal: for each figure the medians of the first and last run, and the worst change."""
    lines = []
    for site in trend.sites:
        lines.append(
            f"site {site.site or 'without a name'}, {_many(len(site.runs), 'record')}: {_span(site.runs)}"
        )
        for figure in site.figures:
            medians = [value for value in figure.medians() if value is not None]
            worst = next((series for series in figure.series if decline(figure.figure, series) > 0), None)
            words = (
                "none is worse"
                if worst is None
                else f"worst {worst.name}, {worst.ends[0]} to {worst.ends[1]}"
            )
            lines.append(f"  {figure.figure}: median {medians[0]} to {medians[-1]} {figure.unit}; {words}")
        lines += [
            f"  {_changed(change.run, change.host, change.gpu)}: {change.fact} was {change.before or 'not read'}, "
            f"is {change.now or 'not read'}"
            for change in site.changes
        ]
    lines += [f"{one.record}: left out: {one.problem}" for one in trend.unread]
    return lines


def write(trend: Trend, path: Path) -> None:
    """Write the page with the charts. Raises ReportError."""
    sites = [
        (site, [(figure, _safe(chart(site, figure))) for figure in site.figures]) for site in trend.sites
    ]
    try:
        page = (
            environment().get_template("trend.html.j2").render(sites=sites, unread=trend.unread, named=NAMED)
        )
        path.write_text(page, encoding="utf-8")
    except OSError as error:
        raise ReportError(f"{path}: cannot be written: {error.strerror}") from error


def _safe(svg: str) -> Markup:
    return Markup(svg)  # noqa: S704 - made by us, text escaped


def chart(site: SiteTrend, figure: FigureTrend) -> str:
    """Return an SVG: the range of all hosts or GPUs, their median, and the lines of the worst."""
    scale = _Scale(site.runs, figure)
    title = f"{figure.figure} ({figure.unit})"
    named = figure.series[:NAMED]
    parts = [
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" '
            f'font-family="Helvetica, Arial, sans-serif" font-size="11" aria-label="{escape(title)}">'
        ),
        f"<title>{escape(title)}</title>",
        *_axes(scale, site.runs),
        *_band(scale, figure),
    ]
    for number, series in enumerate(named):
        parts += _line(scale, series, COLOURS[number], DASHES[number + 1], number)
    middle = Series(f"median of {len(figure.series)}", "", figure.medians())
    return "\n".join([*parts, *_line(scale, middle, "#222222", "", len(named)), "</svg>"])


class _Scale:
    """The positions of runs and values in a chart."""

    def __init__(self, runs: Sequence[TrendRun], figure: FigureTrend) -> None:
        times = [datetime.fromisoformat(run.started).timestamp() for run in runs]
        span = max(times) - min(times)
        width = _WIDTH - _LEFT - _RIGHT
        self.x = [
            round(_LEFT + (time - min(times)) / span * width, 1) if span else _LEFT + width / 2
            for time in times
        ]
        values = [value for series in figure.series for value in series.values if value is not None]
        margin = max((max(values) - min(values)) // 10, max(values) // 50, 1)
        self.low, self.high = max(0, min(values) - margin), max(values) + margin

    def y(self, value: int) -> float:
        """Return the position of the value."""
        return round(
            _HEIGHT - _BOTTOM - (value - self.low) / (self.high - self.low) * (_HEIGHT - _TOP - _BOTTOM), 1
        )


def _axes(scale: _Scale, runs: Sequence[TrendRun]) -> Iterator[str]:
    bottom, right = _HEIGHT - _BOTTOM, _WIDTH - _RIGHT
    yield f'<rect x="{_LEFT}" y="{_TOP}" width="{right - _LEFT}" height="{bottom - _TOP}" fill="#ffffff"/>'
    for value in sorted({scale.low + (scale.high - scale.low) * part // 4 for part in range(5)}):
        y = scale.y(value)
        yield f'<line x1="{_LEFT}" y1="{y}" x2="{right}" y2="{y}" stroke="#e3e6ea"/>'
        yield f'<text x="{_LEFT - 8}" y="{y + 4}" text-anchor="end" fill="#444">{value}</text>'
    for number in sorted({0, len(runs) // 2, len(runs) - 1}):
        x, day = scale.x[number], escape(runs[number].started[:10])
        yield f'<line x1="{x}" y1="{bottom}" x2="{x}" y2="{bottom + 5}" stroke="#444"/>'
        yield f'<text x="{x}" y="{bottom + 18}" text-anchor="middle" fill="#444">{day}</text>'


def _band(scale: _Scale, figure: FigureTrend) -> Iterator[str]:
    """Yield the range between the lowest and the highest value of each run."""
    columns = zip(*(series.values for series in figure.series), strict=True)
    ranges = []
    for x, column in zip(scale.x, columns, strict=True):
        known = [value for value in column if value is not None]
        if known:
            ranges.append((x, scale.y(min(known)), scale.y(max(known))))
    points = [f"{x},{low}" for x, low, _ in ranges] + [f"{x},{high}" for x, _, high in reversed(ranges)]
    yield f'<polygon points="{" ".join(points)}" fill="#0072B2" fill-opacity="0.12"/>'


def _line(scale: _Scale, series: Series, colour: str, dash: str, number: int) -> Iterator[str]:
    """Yield the line of a series, a dot for each run, and its name at the right."""
    known = [
        (x, scale.y(value)) for x, value in zip(scale.x, series.values, strict=True) if value is not None
    ]
    points = " ".join(f"{x},{y}" for x, y in known)
    stroke = f'stroke="{colour}" stroke-width="1.6" stroke-dasharray="{dash}"'
    yield f'<polyline points="{points}" fill="none" {stroke}/>'
    yield from (f'<circle cx="{x}" cy="{y}" r="2.5" fill="{colour}"/>' for x, y in known)
    left, y = _WIDTH - _RIGHT + 10, _TOP + 14 + _LEGEND * number
    yield f'<line x1="{left}" y1="{y}" x2="{left + 26}" y2="{y}" {stroke}/>'
    yield f'<text x="{left + 32}" y="{y + 4}" fill="#222">{escape(brief(series.host, 40))}</text>'
    if series.gpu:
        gpu = escape(brief(series.gpu, 44))  # a UUID has 40 characters
        yield f'<text x="{left + 32}" y="{y + 15}" font-size="9" fill="#444">{gpu}</text>'


def _span(runs: Sequence[TrendRun]) -> str:
    return f"{runs[0].started[:10]} to {runs[-1].started[:10]}"


def _changed(run: str, host: str, gpu: str) -> str:
    return f"{run}: {host} {gpu}".strip()


def _many(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
