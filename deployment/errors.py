"""The errors of the installer.

MusterError
├── UsageError
│   └── SiteError         the site file, or a value in it, is invalid (every problem with its line)
└── InstallError          an installation could not continue
    ├── StageFailed       a stage of it failed on a host (task, host, cause, command to continue)
    ├── HostsNotReached   the run left out hosts that did not answer; it completed on all others
    ├── Locked            another run on the same site is active
    ├── BundleError       a bundle is incomplete, or differs from its manifest
    │   ├── FetchFailed   a file could not be fetched, or is not the requested one
    │   └── DiskFull      the disk is full; the fetched files stay
    └── JournalError      the journal cannot be read or written
"""

from collections.abc import Sequence

from orchestrator.errors import MusterError, UsageError


class SiteError(UsageError):
    """The site file has problems; `problems` are lines that each begin with file and line."""

    def __init__(self, message: str, problems: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.problems = tuple(problems) or (message,)


class InstallError(MusterError):
    """An installation could not continue."""


class StageFailed(InstallError):
    """A stage failed. The journal has the task and the host."""


class HostsNotReached(InstallError):
    """Hosts could not be reached, and the run left them out. It completed on all other hosts."""


class Locked(InstallError):
    """Another run on the same site is active."""


class JournalError(InstallError):
    """The journal cannot be read or written."""


class BundleError(InstallError):
    """A bundle cannot be built, is incomplete, or differs from its manifest."""


class FetchFailed(BundleError):
    """A file could not be fetched, or is not the requested one."""


class DiskFull(BundleError):
    """The disk is full. The fetched files stay."""
