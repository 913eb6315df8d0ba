"""All names in the documents exist: in the walks of walks.md, its picture, the glossary, and every path."""

import ast
import importlib.util
import re
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = sorted([*(ROOT / "docs").rglob("*.md"), ROOT / "README.md", ROOT / "CONTRIBUTING.md"])
WALKS = (ROOT / "docs" / "explanation" / "walks.md").read_text()
GLOSSARY = (
    (ROOT / "docs" / "reference" / "glossary.md").read_text().partition("\n## Words that are not used\n")[0]
)

OURS = (
    "orchestrator|validation|hostfacts|deployment|musterlab|musterbench|musterweb|playbooks|roles|inventories|tests"
    "|docs"
)
PATH_IN_CODE = re.compile(rf"`((?:{OURS})/[\w./-]+)`")
WALK_ROW = re.compile(r"^\| \d+ \| `([^`]+)` \|", re.MULTILINE)
CARRIER = re.compile(
    r"^\| (?!word)(?P<word>[^|]+) \| [^|]+ \| (?:`(?P<name>[\w.]+)`, )?`(?P<path>[\w/.]+)` \|$", re.MULTILINE
)
MAX_TERMS = 72


def loaded(path: Path) -> Any:
    """Load a file as a module, from any folder."""
    specification = importlib.util.spec_from_file_location(path.stem, path)
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    sys.modules[path.stem] = module  # dataclasses look up the module of their class
    specification.loader.exec_module(module)
    return module


PICTURE = loaded(ROOT / "docs" / "architecture_picture.py")
ROOTS = (ROOT, ROOT / "orchestrator")


def walk(title: str) -> list[str]:
    section = WALKS.split(f"## {title}\n")[1].split("\n## ")[0]
    return WALK_ROW.findall(section)


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda each: each.name)
def test_paths_in_the_documents_exist(document: Path) -> None:
    paths = PATH_IN_CODE.findall(document.read_text())
    assert [each for each in paths if not (ROOT / each).exists()] == []


@pytest.mark.parametrize(
    ("title", "fewest", "most"),
    [
        ("From a pod's event to its binding", 15, 25),
        ("From a submit to its objects", 6, 9),
        ("From a scenario to its report", 12, 23),
        ("From a site file to the journal", 12, 18),
    ],
)
def test_a_walk_names_files_that_exist_once_each_and_few(title: str, fewest: int, most: int) -> None:
    files = walk(title)
    assert [each for each in files if not (ROOT / each).is_file()] == []
    assert len(set(files)) == len(files)
    assert fewest <= len(files) <= most


def test_the_picture_is_drawn_from_its_source() -> None:
    assert (ROOT / "docs" / "architecture.svg").read_text() == PICTURE.draw(), "run `make docs`"


def test_the_picture_names_existing_packages() -> None:
    files = {each.name for each in (ROOT / "orchestrator").rglob("*.py")}
    words = [word for box in PICTURE.BOXES for path in box.paths for word in path.split()]
    wrong = [each for each in words if each not in files]
    assert [each for each in wrong if not any((root / each).exists() for root in ROOTS)] == []


def test_the_glossary_is_short() -> None:
    words = [each["word"] for each in CARRIER.finditer(GLOSSARY)]
    rows = [line for line in GLOSSARY.splitlines() if line.startswith("| ") and not line.startswith("| word")]
    assert len(words) == len(rows), "every row has a carrier"
    assert len(set(words)) == len(words) <= MAX_TERMS


@pytest.mark.parametrize("row", list(CARRIER.finditer(GLOSSARY)), ids=lambda each: each["word"])
def test_a_term_is_carried_by_the_name_in_the_glossary(row: re.Match[str]) -> None:
    scope: ast.AST = ast.parse((ROOT / row["path"]).read_text())
    for name in row["name"].split(".") if row["name"] else ():
        scope = bound(scope)[name]


def bound(scope: ast.AST) -> dict[str, ast.AST]:
    """Return the definitions directly in a module or class, by name."""
    names: dict[str, ast.AST] = {}
    for node in ast.iter_child_nodes(scope):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            names[node.name] = node
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            names[node.target.id] = node
        elif isinstance(node, ast.Assign):
            names |= {target.id: node for target in node.targets if isinstance(target, ast.Name)}
    return names
