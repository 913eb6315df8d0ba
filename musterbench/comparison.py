"""Compares muster's operator with kube-scheduler in one lab: pods of one GPU, from creation to binding.

The two schedulers run alternately, and take turns in the first position. Each run has an empty cluster, new pods and a
new process. The same watch observes both schedulers.

Without a backlog, the scheduler runs before the first pod is created, so the creation can be the limit. With a
backlog, all pods exist before its process starts.
"""

import asyncio
import os
import statistics
import time
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import musterlab.kube_scheduler
from musterbench.own_lab import own_lab
from musterbench.processes import busy_ms, peak_rss_bytes, processor_ms
from musterbench.raw_client import in_flight
from musterbench.result import Result
from musterbench.schedulers import Scheduler, kube_scheduler, muster
from musterbench.server_counts import collect_garbage
from musterbench.stopwatch import BenchmarkFailed, Stopwatch
from musterbench.teams import GPUS_OF_NODE, gpu_pod, have_accounts, make_projects, team_namespaces
from musterlab.cluster import Lab
from orchestrator.cluster.resources import PODS
from orchestrator.cluster.transport import Transport
from orchestrator.progress import as_reporter

_PREFIX: Final = "against: "


@dataclass(frozen=True, slots=True)
class Case:
    """The number of pods, and of nodes of 8 GPUs. With a backlog all pods are pending before the scheduler starts."""

    nodes: int
    pods: int
    backlog: bool


CASES: Final[tuple[Case, ...]] = (
    Case(nodes=500, pods=3000, backlog=False),
    Case(nodes=2000, pods=10_000, backlog=True),
)


async def compare(
    case: Case, rounds: int, *, report: Callable[[str], None], keep: Callable[[Result], None]
) -> None:
    """Measure in a new lab, which is removed at the end. `keep` is called with each result after its run.

    Raises subclasses of MusterError.
    """
    if case.pods > case.nodes * GPUS_OF_NODE:
        raise BenchmarkFailed(
            f"{case.pods} pods of one GPU do not fit on {case.nodes} nodes of {GPUS_OF_NODE}: ask for fewer pods"
        )
    program = await musterlab.kube_scheduler.find(as_reporter(report))
    async with own_lab(case.nodes, report) as (lab, transport, directory):
        both = (
            await kube_scheduler(lab, directory, program),
            await muster(lab, transport, directory),
        )
        series = _Series(case, lab, transport, report)
        await series.prepare()
        watching = asyncio.create_task(series.watch.pods.run())
        try:
            await _alternate(series, both, rounds, keep)
        finally:
            watching.cancel()
            await asyncio.wait({watching})


async def _alternate(
    series: "_Series", both: Sequence[Scheduler], rounds: int, keep: Callable[[Result], None]
) -> None:
    results: dict[str, list[Result]] = {scheduler.name: [] for scheduler in both}
    for number in range(1, rounds + 1):
        for scheduler in both if number % 2 else reversed(both):
            result = await series.run_once(scheduler, number)
            results[scheduler.name].append(result)
            keep(result)
    other, ours = (_all_of(results[scheduler.name]) for scheduler in both)
    keep(other)
    keep(_beside(ours, other))


@dataclass(frozen=True, slots=True)
class _Reading:
    """Processor time until now: of a scheduler, of all processes of the comparison, and of the machine.

    `at` is in seconds of a monotonic clock. In the result of `since`, all fields are differences.
    """

    at: float
    scheduler_ms: float
    comparison_ms: float
    machine_ms: float

    def since(self, before: "_Reading") -> "_Reading":
        """Return the differences between this reading and an earlier one."""
        return _Reading(
            self.at - before.at,
            self.scheduler_ms - before.scheduler_ms,
            self.comparison_ms - before.comparison_ms,
            self.machine_ms - before.machine_ms,
        )


