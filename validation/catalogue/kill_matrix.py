"""Reads the defects that the checks were shown to notice: the kill matrix."""

from collections.abc import Iterable
from fnmatch import fnmatchcase
from pathlib import Path

import msgspec

from orchestrator import document
from validation.errors import CatalogueError

PATH = Path(__file__).parent / "kill_matrix.yaml"


class Mutant(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A defect that was put in on purpose; `checks` are shell patterns of those that noticed it."""

    name: str
    defect: str
    checks: list[str]

    def killers(self, check_ids: Iterable[str]) -> list[str]:
        """Those of the checks that notice it."""
        return [name for name in check_ids if any(fnmatchcase(name, pattern) for pattern in self.checks)]


class _Document(document.Document):
    error_type = CatalogueError


def load_mutants(path: Path = PATH) -> list[Mutant]:
    """The defects. Raises CatalogueError that names file and line."""
    return _Document(path).convert(list[Mutant])
