"""What metrics cost the operator: bindings a second with metrics that are read, beside those without, in pairs.

All rounds are in one lab. A round has a cluster without pods, pods that all wait when it begins, and an operator of its
own. The rounds of a pair follow each other and who begins alternates (ABBA), so that what changes slowly on the machine
weighs alike on both; what is left of it is in the interval of the ratios.
"""

import asyncio
import re
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import aiohttp

from musterbench.metrics_directly import (
    ALLOWED_PART,
    READING_SECONDS,
    counting_us,
    direct_result,
    read_page,
    reading_ms,
)
from musterbench.own_lab import own_lab
from musterbench.pairs import EXCLUDED, LEAST_PAIRS, Ratios, ratios_of
from musterbench.processes import in_flight, peak_rss_bytes, processor_ms
from musterbench.result import Result
from musterbench.schedulers import Scheduler, muster
from musterbench.server_counts import collect_garbage
from musterbench.stopwatch import BenchmarkFailed, Stopwatch
from musterbench.teams import GPUS_OF_NODE, gpu_pod, have_accounts, make_projects, team_namespaces
from orchestrator.cluster.resources import PODS
from orchestrator.cluster.transport import Transport

MEASURES: Final = ("binds_per_second", "binds_per_busy_second")
_WARM_UP: Final = "warm-up"
_START_SECONDS: Final = 60.0
_POLL_SECONDS: Final = 0.01
_LEADING: Final = " leading: "
_PAGE: Final = re.compile(r"http://127\.0\.0\.1:\d+(?=/healthz)")


@dataclass(frozen=True, slots=True)
class Round:
    """One operator's way through all pods. Busy seconds are those of its own processor time."""

    binds_per_second: float
    binds_per_busy_second: float
    seconds: float
    peak_rss_bytes: int
    readings: int


@dataclass(frozen=True, slots=True)
class Pair:
    """Two rounds, one after the other."""

    without: Round
    with_metrics: Round


async def run(
    nodes: int,
    pods: int,
    pairs: int,
    seconds: float,
    *,
    report: Callable[[str], None],
    keep: Callable[[Result], None],
) -> None:
    """Measure in a lab of its own, which is gone at the end.

    `keep` gets a result for each pair, then that of all, then what metrics take by themselves.

    No pair is begun after so many seconds, if there are enough of them for an interval.

    Raises MusterError leaves.
    """
    if pods > nodes * GPUS_OF_NODE:
        raise BenchmarkFailed(
            f"{pods} pods of one GPU do not fit on {nodes} nodes of {GPUS_OF_NODE}: ask for fewer pods"
        )
    started = time.monotonic()
    async with own_lab(nodes, report) as (lab, transport, directory):
        operator = await muster(lab, transport, directory)
        await make_projects(transport, nodes)
        await have_accounts(transport)
        rounds = _Rounds(transport, operator, pods, report)
        watching = asyncio.create_task(rounds.watch.pods.run())
        try:
            await _in_pairs(rounds, nodes, pairs, started + seconds, keep)
        finally:
            watching.cancel()
            await asyncio.wait({watching})


async def _in_pairs(
    rounds: "_Rounds", nodes: int, count: int, end: float, keep: Callable[[Result], None]
) -> None:
    """Warm up by a round of each kind, which counts for nothing, then measure the pairs."""
    for with_metrics in (False, True):
        await rounds.measure(_WARM_UP, with_metrics=with_metrics)
    pairs: list[Pair] = []
    for number in range(1, count + 1):
        if len(pairs) >= LEAST_PAIRS and time.monotonic() > end:
            break
        measured = {}
        for with_metrics in (False, True) if number % 2 else (True, False):
            measured[with_metrics] = await rounds.measure(f"pair-{number}", with_metrics=with_metrics)
        pairs.append(Pair(measured[False], measured[True]))
        keep(pair_result(pairs[-1], number, nodes, rounds.pods))
    keep(whole_result(pairs, nodes, rounds.pods))
    keep(await rounds.measure_directly(nodes, [pair.without.binds_per_busy_second for pair in pairs]))


def pair_result(pair: Pair, number: int, nodes: int, pods: int) -> Result:
    """One pair: both figures of either round."""
    figures = {}
    for name in MEASURES:
        figures[f"{name}_without"] = getattr(pair.without, name)
        figures[f"{name}_with"] = getattr(pair.with_metrics, name)
    return Result(
        case=f"metrics: pair {number}",
        nodes=nodes,
        gpus=nodes * GPUS_OF_NODE,
        jobs=2 * pods,
        seconds=pair.without.seconds + pair.with_metrics.seconds,
        peak_rss_bytes=pair.with_metrics.peak_rss_bytes,
        problem=None,
        figures={**figures, "readings": pair.with_metrics.readings},
    )


def whole_result(pairs: list[Pair], nodes: int, pods: int) -> Result:
    """All pairs: of each measure the median ratio with its interval, and what that says of ALLOWED_PART.

    The result has a problem where the ratio is shown to be lower. Raises ValueError if there are too few pairs.
    """
    figures: dict[str, float] = {"pairs": len(pairs), "allowed_part": ALLOWED_PART}
    verdicts: dict[str, str] = {}
    for name in MEASURES:
        ratios = ratios_of(
            [(getattr(pair.with_metrics, name), getattr(pair.without, name)) for pair in pairs]
        )
        figures |= _figures(name, ratios)
        verdicts[f"{name}_within_3_percent"] = ratios.at_least(ALLOWED_PART)
    slower = [name for name in MEASURES if verdicts[f"{name}_within_3_percent"] == EXCLUDED]
    return Result(
        case="metrics: all pairs",
        nodes=nodes,
        gpus=nodes * GPUS_OF_NODE,
        jobs=2 * pods * len(pairs),
        seconds=sum(pair.without.seconds + pair.with_metrics.seconds for pair in pairs),
        peak_rss_bytes=max(pair.with_metrics.peak_rss_bytes for pair in pairs),
        problem=f"with metrics more than 3 % fewer: {', '.join(slower)}" if slower else None,
        figures=figures,
        verdicts=verdicts,
    )


