"""Variables and parameters are named after their values."""

from __future__ import annotations

import ast
import functools
import re
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[1]
VAGUE = frozenset(
    "each found asked told made said seen kept meant left taken wanted named given".split()  # noqa: SIM905
)
FORMER = frozenset(
    "Decision RoomFinder Bar Books Hold Holds Kept Choices Question ask gates kept lawful look manifests_beside obey "  # noqa: SIM905
    "outlook proof returning stand_ins tie where_they_part".split()
)
"""Names that a term of the field has replaced."""
FORMER_WORDS = frozenset(
    "aside asked court dispensable guardian lack lacks lacking law refusal refusals room rooms ruling standing tether "  # noqa: SIM905
    "told trouble troubles vain".split()
)
"""Words that are in no name any more."""
FORMER_PREFIXES = ("longest_", "most_")
FORMER_MODULES = frozenset("gates guardian make_room outlook present rest room rooms tables".split())  # noqa: SIM905
STILL_FORMER = {("look", "chromium.py"), ("told", "chromium.py")}
"""Names that are still to be renamed, by name and file."""
PACKAGES = (
    "deployment",
    "hostfacts",
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
    "orchestrator/observe",
    "orchestrator/submit",
    "orchestrator/views",
    "validation",
)
"""The packages whose names have been revised. Add a package after its revision."""
MAX_IN_A_THOUSAND = 10


class Names(NamedTuple):
    """The names in a file, each as often as it occurs."""

    bound: list[str]
    """Names of assignments, loops and parameters."""
    others: list[str]
    """Names of classes, functions, and attributes that are assigned."""


@functools.cache
def names_of(file: Path) -> Names:
    bound, others = [], []
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        match node:
            case ast.Name(id=name, ctx=ast.Store()) | ast.arg(arg=name):
                bound.append(name)
            case ast.Attribute(attr=name, ctx=ast.Store()):
                others.append(name)
            case ast.ClassDef(name=name) | ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                others.append(name)
    return Names(bound, others)


@pytest.mark.parametrize("package", PACKAGES)
def test_names_describe_their_values(package: str) -> None:
    names = [
        (name, file.name) for file in sorted((ROOT / package).rglob("*.py")) for name in names_of(file).bound
    ]
    vague = [(name, file) for name, file in names if name.strip("_") in VAGUE]
    assert names
    assert len(vague) * 1000 < MAX_IN_A_THOUSAND * len(names), vague


def is_former(name: str) -> bool:
    """Return whether the name, one of its words or its prefix has been replaced."""
    plain = name.strip("_")
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", plain).lower().split("_")
    return plain in FORMER or not FORMER_WORDS.isdisjoint(words) or plain.lower().startswith(FORMER_PREFIXES)


@pytest.mark.parametrize(
    "name",
    [
        "room",
        "_make_room",
        "NoRoom",
        "held_in_vain",
        "SET_ASIDE",
        "LONGEST_NAME",
        "most_steps",
        "asked",
        "Kept",
    ],
)
def test_a_replaced_word_is_noticed_wherever_it_stands(name: str) -> None:
    assert is_former(name)


@pytest.mark.parametrize("name", ["bathroom", "placement", "kept_up", "most", "holds", "tables", "decision"])
def test_other_names_are_left_alone(name: str) -> None:
    assert not is_former(name)


def test_replaced_words_do_not_come_back() -> None:
    files = [
        file
        for top in (
            "deployment",
            "hostfacts",
            "image",
            "musterbench",
            "musterlab",
            "musterweb",
            "orchestrator",
            "roles",
            "tests",
            "validation",
        )
        for file in sorted((ROOT / top).rglob("*.py"))
    ]
    names = [(name, file.name) for file in files for name in (*names_of(file).bound, *names_of(file).others)]
    former = {
        (name, file) for name, file in names if not name.startswith("test_") and is_former(name)
    } - STILL_FORMER
    assert names
    assert former == set()
    assert [file for file in files if file.stem in FORMER_MODULES] == []
