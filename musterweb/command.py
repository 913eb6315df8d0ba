"""`muster web`: serves the pages until it is interrupted."""

import ipaddress
import logging
from pathlib import Path
from typing import Final, NamedTuple

import click

from orchestrator.cli.options import Command
from orchestrator.distribution import require_extra
from orchestrator.errors import UsageError

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
    help="Where to listen; port 0 takes a free one. Beyond loopback only with a certificate.",
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
    loglevel: str,
) -> None:
    """Serve pages of the cluster: who has the GPUs, who waits and why; live, for browsers.

    Everybody signs in with a Kubernetes token of their own, and sees and does what it allows. Of the kubeconfig nothing
    is used but the address of the server and its authority: no credentials.
    """
    where = parse_listen(listen)
    if (tls_certificate is None) != (tls_key is None):
        raise UsageError("--tls-certificate and --tls-key go together: give both")
    if tls_certificate is None and not where.is_loopback:
        raise UsageError(
            f"--listen {listen}: beyond loopback tokens would travel unprotected; "
            "give --tls-certificate and --tls-key, or listen on 127.0.0.1"
        )
    require_extra("web")
    from musterweb.server import serve
    from orchestrator.cluster.kubeconfig import load_server

    logging.basicConfig(
        level={"warn": "WARNING"}.get(loglevel, loglevel.upper()),
        format="%(asctime)s %(levelname)-7s %(name)s: %(message)s",
    )
    access = load_server(kubeconfig, context)
    serve(access, where.host, where.port, certificate=tls_certificate, key=tls_key, say=click.echo)


def parse_listen(text: str) -> Listen:
    """Return the address and port of `ADDRESS:PORT` or `[ADDRESS]:PORT`. Raises UsageError."""
    host, colon, port = text.rpartition(":")
    host = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    if not colon or not host or not (port.isascii() and port.isdigit()) or int(port) > 65535:
        raise UsageError(f"--listen {text!r} is not possible: give ADDRESS:PORT, such as {DEFAULT_ADDRESS}")
    return Listen(host, int(port))
