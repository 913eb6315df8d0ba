"""The chart "GPUs per project over time" as one SVG: step lines, dashed quotas, a mark for every step.

There is one chart for each group of scenarios that share a state. The colours are Okabe and Ito's palette, which is
safe for colour-blind readers. Lines also differ in dash and have their name at the right end, so that a grey print is
readable.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from xml.sax import saxutils

from validation.report.record import Point
from validation.report.text import inert

WIDTH, HEIGHT = 1100, 450
LEFT, RIGHT, TOP, BOTTOM = 56, 120, 88, 46
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#7F6000", "#332288")
LETTER_WIDTH = 6.4
DASHES = ("", "9 3", "3 3", "12 3 3 3", "6 2 2 2", "1 3", "15 4", "2 6")


def escape(text: str) -> str:
    """Return the text for an element or an attribute, without markup and without control characters.

    Example: `escape("a < b")` returns `'a &lt; b'`.
    """
    return saxutils.escape(inert(text), {'"': "&quot;"})


@dataclass(frozen=True, slots=True)
class Mark:
    """A moment of the run that has a name."""

    t_ms: int
    label: str
    section: bool = False


@dataclass(frozen=True, slots=True)
class Plot:
    """The content of a chart from `start_ms` to `end_ms`.

    `capacity_milli`, the GPUs of the cluster, is drawn as a line.
    """

    title: str
    start_ms: int
    end_ms: int
    points: Sequence[Point]
    quotas_milli: dict[str, int]
    marks: Sequence[Mark]
    capacity_milli: int


@dataclass(frozen=True, slots=True)
class _Scale:
    plot: Plot
    top_milli: int

    def x(self, t_ms: int) -> float:
        span = max(1, self.plot.end_ms - self.plot.start_ms)
        clipped = min(max(t_ms, self.plot.start_ms), self.plot.end_ms)
        return round(LEFT + (clipped - self.plot.start_ms) / span * (WIDTH - LEFT - RIGHT), 1)

    def y(self, milli: int) -> float:
        return round(HEIGHT - BOTTOM - milli / self.top_milli * (HEIGHT - TOP - BOTTOM), 1)


def render(plot: Plot) -> str:
    """Return the chart as an `<svg>` element that needs no style sheet and no script."""
    scale = _Scale(plot, max(1000, plot.capacity_milli))
    parts = [
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
            f'font-family="Helvetica, Arial, sans-serif" font-size="11" aria-label="{escape(plot.title)}">'
        ),
        f"<title>{escape(plot.title)}</title>",
        *_axes(scale),
        *_marks(scale),
        *_quotas(scale),
        *_lines(scale),
        *_quota_labels(scale),
        "</svg>",
    ]
    return "\n".join(parts)


def _axes(scale: _Scale) -> list[str]:
    plot = scale.plot
    bottom, right = HEIGHT - BOTTOM, WIDTH - RIGHT
    parts = [f'<rect x="{LEFT}" y="{TOP}" width="{right - LEFT}" height="{bottom - TOP}" fill="#ffffff"/>']
    step = next(
        step for step in (1, 2, 4, 5, 10, 20, 50, 100, 500, 1000) if scale.top_milli / 1000 / step <= 10
    )
    for value in range(0, scale.top_milli // 1000 + 1, step):
        y = scale.y(value * 1000)
        parts.append(f'<line x1="{LEFT}" y1="{y}" x2="{right}" y2="{y}" stroke="#e3e6ea"/>')
        parts.append(f'<text x="{LEFT - 8}" y="{y + 4}" text-anchor="end" fill="#444">{value}</text>')
    for t_ms in _ticks(plot.start_ms, plot.end_ms):
        x = scale.x(t_ms)
        label = f"{(t_ms - plot.start_ms) / 1000:g}"
        parts.append(f'<line x1="{x}" y1="{bottom}" x2="{x}" y2="{bottom + 5}" stroke="#444"/>')
        parts.append(f'<text x="{x}" y="{bottom + 18}" text-anchor="middle" fill="#444">{label}</text>')
    parts += [
        f'<line x1="{LEFT}" y1="{bottom}" x2="{right}" y2="{bottom}" stroke="#444"/>',
        f'<line x1="{LEFT}" y1="{TOP}" x2="{LEFT}" y2="{bottom}" stroke="#444"/>',
        f'<text x="{(LEFT + right) / 2}" y="{HEIGHT - 8}" text-anchor="middle" fill="#222">time (s)</text>',
        (
            f'<text transform="translate(16 {(TOP + bottom) / 2}) rotate(-90)" text-anchor="middle" fill="#222">'
            "allocated GPUs</text>"
        ),
    ]
    return parts


def _ticks(start_ms: int, end_ms: int) -> list[int]:
    span = max(1000, end_ms - start_ms)
    sizes = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 1800, 3600)
    size = next((size for size in sizes if span / 1000 / size <= 12), 7200) * 1000
    return list(range(start_ms, end_ms + 1, size))


def _marks(scale: _Scale) -> list[str]:
    """Return the marks as SVG: a solid line and a bold label for each section, and a dotted line for each step.

    A label is put into the first row with enough free space. If no row has enough, the label is left out; its line has
    it as a title.
    """
    parts = []
    section_rows = _Rows((TOP - 74, TOP - 58))
    step_rows = _Rows((TOP - 38, TOP - 23, TOP - 8))
    for mark in sorted(scale.plot.marks, key=lambda mark: (mark.t_ms, not mark.section)):
        x = scale.x(mark.t_ms)
        row = (section_rows if mark.section else step_rows).place(x, mark.label)
        y = TOP if row is None else row
        line = 'stroke="#5b6470"' if mark.section else 'stroke="#aab2bd" stroke-dasharray="1 3"'
        style = 'font-weight="bold" fill="#1c2733"' if mark.section else 'fill="#48525e"'
        parts.append(
            f'<line x1="{x}" y1="{y - 9}" x2="{x}" y2="{HEIGHT - BOTTOM}" {line}>'
            f"<title>{escape(mark.label)}</title></line>"
        )
        if row is not None:
            parts.append(f'<text x="{x + 4}" y="{y}" {style}>{escape(mark.label)}</text>')
    return parts


class _Rows:
    """Rows of labels. Each label is put into the first row in which it covers no other label."""

    def __init__(self, heights: tuple[int, ...]) -> None:
        self._heights = heights
        self._used = [0.0] * len(heights)

    def place(self, x: float, label: str) -> int | None:
        """Return the height for the label; None if no row has enough free space."""
        row = next((row for row, used in enumerate(self._used) if used <= x), None)
        if row is None:
            return None
        self._used[row] = x + 12 + LETTER_WIDTH * len(label)
        return self._heights[row]


def _quotas(scale: _Scale) -> list[str]:
    """Return one dashed line for each distinct quota, in the colour of the first project that has the quota."""
    return [
        f'<line class="quota" x1="{LEFT}" y1="{scale.y(quota)}" x2="{WIDTH - RIGHT}" y2="{scale.y(quota)}" '
        f'stroke="{colour}" stroke-dasharray="5 5" stroke-opacity="0.65"><title>{label}</title></line>'
        for quota, label, colour in _named_quotas(scale.plot)
    ]


def _quota_labels(scale: _Scale) -> list[str]:
    """Return the labels of the quota lines at the left, which cover everything else."""
    return [
        f'<text x="{LEFT + 5}" y="{scale.y(quota) - 4}" font-size="10" fill="{colour}" '
        f'stroke="#fff" stroke-width="3" paint-order="stroke">{label}</text>'
        for quota, label, colour in _named_quotas(scale.plot)
    ]


def _named_quotas(plot: Plot) -> list[tuple[int, str, str]]:
    """Return each distinct quota with its label and its colour."""
    by_quota: dict[int, list[str]] = {}
    for project, quota in plot.quotas_milli.items():
        by_quota.setdefault(quota, []).append(project)
    colours = _colours(plot)
    return [
        (quota, escape(f"quota {', '.join(projects)}: {quota / 1000:g}"), colours[projects[0]])
        for quota, projects in by_quota.items()
    ]


def _colours(plot: Plot) -> dict[str, str]:
    return {project: COLOURS[index % len(COLOURS)] for index, project in enumerate(plot.quotas_milli)}


def _lines(scale: _Scale) -> list[str]:
    plot = scale.plot
    ends: list[tuple[float, str, str, str]] = []
    total = [
        (point.t_ms, sum(point.allocated_milli.get(p, 0) for p in plot.quotas_milli)) for point in plot.points
    ]
    parts = [_path(scale, total, 'class="total" stroke="#1c2733" stroke-width="1.6" stroke-opacity="0.75"')]
    ends.append((scale.y(_last(plot, total)), "total", "#1c2733", f"{_last(plot, total) / 1000:g}"))
    for index, (project, colour) in enumerate(_colours(plot).items()):
        values = [(point.t_ms, point.allocated_milli.get(project, 0)) for point in plot.points]
        style = f'class="project" data-project="{escape(project)}" stroke="{colour}" stroke-width="2.6"'
        if DASHES[index % len(DASHES)]:
            style += f' stroke-dasharray="{DASHES[index % len(DASHES)]}"'
        parts.append(_path(scale, values, style))
        ends.append((scale.y(_last(plot, values)), project, colour, f"{_last(plot, values) / 1000:g}"))
    return parts + _legend(ends)


def _last(plot: Plot, values: list[tuple[int, int]]) -> int:
    return next((milli for t_ms, milli in reversed(values) if t_ms <= plot.end_ms), 0)


def _path(scale: _Scale, values: list[tuple[int, int]], style: str) -> str:
    """Return a step line: each value lasts until the next.

    Of many values at one place, only the lowest, the highest and the last are drawn.
    """
    plot = scale.plot
    before = [milli for t_ms, milli in values if t_ms <= plot.start_ms]
    path = [f"M{scale.x(plot.start_ms)} {scale.y(before[-1] if before else 0)}"]
    columns: dict[float, list[int]] = {}
    for t_ms, milli in values:
        if plot.start_ms < t_ms <= plot.end_ms:
            columns.setdefault(scale.x(t_ms), []).append(milli)
    for x, column in columns.items():
        heights = column if len(column) <= 3 else [min(column), max(column), column[-1]]
        path.append(f"H{x}" + "".join(f"V{scale.y(milli)}" for milli in heights))
    return f'<path d="{"".join(path)}H{scale.x(plot.end_ms)}" fill="none" {style}/>'


def _legend(ends: list[tuple[float, str, str, str]]) -> list[str]:
    """Return the names at the right end of the lines, moved apart if lines end close to each other."""
    parts = []
    lowest = TOP - 20.0
    x = WIDTH - RIGHT
    lowest_allowed = HEIGHT - BOTTOM + 8
    ordered = sorted(ends)
    for index, (y, name, colour, value) in enumerate(ordered):
        place = min(max(y, lowest + 15), lowest_allowed - 15 * (len(ordered) - 1 - index))
        lowest = place
        parts.append(f'<path d="M{x} {y}L{x + 14} {round(place, 1)}" fill="none" stroke="{colour}"/>')
        parts.append(
            f'<text x="{x + 18}" y="{round(place + 4, 1)}" fill="{colour}" font-weight="bold">'
            f"{escape(name)} {value}</text>"
        )
    return parts
