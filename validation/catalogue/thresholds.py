"""Reads the thresholds for measurements."""

import hashlib
from pathlib import Path
from typing import Literal

import msgspec

from orchestrator import document
from validation.errors import CatalogueError
from validation.judge.hosts.drift import DriftLimit
from validation.judge.hosts.host_facts import System, Threshold
from validation.judge.training.training_result import RateThreshold, RatioThreshold

PATH = Path(__file__).parent / "thresholds.yaml"


class Thresholds(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """The content of the file."""

    api_version: Literal["muster.dev/v1alpha1"]
    kind: Literal["Thresholds"]
    training_rates: list[RateThreshold]
    training_ratios: list[RatioThreshold]
    systems: list[System]
    hosts: list[Threshold]
    drift: list[DriftLimit]

    def ratio(self, of: str) -> RatioThreshold:
        """Return the threshold of that name. Raises CatalogueError."""
        for threshold in self.training_ratios:
            if threshold.of == of:
                return threshold
        raise CatalogueError(f"there is no ratio `{of}` in {PATH.name}")


class _Document(document.Document):
    error_type = CatalogueError


def load_thresholds(path: Path = PATH) -> Thresholds:
    """Return the thresholds. Raises CatalogueError that names file and line."""
    return _Document(path).convert(Thresholds)


def figures_sha256(path: Path = PATH) -> str:
    """Return the digest of the file. Raises CatalogueError."""
    return hashlib.sha256(_Document(path).text.encode()).hexdigest()
