"""The content of a site file: its entries, their lines, its secrets. `deployment.site_file` reads and checks it."""

import os
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from copy import copy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Final

from deployment.errors import SiteError
from orchestrator.document import Document
from orchestrator.errors import MusterError

SITE_FILE: Final = "site.yml"
VAULT_FILE: Final = "vault.yml"
ANSIBLE_FOR_OLD_HOSTS: Final = "ansible==9.13.0"
"""The last release with ansible-core 2.16, which still manages hosts with Python 3.6. It needs Python 3.10 to 3.12."""

SECRET_WORDS: Final = re.compile(r"(^|_)(pass|password|passphrase|private_key|secret|token|license_codes)$")
"""The names of keys whose values are secrets."""

_LOGIN: Final = re.compile(r"://[^/\s@]*@")
"""User and password in a URL, which no message repeats."""

Place = tuple[str | int, ...]


@dataclass(frozen=True)
class Finding:
    """A problem or a missing value, with its fix and its entry in the site file."""

    place: Place
    message: str


class SiteDocument(Document):
    """A site file as data, with the line of every entry."""

    error_type: ClassVar[type[MusterError]] = SiteError


@dataclass(frozen=True)
class Site:
    """A checked site. `data` is the file as plain data. `directory` also has vault.yml, if the site has one."""

    document: SiteDocument
    directory: Path

    @property
    def data(self) -> dict[str, Any]:
        """The file as plain data, valid by the schema."""
        data: dict[str, Any] = self.document.data
        return data

    @property
    def name(self) -> str:
        """The site's name: it also names its state directory and its ConfigMap."""
        return str(self.data["name"])

    @property
    def vault(self) -> Path | None:
        """The encrypted variables, if the site has any."""
        path = self.directory / VAULT_FILE
        return path if path.exists() else None

    @property
    def versions(self) -> dict[str, str]:
        """The releases to install, by component."""
        return dict(self.data["versions"])

    @property
    def hosts(self) -> dict[str, dict[str, Any]]:
        """The hosts by name."""
        return dict(self.data.get("hosts", {}))

    def with_hosts(self, names: Collection[str]) -> "Site":
        """Return the same site with only these of its hosts."""
        document = copy(self.document)
        hosts = {name: host for name, host in self.hosts.items() if name in names}
        document.data = {**self.data, "hosts": hosts}
        return replace(self, document=document)

    @property
    def maintenance(self) -> dict[str, str]:
        """The hosts that are out of service, with the reasons."""
        return {name: host["maintenance"] for name, host in self.hosts.items() if "maintenance" in host}

    @property
    def declared_not_applicable(self) -> dict[str, str]:
        """The stages that the file declares not applicable, with the reasons."""
        return dict(self.data.get("not_applicable", {}))

    @property
    def ansible_bin(self) -> Path | None:
        """The directory of the ansible-playbook that the file names, or None for muster's own."""
        configured = self.get("controller", "ansible_bin")
        return (self.directory / Path(configured).expanduser()).absolute() if configured else None

    @property
    def missing_ansible(self) -> str:
        """How to install the Ansible that the file names. Empty if it is installed."""
        path = self.ansible_bin
        if path is None or os.access(path / "ansible-playbook", os.X_OK):
            return ""
        environment = path.parent if path.name == "bin" else path
        return (
            f"controller.ansible_bin: there is no ansible-playbook in {path}: correct the path, or make it with "
            f"`python3.11 -m venv {environment} && {environment}/bin/pip install {ANSIBLE_FOR_OLD_HOSTS}`"
        )

    def get(self, *path: str, default: Any = None) -> Any:
        """Return the value at `path`, or the default if the file has no value there."""
        value: Any = self.data
        for key in path:
            if not isinstance(value, dict) or key not in value:
                return default
            value = value[key]
        return value

    def problem(self, place: Place, message: str) -> str:
        """Return a message about one entry, with file and line number in front."""
        return f"{self.document.path}:{self.document.line(place)}: {_LOGIN.sub('://***@', message)}"

    def lines(self, findings: Iterable[Finding]) -> list[str]:
        """Return findings as messages with file and line number in front."""
        return [self.problem(finding.place, finding.message) for finding in findings]

    def secrets(self) -> Iterator[tuple[Place, dict[str, str]]]:
        """Yield every reference to a secret, with its entry in the file."""
        yield from _secrets(self.data, ())


def site_error(path: Path, problems: Sequence[str]) -> SiteError:
    """Return one error with all the problems of a file."""
    count = f"{len(problems)} problems" if len(problems) > 1 else "1 problem"
    return SiteError(f"{path}: {count}; nothing was done", problems)


def _secrets(value: Any, place: Place) -> Iterator[tuple[Place, dict[str, str]]]:
    if isinstance(value, dict):
        if place and SECRET_WORDS.search(str(place[-1])) and set(value) <= {"env", "vault"}:
            yield place, value
            return
        for key, nested in value.items():
            yield from _secrets(nested, (*place, key))
    elif isinstance(value, list):
        for index, nested in enumerate(value):
            yield from _secrets(nested, (*place, index))
