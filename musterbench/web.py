"""The speed and cost of the pages of `muster web`: first pages, updates for many people at the same time, memory.

The server is a process of its own, with a day of recorded figures. Each user has a token and a session, and may see the
whole cluster. The server reads an API server that takes nearly no time.

An update is a starting job: its pod, the job, its GPU and the figures of its project change, and with them every open
page.
"""

import asyncio
import html
import json
import re
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Final

import aiohttp

from musterbench.processes import peak_rss_bytes, processor_ms, rss_bytes
from musterbench.result import Result
from musterbench.schedulers import MUSTER
from musterbench.stopwatch import BenchmarkFailed
from musterbench.web_cluster import GPUS_OF_NODE, PROJECT_COUNT, RECORDER, WebCluster

PAGES: Final = (
    ("Overview", "/"),
    ("Projects", "/projects"),
    ("Jobs", "/jobs"),
    ("Nodes", "/nodes"),
    ("Analytics", "/analytics"),
)
LIVE: Final = ("/", "/projects", "/jobs", "/nodes")
"""The pages that update themselves; the first user opens the first page, the second user the second page, and so on."""
FIRST_PAGE_SECONDS: Final = 1.0
UPDATE_SECONDS: Final = 0.2
MEMORY_BYTES: Final = 200_000_000
_REPEATS: Final = 5
_PATIENCE_SECONDS: Final = 120.0
_REST_SECONDS: Final = 2.0
"""Pause after each update, so that every user has received it before the next one."""
_HISTORY_STEP_SECONDS: Final = 300
_HISTORY_SECONDS: Final = 86400


@dataclass(frozen=True, slots=True)
class _Served:
    """The measured server, and the size of its cluster."""

    url: str
    pid: int
    nodes: int
    jobs: int

    def result(self, case: str, seconds: float, problem: str | None = None, **figures: float) -> Result:
        """Return the result of a case, with the largest and the present memory of the server."""
        gpus, rss = self.nodes * GPUS_OF_NODE, peak_rss_bytes(self.pid)
        figures["rss_mib"] = rss_bytes(self.pid) / 2**20
        return Result(f"web: {case}", self.nodes, gpus, self.jobs, seconds, rss, problem, figures)


async def run(
    nodes: int,
    jobs: int,
    viewers: int,
    updates: int,
    *,
    progress: Callable[[str], None],
    on_result: Callable[[Result], None],
) -> None:
    """Measure one size; `on_result` gets each result as soon as it is there. Raises BenchmarkFailed."""
    cluster = WebCluster(nodes, jobs)
    if len(cluster.waiting) < updates:
        raise BenchmarkFailed(f"of {jobs} jobs {len(cluster.waiting)} wait, fewer than {updates} updates")
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="muster-bench-")))
        authority = await stack.enter_async_context(cluster.serving(folder))
        progress("filling history …")
        await _fill_history(folder / "history.db")
        if viewers > 1:
            progress(f"{viewers} people sign in at the same moment …")
            on_result(await _all_at_once(cluster, folder, authority, viewers))
        url, pid = await stack.enter_async_context(_serving(cluster, folder, authority))
        served = _Served(url, pid, cluster.nodes, cluster.jobs)
        people = [await stack.enter_async_context(_Viewer.at(url, number)) for number in range(viewers)]
        for result in await _pages_of_one(served, people[0]):
            on_result(result)
        for person in people[1:]:
            await person.signs_in_and_opens("/")
        progress(f"{updates} updates for {viewers} people …")
        on_result(await _updates(served, people, cluster, updates))


async def _all_at_once(cluster: WebCluster, folder: Path, authority: Path, viewers: int) -> Result:
    """Return the times of people who all sign in and open the first page at the same moment, right after a server's
    start.
    """
    async with AsyncExitStack() as stack:
        url, pid = await stack.enter_async_context(_serving(cluster, folder, authority))
        served = _Served(url, pid, cluster.nodes, cluster.jobs)
        people = [await stack.enter_async_context(_Viewer.at(url, number)) for number in range(viewers)]
        used, started = processor_ms(pid), time.perf_counter()
        problem: str | None = None
        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(person.signs_in_and_opens("/")) for person in people]
        except* BenchmarkFailed as failures:
            problem = str(failures.exceptions[0])
        all_seconds = time.perf_counter() - started
        times = sorted(task.result() for task in tasks) if problem is None else [0.0]
        return served.result(
            f"{viewers} people sign in at the same moment",
            median(times),
            problem,
            slowest_ms=times[-1] * 1000,
            last_page_ms=all_seconds * 1000,
            processor_ms_per_person=(processor_ms(pid) - used) / viewers,
            limit_ms=FIRST_PAGE_SECONDS * 1000,
        )


