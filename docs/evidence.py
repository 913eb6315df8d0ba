"""Writes docs/evidence.md from docs/evidence.yaml: `make docs`."""

import sys
from pathlib import Path
from typing import Any, Final

import yaml

DATA: Final = Path(__file__).with_name("evidence.yaml")
_BEGIN: Final = """\
# Evidence

<!-- Written by `make docs` from docs/evidence.yaml and docs/evidence.md.in. Change these, not this file. -->

This page says which parts ran on which real programs and hardware, and which did not. Other pages do not repeat it.
"""


def page() -> str:
    """Return the page: what was not run, a table of the stages and of each subject, and the text of evidence.md.in."""
    data = yaml.safe_load(DATA.read_text(encoding="utf-8"))
    tables = [f"## {title}\n\n{_table(entries)}\n" for title, entries in data["ran"].items()]
    missing = "\n".join(f"- {each}" for each in data["not_run"])
    text = DATA.with_name("evidence.md.in").read_text(encoding="utf-8")
    stages = f"## Stages of `muster install`\n\n{_stages(data['stages'])}\n"
    return "\n".join([_BEGIN, f"## Not run yet\n\n{missing}\n", stages, *tables, text])


def _stages(entries: list[dict[str, Any]]) -> str:
    rows = [
        f"| {each['stage']} | {each['real']} | {each['stand_in']} | {each['never']} | {_commands(each['by'])} |"
        for each in entries
    ]
    head = ["| stage | run for real | on a stand-in | never | by |", "|---|---|---|---|---|"]
    return "\n".join([*head, *rows])


def _table(entries: list[dict[str, Any]]) -> str:
    rows = [
        f"| {each['subject']} | {each['where']} | {each.get('date', '2026-11')} | {_commands(each['by'])} |"
        for each in entries
    ]
    return "\n".join(["| subject | ran on | date | by |", "|---|---|---|---|", *rows])


def _commands(names: list[str]) -> str:
    return ", ".join(f"`{each}`" for each in names)


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(page(), encoding="utf-8")