class _Series:
    """The pods of each scheduler, in one lab."""

    def __init__(self, case: Case, lab: Lab, transport: Transport, report: Callable[[str], None]) -> None:
        self.watch = Stopwatch(transport)
        self._lab = lab
        self._case = case
        self._transport = transport
        self._report = report

    async def prepare(self) -> None:
        """Make the projects, and their namespaces for the pods."""
        await make_projects(self._transport, self._case.nodes)
        await have_accounts(self._transport)

    async def run_once(self, scheduler: Scheduler, number: int) -> Result:
        """Let one scheduler bind all its pods, remove the pods, and return the result."""
        phase, count = f"{scheduler.name}-{number}", self._case.pods
        if self._case.backlog:
            await self._create(scheduler, phase, count)
            await self.watch.until_quiet()
        await collect_garbage(self._transport)
        async with scheduler.running() as process:
            before = self._reading(process.pid)
            if not self._case.backlog:
                await self._begins(scheduler, process, phase)
                before = self._reading(process.pid)
                await self._create(scheduler, phase, count)
            await _while_running(scheduler, process, self._until_bound(phase, count))
            spent = self._reading(process.pid).since(before)
            rss_bytes = peak_rss_bytes(process.pid)
        result = self._result(scheduler, phase, before.at, rss_bytes, spent)
        await self._remove(phase)
        return result

    async def _begins(self, scheduler: Scheduler, process: asyncio.subprocess.Process, phase: str) -> None:
        """Wait until the scheduler has bound one pod, so that its start is not measured."""
        await self._create(scheduler, f"{phase}-first", 1)
        await _while_running(scheduler, process, self._until_bound(f"{phase}-first", 1))
        await self._remove(f"{phase}-first")

    async def _until_bound(self, phase: str, count: int) -> None:
        await self.watch.until(count, phase, self.watch.bound, self._report)

    async def _create(self, scheduler: Scheduler, phase: str, count: int) -> None:
        started, namespaces = time.monotonic(), team_namespaces()

        async def create_one(number: int) -> None:
            body = gpu_pod(f"{phase}-{number:05d}", phase, scheduler.scheduler_name)
            await self._transport.create(PODS.path(namespaces[number % len(namespaces)]), body)

        await in_flight(create_one, count)
        self._report(f"{phase}: {count} pods created in {time.monotonic() - started:.1f} s")

    async def _remove(self, phase: str) -> None:
        """Delete the pods of a phase and wait until they have ended, so that the next begins in the same state."""
        pods = [self.watch.pods.objects[uid].metadata for uid in self.watch.of(phase)]

        async def delete_one(number: int) -> None:
            pod = pods[number]
            await self._transport.delete(PODS.path(pod.namespace, pod.name), grace_seconds=0)

        await in_flight(delete_one, len(pods))
        await self.watch.until_deleted(phase)
        await self.watch.until_quiet()

    def _reading(self, pid: int) -> "_Reading":
        ours = (os.getpid(), pid, *(process.pid for process in self._lab.status().processes))
        return _Reading(
            time.monotonic(), processor_ms(pid), sum(processor_ms(number) for number in ours), busy_ms()
        )

    def _result(
        self, scheduler: Scheduler, phase: str, started: float, rss_bytes: int, spent: "_Reading"
    ) -> Result:
        """Return the result of the time from `started` to the last binding.

        `started` is just before the creation of the first pod, or with a backlog the start of the process. A wait
        begins at the creation of the pod, or at `started` if that is later.
        """
        uids, bound = self.watch.of(phase), self.watch.bound
        first, last = min(bound[uid] for uid in uids), max(bound[uid] for uid in uids)
        seconds = last - started
        figures = {
            "pods_per_second": len(uids) / seconds,
            **self.watch.waits(phase, started),
            "first_ms": (first - started) * 1000,
            "after_first_per_second": (len(uids) - 1) / (last - first),
            "processor_ms_per_pod": spent.scheduler_ms / len(uids),
            "all_processor_ms_per_pod": spent.comparison_ms / len(uids),
            "processors_elsewhere": (spent.machine_ms - spent.comparison_ms) / 1000 / spent.at,
        }
        case, nodes, gpus = f"{_PREFIX}{phase}", self._case.nodes, self._case.nodes * GPUS_OF_NODE
        return Result(case, nodes, gpus, len(uids), seconds, rss_bytes, None, figures, scheduler.version)


async def _while_running(
    scheduler: Scheduler, process: asyncio.subprocess.Process, work: Coroutine[Any, Any, None]
) -> None:
    """Do the work. Raises BenchmarkFailed as soon as the scheduler ends."""
    task, end = asyncio.create_task(work), asyncio.create_task(process.wait())
    try:
        await asyncio.wait({task, end}, return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise scheduler.ended(end.result())
        await task
    finally:
        for pending in (task, end):
            pending.cancel()
        await asyncio.wait({task, end})


def _all_of(results: Sequence[Result]) -> Result:
    """Return the result of all rounds of one scheduler: sums of pods and seconds, medians of waits, and the peak
    memory.
    """
    first = results[0]
    jobs, seconds = sum(result.jobs for result in results), sum(result.seconds for result in results)
    medians = {
        name: statistics.median(result.figures[name] for result in results)
        for name in first.figures
        if name != "pods_per_second"
    }
    return replace(
        first,
        case=f"{first.case.rstrip('-0123456789')}, all",
        jobs=jobs,
        seconds=seconds,
        peak_rss_bytes=max(result.peak_rss_bytes for result in results),
        figures={"pods_per_second": jobs / seconds, **medians},
    )


def _beside(ours: Result, other: Result) -> Result:
    """Return our result with its figures relative to the other's: pods a second, waits and memory."""
    parts = {
        f"{name}_part": ours.figures[name] / other.figures[name]
        for name in ("pods_per_second", "p50_ms", "p99_ms")
    }
    parts["rss_part"] = ours.peak_rss_bytes / other.peak_rss_bytes
    return ours.with_figures(parts)
