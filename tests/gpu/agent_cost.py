"""Measures the processor time and memory of the agent, on this machine's GPUs or on a double of NVML.

An API server and a kubelet on loopback answer the agent, every GPU has a container, and Prometheus scrapes every 15
seconds. The library is that in `driver_root`, else the one of the linker. The environment gives a double its GPUs.
"""

import asyncio
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, Final

import aiohttp
import yaml
from aiohttp import web
from grpclib.const import Cardinality, Handler
from grpclib.server import Server

from musterbench.processes import peak_rss_bytes, processor_ms
from musterbench.result import Result
from orchestrator.agent.pod_resources import LIST, ListRequest, ListResponse

SCRAPE_SECONDS: Final = 15.0
WARM_UP_SECONDS: Final = 5.0
MAX_RSS_BYTES: Final = 80_000_000
"""With NVIDIA's driver 580.159.04, the agent used at most 70.1 MB. Its DaemonSet allows 128 MiB (134.2 MB)."""
MAX_PERCENT: Final = 1.0
_NODE: Final = "bench"
_READY_SECONDS: Final = 60.0
_MUSTER: Final = ("-P", "-c", "import sys; from orchestrator.cli.main import main; sys.exit(main())")
_ADDRESS: Final = re.compile(rb"http://127\.0\.0\.1:(\d+)/metrics")


async def run(seconds: float, driver_root: Path | None, *, progress: Callable[[str], None]) -> Result:
    """Run the agent for this time after its start, and return its use."""
    async with AsyncExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="muster-bench-")))
        site = _Site(directory)
        await stack.enter_async_context(site.serving())
        process = stack.enter_context(_agent(directory, driver_root))
        stack.callback(process.terminate)
        port = await _port(directory / "log", process)
        async with asyncio.timeout(_READY_SECONDS):
            await site.written.wait()
        problem = site.spec.get("problem")
        await asyncio.sleep(WARM_UP_SECONDS)
        started, before, writes = time.perf_counter(), processor_ms(process.pid), site.writes
        scrapes = await _scrape(port, seconds)
        wall = time.perf_counter() - started
        percent = (processor_ms(process.pid) - before) / wall / 10
        rss = peak_rss_bytes(process.pid)
        result = Result(
            "agent",
            1,
            len(site.spec.get("gpus", ())),
            0,
            wall,
            rss,
            problem or _too_much(percent, rss),
            {"processor_percent": percent, "writes": site.writes - writes, "scrapes": scrapes},
        )
    progress(f"{result.gpus} GPUs: {percent:.2f} % of a CPU, {rss / 1e6:.1f} MB at most")
    return result


def _too_much(percent: float, rss: int) -> str | None:
    if percent > MAX_PERCENT:
        return f"more than {MAX_PERCENT:g} % of a CPU"
    return f"more than {MAX_RSS_BYTES // 1_000_000} MB" if rss > MAX_RSS_BYTES else None


class _Site:
    """An API server that accepts all writes, and a kubelet that gave each GPU to a container."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._response = ListResponse()
        self.spec: dict[str, Any] = {}
        self.written = asyncio.Event()
        self.writes = 0

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        app = web.Application()
        app.router.add_get("/api/v1/nodes/bench", self._node)
        app.router.add_patch("/api/v1/nodes/bench", self._node)
        app.router.add_patch("/apis/muster.dev/v1alpha1/gpunodes/bench", self._take)
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        kubelet = Server([self])
        try:
            await web.TCPSite(runner, "127.0.0.1", 0).start()
            port = runner.addresses[0][1]
            (self._directory / "kubeconfig").write_text(yaml.safe_dump(_kubeconfig(port)))
            await kubelet.start(path=str(self._directory / "kubelet.sock"))
            yield
        finally:
            kubelet.close()
            await runner.cleanup()

    def __mapping__(self) -> dict[str, Handler]:
        """Return the kubelet's handlers."""
        return {LIST: Handler(self._list, Cardinality.UNARY_UNARY, ListRequest, ListResponse)}

    async def _list(self, stream: Any) -> None:
        await stream.recv_message()
        await stream.send_message(self._response)

    async def _node(self, _request: web.Request) -> web.Response:
        return web.json_response({"metadata": {"name": _NODE, "uid": "uid-of-bench"}})

    async def _take(self, request: web.Request) -> web.Response:
        self.spec = json.loads(await request.read())["spec"]
        if not self._response.pod_resources:
            for gpu in self.spec.get("gpus", ()):
                pod = self._response.pod_resources.add(name=f"train-{gpu['index']}", namespace="team-a")
                container = pod.containers.add(name="main")
                container.devices.add(resource_name="nvidia.com/gpu", device_ids=[gpu.get("uuid", "")])
        self.writes += 1
        self.written.set()
        return web.json_response({"metadata": {"name": _NODE}})


def _kubeconfig(port: int) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": _NODE,
        "clusters": [{"name": _NODE, "cluster": {"server": f"http://127.0.0.1:{port}"}}],
        "users": [{"name": _NODE, "user": {}}],
        "contexts": [{"name": _NODE, "context": {"cluster": _NODE, "user": _NODE}}],
    }


def _agent(directory: Path, driver_root: Path | None) -> subprocess.Popen[bytes]:
    command = [
        sys.executable, *_MUSTER, "agent", "--kubeconfig", str(directory / "kubeconfig"), "--node", _NODE,
        "--port", "0", "--pod-resources", str(directory / "kubelet.sock"),
        *(["--driver-root", str(driver_root)] if driver_root else []),
    ]  # fmt: skip
    # as in the operator YAML; modules are already compiled, as in the image, so that compiling is not
    # measured
    environment = {**os.environ, "MALLOC_ARENA_MAX": "1"}
    with (directory / "log").open("wb") as log:
        return subprocess.Popen(command, stderr=log, stdout=log, env=environment)


async def _port(log: Path, process: subprocess.Popen[bytes]) -> int:
    async with asyncio.timeout(_READY_SECONDS):
        while True:
            text = log.read_bytes()
            if match := _ADDRESS.search(text):
                return int(match[1])
            if process.poll() is not None:
                raise RuntimeError(f"the agent has ended: {text.decode(errors='replace').strip()}")
            await asyncio.sleep(0.1)


async def _scrape(port: int, seconds: float) -> int:
    """Fetch the metrics as Prometheus does, for this time; return the number of scrapes."""
    end = time.perf_counter() + seconds
    count = 0
    async with aiohttp.ClientSession() as session:
        while (left := end - time.perf_counter()) > 0:
            async with session.get(f"http://127.0.0.1:{port}/metrics") as answer:
                await answer.read()
            count += 1
            await asyncio.sleep(min(SCRAPE_SECONDS, left))
    return count
