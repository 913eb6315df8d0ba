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
    """A defect, and what must fail with it.

    With a `scenario`, `killed_by` is the step of it (or a prefix of one) that must be the one to fail. Without, it is a
    test of this repository, `FILE::NAME`, that needs no control plane.
    """

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
            scenario=entry.get("scenario", ""),
            killed_by=entry["killed_by"],
            edits=tuple(Edit(each["file"], each["replace"], each["with"]) for each in entry["edits"]),
        )
        for entry in entries
    ]


def write(mutant: Mutant, directory: Path) -> None:
    """Copy the orchestrator, and what a test needs, into `directory` and edit it.

    Raises ValueError when an edit does not apply.
    """
    parts = (
        ["orchestrator"]
        if mutant.scenario
        else ["orchestrator", "musterweb", "tests", "musterlab", "validation"]
    )
    if any(not edit.file.startswith(("orchestrator/", "musterweb/")) for edit in mutant.edits):
        parts += ["deployment", "inventories", "playbooks", "roles"]
    for name in parts:
        shutil.copytree(REPOSITORY / name, directory / name, ignore=shutil.ignore_patterns("__pycache__"))
    if not mutant.scenario:
        shutil.copy(REPOSITORY / "pyproject.toml", directory)
    for edit in mutant.edits:
        path = directory / edit.file
        text = path.read_text()
        found = text.count(edit.replace)
        if found != 1:
            raise ValueError(f"{mutant.name}: {edit.file} contains {found} times, not once: {edit.replace!r}")
        path.write_text(text.replace(edit.replace, edit.with_))
