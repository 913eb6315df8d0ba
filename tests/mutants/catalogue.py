"""Reads the catalogue of defects, and writes a copy of the repository that has one of them."""

import functools
import shutil
from dataclasses import dataclass
from pathlib import Path

import yaml

from orchestrator.bounded_yaml import LOADER

REPOSITORY = Path(__file__).parents[2]
CATALOGUE = Path(__file__).with_name("catalogue.yaml")


@dataclass(frozen=True)
class Edit:
    file: str
    replace: str
    with_: str


@dataclass(frozen=True)
class Mutant:
    """A defect, and the scenario or test that must fail with it.

    If `scenario` is set, `killed_by` is the step of the scenario that must fail, or the beginning of the step's id.
    Otherwise `killed_by` is a test of this repository, `FILE::NAME`, that needs no control plane.
    """

    name: str
    defect: str
    scenario: str
    killed_by: str
    edits: tuple[Edit, ...]


@functools.cache
def mutants() -> list[Mutant]:
    entries = yaml.load(CATALOGUE.read_text(), LOADER)  # noqa: S506 - it is a safe one
    return [
        Mutant(
            name=entry["name"],
            defect=entry["defect"],
            scenario=entry.get("scenario", ""),
            killed_by=entry["killed_by"],
            edits=tuple(Edit(edit["file"], edit["replace"], edit["with"]) for edit in entry["edits"]),
        )
        for entry in entries
    ]


def copied_folders(mutant: Mutant) -> list[str]:
    """Return the folders of the repository that are copied to run the defect's scenario or test."""
    folders = (
        ["orchestrator"]
        if mutant.scenario
        else ["orchestrator", "hostfacts", "musterweb", "musterbench", "tests", "musterlab", "validation"]
    )
    if mutant.killed_by.startswith("tests/upstream/") or any(
        not edit.file.startswith(("orchestrator/", "hostfacts/", "musterweb/", "musterbench/"))
        for edit in mutant.edits
    ):
        folders += ["deployment", "inventories", "playbooks", "roles"]
    return folders


def edited_files(mutant: Mutant) -> dict[str, str]:
    """Return the changed text of each file that the defect edits, by its path in the repository.

    Raises ValueError when an edit does not apply, or is in a folder that is not copied.
    """
    texts: dict[str, str] = {}
    for edit in mutant.edits:
        if edit.file.partition("/")[0] not in copied_folders(mutant):
            raise ValueError(f"{mutant.name}: {edit.file} is in no folder that is copied")
        text = texts.get(edit.file) or (REPOSITORY / edit.file).read_text()
        count = text.count(edit.replace)
        if count != 1:
            raise ValueError(f"{mutant.name}: {edit.file} contains {count} times, not once: {edit.replace!r}")
        texts[edit.file] = text.replace(edit.replace, edit.with_)
    return texts


def write(mutant: Mutant, directory: Path) -> None:
    """Copy the folders that the scenario or test needs into `directory`, and make the defect's edits there.

    Raises ValueError when an edit does not apply.
    """
    texts = edited_files(mutant)
    for name in copied_folders(mutant):
        shutil.copytree(REPOSITORY / name, directory / name, ignore=shutil.ignore_patterns("__pycache__"))
    if not mutant.scenario:
        shutil.copy(REPOSITORY / "pyproject.toml", directory)
    for file, text in texts.items():
        (directory / file).write_text(text)
