"""Times the planner: each case in a process of its own, so that its memory is its own too."""

import gc
import multiprocessing
import resource
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace

from musterbench.cases import CASES, GROWTH, LARGE, Builder
from musterbench.result import Result
from orchestrator.control.operator import COLLECTION_THRESHOLDS
from orchestrator.planner import Planner
from orchestrator.planner.model import Plan, Snapshot

GROWTH_NODES = (125, 250, 500, 1000)
LARGE_NODES = 4000
REPEATS = 3
_LONG_SECONDS = 2.0

_TABLES = {"cases": CASES, "growth": GROWTH, "large": LARGE}


def run(
    nodes: int, gpus: int, *, growth: bool, large: bool, progress: Callable[[str], None]
) -> Iterator[Result]:
    """Time every case at that size; then a few at growing sizes, and the largest cluster."""
    for index, _ in enumerate(CASES):
        yield _report(progress, _isolated("cases", index, nodes, gpus))
    if growth:
        for index, _ in enumerate(GROWTH):
            yield from _grown([_isolated("growth", index, size, gpus) for size in GROWTH_NODES], progress)
    if large:
        for index, _ in enumerate(LARGE):
            yield _report(progress, _isolated("large", index, LARGE_NODES, gpus))


def measure(build: Builder, nodes: int, gpus: int) -> Result:
    """Decide on the case a few times in this process and keep the fastest; a long one is decided once.

    `again_ms` is the decision on the same cluster by a planner that has kept its state, as the operator's does.
    """
    case = build(nodes, gpus)
    gc.collect()
    gc.freeze()
    gc.set_threshold(*COLLECTION_THRESHOLDS)  # as the operator does
    planner = Planner()
    if case.keeps_state:
        planner.plan(case.snapshot)
    fastest, problem = float("inf"), None
    for _ in range(REPEATS):
        if not case.keeps_state:
            planner = Planner()
        seconds, decision = _timed(planner, case.snapshot)
        fastest = min(fastest, seconds)
        problem = case.wrong(decision)
        if fastest > _LONG_SECONDS:
            break
    again, _ = _timed(planner, case.snapshot)
    rss = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return Result(
        case.name, nodes, nodes * gpus, case.jobs, fastest, rss, problem, {"again_ms": again * 1000}
    )


def _timed(planner: Planner, snapshot: Snapshot) -> tuple[float, Plan]:
    """Seconds of a decision, and the decision; the snapshot looks like one that was made anew."""
    equal_snapshot = replace(snapshot, workloads=(*snapshot.workloads,))
    started = time.perf_counter()
    decision = planner.plan(equal_snapshot)
    return time.perf_counter() - started, decision


def _isolated(table: str, index: int, nodes: int, gpus: int) -> Result:
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=context) as pool:
        return pool.submit(_measure_indexed, table, index, nodes, gpus).result()


def _measure_indexed(table: str, index: int, nodes: int, gpus: int) -> Result:
    # a builder may be a closure, which cannot be sent to another process; its place in the table can
    return measure(_TABLES[table][index], nodes, gpus)


def _grown(results: Sequence[Result], progress: Callable[[str], None]) -> Iterator[Result]:
    """The same results, each with how much longer it took than the one before, for as much more work."""
    before: Result | None = None
    for result in results:
        figures = dict(result.figures)
        if before is not None:
            figures["times_before"] = result.seconds / before.seconds
            figures["work_before"] = result.nodes / before.nodes
        before = result
        yield _report(
            progress,
            Result(
                f"growth: {result.case}",
                result.nodes,
                result.gpus,
                result.jobs,
                result.seconds,
                result.peak_rss_bytes,
                result.problem,
                figures,
            ),
        )


def _report(progress: Callable[[str], None], result: Result) -> Result:
    progress(f"{result.case}, {result.nodes} nodes: {result.seconds * 1000:.1f} ms")
    return result
