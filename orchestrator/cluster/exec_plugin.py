"""Credentials that a command makes: the `exec` of a kubeconfig's user.

https://kubernetes.io/docs/reference/config-api/client-authentication.v1/
"""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING, Any, Final

from orchestrator.cluster.quantity import parse_time
from orchestrator.errors import ConfigurationError

if TYPE_CHECKING:
    from orchestrator.cluster.kubeconfig_files import Entry

API_VERSIONS: Final = ("client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1")
INFO_VARIABLE: Final = "KUBERNETES_EXEC_INFO"
EARLY_US: Final = 60_000_000
"""Time before the expiry at which a credential is renewed, in microseconds: requests take time, and clocks differ."""

_CLUSTER_KEYS: Final = ("server", "tls-server-name", "insecure-skip-tls-verify", "certificate-authority-data")
_CLUSTER_EXTENSION: Final = "client.authentication.k8s.io/exec"
_MAX_COMMAND_CHARACTERS: Final = 300


class ExecPlugin:
    """The command of a user; it runs again when its credentials expire."""

    def __init__(self, user: Entry, cluster: Entry) -> None:
        """Raises ConfigurationError if the kubeconfig has no command, or an unknown API version."""
        self._user, self._cluster = user, cluster
        self._config: dict[str, Any] = user.fields["exec"]
        self._lock = threading.Lock()
        self._made: dict[str, Any] | None = None
        if not isinstance(self._config, dict) or not isinstance(self._config.get("command"), str):
            raise ConfigurationError(
                f"{user.file}: exec of user {user.name!r} must be a mapping with a command"
            )
        if self._config.get("apiVersion") not in API_VERSIONS:
            raise ConfigurationError(
                f"{user.file}: exec of user {user.name!r} has apiVersion {self._config.get('apiVersion')!r}; "
                f"supported are {' and '.join(API_VERSIONS)}"
            )

    def token(self) -> str | None:
        """Return the present bearer token, None if the command makes only certificates."""
        value = self._status().get("token")
        return value if isinstance(value, str) and value else None

    def certificate(self) -> tuple[bytes | None, bytes | None]:
        """Return client certificate and key in PEM; both are None if the command makes only tokens."""
        status = self._status()
        pem, key = status.get("clientCertificateData"), status.get("clientKeyData")
        return (pem.encode(), key.encode()) if isinstance(pem, str) and isinstance(key, str) else (None, None)

    def _status(self) -> dict[str, Any]:
        with self._lock:
            if self._made is None or self._expires(self._made):
                self._made = self._run()
            return self._made

    def _expires(self, status: dict[str, Any]) -> bool:
        text = status.get("expirationTimestamp")
        if not isinstance(text, str) or not text:
            return False
        try:
            return parse_time(text) - EARLY_US < time.time_ns() // 1000
        except ValueError as error:
            raise self._failure(f"its expirationTimestamp cannot be read: {error}") from error

    def _run(self) -> dict[str, Any]:
        command = self._config["command"]
        if os.sep in command:
            command = str(self._user.beside(command))
        interactive = self._is_interactive()
        environment = {str(entry["name"]): str(entry["value"]) for entry in self._config.get("env") or ()}
        try:
            ended = subprocess.run(
                [command, *map(str, self._config.get("args") or ())],
                env={
                    **os.environ,
                    **environment,
                    INFO_VARIABLE: json.dumps(self._info(interactive=interactive)),
                },
                stdin=None if interactive else subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                check=False,
            )
        except OSError as error:
            hint = str(self._config.get("installHint") or "").strip()
            raise self._failure(f"{error.strerror}{f'; {hint}' if hint else ''}") from error
        if ended.returncode != 0:
            raise self._failure(f"it ended with {ended.returncode}")
        try:
            credential = json.loads(ended.stdout)
            status = credential["status"]
            kind = credential["kind"]
        except (ValueError, KeyError, TypeError) as error:
            raise self._failure("it printed no ExecCredential with a status") from error
        if kind != "ExecCredential" or not isinstance(status, dict) or not self._holds_credentials(status):
            raise self._failure("it made neither a token nor a certificate")
        return status

    def _holds_credentials(self, status: dict[str, Any]) -> bool:
        return bool(
            status.get("token") or (status.get("clientCertificateData") and status.get("clientKeyData"))
        )

    def _is_interactive(self) -> bool:
        mode = self._config.get("interactiveMode", "IfAvailable")
        if mode == "Always" and not sys.stdin.isatty():
            raise self._failure("it must be run on a terminal (interactiveMode: Always)")
        return mode != "Never" and sys.stdin.isatty()

    def _info(self, *, interactive: bool) -> dict[str, Any]:
        spec: dict[str, Any] = {"interactive": interactive}
        if self._config.get("provideClusterInfo"):
            fields = {key: self._cluster.fields[key] for key in _CLUSTER_KEYS if key in self._cluster.fields}
            authority = self._cluster.data("certificate-authority")
            if authority:
                fields["certificate-authority-data"] = base64.b64encode(authority).decode()
            extensions = self._cluster.fields.get("extensions") or ()
            own = [entry["extension"] for entry in extensions if entry.get("name") == _CLUSTER_EXTENSION]
            spec["cluster"] = fields | ({"config": own[0]} if own else {})
        return {"apiVersion": self._config["apiVersion"], "kind": "ExecCredential", "spec": spec}

    def _failure(self, subject: str) -> ConfigurationError:
        command = " ".join([self._config["command"], *map(str, self._config.get("args") or ())])
        return ConfigurationError(
            f"{self._user.file}: the credentials of user {self._user.name!r} cannot be made by "
            f"`{command[:_MAX_COMMAND_CHARACTERS]}`: {subject}; run it by hand to see why"
        )