async def _pages_of_one(served: _Served, person: "_Viewer") -> list[Result]:
    """Return the times of the first page with empty caches, and of every page with full caches."""
    await person.sign_in()
    used, took = processor_ms(served.pid), await person.seconds("/")
    used = processor_ms(served.pid) - used
    limit_ms = FIRST_PAGE_SECONDS * 1000
    results = [served.result("first page of all, of one person", took, processor_ms=used, limit_ms=limit_ms)]
    for name, path in PAGES:
        used = processor_ms(served.pid)
        times = [await person.seconds(path) for _ in range(_REPEATS)]
        used = (processor_ms(served.pid) - used) / _REPEATS
        results.append(
            served.result(
                name, median(times), slowest_ms=max(times) * 1000, processor_ms=used, limit_ms=limit_ms
            )
        )
    return results


async def _updates(served: _Served, people: "Sequence[_Viewer]", cluster: WebCluster, updates: int) -> Result:
    """Return the delay of updates: each person has a page open while jobs start, one after the other."""
    problem: str | None = None
    delays: list[float] = []
    used = 0.0
    async with AsyncExitStack() as stack:
        streams = [
            await stack.enter_async_context(person.following(LIVE[number % len(LIVE)]))
            for number, person in enumerate(people)
        ]
        await asyncio.gather(*(stream.until(stream.is_there) for stream in streams))
        await asyncio.sleep(_REST_SECONDS)
        quiet = processor_ms(served.pid)
        await asyncio.sleep(_REST_SECONDS)
        quiet = (processor_ms(served.pid) - quiet) / _REST_SECONDS
        for _ in range(updates):
            for stream in streams:
                stream.forget()
            before, started = processor_ms(served.pid), time.perf_counter()
            name = cluster.start_a_job()
            try:
                await asyncio.gather(*(stream.until(stream.is_there) for stream in streams))
            except BenchmarkFailed as error:
                problem = problem or f"{name} started: {error}"
                break
            delays += [stream.at - started for stream in streams]
            await asyncio.sleep(_REST_SECONDS)
            spent = (time.perf_counter() - started) * quiet
            used += max(0.0, processor_ms(served.pid) - before - spent)
    delays.sort()
    memory = rss_bytes(served.pid)
    return served.result(
        f"an update for {len(people)} people",
        median(delays) if delays else 0.0,
        problem,
        p99_ms=delays[int(len(delays) * 0.99)] * 1000 if delays else 0.0,
        max_ms=max(delays, default=0.0) * 1000,
        server_ms_per_update=used / updates,
        server_ms_per_person=used / updates / len(people),
        limit_ms=UPDATE_SECONDS * 1000,
        quiet_percent_of_a_processor=quiet / 10,
        memory_mib=memory / 2**20,
        memory_limit_mib=MEMORY_BYTES / 2**20,
    )


class _Viewer:
    """A person with a token and a browser."""

    def __init__(self, session: aiohttp.ClientSession, url: str, number: int) -> None:
        self._session = session
        self._url = url
        self._token = f"viewer-{number}"

    @classmethod
    @asynccontextmanager
    async def at(cls, url: str, number: int) -> "AsyncIterator[_Viewer]":
        """Yield a person with this number; at the end, close the browser."""
        jar = aiohttp.CookieJar(unsafe=True)  # also keep cookies of a server without a DNS name
        timeout = aiohttp.ClientTimeout(_PATIENCE_SECONDS)
        async with aiohttp.ClientSession(cookie_jar=jar, timeout=timeout) as session:
            yield cls(session, url, number)

    async def sign_in(self) -> None:
        """Begin a session. Raises BenchmarkFailed."""
        async with self._session.get(f"{self._url}/sign-in") as answer:
            form = re.search(r'name="form_token" value="([^"]*)"', await answer.text())
        fields = {"token": self._token, "project": "", "form_token": html.unescape(form[1]) if form else ""}
        async with self._session.post(
            f"{self._url}/sign-in", data=fields, headers={"Origin": self._url}, allow_redirects=False
        ) as answer:
            if answer.status != 303:
                raise BenchmarkFailed(f"{self._token} cannot sign in: {answer.status}")

    async def signs_in_and_opens(self, path: str) -> float:
        """Begin a session and return how long a page takes then. Raises BenchmarkFailed."""
        await self.sign_in()
        return await self.seconds(path)

    async def seconds(self, path: str) -> float:
        """Return how long a page takes, to its last byte. Raises BenchmarkFailed."""
        started = time.perf_counter()
        async with self._session.get(f"{self._url}{path}", allow_redirects=False) as answer:
            text = await answer.text()
        if answer.status != 200 or 'name="token"' in text:
            raise BenchmarkFailed(f"{path} of {self._token}: {answer.status}")
        return time.perf_counter() - started

    @asynccontextmanager
    async def following(self, path: str) -> "AsyncIterator[_Stream]":
        """Open the stream of a page."""
        timeout = aiohttp.ClientTimeout(total=None, sock_read=_PATIENCE_SECONDS)
        async with self._session.get(
            f"{self._url}/events", params={"page": path}, timeout=timeout, read_bufsize=1 << 20
        ) as answer:
            if answer.status != 200:
                raise BenchmarkFailed(f"no stream of {path} for {self._token}: {answer.status}")
            stream = _Stream(path)
            task = asyncio.create_task(stream.read(answer.content))
            try:
                yield stream
            finally:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)


