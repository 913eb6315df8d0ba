"""Errors that end a validation before there is a verdict."""

from orchestrator.errors import MusterError


class ValidationError(MusterError):
    """Root of the errors of scenarios, targets and reports."""


class ScenarioError(ValidationError):
    """A scenario file cannot be read or is not valid. The message names file and line."""

    exit_code = 2


class TargetError(ValidationError):
    """The cluster that the scenarios should run on cannot be started, reached or used."""


class ReportError(ValidationError):
    """A report directory cannot be read or written."""
