"""Finds the programs of the control plane: `KUBEBUILDER_ASSETS`, `PATH`, muster's cache, a build; in this order.

A source counts only if it has all of them: programs of different origin are of different versions.
"""

import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from lab import build
from lab.errors import BinariesError
from lab.paths import cache_directory
from lab.progress import Reporter

PROGRAMS = build.PROGRAMS


@dataclass(frozen=True)
class Binaries:
    """The programs by name (`etcd`, `kube-apiserver`, ...), and where they were found."""

    source: str
    paths: Mapping[str, Path]

    @property
    def kubectl_directory(self) -> Path:
        """Directory to put on PATH for `kubectl`."""
        return self.paths["kubectl"].parent


@dataclass(frozen=True)
class _Miss:
    source: str
    why: str


def _executable(path: Path) -> bool:
    return path.is_file() and os.access(path, os.X_OK)


def _from_assets() -> Binaries | _Miss:
    source = "KUBEBUILDER_ASSETS"
    directory = os.environ.get(source, "")
    if not directory:
        return _Miss(source, "not set")
    paths = {program: Path(directory) / program for program in PROGRAMS}
    missing = [program for program, path in paths.items() if not _executable(path)]
    return _Miss(source, f"{directory} lacks {', '.join(missing)}") if missing else Binaries(source, paths)


def _from_path() -> Binaries | _Miss:
    found = {program: shutil.which(program) for program in PROGRAMS}
    missing = [program for program, path in found.items() if path is None]
    if missing:
        return _Miss("PATH", f"lacks {', '.join(missing)}")
    return Binaries("PATH", {program: Path(path).absolute() for program, path in found.items() if path})


def _from_cache(directory: Path) -> Binaries | _Miss:
    paths = {program: directory / program for program in PROGRAMS}
    if all(_executable(path) for path in paths.values()):
        return Binaries("cache", paths)
    return _Miss("cache", f"nothing in {directory}")


def find(reporter: Reporter) -> Binaries:
    """Find the programs, building them into the cache if no source has them.

    Raises:
        BinariesError: no source has them and they cannot be built; names all four sources and the fix.
        StateError: the cache directory cannot be used.
    """
    cached = cache_directory() / build.cache_key()
    misses = []
    for found in (_from_assets(), _from_path(), _from_cache(cached)):
        if isinstance(found, Binaries):
            return found
        misses.append(found)
    try:
        build.build(cached, reporter)
    except build.BuildUnavailable as error:
        tried = "; ".join(f"{miss.source}: {miss.why}" for miss in misses)
        raise BinariesError(
            f"the programs of the control plane ({', '.join(PROGRAMS)}) are nowhere: {tried}; build: {error}"
        ) from error
    built = _from_cache(cached)
    if isinstance(built, _Miss):
        raise BinariesError(
            f"the build left no complete set of programs in {cached}; remove it and try again"
        )
    return built
