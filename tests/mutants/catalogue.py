"""Reads the catalogue of defects and puts one of them into a copy of the orchestrator."""

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
    """A defect, and what must fail with it.

    With a `scenario`, `killed_by` is the step of it (or a prefix of one) that must be the one to fail. Without, it is a
    test of this repository, `FILE::NAME`, that needs no control plane.
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
    """Return the folders of the repository that are copied to try the defect."""
    folders = (
        ["orchestrator"]
        if mutant.scenario
        else ["orchestrator", "musterweb", "musterbench", "tests", "musterlab", "validation"]
    )
    if mutant.killed_by.startswith("tests/upstream/") or any(
        not edit.file.startswith(("orchestrator/", "musterweb/", "musterbench/")) for edit in mutant.edits
    ):
        folders += ["deployment", "inventories", "playbooks", "roles"]
    return folders


def edited_files(mutant: Mutant) -> dict[str, str]:
    """Return what the files that the defect changes then contain, by their paths in the repository.

    Raises ValueError when an edit does not apply, or changes what is not copied.
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
    """Copy the orchestrator, and what a test needs, into `directory` and edit it.

    Raises ValueError when an edit does not apply.
    """
    texts = edited_files(mutant)
    for name in copied_folders(mutant):
        shutil.copytree(REPOSITORY / name, directory / name, ignore=shutil.ignore_patterns("__pycache__"))
    if not mutant.scenario:
        shutil.copy(REPOSITORY / "pyproject.toml", directory)
    for file, text in texts.items():
        (directory / file).write_text(text)
