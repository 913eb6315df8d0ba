"""Scenario files as documents: YAML with line numbers, refused with a ScenarioError."""

from decimal import Decimal
from pathlib import Path

from orchestrator import document
from validation.errors import ScenarioError
from validation.scenario.schema import duration_ms, milli


def content_of(path: Path) -> bytes:
    """Return the content of a file; empty if it cannot be read, which `Document` reports."""
    try:
        return path.read_bytes()
    except OSError:
        return b""


class Document(document.Document):
    """A parsed scenario file. Raises ScenarioError for invalid YAML, keys that are not strings, and duplicate keys."""

    error_type = ScenarioError

    def duration_ms(self, place: tuple[str | int, ...], text: str) -> int:
        """Return the milliseconds of the duration `text`. Raises ScenarioError that names `place`."""
        try:
            return duration_ms(text)
        except ValueError as error:
            raise self.error(place, str(error)) from error

    def milli(self, place: tuple[str | int, ...], gpus: Decimal) -> int:
        """Return the thousandths of a number of GPUs. Raises ScenarioError that names `place`."""
        try:
            return milli(gpus)
        except ValueError as error:
            raise self.error(place, str(error)) from error
