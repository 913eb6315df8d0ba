"""The headline of a report, with the number of requirements of the catalogue."""

from typing import Final

import yaml

from validation.catalogue.catalogue import PATH

REQUIREMENTS: Final = len(yaml.safe_load(PATH.read_text(encoding="utf-8"))["requirements"])
"""Number of requirements in the file itself, so that a requirement lost in loading fails a test."""


def pass_headline(number: int, rest: str) -> str:
    """Return the headline of a run that proved this number of requirements."""
    return f"PASS of {number} of {REQUIREMENTS} requirements: {rest}"
