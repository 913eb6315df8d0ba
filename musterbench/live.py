"""Times decisions as the operator makes them: from the events of the watches to the plan, in a process of its own.

Everything is the operator's own: reflectors decode what is sent, the reader is told, the loop decides. Only the network
is missing: lists and watches come from memory.
"""

import asyncio
import multiprocessing
import resource
import statistics
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import msgspec

from musterbench.result import Result, with_growth
from orchestrator.cluster.resources import JOBS, NAMESPACES, NODES, PODS, PROJECTS
from orchestrator.cluster.transport import Page, WatchEvent
from orchestrator.control.decide.observer import Observer
from orchestrator.control.decide.scheduler import SchedulerLoop
from orchestrator.control.operator import spare_the_caches
from orchestrator.names import (
    ADMITTED_ANNOTATION,
    GPU_DEVICES_ANNOTATION,
    GPU_FRACTION_ANNOTATION,
    GPU_RESOURCE,
    NAMESPACE_PREFIX,
    PROJECT_LABEL,
    SCHEDULER_NAME,
)
from orchestrator.observe.snapshot import Reading
from orchestrator.planner import Planner
from orchestrator.planner.model import Plan

PODS_OF_NODE = 35
GPUS_OF_NODE = 8
TEAMS = 4
CYCLES = 20
_POLL_SECONDS = 0.005
_CREATED = "2026-01-01T00:00:00Z"
_TEAMS = tuple(f"team-{number}" for number in range(TEAMS))


def run(sizes: Sequence[int], progress: Callable[[str], None]) -> Iterator[Result]:
    """Time each size in turn, each with how much longer it took than the one before."""
    before: dict[str, Result] = {}
    for nodes in sizes:
        context = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(1, mp_context=context) as pool:
            results = pool.submit(measure, nodes).result()
        for result in results:
            grown = with_growth(result, before.get(result.case))
            before[grown.case] = grown
            progress(f"{grown.case}, {grown.nodes} nodes, {grown.jobs} pods: {grown.seconds * 1000:.1f} ms")
            yield grown


def measure(nodes: int) -> list[Result]:
    """Fill the caches, decide for the first time, and then again after different changes."""
    return asyncio.run(_Live(nodes).run())


class _Memory:
    """Answers in the place of a `Transport`: what is listed, what the watches bring, and yes to every binding."""

    def __init__(self, nodes: int) -> None:
        pods = nodes * PODS_OF_NODE
        self._lists: dict[str, Callable[[], Iterator[dict[str, Any]]]] = {
            NODES.path(): lambda: (_node(number) for number in range(nodes)),
            PODS.path(): lambda: (_placed(number, nodes) for number in range(pods)),
            JOBS.path(): lambda: (_owner(number) for number in range(pods)),
            PROJECTS.path(): lambda: (_project(name, nodes) for name in _TEAMS),
            NAMESPACES.path(): lambda: (_namespace(name) for name in _TEAMS),
        }
        self._watches: dict[str, asyncio.Queue[WatchEvent]] = {}
        self.events = 0

    async def list_decoded(
        self, path: str, decode: Callable[[msgspec.Raw], Any], **_options: Any
    ) -> Page[Any]:
        objects = self._lists.get(path, lambda: iter(()))()
        # encoded one by one as they are decoded: the whole text would be larger than all that is kept of it
        return Page([decode(msgspec.Raw(msgspec.json.encode(item))) for item in objects], "1")

    async def watch(self, path: str, **_options: Any) -> AsyncGenerator[WatchEvent, None]:
        queue = self._watches.setdefault(path, asyncio.Queue())
        while True:
            yield await queue.get()

    async def create(self, _path: str, _body: Any) -> dict[str, Any]:
        return {}

    def send(self, path: str, kind: str, item: dict[str, Any]) -> None:
        """Let the watch of the path bring an event."""
        self.events += 1
        item["metadata"]["resourceVersion"] = str(1 + self.events)
        self._watches[path].put_nowait(WatchEvent(kind, msgspec.Raw(msgspec.json.encode(item))))


