"""Commands import aiohttp without the system's CA certificates, and still trust them where they need them."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

from tests.cluster.certificates import Authority

if TYPE_CHECKING:
    from pathlib import Path

PROGRAM = """
import asyncio, pathlib, ssl, sys
import click
from orchestrator.cli import session
async def nothing(client):
    del client
with click.Context(click.Command("x")):
    session.run(nothing)
import aiohttp.connector
assert aiohttp.connector._SSL_CONTEXT_VERIFIED.verify_mode is ssl.CERT_REQUIRED
from deployment.bundle.fetch import Fetcher
from deployment.bundle.mirrors import Mirrors
from musterweb.prometheus import PrometheusHistory

async def authorities():
    yield ssl.create_default_context()
    async with Fetcher(pathlib.Path(sys.argv[1]), Mirrors({}), print) as fetcher:
        yield fetcher._session.connector._ssl
    history = PrometheusHistory("https://localhost")
    await history.start()
    yield history._session.connector._ssl
    await history.close()

async def main():
    print([context.cert_store_stats()["x509_ca"] async for context in authorities()])

asyncio.run(main())
"""


def test_only_the_default_context_of_aiohttp_lacks_the_certificates_of_the_system(
    kubeconfig: Path, tmp_path: Path
) -> None:
    bundle = tmp_path / "ca.pem"
    bundle.write_bytes(Authority().pem)
    environment = os.environ | {"SSL_CERT_FILE": str(bundle), "SSL_CERT_DIR": str(tmp_path / "none")}
    found = subprocess.run(
        [sys.executable, "-P", "-c", PROGRAM, str(tmp_path)],
        env=environment, capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    assert found.returncode == 0, found.stderr
    assert found.stdout == "[1, 1, 1]\n"
