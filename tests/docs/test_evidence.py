"""The page of evidence is made from its data, and the tests and commands that it names exist."""

import re
from pathlib import Path

import pytest
import yaml

from tests.docs.test_names import loaded

ROOT = Path(__file__).resolve().parents[2]
DATA = yaml.safe_load((ROOT / "docs" / "evidence.yaml").read_text())
TARGETS = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
SOURCES = sorted({name for entries in DATA["ran"].values() for each in entries for name in each["by"]})


def test_the_page_is_written_from_its_data() -> None:
    assert (ROOT / "docs" / "evidence.md").read_text() == loaded(ROOT / "docs" / "evidence.py").page(), (
        "make docs"
    )


@pytest.mark.parametrize("source", SOURCES)
def test_a_test_or_command_exists(source: str) -> None:
    if source.startswith("tests/"):
        assert (ROOT / source).is_file()
    else:
        assert source.startswith("muster ") or source.removeprefix("make ") in TARGETS
