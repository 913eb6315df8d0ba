"""Times healthy jobs alone, and again beside every object that once stopped all scheduling, in one lab.

A job is one pod of one GPU: it is created, bound and deleted before the next one is. Its time is from just before the
request that creates it until a watch shows its binding.
"""

import asyncio
import statistics
import time
from collections.abc import Callable
from typing import Final

from musterbench import poison_objects
from musterbench.own_lab import own_lab
from musterbench.poison_objects import NAMESPACE, Row
from musterbench.processes import peak_rss_bytes
from musterbench.result import Result
from musterbench.schedulers import muster
from musterbench.stopwatch import Stopwatch
from musterbench.teams import GPUS_OF_NODE, gpu_pod, make_project, until_account
from orchestrator.cluster.errors import Invalid
from orchestrator.cluster.resources import CLAIMS, NODES, PODS, PROJECTS, STORAGE_CLASSES
from orchestrator.cluster.transport import MERGE_PATCH, Transport
from orchestrator.names import NAMESPACE_PREFIX, SCHEDULER_NAME

MAX_MS: Final = 1000.0
"""No healthy job is to wait longer beside them."""
_ALONE: Final = "alone"
_BESIDE: Final = "beside"
_DEPARTMENTS: Final = 100
"""Of the chain of 1,000 departments so many: enough to be too deep, and each gets a namespace."""


async def run(
    nodes: int, jobs: int, *, progress: Callable[[str], None], on_result: Callable[[Result], None]
) -> None:
    """Measure in a lab of its own, which is gone at the end; `on_result` gets each result as soon as it is there.

    Raises MusterError leaves.
    """
    async with own_lab(nodes, progress) as (lab, transport, directory):
        scheduler = await muster(lab, transport, directory)
        await make_project(transport, NAMESPACE.removeprefix(NAMESPACE_PREFIX), GPUS_OF_NODE)
        await until_account(transport, NAMESPACE)
        healthy = _Healthy(transport, nodes, progress)
        watching = asyncio.create_task(healthy.watch.pods.run())
        try:
            async with scheduler.running() as process:
                await healthy.jobs("first", 1)
                on_result(healthy.result(_ALONE, await healthy.jobs(_ALONE, jobs), process.pid))
                count, _ = await create_all(transport)
                progress(f"created {count} objects, each of which once stopped all scheduling")
                on_result(healthy.result(_BESIDE, await healthy.jobs(_BESIDE, jobs), process.pid))
        finally:
            watching.cancel()
            await asyncio.wait({watching})


class _Healthy:
    """Jobs that nothing is wrong with, one after the other."""

    def __init__(self, transport: Transport, nodes: int, progress: Callable[[str], None]) -> None:
        self.watch = Stopwatch(transport)
        self._transport = transport
        self._nodes = nodes
        self._progress = progress

    async def jobs(self, phase: str, count: int) -> list[float]:
        """The milliseconds that so many jobs waited, sorted."""
        waits = [await self._job(f"{phase}-{number}") for number in range(count)]
        return sorted(waits)

    async def _job(self, name: str) -> float:
        started = time.monotonic()
        await self._transport.create(PODS.path(NAMESPACE), gpu_pod(name, name, SCHEDULER_NAME))
        await self.watch.until(1, name, self.watch.bound, self._progress)
        (uid,) = self.watch.of(name)
        await self._transport.delete(PODS.path(NAMESPACE, name), grace_seconds=0)
        await self.watch.until_gone(name)
        return (self.watch.bound[uid] - started) * 1000

    def result(self, case: str, waits: list[float], pid: int) -> Result:
        """What these waits say; those beside the others have a bound."""
        too_long = case == _BESIDE and waits[-1] > MAX_MS
        problem = f"a job waited longer than {MAX_MS:.0f} ms" if too_long else None
        figures = {
            "p50_ms": statistics.median(waits),
            "p99_ms": waits[len(waits) * 99 // 100],
            "max_ms": waits[-1],
        }
        gpus = self._nodes * GPUS_OF_NODE
        seconds = sum(waits) / 1000
        return Result(
            f"poison: {case}", self._nodes, gpus, len(waits), seconds, peak_rss_bytes(pid), problem, figures
        )


async def create_all(transport: Transport) -> tuple[int, set[str]]:
    """Create the objects of every row of the table; those that run do so on the last node.

    Returns how many the API server took, and the names of those that it refused: newer ones refuse some affinities.
    """
    page = await transport.list(NODES.path(), dict)
    first, last = page.items[0]["metadata"]["name"], page.items[-1]["metadata"]["name"]
    objects = [(PROJECTS.path(), project) for project in poison_objects.chain(_DEPARTMENTS)]
    for row in poison_objects.rows(last).values():
        await _grow(transport, first, row)
        objects += [(STORAGE_CLASSES.path(), storage_class) for storage_class in row.storage_classes]
        objects += [(CLAIMS.path(NAMESPACE), claim) for claim in row.claims]
        objects += [(PODS.path(NAMESPACE), pod) for pod in row.pods]
    refused = set()
    for path, body in objects:
        try:
            await transport.create(path, body)
        except Invalid:
            refused.add(body["metadata"]["name"])
    return len(objects) - len(refused), refused


async def _grow(transport: Transport, node: str, row: Row) -> None:
    """Let a node say that it has what the row gives to nodes."""
    if row.node_allocatable:
        amounts = dict(row.node_allocatable)
        status = {"status": {"allocatable": amounts, "capacity": amounts}}
        await transport.patch(NODES.path(None, node, "status"), status, content_type=MERGE_PATCH)
