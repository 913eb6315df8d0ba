"""What the installer refuses or fails with.

MusterError
├── UsageError
│   └── SiteError         the site file, or what it asks for, cannot be meant (every problem with its line)
└── InstallError          an installation could not go on
    ├── StageFailed       a stage of it failed on a host (what, where, why, how to go on)
    ├── Locked            another run on the same site goes on at this moment
    └── JournalError      what was done cannot be read or written down
"""

from collections.abc import Sequence

from orchestrator.errors import MusterError, UsageError


class SiteError(UsageError):
    """The site file has problems; `problems` are lines that each begin with file and line."""

    def __init__(self, message: str, problems: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.problems = tuple(problems) or (message,)


class InstallError(MusterError):
    """An installation could not go on."""


class StageFailed(InstallError):
    """A stage failed; the journal holds what and where."""


class Locked(InstallError):
    """Another run on the same site goes on at this moment."""


class JournalError(InstallError):
    """What was done cannot be read or written down."""
