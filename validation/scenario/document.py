"""Scenario files as documents: YAML with line numbers, refused with a ScenarioError."""

from decimal import Decimal

from orchestrator import document
from validation.errors import ScenarioError
from validation.scenario.schema import duration_ms, milli


class Document(document.Document):
    """One scenario file, read. Raises ScenarioError if it is not readable YAML with string keys, each once."""

    error_type = ScenarioError

    def duration_ms(self, place: tuple[str | int, ...], text: str) -> int:
        """Milliseconds of the duration that stands at `place`. Raises ScenarioError."""
        try:
            return duration_ms(text)
        except ValueError as error:
            raise self.error(place, str(error)) from error

    def milli(self, place: tuple[str | int, ...], gpus: Decimal) -> int:
        """Thousandths of the number of GPUs that stands at `place`. Raises ScenarioError."""
        try:
            return milli(gpus)
        except ValueError as error:
            raise self.error(place, str(error)) from error
