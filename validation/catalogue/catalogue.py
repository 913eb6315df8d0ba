"""Reads the catalogue of requirements, and matches checks with the requirements that they prove."""

import functools
import hashlib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fnmatch import translate
from pathlib import Path
from typing import Literal

import msgspec

from orchestrator import document
from validation.errors import CatalogueError

PATH = Path(__file__).parent / "catalogue.yaml"


class Requirement(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A requirement of a document: its section, its number if it has one, and the checks that prove it.

    `checks` are shell patterns of check ids. `part` is the word before the dot of the requirement's `id`.
    """

    id: str
    section: str
    claim: str
    source: str
    number: str = ""
    checks: list[str] = []

    @property
    def part(self) -> str:
        """The part of the catalogue to which the requirement belongs."""
        return self.id.partition(".")[0]


class NotApplicable(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Requirements that do not apply to a kind of site, and the reason.

    Each is named by its id and not by a pattern, so that a new requirement is never excluded by accident.
    """

    requirements: list[str]
    reason: str


class Profile(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """A kind of site. `targets` are the kinds of target for which it can be chosen."""

    id: str
    title: str
    targets: list[str]
    not_applicable: list[NotApplicable] = []

    def excludes(self, requirement: Requirement) -> str:
        """Return why the requirement does not apply; empty if it applies."""
        reasons = (entry.reason for entry in self.not_applicable if requirement.id in entry.requirements)
        return next(reasons, "")


class Content(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """The content of the catalogue's file."""

    api_version: Literal["muster.dev/v1alpha1"]
    kind: Literal["Catalogue"]
    requirements: list[Requirement]
    profiles: list[Profile]


@dataclass(frozen=True, slots=True)
class Catalogue:
    """The requirements and profiles, and the digest of their file."""

    requirements: Sequence[Requirement]
    profiles: Sequence[Profile]
    sha256: str

    @property
    def parts(self) -> list[str]:
        """The parts, in the order of their first requirement."""
        return list(dict.fromkeys(requirement.part for requirement in self.requirements))

    def profile(self, name: str) -> Profile:
        """Return the profile of that name. Raises CatalogueError."""
        for profile in self.profiles:
            if profile.id == name:
                return profile
        known = ", ".join(profile.id for profile in self.profiles)
        raise CatalogueError(f"there is no profile `{name}`; there are: {known}")

    def part_requirements(self, parts: Iterable[str]) -> list[Requirement]:
        """Return the requirements of these parts; if no part is given, all requirements.

        Raises CatalogueError for an unknown part.
        """
        names = list(parts)
        unknown = next((name for name in names if name not in self.parts), None)
        if unknown is not None:
            raise CatalogueError(f"there is no part `{unknown}`; there are: {', '.join(self.parts)}")
        return [requirement for requirement in self.requirements if not names or requirement.part in names]

    def proven_by(self, check_id: str) -> list[str]:
        """Return the ids of the requirements that the check helps to prove."""
        return [
            requirement.id
            for requirement in self.requirements
            if _one_of(tuple(requirement.checks)).match(check_id)
        ]


def checks_of(requirement: Requirement, check_ids: Iterable[str]) -> list[str]:
    """Return the checks that prove the requirement."""
    proves = _one_of(tuple(requirement.checks)).match
    return [name for name in check_ids if proves(name)]


@functools.cache
def _one_of(patterns: tuple[str, ...]) -> re.Pattern[str]:
    """Return an expression that matches a name if one of the shell patterns does.

    Without patterns it matches nothing.
    """
    return re.compile("|".join(map(translate, patterns)) or r"(?!)")


class _Document(document.Document):
    error_type = CatalogueError


def load_catalogue(path: Path = PATH) -> Catalogue:
    """Return the catalogue. Raises CatalogueError that names file and line."""
    read = _Document(path)
    content = read.convert(Content)
    for kind, ids in (
        ("requirements", [requirement.id for requirement in content.requirements]),
        ("profiles", [profile.id for profile in content.profiles]),
    ):
        for number, name in enumerate(ids):
            if name in ids[:number]:
                raise read.error((kind, number, "id"), f"`{name}` is there twice")
    for number, requirement in enumerate(content.requirements):
        if not all(requirement.id.partition(".")):
            raise read.error(("requirements", number, "id"), f"`{requirement.id}`: write PART.NAME")
    known = {requirement.id for requirement in content.requirements}
    for number, profile in enumerate(content.profiles):
        excluded = set[str]()
        for index, entry in enumerate(profile.not_applicable):
            place = ("profiles", number, "notApplicable", index)
            for name in entry.requirements:
                if name not in known or name in excluded:
                    wrong = "is there twice" if name in excluded else "is no requirement"
                    raise read.error(place, f"`{name}` {wrong}")
                excluded.add(name)
            if not entry.reason.strip():
                raise read.error(place, "a requirement that does not apply needs a reason")
    return Catalogue(content.requirements, content.profiles, hashlib.sha256(read.text.encode()).hexdigest())
