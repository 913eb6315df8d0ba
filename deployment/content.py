"""Where playbooks, roles and inventories are: beside the package in a checkout, inside it when installed."""

import os
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

import yaml

from orchestrator.bounded_yaml import fast_yaml
from orchestrator.errors import ConfigurationError

CONTENT: Final = "MUSTER_INSTALLER_CONTENT"
"""Environment variable with a directory that replaces muster's `playbooks/` and `roles/`."""

_PACKAGE: Final = Path(__file__).resolve().parent
_SHIPPED: Final = (_PACKAGE / "content", _PACKAGE.parent)


@dataclass(frozen=True)
class Content:
    """A directory that holds `playbooks/` and `roles/`."""

    root: Path

    @property
    def playbooks(self) -> Path:
        """The playbooks: site.yml, upgrade.yml, teardown.yml and one for each stage."""
        return self.root / "playbooks"

    @property
    def roles(self) -> Path:
        """The roles, one directory for each."""
        return self.root / "roles"

    @property
    def inventories(self) -> Path:
        """The sites that come with muster."""
        return self.root / "inventories"

    @property
    def lock(self) -> Path:
        """The lock of muster's own Python packages."""
        return self.root / "uv.lock"


def find() -> Content:
    """Return the content to use. Raises ConfigurationError if there is none."""
    own = os.environ.get(CONTENT)
    for root in [Path(own).absolute()] if own else _SHIPPED:
        if (root / "playbooks").is_dir() and (root / "roles").is_dir():
            return Content(root)
    raise ConfigurationError(
        f"{own or _PACKAGE.parent}: there are no directories `playbooks` and `roles`"
        + (f"; {CONTENT} names it" if own else "; muster is not installed completely")
    )


def role_defaults(role: str) -> dict[str, Any]:
    """Return the defaults of a role's variables. Those of `find()` override those that come with muster.

    Raises ConfigurationError.
    """
    defaults: dict[str, Any] = {}
    for root in [*reversed(_SHIPPED), find().root]:
        path = root / "roles" / role / "defaults" / "main.yml"
        if path.is_file():
            defaults |= _read(path)
    return defaults


def role_options() -> dict[str, dict[str, Any]]:
    """Return the variables of all roles by name, as their argument specifications describe them.

    Raises ConfigurationError.
    """
    options: dict[str, dict[str, Any]] = {}
    for root in [*reversed(_SHIPPED), find().root]:
        for path in sorted(root.glob("roles/*/meta/argument_specs.yml")):
            for entry in _read(path).get("argument_specs", {}).values():
                options |= entry.get("options", {})
    return options


@cache
def _read(path: Path) -> dict[str, Any]:
    try:
        values: dict[str, Any] = fast_yaml(path.read_text()) or {}
    except (OSError, yaml.YAMLError) as error:
        raise ConfigurationError(f"{path}: it cannot be read: {error}") from error
    return values
