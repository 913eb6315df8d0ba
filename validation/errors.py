"""Errors that end a validation before there is a verdict."""

from typing import Final

from hostfacts.errors import UnreadableOutput
from orchestrator.errors import MusterError

MISTAKES: Final = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)
"""The errors of Python that a mistake in the code of a check raises. The check is then ERROR, and the run continues."""


class ValidationError(MusterError):
    """Root of the errors of scenarios, targets and reports."""


class ScenarioError(ValidationError):
    """A scenario file cannot be read or is not valid. The message names file and line."""

    exit_code = 2


class TargetError(ValidationError):
    """The cluster that the scenarios should run on cannot be started, reached or used."""


class ReportError(ValidationError):
    """A report directory cannot be read or written."""


class CatalogueError(ValidationError):
    """The catalogue is not valid, or has no such profile or part."""

    exit_code = 2


class WaiverError(ValidationError):
    """A file of waivers cannot be read, or a waiver is not acceptable. The message names file and line."""

    exit_code = 2


class LayerError(ValidationError, UnreadableOutput):
    """The output of a host tool does not match its documented format."""


class HostError(ValidationError):
    """A host of the site cannot be examined."""

    exit_code = 2


class UnreachableHostError(HostError):
    """A host cannot be reached, or the login fails. The message has the remedy."""
