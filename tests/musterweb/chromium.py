"""Debian's headless Chromium, driven by the Chrome DevTools Protocol over loopback."""

from __future__ import annotations

import asyncio
import base64
import itertools
import shutil
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any, Final

import aiohttp

from tests.cluster.waiting import DEADLINE_SECONDS

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

FLAGS: Final = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    "--ignore-certificate-errors",
    "--remote-debugging-port=0",
)


def program() -> str | None:
    """Return the path of Chromium; None if it is not installed."""
    return shutil.which("chromium")


class Navigated(Exception):
    """The queried page was replaced by another one."""


class Browser:
    """The connection to the browser. It passes each answer to its caller, and each event to its page."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket
        self._numbers = itertools.count(1)
        self._answers: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._tabs: dict[str, Tab] = {}

    async def listen(self) -> None:
        """Receive messages until the browser ends."""
        async for message in self._socket:
            told = message.json()
            if "id" in told:
                self._answers.pop(told["id"]).set_result(told)
            elif tab := self._tabs.get(told.get("sessionId", "")):
                tab.hear(told["method"], told["params"])

    async def call(self, method: str, session: str = "", **params: Any) -> dict[str, Any]:
        """Send a command, to a page if `session` is given; return its result."""
        number = next(self._numbers)
        answer = self._answers[number] = asyncio.get_running_loop().create_future()
        target = {"sessionId": session} if session else {}
        await self._socket.send_json({"id": number, "method": method, "params": params, **target})
        async with asyncio.timeout(DEADLINE_SECONDS):
            result = await answer
        if "navigated" in result.get("error", {}).get("message", ""):
            raise Navigated
        assert "error" not in result, (method, result)
        content: dict[str, Any] = result["result"]
        return content

    async def tab(self) -> Tab:
        """Open a page. All pages are signed in as the same user."""
        target = await self.call("Target.createTarget", url="about:blank")
        attached = await self.call("Target.attachToTarget", targetId=target["targetId"], flatten=True)
        session: str = attached["sessionId"]
        tab = self._tabs[session] = Tab(self, session)
        await tab.open()
        return tab


class Tab:
    """One page of the browser. `problems` are the errors in its console and the requests that its policy refused."""

    def __init__(self, browser: Browser, session: str) -> None:
        self.problems: list[str] = []
        self._browser = browser
        self._session = session
        self._frame = ""
        self._loaded: list[str] = []  # the loader of every document with a seen load event
        self._load = asyncio.Event()

    def hear(self, method: str, params: dict[str, Any]) -> None:
        """Receive an event of this page."""
        if method == "Page.lifecycleEvent":
            if params["name"] == "load" and params["frameId"] == self._frame:
                self._loaded.append(params["loaderId"])
                self._load.set()
        elif method == "Runtime.exceptionThrown":
            self.problems.append(str(params["exceptionDetails"]))
        elif method == "Log.entryAdded" and params["entry"]["level"] == "error":
            self.problems.append(params["entry"]["text"])

    async def call(self, method: str, **params: Any) -> dict[str, Any]:
        """Send a command for this page; return its result."""
        return await self._browser.call(method, self._session, **params)

    async def beside(self) -> Tab:
        """Open another page of the same browser."""
        return await self._browser.tab()

    async def open(self) -> None:
        """Enable the page's events, and wait until it can navigate."""
        for domain in ("Page", "Runtime", "Log"):
            await self.call(f"{domain}.enable")
        self._frame = (await self._document())["id"]
        await self.call("Page.setLifecycleEventsEnabled", enabled=True)

    async def _document(self) -> dict[str, Any]:
        """Return the frame of the page, with the loader of its present document."""
        tree = await self.call("Page.getFrameTree")
        frame: dict[str, Any] = tree["frameTree"]["frame"]
        return frame

    async def _until_loaded(self, is_awaited: Callable[[str], bool]) -> None:
        """Wait until the awaited document is loaded. A load event of the document before can still arrive, and does not
        count.
        """
        async with asyncio.timeout(DEADLINE_SECONDS):
            while not any(map(is_awaited, self._loaded)):
                self._load.clear()
                await self._load.wait()

    async def go(self, url: str) -> None:
        """Open an address, and wait until it is loaded."""
        loader = (await self.call("Page.navigate", url=url))["loaderId"]
        await self._until_loaded(lambda loaded: loaded == loader)

    async def look(self, *, width: int, theme: str, height: int = 900) -> None:
        """Set the width, the height and the theme (light or dark). A narrow page is emulated as on a phone."""
        await self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width, height=height, deviceScaleFactor=1, mobile=width < 600,
        )  # fmt: skip
        await self.call(
            "Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": theme}]
        )

    async def js(self, expression: str) -> Any:
        """Return the value of an expression in the page. A promise is awaited."""
        result = await self.call(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in result, result
        return result["result"].get("value")

    async def until(self, condition: str) -> Any:
        """Wait until an expression is true in the page, or in one opened meanwhile; return its value."""
        look = f"() => {{ const it = {condition}; it ? done(it) : setTimeout(look, 20); }}"
        while True:
            try:
                return await self.js(f"new Promise((done) => {{ const look = {look}; look(); }})")
            except Navigated:
                continue

    async def submit(self, selector: str) -> None:
        """Press a button that opens another page, and wait for that page."""
        before = {*self._loaded, (await self._document())["loaderId"]}
        await self.js(f"document.querySelector({selector!r}).click()")
        await self._until_loaded(lambda loaded: loaded not in before)

    async def press(self, key: str, code: int, text: str = "") -> None:
        """Press and release a key."""
        known = {"key": key, "code": key, "windowsVirtualKeyCode": code, **({"text": text} if text else {})}
        await self.call("Input.dispatchKeyEvent", type="keyDown", **known)
        await self.call("Input.dispatchKeyEvent", type="keyUp", **known)

    async def picture(self, file: Path) -> None:
        """Write a PNG of the whole page."""
        size = (await self.call("Page.getLayoutMetrics"))["cssContentSize"]
        clip = {"x": 0, "y": 0, "width": size["width"], "height": min(size["height"], 4000), "scale": 1}
        shot = await self.call("Page.captureScreenshot", clip=clip, captureBeyondViewport=True)
        file.write_bytes(base64.b64decode(shot["data"]))


@asynccontextmanager
async def browsing(directory: Path) -> AsyncIterator[Tab]:
    """Start a new browser with its profile in the directory; yield its first page."""
    chromium = program()
    assert chromium is not None
    process = await asyncio.create_subprocess_exec(
        chromium, *FLAGS, f"--user-data-dir={directory}", "about:blank",
        stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    try:
        async with asyncio.timeout(DEADLINE_SECONDS):
            url = await _address(process)
        drain = asyncio.create_task(_drained(process))
        async with aiohttp.ClientSession() as session, session.ws_connect(url, max_msg_size=0) as socket:
            browser = Browser(socket)
            listening = asyncio.create_task(browser.listen())
            tab = await browser.tab()
            yield tab
            await tab.call("Target.setAutoAttach", autoAttach=False, waitForDebuggerOnStart=False)
            listening.cancel()
            with suppress(asyncio.CancelledError):
                await listening
    finally:
        with suppress(ProcessLookupError):
            process.terminate()
        await process.wait()
    await drain


async def _address(process: asyncio.subprocess.Process) -> str:
    assert process.stderr is not None
    async for line in process.stderr:
        _, found, url = line.decode().strip().partition("DevTools listening on ")
        if found:
            return url
    raise AssertionError("Chromium did not start")


async def _drained(process: asyncio.subprocess.Process) -> None:
    assert process.stderr is not None
    while await process.stderr.read(1 << 16):
        pass
