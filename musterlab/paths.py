"""Directories of labs: the state of each lab, and the cache of built programs."""

import re
from pathlib import Path

from orchestrator import directories
from orchestrator.errors import UsageError

_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?")


def labs_directory(state_dir: Path | None = None) -> Path:
    """Return the directory that holds one directory for each lab: `state_dir`, or `$XDG_STATE_HOME/muster/labs`."""
    if state_dir is not None:
        return state_dir.expanduser().absolute()
    return directories.state_directory() / "labs"


def cache_directory() -> Path:
    """Return the directory that holds one directory for each set of built programs."""
    return directories.cache_directory() / "lab"


def check_name(name: str) -> str:
    """Return `name` if it is a valid name of a lab.

    Raises:
        UsageError: `name` has other characters than a-z, 0-9 and '-', or more than 40 characters.
    """
    if not _NAME.fullmatch(name):
        raise UsageError(
            f"lab name {name!r} must be 1 to 40 characters of a-z, 0-9 and '-', not '-' at an end"
        )
    return name
