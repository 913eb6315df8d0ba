"""What the installer refuses or fails with.

MusterError
├── UsageError
│   └── SiteError         the site file, or what it asks for, cannot be meant (every problem with its line)
└── InstallError          an installation could not go on
    ├── StageFailed       a stage of it failed on a host (what, where, why, how to go on)
    ├── HostsNotReached   everything else came to its end; hosts that did not answer are left
    ├── Locked            another run on the same site goes on at this moment
    ├── BundleError       a bundle is incomplete, or not what its manifest says
    │   ├── FetchFailed   one thing could not be fetched, or is not what was asked for
    │   └── DiskFull      there is no room for the rest; what is there stays
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


class HostsNotReached(InstallError):
    """Hosts could not be reached; what could be done without them came to its end."""


class Locked(InstallError):
    """Another run on the same site goes on at this moment."""


class JournalError(InstallError):
    """What was done cannot be read or written down."""


class BundleError(InstallError):
    """A bundle cannot be built, is incomplete, or is not what its manifest says."""


class FetchFailed(BundleError):
    """One thing could not be fetched, or what came is not what was asked for."""


class DiskFull(BundleError):
    """There is no room for the rest; what has been fetched stays."""
