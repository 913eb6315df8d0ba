"""The compatible versions: rows with source and date. Each stage compares a site with its own rows."""

from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import Any

from packaging.specifiers import SpecifierSet
from packaging.version import Version

from orchestrator.bounded_yaml import fast_yaml


@cache
def tables() -> dict[str, list[dict[str, Any]]]:
    """Return every table of the matrix, by name; a row has at least `source` and `date`."""
    text = (resources.files("deployment") / "data" / "matrix.yaml").read_text()
    rows: dict[str, list[dict[str, Any]]] = fast_yaml(text)
    return rows


def gpus_of(host: Mapping[str, Any]) -> int | None:
    """Return the number of GPUs that the host must have, by its entry `gpus` or its model. None if unknown."""
    if "gpus" in host:
        return int(host["gpus"])
    rows = (row for row in tables()["models"] if host.get("model") in row["models"])
    return next((int(row["gpus"]) for row in rows), None)


def deepops_row(release: str) -> dict[str, Any] | None:
    """Return the row of a DeepOps release."""
    return next((row for row in tables()["deepops"] if row["release"] == release), None)


def device_plugin_row(release: str) -> dict[str, Any] | None:
    """Return the row of a release of NVIDIA's device plugin."""
    return next((row for row in tables()["device_plugin"] if row["release"] == release), None)


def images_of(stage: str, release: str) -> list[str]:
    """Return the images of a stage's release; empty if the matrix does not know them."""
    minor = ".".join(release.split(".")[:2])
    rows = (row for row in tables()["images"] if row["of"] == stage and within(release, row["release"]))
    return [image.format(release=release, minor=minor) for row in rows for image in row["images"]]


def within(release: str, specifier: str) -> bool:
    """Return whether a release is in a range. A patch of ONTAP (9.16.1P2) counts as its release.

    Example: `within("9.16.1P2", ">=9.15,<9.17")` returns `True`.
    """
    return SpecifierSet(specifier).contains(Version(release.partition("P")[0]), prereleases=True)
