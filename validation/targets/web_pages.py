"""`muster web` as a process beside the target, and a viewer that signs in with the token of a new service account."""

import asyncio
import contextlib
import json
import os
import re
import secrets
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final, NamedTuple

from orchestrator.cluster.errors import ClusterError, NotFound
from orchestrator.cluster.resources import CLUSTER_ROLE_BINDINGS, SERVICE_ACCOUNTS
from orchestrator.cluster.transport import Transport
from orchestrator.names import SYSTEM_NAMESPACE
from orchestrator.roles import VIEWER
from validation.errors import TargetError
from validation.judge.views.lists import ANALYTICS, view_of
from validation.targets.process import ENTRY, end, start_with_pdeathsig
from validation.witness import pages
from validation.witness.reader import ReadFailed

START_SECONDS: Final = 90.0
STOP_SECONDS: Final = 10.0
TOKEN_SECONDS: Final = 8 * 3600
_POLL_SECONDS: Final = 0.2
_SERVING: Final = re.compile(r"Serving at http://127\.0\.0\.1:([0-9]+)/")
_SUMMARY: Final = "/analytics.csv?hours=1"
_IS_RECORDED: Final = 'data-current="yes"'
OK: Final = 200


class PageShown(NamedTuple):
    """The content of a page as JSON, or the problem if it cannot be read."""

    output: str = ""
    problem: str = ""


class WebPages:
    """The pages that `muster web` serves at a port, and the browser of a viewer."""

    def __init__(self, port: int, token: str) -> None:
        self._browser = pages.Browser(port)
        self._token = token
        self._is_in = False

    async def show(self, view: str) -> PageShown:
        """Return the present content of this view's page. Raises TargetError if the sign-in fails."""
        return await asyncio.to_thread(self._show, view)

    async def until_recorded(self) -> None:
        """Wait until the history has its first record. Raises TargetError if it has none after START_SECONDS."""
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:
            if await asyncio.to_thread(self._is_recorded):
                return
            await asyncio.sleep(_POLL_SECONDS)
        raise TargetError(f"muster web has no history after {START_SECONDS:g} s")

    def _is_recorded(self) -> bool:
        try:
            if not self._is_in:
                self._sign_in()
            _, text = self._browser.open("/analytics?hours=1")
        except ReadFailed as error:
            raise TargetError(str(error)) from error
        return _IS_RECORDED in text

    def _show(self, view: str) -> PageShown:
        try:
            if not self._is_in:
                self._sign_in()
            status, text = self._browser.open(view_of(view).page)
        except ReadFailed as error:
            return PageShown(problem=str(error))
        if status != OK:
            return PageShown(problem=f"it is answered with {status}")
        if view == ANALYTICS:
            read_ms = int(time.time() * 1000)
            try:
                status, summary = self._browser.open(_SUMMARY)
            except ReadFailed as error:
                return PageShown(problem=str(error))
            if status != OK:
                return PageShown(problem=f"{_SUMMARY} is answered with {status}")
            return PageShown(
                json.dumps([{"of": "read", "at": read_ms}, *pages.analytics_rows(text, summary)])
            )
        return PageShown(json.dumps(pages.overview_rows(text)))

    def _sign_in(self) -> None:
        """Sign in with the viewer's token. Raises TargetError."""
        try:
            self._browser.sign_in(self._token)
        except ReadFailed as error:
            raise TargetError(f"muster web refuses the sign-in: {error}") from error
        self._is_in = True


@contextlib.asynccontextmanager
async def serving_pages(transport: Transport, kubeconfig: Path) -> AsyncIterator[WebPages]:
    """Serve the pages of the cluster, with a history, while the body runs. Raises TargetError.

    At the end the service account of the viewer and its rights are deleted.
    """
    with tempfile.TemporaryDirectory(prefix="muster-validate-") as private:
        directory = Path(private)
        async with _viewer(transport) as token:
            file = directory / "token"
            file.touch(0o600)
            file.write_text(token)
            process = await start_with_pdeathsig(
                [sys.executable, *ENTRY, "web", "--listen", "127.0.0.1:0", *_history(directory)],
                log=directory / "web.log",
                environment={**os.environ, "KUBECONFIG": str(kubeconfig), "PYTHONUNBUFFERED": "1"},
            )
            try:
                served = WebPages(await _until_it_serves(process, directory / "web.log"), token)
                await served.until_recorded()
                yield served
            finally:
                await end(process, grace_seconds=STOP_SECONDS)


def _history(directory: Path) -> list[str]:
    """Return the options of `muster web` that record the history each second."""
    return [
        *("--history", str(directory / "history.db"), "--history-token", str(directory / "token")),
        *("--history-seconds", "1"),
    ]


async def _until_it_serves(process: asyncio.subprocess.Process, log: Path) -> int:
    """Wait until `muster web` serves, and return its port.

    Raises TargetError if the process ends or does not serve in time.
    """
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        match = _SERVING.search(log.read_text(errors="replace"))
        if match is not None:
            return int(match[1])
        try:
            await asyncio.wait_for(asyncio.shield(process.wait()), _POLL_SECONDS)
        except TimeoutError:
            continue
        lines = log.read_text(errors="replace").split("\n")
        last = next((line for line in reversed(lines) if line.strip()), "it printed nothing")
        raise TargetError(f"muster web did not start: {last}")
    raise TargetError(f"muster web does not serve after {START_SECONDS:g} s")


@contextlib.asynccontextmanager
async def _viewer(transport: Transport) -> AsyncIterator[str]:
    """Create a service account that may read everything and change nothing, and yield its token. Raises TargetError."""
    name = f"muster-validate-{secrets.token_hex(4)}"
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name}}
    binding: dict[str, Any] = {
        "apiVersion": CLUSTER_ROLE_BINDINGS.api_version,
        "kind": CLUSTER_ROLE_BINDINGS.kind,
        "metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": VIEWER},
        "subjects": [{"kind": "ServiceAccount", "namespace": SYSTEM_NAMESPACE, "name": name}],
    }
    request = {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenRequest",
        "spec": {"expirationSeconds": TOKEN_SECONDS},
    }
    path = SERVICE_ACCOUNTS.path(SYSTEM_NAMESPACE, name)
    try:
        try:
            await transport.create(SERVICE_ACCOUNTS.path(SYSTEM_NAMESPACE), account)
            await transport.create(CLUSTER_ROLE_BINDINGS.path(), binding)
            answer = await transport.create(SERVICE_ACCOUNTS.path(SYSTEM_NAMESPACE, name, "token"), request)
        except ClusterError as error:
            raise TargetError(f"there is no account to look at the pages with: {error}") from error
        yield str(answer["status"]["token"])
    finally:
        for made in (CLUSTER_ROLE_BINDINGS.path(name=name), path):
            with contextlib.suppress(NotFound):
                await transport.delete(made)
