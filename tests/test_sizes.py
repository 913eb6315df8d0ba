"""Modules, classes and functions stay short enough to be read in one sitting."""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[1]
PACKAGES: Final = (
    "orchestrator/control",
    "orchestrator/observe",
    "orchestrator/submit",
    "orchestrator/views",
)
MAX_CLASS_LINES: Final = 350
MAX_MODULE_LINES: Final = 450
MAX_FUNCTION_LINES: Final = 50
LONGER_FUNCTIONS: Final = {
    "orchestrator/control/decide/observer.py:__init__": 58,
    "orchestrator/control/decide/scheduler.py:__init__": 78,
    "orchestrator/control/decide/scheduler.py:decide": 55,
}
"""Functions above the limit with their numbers of lines, which may only fall."""

Function = ast.FunctionDef | ast.AsyncFunctionDef


def modules() -> list[Path]:
    return [path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))]


def lines(node: ast.AST) -> int:
    return (node.end_lineno or 0) - node.lineno + 1 if isinstance(node, ast.stmt) else 0


def too_long_classes(text: str) -> Iterator[tuple[str, int]]:
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ClassDef) and lines(node) > MAX_CLASS_LINES:
            yield node.name, lines(node)


def long_functions(text: str) -> Iterator[tuple[str, int]]:
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, Function) and lines(node) > MAX_FUNCTION_LINES:
            yield node.name, lines(node)


def test_every_package_has_modules() -> None:
    assert {str(path.relative_to(ROOT)).split("/")[1] for path in modules()} == {
        package.split("/")[1] for package in PACKAGES
    }


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(ROOT)))
def test_a_module_and_its_classes_are_short(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= MAX_MODULE_LINES
    assert list(too_long_classes(text)) == []


def test_no_function_becomes_too_long_and_none_of_the_longer_ones_grows() -> None:
    longer = {
        f"{path.relative_to(ROOT)}:{name}": count
        for path in modules()
        for name, count in long_functions(path.read_text(encoding="utf-8"))
    }
    assert longer == LONGER_FUNCTIONS, "store fewer lines here; divide a function that grew"


def test_a_class_and_a_function_beyond_the_bounds_are_noticed() -> None:
    body = "".join(f"        x{number} = {number}\n" for number in range(MAX_CLASS_LINES))
    text = f"class Long:\n    async def run(self):\n{body}"
    assert list(too_long_classes(text)) == [("Long", MAX_CLASS_LINES + 2)]
    assert list(long_functions(text)) == [("run", MAX_CLASS_LINES + 1)]
