"""Reads the kill matrix: the injected defects, and the checks that were shown to detect them."""

from collections.abc import Iterable
from fnmatch import fnmatchcase
from pathlib import Path

import msgspec

from orchestrator import document
from validation.errors import CatalogueError

PATH = Path(__file__).parent / "kill_matrix.yaml"


class Mutant(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An injected defect; `checks` are shell patterns of the checks that detect it."""

    name: str
    defect: str
    checks: list[str]

    def killers(self, check_ids: Iterable[str]) -> list[str]:
        """Return the checks that detect the defect."""
        return [name for name in check_ids if any(fnmatchcase(name, pattern) for pattern in self.checks)]


class _Document(document.Document):
    error_type = CatalogueError


def load_mutants(path: Path = PATH) -> list[Mutant]:
    """Return the defects. Raises CatalogueError that names file and line."""
    return _Document(path).convert(list[Mutant])
