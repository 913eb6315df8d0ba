"""Names tell which tests to run after a change: this file checks the rule of CONTRIBUTING.md."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TESTS = sorted((ROOT / "tests").rglob("test_*.py"))
PACKAGES = [
    ROOT / name
    for name in (
        "orchestrator",
        "validation",
        "hostfacts",
        "musterlab",
        "musterbench",
        "musterweb",
        "deployment",
    )
]


def mirrors_a_module(test: Path) -> bool:
    """Return whether the file has the name of a module in the package after which its folder is named."""
    folder = test.parent.relative_to(ROOT / "tests")
    module = f"{test.stem.removeprefix('test_')}.py"
    homes = [package.parent / folder for package in PACKAGES] + [package / folder for package in PACKAGES]
    return any((home / module).is_file() for home in homes)


@pytest.mark.parametrize("test", TESTS, ids=lambda each: str(each.relative_to(ROOT)))
def test_a_file_of_tests_has_the_name_of_a_module_or_names_its_subject(test: Path) -> None:
    covers = ast.get_docstring(ast.parse(test.read_text()))
    assert mirrors_a_module(test) or covers, "name it after its module, or say at its top what it covers"
