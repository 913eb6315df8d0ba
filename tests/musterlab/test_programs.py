"""Programs of other projects that a user provides: the look-up, and the table in the documentation."""

from pathlib import Path

import pytest

from musterlab import programs
from musterlab.errors import BinariesError
from musterlab.programs import DRA_DRIVER, FOLDER_VARIABLE, PROGRAMS, TRIDENT

OPERATIONS = Path(__file__).parents[2] / "docs" / "how-to" / "lab.md"


@pytest.fixture(autouse=True)
def no_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(FOLDER_VARIABLE, raising=False)


def test_without_a_folder_one_line_names_each_program_and_its_image() -> None:
    wanted = ", ".join(f"{program.file} ({program.origin})" for program in PROGRAMS)
    assert programs.missing(PROGRAMS) == f"{FOLDER_VARIABLE} names no folder; put into it: {wanted}"
    with pytest.raises(BinariesError, match="names no folder; put into it: trident_orchestrator"):
        programs.find(TRIDENT)


def test_a_program_of_the_folder_is_found_and_one_that_it_lacks_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / TRIDENT.file).touch()
    (tmp_path / DRA_DRIVER.file).mkdir()
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path))
    assert programs.find(TRIDENT) == tmp_path / TRIDENT.file
    assert programs.missing((TRIDENT,)) == ""
    with pytest.raises(BinariesError, match=f"{tmp_path} lacks a program; put into it: gpu-kubelet-plugin"):
        programs.find(DRA_DRIVER)


def test_the_named_folder_wins_over_the_folder_of_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / TRIDENT.file).touch()
    monkeypatch.setenv(FOLDER_VARIABLE, "/nowhere")
    assert programs.find(TRIDENT, tmp_path) == tmp_path / TRIDENT.file


def test_the_documentation_has_the_table_of_programs() -> None:
    rows = [f"| `{each.file}` | {each.origin} | {', '.join(each.tried)} |" for each in PROGRAMS]
    assert f"| file | image and path in it | versions tried |\n|---|---|---|\n{chr(10).join(rows)}\n\n" in (
        OPERATIONS.read_text()
    )
