"""Modules do not import each other in a circle, even for annotations."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import grimp
import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[1]
PACKAGES = sorted(path.parent.name for path in ROOT.glob("*/__init__.py"))


def circles(imports: dict[str, set[str]]) -> Iterator[list[str]]:
    """Yield the modules of every circle (strongly connected components, Tarjan)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    path: list[str] = []

    def visit(module: str) -> Iterator[list[str]]:
        index[module] = low[module] = len(index)
        path.append(module)
        for imported in sorted(imports.get(module, ())):
            if imported not in index:
                yield from visit(imported)
                low[module] = min(low[module], low[imported])
            elif imported in path:
                low[module] = min(low[module], index[imported])
        if low[module] == index[module]:
            start = path.index(module)
            component = sorted(path[start:])
            del path[start:]
            if len(component) > 1 or module in imports.get(module, ()):
                yield component

    for module in sorted(imports):
        if module not in index:
            yield from visit(module)


@pytest.mark.parametrize(
    ("imports", "expected"),
    [
        ({"a": {"b"}, "b": {"c"}, "c": set()}, []),
        ({"a": {"b"}, "b": {"c"}, "c": {"b"}}, [["b", "c"]]),
        ({"a": {"a"}}, [["a"]]),
    ],
)
def test_a_circle_is_found(imports: dict[str, set[str]], expected: list[list[str]]) -> None:
    assert list(circles(imports)) == expected


def test_no_modules_import_each_other_in_a_circle() -> None:
    graph = grimp.build_graph(
        *PACKAGES, include_external_packages=False, exclude_type_checking_imports=False, cache_dir=None
    )
    imports = {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}
    assert list(circles(imports)) == []