class _Live:
    def __init__(self, nodes: int) -> None:
        self._nodes = nodes
        self._pods = nodes * PODS_OF_NODE
        self._memory = _Memory(nodes)
        transport: Any = self._memory
        self._transport = transport
        self._observer = Observer(transport)
        self._bound = 0
        self._results: list[Result] = []

    async def run(self) -> list[Result]:
        spare_the_caches()
        started = time.perf_counter()
        async with AsyncExitStack() as stack:
            async with _stalls() as stalls:
                await stack.enter_async_context(self._observer.running())
            self._note("first list", [time.perf_counter() - started], 0, stalls)
            spare_the_caches()
            loop = SchedulerLoop(
                self._transport,
                self._observer,
                on_plan=self._count,
                is_leader=lambda: True,
                planner=Planner().plan,
            )
            started = time.perf_counter()
            async with _stalls() as stalls:
                await loop.catch_up()
            self._note("read everything", [time.perf_counter() - started], 0, stalls)
            started = time.perf_counter()
            async with _stalls() as stalls:
                await loop.decide()
            self._note("first decision", [time.perf_counter() - started], 0, stalls)
            spare_the_caches()
            await self._timed("nothing changed", loop, lambda _number: None)
            await self._timed("statuses and heartbeats changed", loop, self._beat)
            await self._timed("one job ended", loop, self._end)
            await self._timed("one job arrived", loop, self._arrive, bindings=1)
        return self._results

    async def _timed(
        self, case: str, loop: SchedulerLoop, change: Callable[[int], None], *, bindings: int = 0
    ) -> None:
        """From the change on the watch, still to be decoded, to the end of the decision."""
        bound, seconds = self._bound, []
        for number in range(CYCLES):
            change(number)
            started = time.perf_counter()
            while self._seen() < self._memory.events:  # noqa: ASYNC110 - an event would be one more thing to time
                await asyncio.sleep(0)
            await loop.decide()
            seconds.append(time.perf_counter() - started)
        self._note(case, seconds, self._bound - bound - bindings * CYCLES)

    def _seen(self) -> int:
        caches = (self._observer.pods, self._observer.nodes, self._observer.jobs)
        return sum(cache.counters.events for cache in caches)

    def _count(self, _reading: Reading, decision: Plan) -> None:
        self._bound += len(decision.bindings)

    def _note(
        self, case: str, seconds: list[float], surplus: int, stalls: Sequence[float] | None = None
    ) -> None:
        problem = f"{surplus:+d} bindings" if surplus else None
        rss = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        gpus = self._nodes * GPUS_OF_NODE
        figures = {"slowest_ms": max(seconds) * 1000}
        if stalls is not None:
            figures["max_stall_ms"] = max(stalls, default=0.0) * 1000
        middle = statistics.median(seconds)
        self._results.append(
            Result(f"live: {case}", self._nodes, gpus, self._pods, middle, rss, problem, figures)
        )

    def _beat(self, number: int) -> None:
        node, pod = _node(number), _placed(number, self._nodes)
        node["status"]["conditions"][0]["lastHeartbeatTime"] = f"2026-01-01T01:00:{number:02d}Z"
        pod["status"]["containerStatuses"][0]["restartCount"] = 1
        self._memory.send(NODES.path(), "MODIFIED", node)
        self._memory.send(PODS.path(), "MODIFIED", pod)

    def _end(self, number: int) -> None:
        pod = _placed(number, self._nodes)
        pod["status"]["phase"] = "Succeeded"
        self._memory.send(PODS.path(), "MODIFIED", pod)

    def _arrive(self, number: int) -> None:
        self._memory.send(JOBS.path(), "ADDED", _owner(self._pods + number))
        self._memory.send(PODS.path(), "ADDED", _pod(self._pods + number, None))


