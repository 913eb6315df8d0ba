"""Fetches files over HTTP from the mapped mirrors and checks their digests. A later run continues partial files."""

import asyncio
import base64
import binascii
import contextlib
import errno
import json
import os
import re
import shutil
import ssl
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self
from urllib.parse import unquote, urljoin, urlsplit

import aiohttp

from deployment.bundle.manifest import File
from deployment.bundle.mirrors import Mirrors
from deployment.digest import sha256_of
from deployment.errors import DiskFull, FetchFailed
from orchestrator.progress import Reporter

AT_ONCE: Final = 4
ATTEMPTS: Final = 4
_PAUSE_SECONDS: Final = 0.2
_REDIRECTS: Final = 10
_CHUNK_BYTES: Final = 1 << 18
_STALLED_SECONDS: Final = 60
_PARAMETER: Final = re.compile(r'(\w+)="([^"]*)"')
_TRANSIENT: Final = frozenset({408, 425, 429, 500, 502, 503, 504})


class _ConnectionCut(Exception):
    """The connection ended too early, or the server answered with a temporary failure."""


class Fetcher:
    """One session of fetching into the bundle at `root`. `known` are the files that an earlier run fetched."""

    def __init__(
        self, root: Path, mirrors: Mirrors, progress: Reporter, known: Mapping[str, File] | None = None
    ) -> None:
        self.root = root
        self.mirrors = mirrors
        self.progress = progress
        self.files_done = 0
        self.bytes_done = 0
        self._known = known or {}
        self._tokens: dict[str, str] = {}
        self._gate = asyncio.Semaphore(AT_ONCE)
        self._paths: dict[Path, asyncio.Lock] = {}

    async def __aenter__(self) -> Self:
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=30, sock_read=_STALLED_SECONDS)
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(ssl=ssl.create_default_context()),
            timeout=timeout, trust_env=True, auto_decompress=False, headers={"Accept-Encoding": "identity"},
        )  # fmt: skip
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._session.close()

    async def file(
        self,
        url: str,
        path: str,
        *,
        sha256: str = "",
        fresh: bool = False,
        headers: Mapping[str, str] | None = None,
    ) -> File:
        """Fetch `url` to `path` of the bundle, unless it is there already. Raises FetchFailed or DiskFull.

        Without `sha256`, the first run trusts the origin, and a later run keeps a file that has the digest recorded by
        an earlier run. With `fresh`, each run fetches the file again.
        """
        target = self.root / path
        async with self._paths.setdefault(target, asyncio.Lock()), self._gate:
            known = self._known.get(path)
            expected = sha256 or (known.sha256 if known and not fresh else "")
            try:
                if not (
                    expected and target.is_file() and await asyncio.to_thread(sha256_of, target) == expected
                ):
                    await self._whole(url, target, sha256, dict(headers or {}))
                size = target.stat().st_size
            except OSError as error:
                raise _disk_error(error, target) from error
            self.files_done += 1
            self.bytes_done += size
            self.progress.update(f"{self.files_done} files, {self.bytes_done >> 20} MiB: {Path(path).name}")
            return File(path, await asyncio.to_thread(sha256_of, target), size, url)

    async def text(
        self, url: str, headers: Mapping[str, str] | None = None
    ) -> tuple[bytes, Mapping[str, str]]:
        """Return the content of a small document, and the headers of the answer. Raises FetchFailed."""
        for attempt in range(ATTEMPTS):
            try:
                if (local := self._local(url)) is not None:
                    return _read(url, local), {}
                async with self.request("GET", url, headers=headers) as response:
                    _must_be_good(url, response)
                    return await response.read(), response.headers
            except (aiohttp.ClientError, TimeoutError, _ConnectionCut) as error:
                await self._pause(url, attempt, error)
        raise AssertionError("the last attempt raises")

    @contextlib.asynccontextmanager
    async def request(
        self, method: str, url: str, *, headers: Mapping[str, str] | None = None, data: Any = None
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """Send one request and yield the answer. Redirects go through the map of mirrors too. If a registry requires
        a token, get one.
        """
        target, sent, authorized = self.mirrors.map(url), dict(headers or {}), False
        for _ in range(_REDIRECTS):
            async with self._session.request(
                method, target, headers=sent, data=data, allow_redirects=False
            ) as response:
                if response.status in {301, 302, 303, 307, 308} and "Location" in response.headers:
                    following = self.mirrors.map(urljoin(target, response.headers["Location"]))
                    if urlsplit(following)[:2] != urlsplit(target)[:2]:
                        sent.pop("Authorization", None)
                    target = following
                    continue
                if response.status == 401 and not authorized:
                    authorized = True
                    sent["Authorization"] = await self._authorization(target, response)
                    continue
                yield response
                return
        raise FetchFailed(f"{url}: it is redirected more than {_REDIRECTS} times, the last time to {target}")

    def _local(self, url: str) -> Path | None:
        """If the URL's mirror is a directory, return the file in it. Otherwise return None. Raises FetchFailed."""
        if urlsplit(url).scheme not in {"http", "https"}:
            raise FetchFailed(
                f"{url}: it is neither http nor https; a directory of this machine is a mirror's place"
            )
        parts = urlsplit(self.mirrors.map(url))
        return Path(unquote(parts.path)) if parts.scheme == "file" else None

    async def _whole(self, url: str, target: Path, sha256: str, headers: dict[str, str]) -> None:
        target.parent.mkdir(parents=True, exist_ok=True)
        part = target.with_name(target.name + ".part")
        if not sha256:
            part.unlink(missing_ok=True)
        resumed = part.exists()
        if (local := self._local(url)) is not None:
            _copy(url, local, part)
        else:
            await self._fetch_partially(url, part, headers)
        digest = await asyncio.to_thread(sha256_of, part)
        if sha256 and digest != sha256:
            part.unlink()
            if resumed:
                return await self._whole(url, target, sha256, headers)
            raise FetchFailed(
                f"{_display_url(url, self.mirrors)}: sha256 is {digest}, it should be {sha256}: nothing was kept. "
                "Name another source under mirrors, or correct the SHA-256 if the file is right"
            )
        part.replace(target)
        return None

    async def _fetch_partially(self, url: str, part: Path, headers: dict[str, str]) -> None:
        validator = ""
        for attempt in range(ATTEMPTS):
            have = part.stat().st_size if part.exists() else 0
            more = {"Range": f"bytes={have}-"} if have else {}
            more |= {"If-Range": validator} if have and validator else {}
            try:
                async with self.request("GET", url, headers=headers | more) as response:
                    if response.status == 416:
                        return
                    _must_be_good(url, response)
                    validator = response.headers.get("ETag", "")
                    await _append(response, part, keep=response.status == 206)
                    return
            except (aiohttp.ClientError, TimeoutError, _ConnectionCut) as error:
                await self._pause(url, attempt, error)

    async def _pause(self, url: str, attempt: int, error: Exception) -> None:
        if attempt == ATTEMPTS - 1:
            why = str(error) or type(error).__name__
            raise FetchFailed(f"{_display_url(url, self.mirrors)}: {why} (tried {ATTEMPTS} times)") from error
        await asyncio.sleep(_PAUSE_SECONDS * 2**attempt)

    async def _authorization(self, target: str, response: aiohttp.ClientResponse) -> str:
        challenge = response.headers.get("WWW-Authenticate", "")
        host = urlsplit(target).netloc
        login = _login(host)
        if challenge.lower().startswith("basic") and login:
            return f"Basic {login}"
        parameters = dict(_PARAMETER.findall(challenge))
        if not challenge.lower().startswith("bearer") or "realm" not in parameters:
            raise FetchFailed(
                f"{target}: it asks for a login: log in to {host} with `docker login` or `skopeo login`"
            )
        if challenge not in self._tokens:
            query = {name: parameters[name] for name in ("service", "scope") if name in parameters}
            headers = {"Authorization": f"Basic {login}"} if login else {}
            realm = self.mirrors.map(parameters["realm"])
            async with self._session.get(realm, params=query, headers=headers) as answer:
                _must_be_good(realm, answer)
                try:
                    token = json.loads(await answer.read())
                    self._tokens[challenge] = str(token.get("token") or token["access_token"])
                except (ValueError, KeyError, AttributeError) as error:
                    raise FetchFailed(f"{realm}: the answer holds no token") from error
        return f"Bearer {self._tokens[challenge]}"


async def _append(response: aiohttp.ClientResponse, part: Path, *, keep: bool) -> None:
    expected, came = response.content_length, 0
    with part.open("ab" if keep else "wb") as output:
        async for chunk in response.content.iter_chunked(_CHUNK_BYTES):
            output.write(chunk)
            came += len(chunk)
    if expected is not None and came != expected:
        raise _ConnectionCut(f"{came} of {expected} bytes came")


def _must_be_good(url: str, response: aiohttp.ClientResponse) -> None:
    if response.status in _TRANSIENT:
        raise _ConnectionCut(f"the server answered {response.status} {response.reason}")
    if response.status >= 300:
        raise FetchFailed(
            f"{_display(url, str(response.url))}: the server answered {response.status} {response.reason}"
        )


def _display_url(url: str, mirrors: Mirrors) -> str:
    return _display(url, mirrors.map(url))


def _display(url: str, source: str) -> str:
    return url if source == url else f"{url} (from {source})"


def _read(url: str, path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise FetchFailed(f"{url} (from {path}): {error.strerror}") from error


def _copy(url: str, source: Path, target: Path) -> None:
    if not source.is_file():
        raise FetchFailed(f"{url} (from {source}): there is no such file")
    shutil.copyfile(source, target)


def _disk_error(error: OSError, target: Path) -> Exception:
    if error.errno in {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}:
        return DiskFull(
            f"{target}: {error.strerror}: free some space and run the same command again; fetched files are "
            f"kept"
        )
    return FetchFailed(f"{target}: {error.strerror}")


def _login(host: str) -> str:
    """Return the login for a registry that `docker login` or `skopeo login` has stored, in base64.

    Empty if there is none.
    """
    candidates = [os.environ.get("REGISTRY_AUTH_FILE", "")]
    candidates.append(str(Path(os.environ.get("DOCKER_CONFIG", "~/.docker")).expanduser() / "config.json"))
    for place in filter(None, candidates):
        with contextlib.suppress(OSError, ValueError, AttributeError, binascii.Error):
            entry = json.loads(Path(place).read_text()).get("auths", {}).get(host, {})
            if entry.get("auth"):
                base64.b64decode(entry["auth"], validate=True)
                return str(entry["auth"])
    return ""
