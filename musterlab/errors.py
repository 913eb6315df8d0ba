"""Leaves of the error tree for the lab.

LabError
├── BinariesError     the control plane's programs are nowhere to be found, and cannot be built
├── StateError        the state or cache directory cannot be used
├── ProfileError      a node profile has an invalid value
├── PortTaken         a requested port is in use
├── RealNodesUnavailable  this machine lacks a requirement of real nodes
├── StartError        a process of the lab did not come up
├── LabConflict       a lab of that name exists with other properties than the requested ones
└── LabNotFound       there is no lab of that name
"""

from orchestrator.errors import MusterError


class LabError(MusterError):
    """The lab cannot be built, started or stopped."""


class BinariesError(LabError):
    """No source has all programs of the control plane, or their build failed."""


class StateError(LabError):
    """The state directory or the cache directory cannot be used."""


class ProfileError(LabError):
    """A node profile does not follow its schema; the message names file and line."""

    exit_code = 2


class PortTaken(LabError):
    """A port that was asked for is in use."""


class RealNodesUnavailable(LabError):
    """This machine lacks something that real nodes need; the message names it, and the Debian package."""


class StartError(LabError):
    """A process of the lab ended, or did not answer in time."""


class LabConflict(LabError):
    """A lab of that name exists, and differs from the requested lab or no longer works."""


class LabNotFound(LabError):
    """There is no lab of that name."""
