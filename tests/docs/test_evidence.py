"""The page of evidence is generated from its data, and the tests and commands that it names exist."""

import re
from pathlib import Path

import pytest
import yaml

from tests.docs.test_names import loaded

ROOT = Path(__file__).resolve().parents[2]
DATA = yaml.safe_load((ROOT / "docs" / "evidence.yaml").read_text())
MAKEFILE = (ROOT / "Makefile").read_text()
TARGETS = re.findall(r"^([a-z-]+):", MAKEFILE, re.MULTILINE)
ENTRIES = [*DATA["stages"], *(each for entries in DATA["ran"].values() for each in entries)]
SOURCES = sorted({name for each in ENTRIES for name in each["by"]})


def test_the_page_is_written_from_its_data() -> None:
    assert (ROOT / "docs" / "evidence.md").read_text() == loaded(ROOT / "docs" / "evidence.py").page(), (
        "make docs"
    )


def test_every_stage_of_the_installer_has_its_row() -> None:
    stages = [path.stem for path in (ROOT / "playbooks").glob("*.yml")]
    assert {each["stage"] for each in DATA["stages"]} == {*stages} - {"site", "upgrade", "teardown"}


@pytest.mark.parametrize("source", SOURCES)
def test_a_test_or_command_exists(source: str) -> None:
    if source.startswith("tests/"):
        assert (ROOT / source).is_file()
    elif not source.startswith("muster "):
        target, *variables = source.removeprefix("make ").split()
        assert target in TARGETS
        assert all(f"$({each.partition('=')[0]}" in MAKEFILE for each in variables)
