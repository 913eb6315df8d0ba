"""The error of an output that is not read."""

from orchestrator.errors import MusterError


class UnreadableOutput(MusterError):
    """The output of a host does not match its documented format."""
