"""Where playbooks, roles and inventories are: beside the package in a checkout, inside it when installed."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from orchestrator.errors import ConfigurationError

CONTENT: Final = "MUSTER_INSTALLER_CONTENT"
"""Environment variable: a directory with `playbooks/` and `roles/` of a site's own, instead of muster's."""


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
    """The content that is in force. Raises ConfigurationError if there is none."""
    own = os.environ.get(CONTENT)
    package = Path(__file__).resolve().parent
    for root in [Path(own).absolute()] if own else [package / "content", package.parent]:
        if (root / "playbooks").is_dir() and (root / "roles").is_dir():
            return Content(root)
    raise ConfigurationError(
        f"{own or package.parent}: there are no directories `playbooks` and `roles`"
        + (f"; {CONTENT} names it" if own else "; muster is not installed completely")
    )
