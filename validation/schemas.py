"""Writes the published JSON Schemas. `make docs` runs it, and a test checks that they are current."""

import inspect
import json
from pathlib import Path
from typing import Any

import msgspec

from validation.catalogue.catalogue import Content
from validation.forms import PAGE, TABLE, page, table
from validation.judge.training.digests import DigestsResult
from validation.judge.training.training_result import TrainingResult
from validation.report.log import Entry
from validation.report.record import Report

ROOT = Path(__file__).parent
SCHEMAS: dict[Path, tuple[str, Any]] = {
    ROOT / "report" / "report.schema.json": ("The record of a run of muster validate", Report),
    ROOT / "report" / "events.schema.json": ("A line of events.jsonl, the log of a run", Entry),
    ROOT / "catalogue" / "catalogue.schema.json": ("The catalogue of requirements", Content),
    ROOT / "workloads" / "resnet50" / "result.schema.json": ("The result of a training run", TrainingResult),
    ROOT / "workloads" / "digests.schema.json": ("Digests of exact computations on devices", DigestsResult),
}


def schema(title: str, kind: Any) -> str:
    """Return the JSON Schema (draft 2020-12) of `kind`, as the text of its file."""
    content = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": title,
        **_without_indents(msgspec.json.schema(kind)),
    }
    return json.dumps(content, indent=1, sort_keys=True) + "\n"


def _without_indents(part: Any) -> Any:
    """Return the schema with unindented descriptions.

    They are docstrings, and Python before 3.13 keeps their indents.
    """
    if isinstance(part, dict):
        return {
            key: inspect.cleandoc(value)
            if key == "description" and isinstance(value, str)
            else _without_indents(value)
            for key, value in part.items()
        }
    return [_without_indents(value) for value in part] if isinstance(part, list) else part


if __name__ == "__main__":
    for path, (title, kind) in SCHEMAS.items():
        path.write_text(schema(title, kind))
    PAGE.write_text(page())
    TABLE.write_text(table())
