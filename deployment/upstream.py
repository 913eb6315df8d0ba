"""Names of DeepOps and kubespray by which a site file is checked, from `data/upstream.yaml`."""

from functools import cache
from importlib import resources
from typing import Any

import yaml


@cache
def names() -> dict[str, Any]:
    """Return every entry of the file."""
    text = (resources.files("deployment") / "data" / "upstream.yaml").read_text()
    entries: dict[str, Any] = yaml.safe_load(text)
    return entries


@cache
def variables() -> frozenset[str]:
    """Return the variables that a role or an example of DeepOps or kubespray sets."""
    return frozenset(names()["variables"].split())
