"""Tests, functions and numbers that the documents name exist."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from orchestrator.control.decide.intervals import IDLE_PART_OF_DECISION, MAX_REST_SECONDS
from orchestrator.planner.model import Waiting
from tests.validation.headlines import REQUIREMENTS

ROOT = Path(__file__).parent.parent
TEST = re.compile(r"`(?P<file>tests/[\w/]+\.py)(?:::(?P<name>\w+))?`")
NAMED = [
    pytest.param(match["file"], match["name"], id=match[0].strip("`"))
    for path in sorted((ROOT / "docs").rglob("*.md"))
    for match in TEST.finditer(path.read_text(encoding="utf-8"))
]


@cache
def functions(file: str) -> frozenset[str]:
    tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
    return frozenset(
        node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    )


@pytest.mark.parametrize(("file", "name"), NAMED)
def test_every_test_that_a_document_names_is_there(file: str, name: str | None) -> None:
    assert (ROOT / file).is_file()
    assert name is None or name in functions(file)


def test_the_table_of_attempts_names_a_test_in_every_row() -> None:
    text = (ROOT / "docs" / "reference" / "attempts.md").read_text(encoding="utf-8")
    rows = text.partition("## Attempts\n")[2].partition("\n## ")[0].splitlines()
    attempts = [row for row in rows if row.startswith("| ")][1:]
    assert len(attempts) >= 40
    assert [row for row in attempts if "::test_" not in row] == []


def test_the_document_says_how_long_the_operator_rests_after_a_decision() -> None:
    text = " ".join((ROOT / "docs" / "explanation" / "scaling.md").read_text(encoding="utf-8").split())
    assert (IDLE_PART_OF_DECISION, MAX_REST_SECONDS) == (0.5, 1.0)
    assert "The pause is half the processor time of the decision, at most 1 second." in text


def test_every_reason_of_a_pending_workload_is_in_the_reference() -> None:
    text = (ROOT / "docs" / "reference" / "reasons.md").read_text(encoding="utf-8")
    assert [each.value for each in Waiting if f"| `{each.value}` |" not in text] == []


def test_the_documents_give_the_number_of_requirements() -> None:
    wrong, numbers = [], 0
    for path in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))):
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            found = re.findall(r"\bof (\d+) requirements", line)
            numbers += len(found)
            if any(int(each) != REQUIREMENTS for each in found):
                wrong.append(f"{path.relative_to(ROOT)}:{number}: write {REQUIREMENTS}: {line}")
    assert wrong == []
    assert numbers >= 3