class _Stream:
    """The events of a page that updates itself. `at` is the time of the first body after the last `forget`."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.at = 0.0
        self.is_there = asyncio.Event()

    def forget(self) -> None:
        """Forget the received body: `at` will be the time of the next one."""
        self.is_there.clear()

    async def until(self, event: asyncio.Event) -> None:
        """Wait for the event. Raises BenchmarkFailed after `_PATIENCE_SECONDS`."""
        try:
            async with asyncio.timeout(_PATIENCE_SECONDS):
                await event.wait()
        except TimeoutError as error:
            raise BenchmarkFailed(f"{self.path} did not change in {_PATIENCE_SECONDS:.0f} s") from error

    async def read(self, content: aiohttp.StreamReader) -> None:
        """Read events until the stream ends. Set `at` at the first body, and again after each `forget`."""
        rest = b""
        async for chunk in content.iter_any():
            *lines, rest = (rest + chunk).split(b"\n")
            if b"event: page" in lines and not self.is_there.is_set():
                self.at = time.perf_counter()
                self.is_there.set()


@asynccontextmanager
async def _serving(cluster: WebCluster, folder: Path, authority: Path) -> AsyncIterator[tuple[str, int]]:
    """Run `muster web`; yield its address and the id of its process."""
    kubeconfig, token = folder / "config", folder / "token"
    name = {"name": "bench"}
    kubeconfig.write_text(
        json.dumps(
            {
                "current-context": "bench",
                "clusters": [
                    name | {"cluster": {"server": cluster.url, "certificate-authority": str(authority)}}
                ],
                "users": [name | {"user": {}}],
                "contexts": [name | {"context": {"cluster": "bench", "user": "bench"}}],
            }
        )
    )
    token.write_text(RECORDER)
    words = ["web", "--listen", "127.0.0.1:0", "--kubeconfig", str(kubeconfig)]
    words += ["--history", str(folder / "history.db"), "--history-token", str(token)]
    process = await asyncio.create_subprocess_exec(*MUSTER, *words, stdout=asyncio.subprocess.PIPE)
    try:
        assert process.stdout is not None  # noqa: S101 - given as PIPE
        async with asyncio.timeout(_PATIENCE_SECONDS):
            line = (await process.stdout.readline()).decode()
        address = re.search(r"http://[0-9.:]+", line)
        if address is None:
            raise BenchmarkFailed(f"muster web did not start: {line.strip() or 'it said nothing'}")
        yield address[0], process.pid
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()


async def _fill_history(file: Path) -> None:
    """Write a day of figures of all projects into a file, as `muster web --history` does."""
    from musterweb.history_store import Sample, Store  # noqa: PLC0415 - of another extra

    now = [time.time() - _HISTORY_SECONDS]
    store = Store(file, clock=lambda: now[0])
    await store.start()
    try:
        for step in range(_HISTORY_SECONDS // _HISTORY_STEP_SECONDS):
            projects = {
                f"team-{number:02d}": Sample(
                    90_000 + step * 10, 100_000, 10_000, 4000, 870, wait_seconds=90, started=2, oldest_wait=60
                )
                for number in range(PROJECT_COUNT)
            }
            await store.add(Sample(3_600_000, 4_000_000, 400_000, 160_000, 870), projects)
            now[0] += _HISTORY_STEP_SECONDS
    finally:
        await store.close()
