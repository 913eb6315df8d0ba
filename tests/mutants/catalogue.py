"""Reads the catalogue of defects and puts one of them into a copy of the orchestrator."""

import shutil
from dataclasses import dataclass
from pathlib import Path

import yaml

REPOSITORY = Path(__file__).parents[2]
CATALOGUE = Path(__file__).with_name("catalogue.yaml")


@dataclass(frozen=True)
class Edit:
    file: str
    replace: str
    with_: str


@dataclass(frozen=True)
class Mutant:
    """A defect, the scenario that must fail with it, and the step (or a prefix of it) that must be the one."""

    name: str
    defect: str
    scenario: str
    killed_by: str
    edits: tuple[Edit, ...]


def mutants() -> list[Mutant]:
    entries = yaml.safe_load(CATALOGUE.read_text())
    return [
        Mutant(
            name=entry["name"],
            defect=entry["defect"],
            scenario=entry["scenario"],
            killed_by=entry["killed_by"],
            edits=tuple(Edit(each["file"], each["replace"], each["with"]) for each in entry["edits"]),
        )
        for entry in entries
    ]


def write(mutant: Mutant, directory: Path) -> None:
    """Copy the orchestrator into `directory` and edit it. Raises ValueError when an edit does not apply."""
    shutil.copytree(
        REPOSITORY / "orchestrator", directory / "orchestrator", ignore=shutil.ignore_patterns("__pycache__")
    )
    for edit in mutant.edits:
        path = directory / edit.file
        text = path.read_text()
        found = text.count(edit.replace)
        if found != 1:
            raise ValueError(f"{mutant.name}: {edit.file} contains {found} times, not once: {edit.replace!r}")
        path.write_text(text.replace(edit.replace, edit.with_))
