"""Variables and parameters are named after what they hold."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
VAGUE = frozenset(
    "each found asked told made said seen kept meant left taken wanted named given".split()  # noqa: SIM905
)
PACKAGES = (
    "deployment",
    "musterbench",
    "musterlab",
    "musterweb",
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
MOST_IN_A_THOUSAND = 10


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
    assert len(vague) * 1000 < MOST_IN_A_THOUSAND * len(names), vague
