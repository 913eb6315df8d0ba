"""Draws the pictures of docs/pictures.yaml into docs/pictures/: `make docs`.

A picture is a grid of boxes with arrows. The colours follow the reader's light or dark scheme.
"""

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any, Final

import yaml

DATA: Final = Path(__file__).with_name("pictures.yaml")
CELL: Final = (166, 76)
GAP: Final = (40, 34)
MARGIN: Final = 14
LINE_HEIGHT: Final = 17
CHARACTER_WIDTH: Final = 6.9
"""Upper estimate, in pixels, of the mean width of a character in the font of the pictures."""

STYLE: Final = (
    "text{font:13px system-ui,'Segoe UI',Roboto,sans-serif;fill:#1f2937}.t{font-weight:600}"
    ".l{font-size:12px;fill:#475569}.b{fill:#f8fafc;stroke:#64748b}.a{fill:#d7e8f7;stroke:#64748b}"
    ".c{fill:#fbe3c8;stroke:#64748b}.g{fill:none;stroke:#64748b;stroke-dasharray:5 4}"
    "path{stroke:#64748b;stroke-width:1.5;fill:none}.tip{fill:#64748b;stroke:none}.bg{fill:#ffffff}"
    "@media(prefers-color-scheme:dark){text{fill:#e5e7eb}.l{fill:#a8b3c4}.b{fill:#1e293b;stroke:#94a3b8}"
    ".a{fill:#1d3f5f;stroke:#94a3b8}.c{fill:#5b3a17;stroke:#94a3b8}.g{stroke:#94a3b8}path{stroke:#94a3b8}"
    ".tip{fill:#94a3b8}.bg{fill:#0f172a}}"
)


TIP: Final = (
    '<defs><marker id="tip" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="8" markerHeight="8" orient="auto">'
    '<path class="tip" d="M0 0L10 5L0 10z"/></marker></defs>'
)


@dataclass(frozen=True)
class Box:
    """A rectangle on the grid, in pixels, with its lines of text and its class of colours."""

    left: float
    top: float
    width: float
    height: float
    lines: tuple[str, ...]
    kind: str

    @classmethod
    def of(cls, data: dict[str, Any]) -> "Box":
        """Return the box of an entry `{at: [column, row], size: [columns, rows], text: …, kind: b}`."""
        (column, row), (columns, rows) = data["at"], data.get("size", (1, 1))
        return cls(
            MARGIN + column * (CELL[0] + GAP[0]),
            MARGIN + row * (CELL[1] + GAP[1]),
            columns * (CELL[0] + GAP[0]) - GAP[0],
            rows * (CELL[1] + GAP[1]) - GAP[1],
            tuple(str(data.get("text", "")).splitlines()),
            data.get("kind", "b"),
        )

    @property
    def centre(self) -> tuple[float, float]:
        """The middle of the rectangle."""
        return self.left + self.width / 2, self.top + self.height / 2


def pictures() -> dict[str, str]:
    """Return each picture as SVG, by the name of its file."""
    data = yaml.safe_load(DATA.read_text(encoding="utf-8"))
    return {f"{name}.svg": _draw(each) for name, each in data.items()}


def _draw(data: dict[str, Any]) -> str:
    boxes = {name: Box.of(each) for name, each in data["boxes"].items()}
    width = max(box.left + box.width for box in boxes.values()) + MARGIN
    height = max(box.top + box.height for box in boxes.values()) + MARGIN
    begin = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" role="img"'
    parts = [
        f'{begin} aria-label="{escape(data["alt"])}">',
        f"<style>{STYLE}</style>",
        TIP,
        f'<rect class="bg" width="{width:g}" height="{height:g}"/>',
    ]
    for box in boxes.values():
        parts += _box(box)
    for arrow in data.get("arrows", ()):
        parts += _arrow(boxes, arrow)
    return "\n".join([*parts, "</svg>", ""])


def _box(box: Box) -> Iterator[str]:
    yield (
        f'<rect class="{box.kind}" x="{box.left:g}" y="{box.top:g}" width="{box.width:g}" height="{box.height:g}"'
        ' rx="6"/>'
    )
    longest = max(map(len, box.lines), default=0)
    if longest * CHARACTER_WIDTH > box.width:
        raise ValueError(f"too long for its box: {box.lines}")
    x, y = box.centre
    first = box.top + 20 if box.kind == "g" else y - (len(box.lines) - 1) * LINE_HEIGHT / 2 + 4
    for number, line in enumerate(box.lines):
        title = ' class="t"' if number == 0 else ""
        yield f'<text{title} x="{x:g}" y="{first + number * LINE_HEIGHT:g}" text-anchor="middle">{escape(line)}</text>'


def _arrow(boxes: dict[str, Box], text: str) -> Iterator[str]:
    """Draw `start -> end: label` between the nearest sides of two boxes."""
    names, _, label = text.partition(":")
    start, end = (boxes[name.strip()] for name in names.split("->"))
    (x1, y1), (x2, y2) = _side(start, end), _side(end, start)
    yield f'<path d="M{x1:g} {y1:g}L{x2:g} {y2:g}" marker-end="url(#tip)"/>'
    if label:
        x, y = (x1 + x2) / 2, (y1 + y2) / 2
        anchor, x, y = ("middle", x, y - 6) if y1 == y2 else ("start", x + 7, y + 4)
        yield f'<text class="l" x="{x:g}" y="{y:g}" text-anchor="{anchor}">{escape(label.strip())}</text>'


def _side(box: Box, other: Box) -> tuple[float, float]:
    """Return the point on the outline of a box from which an arrow to another begins."""
    (x, y), (to_x, to_y) = box.centre, other.centre
    if other.left > box.left + box.width or other.left + other.width < box.left:
        return (box.left + box.width if to_x > x else box.left), y
    low, high = max(box.left, other.left), min(box.left + box.width, other.left + other.width)
    return (low + high) / 2, (box.top + box.height if to_y > y else box.top)


if __name__ == "__main__":
    for file, drawn in pictures().items():
        (Path(sys.argv[1]) / file).write_text(drawn, encoding="utf-8")