@asynccontextmanager
async def _stalls() -> AsyncIterator[list[float]]:
    """For how long, in seconds, something kept everything else from running, each time while the block runs."""
    delays: list[float] = []

    async def watch() -> None:
        while True:
            started = time.perf_counter()
            await asyncio.sleep(_POLL_SECONDS)
            delays.append(time.perf_counter() - started - _POLL_SECONDS)

    watching = asyncio.create_task(watch())
    await asyncio.sleep(0)  # from now on it looks
    try:
        yield delays
        await asyncio.sleep(_POLL_SECONDS)
    finally:
        watching.cancel()


def _node(number: int) -> dict[str, Any]:
    name = f"node-{number:05d}"
    return {
        "metadata": {
            "name": name,
            "uid": f"uid-{name}",
            "resourceVersion": "1",
            "creationTimestamp": _CREATED,
            "labels": {"kubernetes.io/hostname": name, "nvidia.com/gpu.product": "A100"},
        },
        "status": {
            "allocatable": {"cpu": "256", "memory": "2Ti", "pods": "110", GPU_RESOURCE: str(GPUS_OF_NODE)},
            "capacity": {"cpu": "256", "memory": "2Ti", "pods": "110", GPU_RESOURCE: str(GPUS_OF_NODE)},
            "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": _CREATED}],
        },
    }


def _placed(number: int, nodes: int) -> dict[str, Any]:
    return _pod(number, number % nodes, number // nodes // 5)


def _pod(number: int, node: int | None, device: int = 0) -> dict[str, Any]:
    """A fifth of a GPU, as the API server would send it, on a node or waiting."""
    name = f"job-{number:06d}"
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": f"uid-{name}", "controller": True}
    annotations = {GPU_FRACTION_ANNOTATION: "0.2"}
    if node is not None:
        annotations |= {GPU_DEVICES_ANNOTATION: str(device), ADMITTED_ANNOTATION: f"uid-{name}-x"}
    resources = {"requests": {"cpu": "1", "memory": "1Gi"}}
    return {
        "metadata": {
            "name": f"{name}-x",
            "namespace": NAMESPACE_PREFIX + _TEAMS[number % TEAMS],
            "uid": f"uid-{name}-x",
            "resourceVersion": "1",
            "creationTimestamp": _CREATED,
            "labels": {"batch.kubernetes.io/job-name": name},
            "annotations": annotations,
            "ownerReferences": [owner],
            "managedFields": [{"manager": "kube-controller-manager", "fieldsV1": {"f:metadata": {}}}],
        },
        "spec": {
            "schedulerName": SCHEDULER_NAME,
            "nodeName": "" if node is None else f"node-{node:05d}",
            "containers": [{"name": "main", "image": "train", "resources": resources}],
            "tolerations": [{"key": "node.kubernetes.io/not-ready", "operator": "Exists"}],
        },
        "status": {"phase": "Pending"}
        if node is None
        else {
            "phase": "Running",
            "startTime": _CREATED,
            "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": _CREATED}],
            "containerStatuses": [{"name": "main", "ready": True, "restartCount": 0}],
        },
    }


def _owner(number: int) -> dict[str, Any]:
    name = f"job-{number:06d}"
    metadata = {"name": name, "uid": f"uid-{name}", "resourceVersion": "1", "creationTimestamp": _CREATED}
    return {"metadata": metadata}


def _project(name: str, nodes: int) -> dict[str, Any]:
    metadata = {"name": name, "uid": f"uid-{name}", "resourceVersion": "1", "creationTimestamp": _CREATED}
    spec = {"gpu": {"quota": nodes * GPUS_OF_NODE // TEAMS}, "namespace": NAMESPACE_PREFIX + name}
    return {"metadata": metadata, "spec": spec}


def _namespace(team: str) -> dict[str, Any]:
    name = NAMESPACE_PREFIX + team
    return {
        "metadata": {
            "name": name,
            "uid": f"uid-{name}",
            "resourceVersion": "1",
            "labels": {PROJECT_LABEL: team},
        }
    }
