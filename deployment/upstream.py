"""The names in DeepOps and kubespray that a site file may use, from `data/upstream.yaml`."""

from functools import cache
from importlib import resources
from typing import Any

from orchestrator.bounded_yaml import fast_yaml


@cache
def names() -> dict[str, Any]:
    """Return every entry of the file."""
    text = (resources.files("deployment") / "data" / "upstream.yaml").read_text()
    entries: dict[str, Any] = fast_yaml(text)
    return entries


@cache
def variables() -> dict[str, str]:
    """Return the variables that a role or an example of DeepOps or kubespray sets or reads, with its type
    for Ansible.

    The type is empty if the defaults have no type, or several.
    """
    kinds = {"switches": "bool", "numbers": "int", "lists": "list", "variables": "", "without_default": ""}
    return {name: kind for key, kind in kinds.items() for name in names()[key].split()}