def _figures(name: str, ratios: Ratios) -> dict[str, float]:
    return {
        f"{name}_part_median": ratios.median,
        f"{name}_part_low": ratios.low,
        f"{name}_part_high": ratios.high,
    }


class _Rounds:
    """The rounds of one lab."""

    def __init__(
        self, transport: Transport, operator: Scheduler, pods: int, report: Callable[[str], None]
    ) -> None:
        self.watch = Stopwatch(transport)
        self.pods = pods
        self._transport = transport
        self._operator = operator
        self._operator_with_metrics = replace(operator, command=(*operator.command, "--health-port=0"))
        self._report = report

    async def measure(self, name: str, *, with_metrics: bool) -> Round:
        """Let an operator bind pods that all wait already, and remove them."""
        phase = f"{name}-{'with' if with_metrics else 'without'}"
        await self._create(phase)
        log = _Log(self._operator.log)
        operator = self._operator_with_metrics if with_metrics else self._operator
        await collect_garbage(self._transport)
        async with operator.running() as process:
            await log.until(_LEADING)
            spent_ms = processor_ms(process.pid)
            async with _reading(log, with_metrics=with_metrics) as readings:
                await self._until(phase, self.watch.running)
            spent_ms = processor_ms(process.pid) - spent_ms
            rss_bytes = peak_rss_bytes(process.pid)
        seconds = self.watch.seconds(phase, self.watch.bound)
        await self._remove(phase)
        return Round(self.pods / seconds, self.pods * 1000 / spent_ms, seconds, rss_bytes, len(readings))

    async def measure_directly(self, nodes: int, binds_per_busy_second: Sequence[float]) -> Result:
        """Let one more operator bind pods, and read its metrics many times when it is done."""
        phase = "by-themselves"
        await self._create(phase)
        log = _Log(self._operator.log)
        async with self._operator_with_metrics.running() as process:
            await log.until(_LEADING)
            await self._until(phase, self.watch.running)
            read_ms = await reading_ms(log.metrics_url(), process.pid)
            rss_bytes = peak_rss_bytes(process.pid)
        await self._remove(phase)
        return direct_result(
            nodes, self.pods, counted_us=await asyncio.to_thread(counting_us, nodes), read_ms=read_ms,
            binds_per_busy_second=binds_per_busy_second, rss_bytes=rss_bytes,
        )  # fmt: skip

    async def _create(self, phase: str) -> None:
        namespaces = team_namespaces()

        async def create_one(number: int) -> None:
            body = gpu_pod(f"{phase}-{number:05d}", phase, self._operator.scheduler_name)
            await self._transport.create(PODS.path(namespaces[number % len(namespaces)]), body)

        await in_flight(create_one, self.pods)
        await self._until(phase, self.watch.created)

    async def _until(self, phase: str, what: dict[str, float]) -> None:
        await self.watch.until(self.pods, phase, what, self._report)

    async def _remove(self, phase: str) -> None:
        """Delete the pods of a round, wait until they are gone and forget them: the next begins as this one did."""
        for namespace in team_namespaces():
            await self._transport.delete(
                PODS.path(namespace), params={"labelSelector": f"bench={phase}"}, grace_seconds=0
            )
        await self.watch.until_gone(phase)
        self.watch.forget(phase)


class _Log:
    """What an operator that is started from now on writes into its log."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._start = file.stat().st_size if file.exists() else 0

    def text(self) -> str:
        """All of it so far."""
        with self._file.open("rb") as content:
            content.seek(self._start)
            return content.read().decode(errors="replace")

    def metrics_url(self) -> str:
        """Where the operator says that its metrics are."""
        match = _PAGE.search(self.text())
        if match is None:
            raise BenchmarkFailed("the operator does not say where its metrics are")
        return f"{match[0]}/metrics"

    async def until(self, words: str) -> None:
        """Wait until it has the words."""
        started = time.monotonic()
        while words not in self.text():
            if time.monotonic() - started > _START_SECONDS:
                raise BenchmarkFailed(f"the operator does not lead after {_START_SECONDS:.0f} s")
            await asyncio.sleep(_POLL_SECONDS)


@asynccontextmanager
async def _reading(log: _Log, *, with_metrics: bool) -> AsyncIterator[list[int]]:
    """Read the operator's metrics at once, then as often as Prometheus; yields the bytes of each reading."""
    readings: list[int] = []
    if not with_metrics:
        yield readings
        return
    reading = asyncio.create_task(_read(log.metrics_url(), readings))
    try:
        yield readings
    finally:
        reading.cancel()
        with suppress(asyncio.CancelledError):
            await reading


async def _read(url: str, readings: list[int]) -> None:
    async with aiohttp.ClientSession() as session:
        while True:
            readings.append(len(await read_page(session, url)))
            await asyncio.sleep(READING_SECONDS)
