"""Draws docs/architecture.svg, the one picture of the whole: `make docs`."""

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Final

WIDTH: Final = 980
HEIGHT: Final = 560
INK, LINE, PALE, TINT = "#1f2937", "#64748b", "#f8fafc", "#e0ecf8"

STYLE: Final = (
    "text { font-family: system-ui, 'Segoe UI', Roboto, sans-serif; font-size: 13px; fill: " + INK + " }"
    " .title { font-weight: 600; font-size: 14px } .path { font-family: ui-monospace, Menlo, monospace; fill: #0b5394 }"
    " .label { font-size: 12px; fill: #475569 }"
)


@dataclass(frozen=True)
class Box:
    """A part: what it is called, the paths where it lives, and what it does."""

    left: int
    top: int
    width: int
    height: int
    title: str
    paths: tuple[str, ...] = ()
    lines: tuple[str, ...] = ()
    fill: str = PALE
    indent: int = 12


@dataclass(frozen=True)
class Arrow:
    """A line from one point to another, with a label that says what flows along it."""

    start: tuple[int, int]
    end: tuple[int, int]
    label: str = ""
    offset: tuple[int, int] = (8, 4)
    both: bool = False


BOXES: Final = (
    Box(20, 20, 290, 96, "the commands, the Python client", ("orchestrator/cli", "orchestrator/client"),
        ("muster submit, list, logs, explain",)),
    Box(345, 20, 290, 96, "the acceptance test", ("validation",),
        ("muster validate: the same commands,", "a recorder and a judge of its own")),
    Box(670, 20, 290, 96, "from bare hosts to a cluster", ("deployment roles playbooks",),
        ("muster install: stages and a journal",)),
    Box(20, 196, 615, 74, "Kubernetes' API server: all state",
        lines=("Projects; workloads; pods with the annotations of muster; the Lease of the leader",), fill=TINT),
    Box(670, 196, 290, 74, "hosts, switches, storage",
        lines=("driver, runtime, Kubernetes, Trident, …",), fill=TINT),
    Box(20, 346, 615, 196, "the operator: one leader", ("orchestrator/control",), fill="#ffffff", indent=110),
    Box(36, 410, 128, 112, "caches", ("observer.py",), ("Observer: one", "Reflector a kind")),
    Box(188, 410, 128, 112, "snapshot", ("reader.py",), ("Reader: what", "changed, read", "once")),
    Box(340, 410, 128, 112, "plan", ("planner/",), ("pure: who runs,", "who goes, why", "the rest waits"), TINT),
    Box(492, 410, 128, 112, "requests", ("executor.py",), ("Executor: bind,", "evict, nominate")),
    Box(670, 346, 290, 92, "a cluster on one machine", ("musterlab",),
        ("a real control plane; the nodes are", "simulated, or kubelet and containerd")),
    Box(670, 456, 290, 86, "measurements", ("musterbench",),
        ("decisions and bindings a second,", "beside kube-scheduler too")),
)  # fmt: skip

ARROWS: Final = (
    Arrow((165, 116), (165, 196), "objects, streams", both=True),
    Arrow((430, 116), (430, 196), "runs commands", (-100, 4)),
    Arrow((550, 196), (550, 116), "watches"),
    Arrow((815, 116), (815, 196), "Ansible"),
    Arrow((100, 270), (100, 410), "watch", (8, -20)),
    Arrow((164, 466), (188, 466)),
    Arrow((316, 466), (340, 466)),
    Arrow((468, 466), (492, 466)),
    Arrow((556, 410), (556, 270), "Binding, Eviction, annotations", (-186, -20)),
    Arrow((670, 376), (600, 270), "starts", (-2, -24)),
)


def draw() -> str:
    """Return the picture as SVG."""
    parts = [
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}"'
            ' role="img" aria-label="The parts of muster and what goes between them">'
        ),
        f"<style>{STYLE}</style>",
        (
            '<defs><marker id="tip" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="7" markerHeight="7"'
            f' orient="auto-start-reverse"><path d="M0 0 L10 5 L0 10 z" fill="{LINE}"/></marker></defs>'
        ),
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>',
    ]
    for box in BOXES:
        parts += _box(box)
    for arrow in ARROWS:
        parts += _arrow(arrow)
    return "\n".join([*parts, "</svg>", ""])


def _box(box: Box) -> Iterator[str]:
    yield (
        f'<rect x="{box.left}" y="{box.top}" width="{box.width}" height="{box.height}" rx="6"'
        f' fill="{box.fill}" stroke="{LINE}"/>'
    )
    left, line = box.left + box.indent, box.top + 22
    yield f'<text class="title" x="{left}" y="{line}">{escape(box.title)}</text>'
    for path in box.paths:
        line += 18
        yield f'<text class="path" x="{left}" y="{line}">{escape(path)}</text>'
    for text in box.lines:
        line += 18
        yield f'<text x="{left}" y="{line}">{escape(text)}</text>'


def _arrow(arrow: Arrow) -> Iterator[str]:
    (x1, y1), (x2, y2) = arrow.start, arrow.end
    start = ' marker-start="url(#tip)"' if arrow.both else ""
    yield (
        f'<line x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}" stroke="{LINE}" stroke-width="1.5"'
        f' marker-end="url(#tip)"{start}/>'
    )
    if arrow.label:
        x, y = (x1 + x2) // 2 + arrow.offset[0], (y1 + y2) // 2 + arrow.offset[1]
        yield f'<text class="label" x="{x}" y="{y}">{escape(arrow.label)}</text>'


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(draw(), encoding="utf-8")
