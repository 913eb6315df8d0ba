"""Address and credentials of an API server: kubeconfig files and the service account of a pod.

The order is kubectl's: the named file, then $KUBECONFIG (a list of files, merged), then ~/.kube/config, then the pod's
service account. Certificates and tokens are read here. `exec_plugin` runs the command of an `exec`. An `auth-provider`
needs the official `kubernetes` package, an extra.
"""

from __future__ import annotations

import os
import ssl
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import yaml

from orchestrator.cluster.kubeconfig_files import (
    Entry,
    Merged,
    kubeconfig_files,
    read_document,
    replace_file,
)
from orchestrator.distribution import require_extra
from orchestrator.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

SERVICE_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_NO_KUBECONFIG: Final = (
    "there is no kubeconfig; name one with --kubeconfig or KUBECONFIG, or put it at ~/.kube/config"
)


@dataclass(frozen=True)
class Access:
    """Address and credentials of one API server.

    `server` is its URL without a slash at the end; `namespace` the context's default; `context` and `user` are names
    for display. `ssl` is None for plain HTTP. `token` returns the present bearer token, or None. It is called for
    each request because tokens rotate, in a thread if `token_blocks`. `as_user` and `as_groups` are impersonated.
    """

    server: str
    namespace: str
    context: str
    user: str
    ssl: ssl.SSLContext | None
    token: Callable[[], str | None]
    token_blocks: bool = False
    tls_server_name: str | None = None
    as_user: str | None = None
    as_groups: tuple[str, ...] = ()

    @property
    def impersonation(self) -> tuple[tuple[str, str], ...]:
        """The headers of every request that impersonates."""
        if self.as_user is None:
            return ()
        groups = (("Impersonate-Group", group) for group in self.as_groups)
        return (("Impersonate-User", self.as_user), *groups)


def load_access(
    path: Path | None = None,
    context: str | None = None,
    *,
    as_user: str | None = None,
    as_groups: Sequence[str] = (),
    environ: Mapping[str, str] | None = None,
    home: Path | None = None,
    service_account: Path = SERVICE_ACCOUNT,
) -> Access:
    """Return the access of a kubeconfig's context, the current one unless `context` names another.

    If `as_user` is given, requests impersonate that user and `as_groups`, and the kubeconfig's `as` is ignored. If
    there is no kubeconfig, the service account of the pod is used. Raises ConfigurationError naming the file and the
    fix.
    """
    environ = os.environ if environ is None else environ
    files = kubeconfig_files(path, environ, home)
    if not files and context is None and (service_account / "token").exists():
        access = _service_account_access(environ, service_account)
    elif not files:
        raise ConfigurationError(_NO_KUBECONFIG)
    else:
        access = _access(Merged(files), context)
    if as_user is not None:
        access = replace(access, as_user=as_user, as_groups=tuple(as_groups))
    elif as_groups:
        raise ConfigurationError("--as-group needs --as: the cluster wants a user of these groups")
    for _, value in access.impersonation:
        if not value or not value.isprintable() or not value.isascii():
            raise ConfigurationError(f"--as and --as-group take names in printable ASCII, not {value!r}")
    return access


def load_server(
    path: Path | None = None,
    context: str | None = None,
    *,
    environ: Mapping[str, str] | None = None,
    home: Path | None = None,
    service_account: Path = SERVICE_ACCOUNT,
) -> Access:
    """Return the API server of a kubeconfig's context and its certificate authority, without any credentials.

    The context's user is ignored: no command runs, no user is impersonated, and in a pod the token of the service
    account is not read. Raises ConfigurationError.
    """
    environ = os.environ if environ is None else environ
    files = kubeconfig_files(path, environ, home)
    if not files and context is None and (service_account / "ca.crt").exists():
        return replace(_service_account_access(environ, service_account), user="", token=_no_token)
    if not files:
        raise ConfigurationError(_NO_KUBECONFIG)
    merged = Merged(files)
    return _server(merged, merged.context_name(context))


def set_default_namespace(
    namespace: str,
    path: Path | None = None,
    context: str | None = None,
    *,
    environ: Mapping[str, str] | None = None,
    home: Path | None = None,
) -> Path:
    """Make `namespace` the default of `context`, or of the current context if None; return the changed file.

    The file is replaced whole or not at all, and keeps its mode. Raises ConfigurationError.
    """
    merged = Merged(kubeconfig_files(path, os.environ if environ is None else environ, home))
    name = merged.context_name(context)
    entry = merged.entry("contexts", name)
    document = read_document(entry.file)
    for item in document["contexts"]:
        if item.get("name") == name:
            item["context"] = {**(item.get("context") or {}), "namespace": namespace}
            break
    replace_file(entry.file, yaml.safe_dump(document, sort_keys=False))
    return entry.file


# --- credentials ------------------------------------------------------------------------------------------


