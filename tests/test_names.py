"""Variables and parameters are named after what they hold."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
VAGUE = frozenset(
    "each found asked told made said seen kept meant left taken wanted named given".split()  # noqa: SIM905
)
FORMER = frozenset(
    "asked told trouble Court Law Ruling lawful RoomFinder Standing Hold Holds Kept Bar Books Returning stand_ins "  # noqa: SIM905
    "Choices Question outlook guardian tether tie manifests_beside obey dispensable where_they_part".split()
)
"""Words that the field's words have replaced."""
FORMER_PREFIXES = ("LONGEST_", "MOST_")
PACKAGES = (
    "deployment",
    "musterbench",
    "musterlab",
    "musterweb",
    "orchestrator/agent",
    "orchestrator/cli",
    "orchestrator/client",
    "orchestrator/cluster",
    "orchestrator/control",
    "orchestrator/manifests",
    "orchestrator/planner",
    "orchestrator/simulation",
    "orchestrator/workloads",
    "validation",
)
"""The packages that have been gone through. Add a package when it has been."""
MAX_IN_A_THOUSAND = 10


def bound_names(source: str) -> list[str]:
    """Return every name that an assignment, a loop, a parameter and the like binds, as often as it does."""
    nodes = list(ast.walk(ast.parse(source)))
    variables = [node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)]
    return variables + [node.arg for node in nodes if isinstance(node, ast.arg)]


@pytest.mark.parametrize("package", PACKAGES)
def test_names_say_what_they_hold(package: str) -> None:
    names = [
        (name, file.name)
        for file in sorted((ROOT / package).rglob("*.py"))
        for name in bound_names(file.read_text(encoding="utf-8"))
    ]
    vague = [(name, file) for name, file in names if name.strip("_") in VAGUE]
    assert names
    assert len(vague) * 1000 < MAX_IN_A_THOUSAND * len(names), vague


def defined_names(source: str) -> list[str]:
    """Return the bound names, and those of classes, functions and attributes that are set."""
    nodes = list(ast.walk(ast.parse(source)))
    kinds = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
    attributes = [
        node.attr for node in nodes if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)
    ]
    return bound_names(source) + attributes + [node.name for node in nodes if isinstance(node, kinds)]


def test_replaced_words_do_not_come_back() -> None:
    files = [
        file
        for top in (
            "deployment",
            "image",
            "musterbench",
            "musterlab",
            "musterweb",
            "orchestrator",
            "roles",
            "validation",
        )
        for file in sorted((ROOT / top).rglob("*.py"))
    ]
    names = [
        (name.strip("_"), file.name) for file in files for name in defined_names(file.read_text("utf-8"))
    ]
    former = [(name, file) for name, file in names if name in FORMER or name.startswith(FORMER_PREFIXES)]
    assert names
    assert former == []
