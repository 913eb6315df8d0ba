"""Credentials that the `auth-provider` of a kubeconfig makes, such as OpenID Connect.

The official `kubernetes` package refreshes the credentials when they expire. It is slow to import, so this module
is imported only for a user that needs it.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from kubernetes.client import Configuration
from kubernetes.config import ConfigException, load_kube_config

from orchestrator.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass(frozen=True)
class Credentials:
    """The credentials of a plugin: a token, or a client certificate with its key in PEM."""

    token: Callable[[], str | None]
    certificate: bytes | None = None
    key: bytes | None = None


def credentials(files: list[Path], context: str, user: str) -> Credentials:
    """Return the credentials of the plugin of a context's user. Raises ConfigurationError if there are none."""
    configuration = Configuration()
    try:
        load_kube_config(  # type: ignore[no-untyped-call]
            config_file=os.pathsep.join(str(file) for file in files),
            context=context,
            client_configuration=configuration,
            persist_config=False,
        )
    except (ConfigException, OSError, ValueError) as error:
        raise ConfigurationError(
            f"{files[0]}: the credentials of {user!r} cannot be made: {error}"
        ) from error

    def token() -> str | None:
        value = configuration.get_api_key_with_prefix("BearerToken")
        return str(value).removeprefix("Bearer ") if value else None

    certificate = Path(configuration.cert_file).read_bytes() if configuration.cert_file else None
    key = Path(configuration.key_file).read_bytes() if configuration.key_file else None
    if certificate is None and token() is None:
        raise ConfigurationError(
            f"{files[0]}: the plugin of user {user!r} gave neither a token nor a certificate; "
            "run its command by hand to see why"
        )
    return Credentials(token, certificate, key)
