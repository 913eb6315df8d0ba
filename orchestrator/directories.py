"""The directories of a user that muster writes to, by the XDG base directory specification."""

import os
from pathlib import Path


def state_directory() -> Path:
    """Return the directory for data that is kept between runs: `$XDG_STATE_HOME/muster`."""
    return _base("XDG_STATE_HOME", ".local/state") / "muster"


def cache_directory() -> Path:
    """Return the directory for data that can be created again: `$XDG_CACHE_HOME/muster`."""
    return _base("XDG_CACHE_HOME", ".cache") / "muster"


def _base(variable: str, default: str) -> Path:
    value = os.environ.get(variable, "")
    return Path(value) if Path(value).is_absolute() else Path.home() / default
