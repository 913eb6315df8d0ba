"""What metrics take by themselves: what is counted for a binding, and one reading of an operator's page.

Nothing else is in these figures, so they need no pairs. What they leave out, such as memory that others find cold, is
in the pairs.
"""

import time
from collections.abc import Sequence
from dataclasses import replace
from statistics import median
from typing import Final

import aiohttp

from musterbench.cases import fill
from musterbench.pairs import EXCLUDED, SHOWN
from musterbench.processes import processor_ms
from musterbench.result import Result
from musterbench.stopwatch import BenchmarkFailed
from musterbench.teams import GPUS_OF_NODE
from orchestrator.control.report.metrics import BINDINGS, OperatorMetrics
from orchestrator.observe.snapshot import Reading
from orchestrator.planner import plan

ALLOWED_PART: Final = 0.97
"""With metrics the operator must make at least so many of the bindings that it makes a second without."""
READINGS: Final = 300
READING_SECONDS: Final = 15.0
"""Four times as often as Prometheus does where nobody sets it otherwise."""
BINDINGS_OF_DECISION: Final = 20
"""Fewer than a decision of a busy operator has: what is done once for each decision weighs the more."""
_REPEATS: Final = 7


def counting_us(nodes: int) -> float:
    """Processor time for what is counted for a binding, in microseconds, where jobs of one GPU fill the nodes.

    Raises BenchmarkFailed if the bindings were not counted.
    """
    snapshot = fill(nodes, GPUS_OF_NODE).snapshot
    decision = plan(snapshot)
    reading = Reading(snapshot, {}, {})
    starts = range(0, len(decision.bindings), BINDINGS_OF_DECISION)
    parts = [
        replace(decision, bindings=decision.bindings[start : start + BINDINGS_OF_DECISION])
        for start in starts
    ]
    times = []
    for _ in range(_REPEATS):
        metrics = OperatorMetrics()
        started = time.thread_time()
        for part in parts:
            metrics.decided(reading, part, 0.01, 0)
            for binding in part.bindings:
                metrics.bound(binding.pod)
        times.append(time.thread_time() - started)
        if f"\n{BINDINGS.name} {len(decision.bindings)}\n" not in metrics.page().text:
            raise BenchmarkFailed("the metrics do not count the bindings whose counting is timed")
    return median(times) * 1_000_000 / len(decision.bindings)


async def read_page(session: aiohttp.ClientSession, url: str) -> bytes:
    """Read a page as Prometheus does."""
    async with session.get(url) as answer:
        answer.raise_for_status()
        return await answer.read()


async def reading_ms(url: str, pid: int) -> float:
    """Processor time of the process for one reading of its page, in milliseconds, while it has little else to do."""
    spent_ms = processor_ms(pid)
    async with aiohttp.ClientSession() as session:
        for _ in range(READINGS):
            await read_page(session, url)
    return (processor_ms(pid) - spent_ms) / READINGS


def direct_result(
    nodes: int,
    pods: int,
    *,
    counted_us: float,
    read_ms: float,
    binds_per_busy_second: Sequence[float],
    rss_bytes: int,
) -> Result:
    """Both figures, as parts of what a binding takes, and of a processor; `ALLOWED_PART` bounds their sum.

    `binds_per_busy_second` are those of the rounds without readings; what is counted is in them.
    """
    binding_us = 1_000_000 / median(binds_per_busy_second)
    counting_part, reading_part = counted_us / binding_us, read_ms / 1000 / READING_SECONDS
    is_within = counting_part + reading_part <= 1 - ALLOWED_PART
    return Result(
        case="metrics: by themselves",
        nodes=nodes,
        gpus=nodes * GPUS_OF_NODE,
        jobs=pods,
        seconds=READINGS * read_ms / 1000,
        peak_rss_bytes=rss_bytes,
        problem=None if is_within else "counting and readings take more than 3 % by themselves",
        figures={
            "counting_us_per_binding": counted_us,
            "binding_us": binding_us,
            "counting_part": counting_part,
            "reading_ms": read_ms,
            "reading_part_of_a_processor": reading_part,
        },
        verdicts={"within_3_percent_by_themselves": SHOWN if is_within else EXCLUDED},
    )
