"""Finds the programs of the lab: `KUBEBUILDER_ASSETS`, `PATH`, muster's cache, archives, a build; in this order.

A source counts only if it has all programs of a recipe, because programs of different origin have different versions.
The programs of real nodes are a recipe of their own, and are found only when they are needed. Programs that only a
build can provide (`Recipe.only_built`) are looked up in the cache alone.
"""

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from musterlab import build, prebuilt
from musterlab.errors import BinariesError
from musterlab.paths import cache_directory
from orchestrator.progress import Reporter

MINIMUM_CONTAINERD = 2

_VERSION_SECONDS = 10


@dataclass(frozen=True)
class Binaries:
    """The programs by name (`etcd`, `kube-apiserver`, ...), and their source."""

    source: str
    paths: Mapping[str, Path]

    @property
    def directory(self) -> Path:
        """The directory of the programs. If PATH has them in several directories, one of these."""
        return next(iter(self.paths.values())).parent

    @property
    def kubectl_directory(self) -> Path:
        """Directory to put on PATH for `kubectl`."""
        return self.paths["kubectl"].parent


@dataclass(frozen=True)
class _NotFound:
    source: str
    why: str


def _executable(path: Path) -> bool:
    return path.is_file() and os.access(path, os.X_OK)


def _from_assets(programs: tuple[str, ...]) -> Binaries | _NotFound:
    source = "KUBEBUILDER_ASSETS"
    directory = os.environ.get(source, "")
    if not directory:
        return _NotFound(source, "not set")
    paths = {program: Path(directory) / program for program in programs}
    missing = [program for program, path in paths.items() if not _executable(path)]
    return (
        _NotFound(source, f"{directory} lacks {', '.join(missing)}") if missing else Binaries(source, paths)
    )


def _from_path(programs: tuple[str, ...]) -> Binaries | _NotFound:
    program_paths = {program: shutil.which(program) for program in programs}
    missing = [program for program, path in program_paths.items() if path is None]
    if missing:
        return _NotFound("PATH", f"lacks {', '.join(missing)}")
    return Binaries(
        "PATH", {program: Path(path).absolute() for program, path in program_paths.items() if path}
    )


def _from_cache(directory: Path, programs: tuple[str, ...]) -> Binaries | _NotFound:
    paths = {program: directory / program for program in programs}
    if all(_executable(path) for path in paths.values()):
        return Binaries("cache", paths)
    return _NotFound("cache", f"nothing in {directory}")


def _rejection(binaries: Binaries) -> str:
    """Return why the found programs cannot be used, for example because containerd 1 is too old for the kubelet.

    Empty if they can be used.
    """
    if "containerd" not in binaries.paths:
        return ""
    try:
        output = _version_line(binaries.paths["containerd"])
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"containerd does not tell its version: {error}"
    match = re.search(r"\bv?(\d+)\.\d+\.\d+", output)
    if match is None or int(match[1]) < MINIMUM_CONTAINERD:
        return f"its containerd is {output.strip() or 'of unknown version'}, not 2.0 or newer"
    return ""


def _version_line(program: Path) -> str:
    return subprocess.run(
        [str(program), "--version"], capture_output=True, text=True, check=False, timeout=_VERSION_SECONDS
    ).stdout


def kubernetes_minor(api_server: Path) -> int | None:
    """Return the minor version that a kube-apiserver prints: 36 for 1.36.3. None if it prints no version."""
    try:
        match = re.search(r"\bv1\.(\d+)\.\d+", _version_line(api_server))
    except (OSError, subprocess.TimeoutExpired):
        return None
    return int(match[1]) if match else None


def at_hand(recipe: build.Recipe = build.CONTROL_PLANE) -> bool:
    """Return whether `find` would neither fetch nor build."""
    return isinstance(_first_source(recipe), Binaries)


def find(reporter: Reporter, recipe: build.Recipe = build.CONTROL_PLANE) -> Binaries:
    """Find the programs; if no source has them, fetch or build them into the cache.

    Raises:
        BinariesError: no source has them and they cannot be built; names every source and the fix.
        StateError: the cache directory cannot be used.
    """
    first = _first_source(recipe)
    if isinstance(first, Binaries):
        return first
    misses = first
    published = () if recipe.only_built else prebuilt.archives(recipe.programs)
    target = cache_directory() / (prebuilt.cache_key(published) if published else build.cache_key(recipe))
    try:
        if published:
            prebuilt.fetch(target, published, reporter)
    except prebuilt.ArchivesUnavailable as error:
        misses.append(_NotFound("archives", str(error)))
        reporter(f"no published programs ({error}); building {recipe.subject} instead")
        target = cache_directory() / build.cache_key(recipe)
        published = ()
    try:
        if not published:
            build.build(target, reporter, recipe)
    except build.BuildUnavailable as error:
        tried = "; ".join(f"{miss.source}: {miss.why}" for miss in misses)
        raise BinariesError(
            f"the programs of {recipe.subject} ({', '.join(recipe.programs)}) are nowhere: {tried}; build: {error}"
        ) from error
    found = _from_cache(target, recipe.programs)
    if isinstance(found, _NotFound):
        raise BinariesError(f"no complete set of programs came into {target}; remove it and try again")
    return found


def _first_source(recipe: build.Recipe) -> "Binaries | list[_NotFound]":
    """Return the programs of the first complete and usable source, or the reason of each source."""
    programs = recipe.programs
    candidates: list[Binaries | _NotFound] = []
    if not recipe.only_built:
        candidates += [_from_assets(programs), _from_path(programs)]
    candidates.append(_from_cache(cache_directory() / build.cache_key(recipe), programs))
    if not recipe.only_built and (published := prebuilt.archives(programs)):
        candidates.append(_from_cache(cache_directory() / prebuilt.cache_key(published), programs))
    misses = []
    for candidate in candidates:
        if isinstance(candidate, _NotFound):
            misses.append(candidate)
        elif why := _rejection(candidate):
            misses.append(_NotFound(candidate.source, why))
        else:
            return candidate
    return misses
