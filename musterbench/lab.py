"""Times the whole way through a real API server: from a job's creation until its pod is bound to a node.

In the same run, a raw client binds pods of the same kind as fast as the server lets it. It has the same server and
the same watches. So the operator's figure can be read as a portion of the capacity of the machine.
"""

import asyncio
import os
import re
import statistics
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

from musterbench.own_lab import OwnLab, own_lab
from musterbench.processes import peak_rss_bytes, processor_ms
from musterbench.raw_client import in_flight, run_apart
from musterbench.result import Result
from musterbench.schedulers import Scheduler, muster
from musterbench.server_counts import ServerCounts, collect_garbage, server_counts
from musterbench.stopwatch import BenchmarkFailed, Stopwatch
from musterbench.teams import GPUS_OF_NODE, RAW, gpu_pod, make_projects, make_raw_namespaces, team_namespaces
from orchestrator.cluster.errors import ServerFault
from orchestrator.cluster.resources import JOBS, NODES
from orchestrator.names import GPU_RESOURCE, SCHEDULER_NAME

RAW_RESOURCE = "example.com/gpu"
"""The resource that the raw client's pods request instead of GPUs. So they use none of the operator's GPUs."""
LATENCY_PART = 10
WATCH_FIGURES = ("watch_lag_p50_ms", "watch_lag_p99_ms", "watch_lag_max_ms", "watches_begun_again")
_LAG = re.compile(
    r"the watch was behind .* p50 ([\d.]+) ms, p99 ([\d.]+) ms, longest ([\d.]+) ms; it was begun again (\d+) times"
)
_DELETE_TRIES = 5


async def run(
    nodes: int,
    jobs: int,
    gpus: int,
    *,
    rate: float,
    rounds: int,
    progress: Callable[[str], None],
    on_result: Callable[[Result], None],
) -> None:
    """Measure in a new lab, which is removed at the end; `on_result` gets each result as soon as it is measured.

    Raises subclasses of MusterError.
    """
    if jobs * gpus > nodes * GPUS_OF_NODE:
        raise BenchmarkFailed(
            f"{jobs} jobs of {gpus} GPUs do not fit on {nodes} nodes of {GPUS_OF_NODE}: ask for fewer jobs"
        )
    async with own_lab(nodes, progress) as own:
        await _Bench(own, nodes, gpus, progress).run(jobs, rate, rounds, on_result)


