"""Helm for tests: a Go module like the lab's other programs, built once into the cache.

`helm/go.mod` pins the version, and `go.sum` its sources.
"""

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from musterlab import binaries
from musterlab.build import Part, Recipe
from musterlab.errors import BinariesError
from orchestrator.progress import Reporter

_SET = "-s -w -X helm.sh/helm/v3/internal/version.version=v3.22.0" + "".join(
    f" -X helm.sh/helm/v3/pkg/{package}.k8sVersion{part}={number}"
    for package in ("chartutil", "lint/rules")
    for part, number in (("Major", 1), ("Minor", 37))
)
"""The flags of Helm's Makefile: its version, and the Kubernetes version of its client-go for rendered charts."""

RECIPE = Recipe(
    subject="Helm",
    prefix="helm-",
    programs=("helm",),
    parts=(Part(Path(__file__).parent / "helm", ("tool",), ("-trimpath", "-ldflags", _SET)),),
    minutes="1 to 3 minutes",
)


def program() -> Path:
    """Return the path of Helm; skip the test without it."""
    try:
        return binaries.find(Reporter(lambda _line: None), RECIPE).paths["helm"]
    except BinariesError as error:
        pytest.skip(f"Helm is not at hand: {error}")


def helm(
    home: Path, *arguments: str, environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run Helm with caches and settings only under `home`. The caller checks the exit code."""
    own = {"HOME": str(home), "PATH": os.environ["PATH"], **(environment or {})}
    return subprocess.run(
        [str(program()), *arguments], env=own, capture_output=True, text=True, timeout=300, check=False
    )
