"""vault.yml of a site: its password from a file, the environment or the terminal, and its secrets to hide in logs."""

import getpass
import os
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import yaml

from orchestrator.errors import ConfigurationError

PASSWORD_FILE: Final = "ANSIBLE_VAULT_PASSWORD_FILE"  # noqa: S105 - the name of a variable
PASSWORD: Final = "MUSTER_VAULT_PASSWORD"  # noqa: S105 - the name of a variable
PASSWORD_PROGRAM: Final = Path(__file__).parent / "data" / "bin" / "vault-password"


@dataclass(frozen=True)
class Vault:
    """An opened vault. `environment` has the variables with which Ansible opens the vault. `texts` are its secrets."""

    path: Path
    environment: Mapping[str, str] = field(repr=False)
    texts: tuple[str, ...] = field(repr=False)


def open_vault(path: Path) -> Vault:
    """Open a vault. Raises ConfigurationError for a missing or wrong password."""
    from ansible.errors import AnsibleError
    from ansible.parsing.vault import VaultLib, VaultSecret

    file, text = os.environ.get(PASSWORD_FILE), os.environ.get(PASSWORD)
    if file:
        password, environment = _of_file(Path(file)), {PASSWORD_FILE: file}
    else:
        if not text and sys.stdin.isatty():
            text = getpass.getpass(f"Password of {path}: ")
        if not text:
            raise ConfigurationError(
                f"{path} is encrypted: set {PASSWORD_FILE} to a file that holds its password, or {PASSWORD} to the "
                "password, or run this on a terminal"
            )
        password = text.encode()
        environment = {PASSWORD: text, PASSWORD_FILE: str(PASSWORD_PROGRAM)}
    try:
        plain = VaultLib([("default", VaultSecret(password))]).decrypt(path.read_bytes())
    except AnsibleError as error:
        raise ConfigurationError(f"{path}: the password does not open it") from error
    return Vault(path, environment, (*_texts(yaml.safe_load(plain)), password.decode(errors="replace")))


def _of_file(file: Path) -> bytes:
    from ansible.errors import AnsibleError
    from ansible.parsing.dataloader import DataLoader
    from ansible.parsing.vault import get_file_vault_secret

    try:
        secret = get_file_vault_secret(filename=str(file.expanduser()), loader=DataLoader())
        secret.load()
    except AnsibleError as error:
        raise ConfigurationError(
            f"{PASSWORD_FILE} names {file}, which gives no password: is it there, and not empty?"
        ) from error
    return bytes(secret.bytes)


def _texts(value: Any) -> Iterator[str]:
    """Yield every value to hide in logs, except values of at most three characters, which many log lines contain."""
    if isinstance(value, dict):
        for nested in value.values():
            yield from _texts(nested)
    elif isinstance(value, list):
        for nested in value:
            yield from _texts(nested)
    elif value is not None and len(str(value)) > 3:
        yield str(value)
