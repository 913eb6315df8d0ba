"""The side effects of the installation of Kubernetes on the hosts, as data."""

from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from importlib import resources

from orchestrator.bounded_yaml import fast_yaml


@dataclass(frozen=True)
class Effect:
    """A kind of change. `files` are patterns of paths. A pattern that ends in `/` also matches everything below."""

    summary: str
    text: str
    files: tuple[str, ...] = ()
    packages: tuple[str, ...] = ()
    units: tuple[str, ...] = ()

    def covers(self, path: str) -> bool:
        """Return whether a change of the file at `path` is a change of this kind."""
        return any(
            f"{path}/".startswith(pattern) if pattern.endswith("/") else fnmatchcase(path, pattern)
            for pattern in self.files
        )


@cache
def effects() -> tuple[Effect, ...]:
    """Return every kind of change that the stage deepops makes on a host."""
    entries = fast_yaml((resources.files("deployment") / "data" / "effects.yaml").read_text())
    return tuple(
        Effect(
            entry["summary"],
            entry["text"],
            *(tuple(entry.get(kind, ())) for kind in ("files", "packages", "units")),
        )
        for entry in entries
    )