class _Bench:
    def __init__(self, own: OwnLab, nodes: int, gpus: int, progress: Callable[[str], None]) -> None:
        self._lab, self._transport, self._directory = own
        self._nodes = nodes
        self._gpus = gpus
        self._progress = progress
        self._watch = Stopwatch(self._transport)
        self._operator: Scheduler
        self._lines_before = 0

    async def run(self, jobs: int, rate: float, rounds: int, on_result: Callable[[Result], None]) -> None:
        """Measure arriving jobs, then in each round the raw client and the operator, in alternating order.

        So a drift of the machine affects both alike. Each round has all jobs: in a shorter round, the controllers would
        still write after the last binding.
        """
        self._operator = await muster(self._lab, self._transport, self._directory)
        await make_projects(self._transport, self._nodes)
        await make_raw_namespaces(self._transport)
        watching = asyncio.create_task(self._watch.pods.run())
        try:
            few = max(2, jobs // LATENCY_PART)
            part = max(2, jobs - few)
            on_result(await self._arriving(few, rate))
            before = await server_counts(self._transport)
            raw: list[Result] = []
            backlog: list[Result] = []
            both = (("raw", raw, self._raw), ("backlog", backlog, self._backlog))
            for number in range(1, rounds + 1):
                self._progress(
                    f"round {number} of {rounds}: {part} jobs by the raw client and by the operator"
                )
                for name, results, measure in both if number % 2 else reversed(both):
                    results.append(await measure(f"{name}-{number}", part))
                    on_result(results[-1])
            lost = (await server_counts(self._transport)).slow_watches - before.slow_watches
            on_result(self._compared(raw, backlog, lost))
        finally:
            watching.cancel()
            await asyncio.wait({watching})

    def _compared(self, raw: list[Result], backlog: list[Result], lost: float) -> Result:
        """Return the operator's figures as parts of the raw client's: rates of bindings and of Running pods, and
        processor time.
        """
        jobs = sum(result.jobs for result in backlog)
        seconds = sum(result.seconds for result in backlog)
        figures = {
            "binds_per_second": jobs / seconds,
            "part_of_raw": _mean(backlog, "binds_per_second") / _mean(raw, "binds_per_second"),
            "part_of_raw_running": _mean(backlog, "running_per_second") / _mean(raw, "running_per_second"),
            "part_of_raw_by_cpu": _mean(raw, "cpu_ms_per_bind") / _mean(backlog, "cpu_ms_per_bind"),
            "watches_too_slow": lost,
            **{name: max(result.figures[name] for result in backlog) for name in WATCH_FIGURES},
        }
        rss = max(result.peak_rss_bytes for result in backlog)
        return self._result("backlog, all", jobs, seconds, rss, figures)

    async def _raw(self, phase: str, count: int) -> Result:
        """Bind with a raw client, which measures the present capacity of the API server on this machine.

        The client uses the operator's account. For an administrator, the API server would check no roles and queue no
        requests.
        """
        await self._create(
            count, phase, namespaces=team_namespaces(RAW), scheduler=RAW + "client", resource=RAW_RESOURCE
        )
        await self._settled(phase, count)
        page = await self._transport.list(NODES.path(), dict)
        nodes = [node["metadata"]["name"] for node in page.items]
        pods = [self._watch.pods.objects[uid] for uid in self._watch.of(phase)]

        targets = [
            {
                "namespace": pod.metadata.namespace,
                "name": pod.metadata.name,
                "uid": pod.metadata.uid,
                "node": nodes[number % len(nodes)],
            }
            for number, pod in enumerate(pods)
        ]
        await collect_garbage(self._transport)
        spent, writes = self._processor_ms(os.getpid()), await server_counts(self._transport)
        client = await run_apart(self._directory / "operator.kubeconfig", targets)
        await self._watch.until(count, phase, self._watch.running, self._progress)
        await self._settled(phase, count)
        spent = self._processor_ms(os.getpid()) - spent + client["cpu_ms"]
        figures = {
            **self._rates(phase, count),
            "cpu_ms_per_bind": spent / count,
            "writes_per_bind": await self._writes_since(writes) / count,
        }
        seconds = self._watch.seconds(phase, self._watch.bound)
        await self._remove(phase, team_namespaces(RAW))
        return self._result(phase, count, seconds, int(client["peak_rss_bytes"]), figures)

    async def _arriving(self, count: int, rate: float) -> Result:
        """Create jobs at a steady rate, and return the time from creation to binding."""
        async with self._leading() as pid:
            await self._create(count, "arriving", namespaces=team_namespaces(), rate=rate)
            await self._watch.until(count, "arriving", self._watch.bound, self._progress)
            rss = peak_rss_bytes(pid)
        seconds = self._watch.seconds("arriving", self._watch.bound)
        figures = {**self._watch.waits("arriving"), **self._lags()}
        return self._result(f"jobs at {rate:g} a second", count, seconds, rss, figures)

    async def _backlog(self, phase: str, count: int) -> Result:
        """Create all jobs, then start the operator, and return the rate of the bindings."""
        await self._create(count, phase, namespaces=team_namespaces())
        await self._settled(phase, count)
        await collect_garbage(self._transport)
        async with self._leading() as pid:
            spent, writes = self._processor_ms(os.getpid(), pid), await server_counts(self._transport)
            await self._watch.until(count, phase, self._watch.running, self._progress)
            await self._settled(phase, count)
            spent = self._processor_ms(os.getpid(), pid) - spent
            written = await self._writes_since(writes)
            rss = peak_rss_bytes(pid)
        relists = sum("trying again" in line or "listing again" in line for line in self._log_lines())
        figures = {
            **self._rates(phase, count),
            "cpu_ms_per_bind": spent / count,
            "writes_per_bind": written / count,
            "watch_failures": float(relists),
            **self._watch.waits(phase),
            **self._lags(),
        }
        await self._remove(phase, team_namespaces())
        return self._result(phase, count, self._watch.seconds(phase, self._watch.bound), rss, figures)

    async def _remove(self, phase: str, namespaces: Sequence[str]) -> None:
        """Delete the jobs of a round, and wait until their pods have ended, so that the next begins in the same
        state.
        """
        for namespace in namespaces:
            await self._delete_jobs(namespace, phase)
        self._progress(f"{phase}: deleted, waiting until its pods have ended")
        await self._watch.until_deleted(phase)

    async def _delete_jobs(self, namespace: str, phase: str) -> None:
        """Delete the jobs of a round. If the server ends the request (504) before all are deleted, repeat the
        request.
        """
        for tries_left in reversed(range(_DELETE_TRIES)):
            try:
                await self._transport.delete(JOBS.path(namespace), params={"labelSelector": f"bench={phase}"})
            except ServerFault:
                if not tries_left:
                    raise
            else:
                return

    def _rates(self, phase: str, count: int) -> dict[str, float]:
        """Return the bindings per second, and the pods per second that became Running."""
        watch = self._watch
        return {
            "binds_per_second": count / watch.seconds(phase, watch.bound),
            "running_per_second": count / watch.seconds(phase, watch.running),
        }

    def _lags(self) -> dict[str, float]:
        """Return the delays, logged by the operator at its end, of its watch after the answers to its bindings."""
        for line in reversed(self._log_lines()[self._lines_before :]):
            match = _LAG.search(line)
            if match:
                return dict(zip(WATCH_FIGURES, map(float, match.groups()), strict=True))
        raise BenchmarkFailed(f"the operator did not log the lag of its watch: {self._operator.log_tail()}")

    def _result(self, case: str, jobs: int, seconds: float, rss: int, figures: dict[str, float]) -> Result:
        gpus = self._nodes * GPUS_OF_NODE
        return Result(f"lab: {case}", self._nodes, gpus, jobs, seconds, rss, None, figures)

    @asynccontextmanager
    async def _leading(self) -> AsyncIterator[int]:
        """Run the operator; yield its process id after it has read the cluster."""
        self._operator.log.touch()
        self._lines_before = len(self._log_lines())
        async with self._operator.running() as process:
            while not any(" leading: " in line for line in self._log_lines()[self._lines_before :]):  # noqa: ASYNC110
                await asyncio.sleep(0.05)
            yield process.pid

    async def _settled(self, phase: str, count: int) -> None:
        """Wait until all pods exist and no pod changes any more."""
        await self._watch.until(count, phase, self._watch.created, self._progress)
        await self._watch.until_quiet()

    def _processor_ms(self, *clients: int) -> float:
        """Return the processor time, in ms, that the control plane and the clients have used so far.

        On a machine with other load, processor time is more accurate than the wall clock.
        """
        servers = [process.pid for process in self._lab.status().processes]
        return sum(processor_ms(pid) for pid in (*servers, *clients))

    async def _writes_since(self, before: ServerCounts) -> float:
        return (await server_counts(self._transport)).writes - before.writes

    def _log_lines(self) -> list[str]:
        return self._operator.log.read_text(errors="replace").splitlines()

    async def _create(
        self,
        count: int,
        phase: str,
        *,
        namespaces: Sequence[str],
        scheduler: str = SCHEDULER_NAME,
        resource: str = GPU_RESOURCE,
        rate: float | None = None,
    ) -> None:
        started = time.monotonic()

        async def create_one(number: int) -> None:
            if rate is not None:
                await asyncio.sleep(started + number / rate - time.monotonic())
            body = _job(f"{phase}-{number:05d}", phase, scheduler, {resource: self._gpus})
            await self._transport.create(JOBS.path(namespaces[number % len(namespaces)]), body)

        await in_flight(create_one, count)
        self._progress(f"{phase}: {count} jobs created in {time.monotonic() - started:.1f} s")


def _mean(results: Sequence[Result], figure: str) -> float:
    """Return the harmonic mean of a figure of several rounds. Of a rate, that is the rate of all rounds together."""
    return statistics.harmonic_mean([result.figures[figure] for result in results])


def _job(name: str, phase: str, scheduler: str, limits: dict[str, int]) -> dict[str, Any]:
    pod = gpu_pod(name, phase, scheduler, limits)
    template = {"metadata": {"labels": pod["metadata"]["labels"]}, "spec": pod["spec"]}
    return {
        "apiVersion": JOBS.api_version,
        "kind": JOBS.kind,
        "metadata": pod["metadata"],
        "spec": {"template": template, "backoffLimit": 0},
    }
