"""Scenario files as documents: YAML with line numbers, refused with a ScenarioError."""

from orchestrator import document
from validation.errors import ScenarioError


class Document(document.Document):
    """One scenario file, read. Raises ScenarioError if it is not readable YAML with string keys, each once."""

    error_type = ScenarioError
