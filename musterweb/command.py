"""`muster web`: serves the pages until it is interrupted."""

import ipaddress
import logging
import re
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import click

from orchestrator.cli.options import Command
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
    """Where the server listens."""

    host: str
    port: int

    @property
    def is_loopback(self) -> bool:
        """Whether nobody but this machine can reach it."""
        if self.host in _LOOPBACK_NAMES:
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False


@click.command("web", cls=Command)
@click.option(
    "--listen",
    metavar="ADDRESS:PORT",
    default=DEFAULT_ADDRESS,
    show_default=True,
    help="Where to listen; * is every address, port 0 takes a free one. Beyond loopback only with a certificate.",
)
@click.option(
    "--tls-certificate",
    metavar="FILE",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Certificate of the server in PEM, with those between it and its authority.",
)
@click.option(
    "--tls-key",
    metavar="FILE",
    type=click.Path(path_type=Path, dir_okay=False),
    help="The private key of the certificate.",
)
@click.option(
    "--kubeconfig",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Which cluster: only the address of its server and its authority are used.",
)
@click.option("--context", metavar="NAME", help="Context of the kubeconfig.")
@click.option(
    "--prometheus",
    metavar="URL",
    help="A Prometheus with the rules of `muster monitoring`, from which Analytics takes what was.",
)
@click.option(
    "--history",
    metavar="FILE",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Instead of a Prometheus: record what was in this file, made if it is not there; at most 1 GB.",
)
@click.option(
    "--history-token",
    metavar="FILE",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Token of the account that records, with the role muster-viewer in the whole cluster.",
)
@click.option(
    "--history-seconds",
    metavar="SECONDS",
    type=click.IntRange(1, 60),
    default=60,
    show_default=True,
    help="How often to record; a point of Analytics is the mean of its minute.",
)
@click.option(
    "--reports",
    metavar="DIRECTORY",
    type=click.Path(path_type=Path, file_okay=False, exists=True),
    help="Show the records of `muster validate` in the directories of this one.",
)
@click.option(
    "--oidc-issuer",
    metavar="URL",
    help="Let people sign in at this OpenID Connect provider, whose ID tokens the API server takes.",
)
@click.option(
    "--oidc-client-id", metavar="ID", help="Who the pages are to the provider; the API server's as well."
)
@click.option(
    "--oidc-client-secret",
    metavar="FILE",
    type=click.Path(path_type=Path, dir_okay=False),
    help="The secret of the client; without it a public client, which PKCE protects.",
)
@click.option(
    "--oidc-authority",
    metavar="FILE",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Authority of the provider's certificate in PEM.  [default: the system's]",
)
@click.option(
    "--oidc-scope",
    "oidc_scopes",
    metavar="SCOPE",
    multiple=True,
    help="What is asked for; repeatable.  [default: openid, and profile, email, groups, offline_access if there are]",
)
@click.option(
    "--public-url",
    metavar="URL",
    help="The address by which browsers come, as the provider knows it.  [default: where it listens]",
)
@click.option(
    "--loglevel",
    type=click.Choice(["debug", "info", "warn", "warning", "error"]),
    default="warn",
    show_default=True,
    help="How much to log to stderr.",
)
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
    """Serve pages of the cluster: who has the GPUs, who waits and why; live, for browsers.

    Everybody signs in with a Kubernetes token of their own, pasted or from an identity provider, and sees and does what
    it allows. Of the kubeconfig nothing is used but the address of the server and its authority: no credentials.
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
        raise UsageError("--prometheus and --history are two places for the same: give one")
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

    logging.basicConfig(
        level={"warn": "WARNING"}.get(loglevel, loglevel.upper()),
        format="%(asctime)s %(levelname)-7s %(name)s: %(message)s",
    )
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
    """Return where the figures of the past come from, if anywhere."""
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
    """Return the address at which browsers of this machine come; "" where nobody can know it."""
    if not where.is_loopback or not where.port:
        return ""
    host = f"[{where.host}]" if ":" in where.host else where.host
    return f"{'https' if is_secure else 'http'}://{host}:{where.port}"


def parse_listen(text: str) -> Listen:
    """Return the address and port of `ADDRESS:PORT` or `[ADDRESS]:PORT`. Raises UsageError."""
    host, colon, port = text.rpartition(":")
    host = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    if not colon or not host or not (port.isascii() and port.isdigit()) or int(port) > 65535:
        raise UsageError(f"--listen {text!r} is not possible: give ADDRESS:PORT, such as {DEFAULT_ADDRESS}")
    return Listen(host, int(port))