class FileToken:
    """A bearer token in a file, read again whenever the file changes: projected tokens rotate."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._seen: tuple[int, int, int] | None = None
        self._token = ""

    def __call__(self) -> str:
        """Return the present token. Raises ConfigurationError if the file cannot be read."""
        try:
            stat = self._file.stat()
            stamp = (stat.st_mtime_ns, stat.st_ino, stat.st_size)
            if stamp != self._seen:
                self._token = self._file.read_text(encoding="utf-8").strip()
                self._seen = stamp
        except OSError as error:
            raise ConfigurationError(f"{self._file}: the token cannot be read: {error.strerror}") from error
        return self._token


def _no_token() -> None:
    return None


def _access(merged: Merged, context_name: str | None) -> Access:
    server = _server(merged, merged.context_name(context_name))
    name, context = server.context, merged.entry("contexts", server.context)
    cluster = merged.entry("clusters", context.text("cluster"))
    user_name = context.text("user")
    user = merged.entry("users", user_name) if user_name else Entry("", {}, context.file)
    _refuse_unsupported(user, "username", "as-uid", "as-user-extra")
    credentials = _credentials(merged, name, user, cluster)
    if server.ssl is not None:
        _add_certificate(server.ssl, user, credentials.certificate, credentials.key)
    return replace(
        server,
        user=user_name,
        token=credentials.token,
        token_blocks=credentials.are_from_plugin,
        as_user=user.text("as") or None,
        as_groups=tuple(map(str, user.fields.get("as-groups") or ())),
    )


def _server(merged: Merged, name: str) -> Access:
    """Return the server of a context, without the credentials of its user."""
    context = merged.entry("contexts", name)
    cluster = merged.entry("clusters", context.text("cluster"))
    server = cluster.text("server").rstrip("/")
    if not server.startswith(("https://", "http://")):
        raise ConfigurationError(
            f"{cluster.file}: server of cluster {cluster.name!r} must be a URL, not {server!r}"
        )
    _refuse_unsupported(cluster, "proxy-url")
    return Access(
        server=server,
        namespace=context.text("namespace") or "default",
        context=name,
        user="",
        ssl=_ssl_context(cluster) if server.startswith("https:") else None,
        token=_no_token,
        tls_server_name=cluster.text("tls-server-name") or None,
    )


def _refuse_unsupported(entry: Entry, *keys: str) -> None:
    for key in keys:
        if entry.fields.get(key):
            raise ConfigurationError(f"{entry.file}: {key} of {entry.name!r} is not supported; remove it")


class _Credentials(NamedTuple):
    """The credentials of a user. `token` of a plugin blocks while the plugin's program runs."""

    token: Callable[[], str | None]
    certificate: bytes | None
    key: bytes | None
    are_from_plugin: bool = False


def _credentials(merged: Merged, context_name: str, user: Entry, cluster: Entry) -> _Credentials:
    certificate, key = user.data("client-certificate"), user.data("client-key")
    if user.text("tokenFile"):
        return _Credentials(FileToken(user.beside(user.text("tokenFile"))), certificate, key)
    if user.text("token"):
        return _Credentials(user.fields["token"].__str__, certificate, key)
    if "exec" in user.fields:
        from orchestrator.cluster.exec_plugin import ExecPlugin

        plugin = ExecPlugin(user, cluster)
        issued_certificate, issued_key = plugin.certificate()
        return _Credentials(plugin.token, issued_certificate or certificate, issued_key or key, True)
    if "auth-provider" in user.fields:
        require_extra("auth-provider")
        from orchestrator.cluster.auth_provider import credentials

        issued = credentials(merged.files, context_name, user.name)
        return _Credentials(issued.token, issued.certificate or certificate, issued.key or key, True)
    return _Credentials(_no_token, certificate, key)


def _ssl_context(cluster: Entry) -> ssl.SSLContext:
    authority = cluster.data("certificate-authority")
    try:
        context = tls_context(authority)
    except (ssl.SSLError, ValueError) as error:
        raise ConfigurationError(
            f"{cluster.file}: certificate-authority of {cluster.name!r} is no PEM certificate"
        ) from error
    if cluster.fields.get("insecure-skip-tls-verify"):
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def _add_certificate(
    context: ssl.SSLContext, user: Entry, certificate: bytes | None, key: bytes | None
) -> None:
    """Load the user's certificate into the context, if there is one."""
    if certificate and key:
        _load_pair(context, user, certificate, key)
    elif certificate or key:
        raise ConfigurationError(
            f"{user.file}: user {user.name!r} has only one of client-certificate and client-key; give both"
        )


def tls_context(authority: bytes | None) -> ssl.SSLContext:
    """Return a context that trusts the PEM certificates in `authority`; if it is None, the certificates of the system.

    Raises ssl.SSLError or ValueError if they are not certificates.
    """
    context = ssl.create_default_context(cadata=authority.decode("ascii") if authority else None)
    # From 3.13 Python also refuses authorities without a key identifier. Clusters have such authorities.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    return context


def _load_pair(context: ssl.SSLContext, user: Entry, certificate: bytes, key: bytes) -> None:
    """Load a client certificate.

    The ssl module takes only files, so the key is written to a private file, which is deleted after the load.
    """
    with tempfile.TemporaryDirectory(prefix="muster-") as folder:
        pair = Path(folder) / "pair.pem"
        pair.touch(mode=0o600)
        pair.write_bytes(certificate.rstrip() + b"\n" + key)
        try:
            context.load_cert_chain(pair)
        except (ssl.SSLError, OSError) as error:
            raise ConfigurationError(
                f"{user.file}: client-certificate and client-key of {user.name!r} are no matching PEM pair"
            ) from error


def _service_account_access(environ: Mapping[str, str], folder: Path) -> Access:
    host, port = environ.get("KUBERNETES_SERVICE_HOST"), environ.get("KUBERNETES_SERVICE_PORT", "443")
    if not host:
        raise ConfigurationError(
            f"{folder} is there but KUBERNETES_SERVICE_HOST is not set; name a kubeconfig"
        )
    namespace = folder / "namespace"
    try:
        context = tls_context((folder / "ca.crt").read_bytes())
        default = namespace.read_text(encoding="utf-8").strip() if namespace.exists() else "default"
    except (OSError, ssl.SSLError, ValueError) as error:
        raise ConfigurationError(f"{folder}: the service account's ca.crt cannot be used: {error}") from error
    return Access(
        server=f"https://{f'[{host}]' if ':' in host else host}:{port}",
        namespace=default,
        context="in-cluster",
        user="service account",
        ssl=context,
        token=FileToken(folder / "token"),
    )
