"""`muster web`: serves the pages until it is interrupted."""

import ipaddress
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import click

from orchestrator.cli.options import Command
from orchestrator.cli.serving import Function, log_level_option, log_to_stderr
from orchestrator.distribution import require_extra
from orchestrator.errors import UsageError
from orchestrator.manifests.web import PROMETHEUS_URL

if TYPE_CHECKING:
    from musterweb.history_model import History
    from musterweb.sights import Sights
    from orchestrator.cluster.kubeconfig import Access

DEFAULT_ADDRESS: Final = "127.0.0.1:8480"
_LOOPBACK_NAMES: Final = ("localhost",)


class Listen(NamedTuple):
    """The address and port at which the server listens."""

    host: str
    port: int

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can reach it."""
        if self.host in _LOOPBACK_NAMES:
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False


def _file_option(name: str, text: str) -> Callable[[Function], Function]:
    return click.option(name, metavar="FILE", type=click.Path(path_type=Path, dir_okay=False), help=text)


@click.command("web", cls=Command)
@click.option(
    "--listen",
    metavar="ADDRESS:PORT",
    default=DEFAULT_ADDRESS,
    show_default=True,
    help="Address to listen on. * is every address, port 0 takes a free port. Other addresses than "
    "loopback need a certificate.",
)
@_file_option("--tls-certificate", "Certificate chain of the server in PEM.")
@_file_option("--tls-key", "Private key of the certificate.")
@click.option(
    "--kubeconfig",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Kubeconfig of the cluster. Only the address of the server and its CA certificate are used.",
)
@click.option("--context", metavar="NAME", help="Context of the kubeconfig.")
@click.option(
    "--prometheus",
    metavar="URL",
    help="Prometheus with the rules of `muster monitoring`. The page Analytics reads the history from it.",
)
@_file_option(
    "--history",
    "File for the history, instead of a Prometheus. It is created if it is missing; at most 1 GB.",
)
@_file_option(
    "--history-token",
    "Token of the recording account, which needs the role muster-viewer in the whole cluster.",
)
@click.option(
    "--history-seconds",
    metavar="SECONDS",
    type=click.IntRange(1, 60),
    default=60,
    show_default=True,
    help="Recording interval. A point of Analytics is the mean of its minute.",
)
@click.option(
    "--reports",
    metavar="DIRECTORY",
    type=click.Path(path_type=Path, file_okay=False, exists=True),
    help="Show the reports of `muster validate` in the subdirectories of this directory.",
)
@click.option(
    "--oidc-issuer",
    metavar="URL",
    help="OpenID Connect provider for signing in. The API server must accept its ID tokens.",
)
@click.option(
    "--oidc-client-id",
    metavar="ID",
    help="Client id of the pages at the provider; the same as that of the API server.",
)
@_file_option(
    "--oidc-client-secret", "File with the client secret. Without it the pages are a public client with PKCE."
)
@_file_option("--oidc-authority", "CA certificate of the provider in PEM.  [default: the system's]")
@click.option(
    "--oidc-scope",
    "oidc_scopes",
    metavar="SCOPE",
    multiple=True,
    help="Scope to request; repeatable.  [default: openid, and those of profile, email, groups, "
    "offline_access that the provider offers]",
)
@click.option(
    "--public-url",
    metavar="URL",
    help="URL of the pages for browsers, as it is registered with the provider.  [default: where it listens]",
)
@log_level_option("warn")
def web(
    *,
    listen: str,
    tls_certificate: Path | None,
    tls_key: Path | None,
    kubeconfig: Path | None,
    context: str | None,
    prometheus: str | None,
    history: Path | None,
    history_token: Path | None,
    history_seconds: int,
    reports: Path | None,
    oidc_issuer: str | None,
    oidc_client_id: str | None,
    oidc_client_secret: Path | None,
    oidc_authority: Path | None,
    oidc_scopes: tuple[str, ...],
    public_url: str | None,
    loglevel: str,
) -> None:
    """Serve live web pages of the cluster: its GPUs, the running jobs and the pending jobs with reasons.

    Each user signs in with a Kubernetes token, pasted or from an identity provider, and has the rights of
    that token. From the kubeconfig the pages use only the address of the server and its CA certificate, no
    credentials.
    """
    where = parse_listen(listen)
    if (tls_certificate is None) != (tls_key is None):
        raise UsageError("--tls-certificate and --tls-key go together: give both")
    if tls_certificate is None and not where.is_loopback:
        raise UsageError(
            f"--listen {listen}: beyond loopback tokens would travel unprotected; "
            "give --tls-certificate and --tls-key, or listen on 127.0.0.1"
        )
    if (history is None) != (history_token is None):
        raise UsageError("--history and --history-token go together: give both")
    if history is not None and prometheus is not None:
        raise UsageError("--prometheus and --history exclude each other: give one of them")
    if prometheus is not None and not re.fullmatch(PROMETHEUS_URL, prometheus):
        raise UsageError(
            f"--prometheus {prometheus!r} is not possible: give a URL such as http://127.0.0.1:9090"
        )
    require_extra("web")
    from musterweb.provider_options import provider_of
    from musterweb.reports import Reports
    from musterweb.server import serve
    from musterweb.sights import Sights
    from orchestrator.cluster.kubeconfig import load_server

    log_to_stderr(loglevel)
    provider = provider_of(
        oidc_issuer,
        oidc_client_id,
        secret=oidc_client_secret,
        authority=oidc_authority,
        scopes=oidc_scopes,
        public_url=public_url or _own_url(where, is_secure=tls_certificate is not None),
    )
    access = load_server(kubeconfig, context)
    sights = Sights()
    past = _history(access, sights, prometheus, history, history_token, seconds=history_seconds)
    serve(
        access,
        where.host,
        where.port,
        certificate=tls_certificate,
        key=tls_key,
        sights=sights,
        history=past,
        reports=None if reports is None else Reports(reports),
        provider=provider,
        say=click.echo,
    )


def _history(
    access: "Access",
    sights: "Sights",
    prometheus: str | None,
    file: Path | None,
    token: Path | None,
    *,
    seconds: int,
) -> "History | None":
    """Return the history for the page of analytics: a Prometheus, a file of its own, or None."""
    if prometheus is not None:
        from musterweb.prometheus import PrometheusHistory

        return PrometheusHistory(prometheus)
    if file is not None and token is not None:
        from musterweb.history_store import Store
        from musterweb.recorder import RecordedHistory

        store = Store(file)
        store.check()
        return RecordedHistory(store, access, token, sights, record_seconds=seconds)
    return None


def _own_url(where: Listen, *, is_secure: bool) -> str:
    """Return the address for browsers on this machine; "" if it is unknown."""
    if not where.is_loopback or not where.port:
        return ""
    host = f"[{where.host}]" if ":" in where.host else where.host
    return f"{'https' if is_secure else 'http'}://{host}:{where.port}"


def parse_listen(text: str) -> Listen:
    """Return the address and port of `ADDRESS:PORT` or `[ADDRESS]:PORT`. Raises UsageError.

    Example: `parse_listen("[::1]:8443")` returns `Listen(host='::1', port=8443)`.
    """
    host, colon, port = text.rpartition(":")
    host = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    if not colon or not host or not (port.isascii() and port.isdigit()) or int(port) > 65535:
        raise UsageError(f"--listen {text!r} is not possible: give ADDRESS:PORT, such as {DEFAULT_ADDRESS}")
    return Listen(host, int(port))
