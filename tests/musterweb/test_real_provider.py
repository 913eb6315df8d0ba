"""Signing in at a real provider, oidc-provider 9.13.3 of the npm registry: what our double of one says is what it says.

Skipped where it is not in the cache; `.ci/run` puts it there.
"""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
from contextlib import contextmanager
from html import unescape
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, urljoin, urlsplit

import aiohttp
import pytest

from musterweb.errors import SignInNeeded
from musterweb.oidc import Provider, Settings
from musterweb.provider_sign_in import CALLBACK, ProviderSignIn

if TYPE_CHECKING:
    from collections.abc import Iterator

SECRET = "s3cret%:x"
REDIRECT = f"http://127.0.0.1:8480{CALLBACK}"
SCRIPT = Path(__file__).parent / "real_provider" / "server.mjs"


def modules() -> Path:
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = cache / "muster" / "web" / "oidc-provider" / "node_modules"
    if shutil.which("node") is None or not (folder / "oidc-provider").is_dir():
        pytest.skip(f"{folder} has no oidc-provider, or there is no node")
    return folder


@contextmanager
def issuing() -> Iterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = ["node", str(SCRIPT), str(modules()), str(port), SECRET, REDIRECT]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        assert process.stdout is not None
        assert any(line == "up\n" for line in process.stdout)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.communicate()


async def answer_of(url: str) -> dict[str, str]:
    """Fill in the provider's pages as ada, and return what it sends the browser back with."""
    async with aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True)) as browser:
        response = await browser.get(url, allow_redirects=False)
        for _ in range(12):
            if response.status in (302, 303):
                place = urljoin(str(response.url), response.headers["Location"])
                if place.startswith(REDIRECT):
                    return dict(parse_qsl(urlsplit(place).query))
                response = await browser.get(place, allow_redirects=False)
                continue
            text = await response.text()
            form = re.search(r'<form[^>]*action="([^"]*)"', text)
            assert form, text
            fields = dict(re.findall(r'name="(\w+)" value="([^"]*)"', text))
            if 'name="login"' in text:
                fields |= {"login": "ada", "password": "any"}
            action = urljoin(str(response.url), unescape(form[1]))
            response = await browser.post(action, data=fields, allow_redirects=False)
    raise AssertionError("the provider's pages have no end")


async def test_a_real_provider_signs_in_renews_and_forgets() -> None:
    with issuing() as issuer:
        provider = Provider(Settings(issuer, "muster", REDIRECT, client_secret=SECRET))
        sign_in = ProviderSignIn(provider)
        try:
            cookie, url = await sign_in.begin("team-a")
            answer = await answer_of(url)
            assert answer["iss"] == issuer
            renewal, project = await sign_in.finish(cookie, answer)
            assert project == "team-a"
            tokens = renewal.tokens
            assert tokens.subject == "ada"
            with pytest.raises(SignInNeeded, match="not begun in this browser"):
                await sign_in.finish(cookie, answer)
            await renewal.renew()
            renewed = renewal.tokens
            assert (renewed.subject, bool(renewed.refresh_token)) == ("ada", True)
            await renewal.forget()
            with pytest.raises(SignInNeeded, match="invalid_grant"):
                await renewal.renew()
        finally:
            await provider.close()
