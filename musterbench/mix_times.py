"""Times decisions on busy clusters: how many processor seconds each takes, and how that grows with the nodes.

Each mix and size is measured in a process of its own. A decision that takes longer than the limit is stopped, and the
larger sizes of its mix are skipped.
"""

import gc
import math
import multiprocessing
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from typing import Final

from rich.console import Console
from rich.table import Table

from musterbench.clusters import Mix
from musterbench.mixes import MIXES
from musterbench.processes import peak_rss_bytes
from musterbench.result import Result
from musterbench.simple import SIMPLE
from orchestrator.control.operator import COLLECTION_THRESHOLDS
from orchestrator.errors import MusterError
from orchestrator.planner import Planner, plan
from orchestrator.planner.model import Binding, Plan, Pod, PodState, Snapshot, Workload

SIZES: Final = (125, 250, 500, 1000)
ALL: Final[Mapping[str, Mix]] = {**MIXES, **SIMPLE}


class DecisionTooLong(MusterError):
    """A decision took more processor seconds than it may."""


def run(
    names: Sequence[str],
    sizes: Sequence[int],
    gpus: int,
    limit_seconds: float,
    *,
    bounded: bool,
    on_result: Callable[[Result], None],
) -> None:
    """Measure these mixes at these numbers of nodes, from the smallest on."""
    for name in names:
        before: Result | None = None
        for nodes in sorted(sizes):
            context = multiprocessing.get_context("spawn")
            with ProcessPoolExecutor(1, mp_context=context) as pool:
                result = pool.submit(measure, name, nodes, gpus, limit_seconds, bounded=bounded).result()
            result = with_exponent(result, before)
            on_result(result)
            if result.problem and result.problem.startswith("stopped"):
                break
            before = result


def measure(name: str, nodes: int, gpus: int, limit_seconds: float, *, bounded: bool = True) -> Result:
    """Decide on the mix once in this process; `seconds` are processor seconds.

    Three figures are of a planner that keeps its state between decisions. `quiet_s`: nothing has happened. `again_s`:
    the first job has ended. `next_s`: the plan of `again_s` was carried out, and its victims are terminating. With
    `bounded`, the usual bound on the work of a decision applies.
    """
    mix = ALL[name]
    snapshot = mix.build(nodes, gpus)
    if not bounded:
        snapshot = replace(snapshot, settings=replace(snapshot.settings, max_work=None))
    gc.collect()
    gc.freeze()
    gc.set_threshold(*COLLECTION_THRESHOLDS)  # as the operator does
    figures: dict[str, float] = {}
    seconds, problem = limit_seconds, None
    try:
        seconds, decision = _timed(plan, snapshot, limit_seconds)
        problem = mix.wrong(decision, snapshot)
        figures |= {
            "bindings": len(decision.bindings),
            "evictions": len(decision.evictions),
            "nominations": len(decision.nominations),
            "pending": len(decision.pending),
            "left_over": len(decision.left_over),
        }
        planner = Planner()
        _timed(planner.plan, snapshot, limit_seconds)
        unchanged = replace(snapshot, workloads=(*snapshot.workloads,))
        figures["quiet_s"], _ = _timed(planner.plan, unchanged, limit_seconds)
        changed = replace(snapshot, workloads=snapshot.workloads[1:])
        figures["again_s"], decision = _timed(planner.plan, changed, limit_seconds)
        figures["next_s"], _ = _timed(planner.plan, carried_out(changed, decision), limit_seconds)
    except DecisionTooLong as error:
        problem = f"stopped: {error}"
    rss, jobs = peak_rss_bytes(), len(snapshot.workloads)
    return Result(f"mix: {name}", nodes, nodes * gpus, jobs, seconds, rss, problem, figures)


def with_exponent(result: Result, before: Result | None) -> Result:
    """Return the result with `exponent`: 1 if twice the nodes take twice as long, 2 if four times as long."""
    if before is None or result.seconds <= 0 or before.seconds <= 0 or "bindings" not in result.figures:
        return result
    exponent = math.log(result.seconds / before.seconds) / math.log(result.nodes / before.nodes)
    return result.with_figures({"exponent": exponent})


def carried_out(snapshot: Snapshot, decision: Plan) -> Snapshot:
    """Return the cluster after the decision was carried out, while the evicted pods are still terminating.

    Unchanged workloads are the same objects as in `snapshot`.
    """
    bound = {binding.pod: binding for binding in decision.bindings}
    nominated = {binding.pod: binding for binding in decision.nominations}
    evicted = {eviction.pod for eviction in decision.evictions}
    workloads = tuple(_carried_out(workload, bound, nominated, evicted) for workload in snapshot.workloads)
    return replace(snapshot, workloads=workloads, left_over=decision.left_over)


def show_mixes(results: Sequence[Result], console: Console) -> None:
    """Print the processor seconds of each mix at each size, with the exponent."""
    sizes = sorted({result.nodes for result in results})
    by_place = {(result.case, result.nodes): result for result in results}
    cases = list(dict.fromkeys(result.case for result in results))
    times = Table(
        box=None, header_style="bold", title="processor seconds of a decision", title_justify="left"
    )
    times.add_column("mix")
    for nodes in sizes:
        times.add_column(f"{nodes} nodes", justify="right")
    times.add_column("growth", justify="right")
    for case in cases:
        row = [by_place.get((case, nodes)) for nodes in sizes]
        exponents = [
            f"{result.figures['exponent']:.2f}" for result in row if result and "exponent" in result.figures
        ]
        times.add_row(_title(case), *map(_cell, row), " ".join(exponents))
    console.print(times)
    console.print("exponent: 1 is twice as long for twice the nodes, 2 is four times")
    for result in results:
        if result.problem:
            console.print(f"{result.case}, {result.nodes} nodes: {result.problem}", style="bold")


def _title(case: str) -> str:
    return ALL[case.removeprefix("mix: ")].title


def _cell(result: Result | None) -> str:
    if result is None:
        return "-"
    over = bool(result.problem and "bindings" not in result.figures)
    return f"> {result.seconds:g}" if over else f"{result.seconds:.2f}"


def _timed(
    decide: Callable[[Snapshot], Plan], snapshot: Snapshot, limit_seconds: float
) -> tuple[float, Plan]:
    """Processor seconds of a decision, and the decision."""
    with _limited(limit_seconds):
        started = time.thread_time()
        decision = decide(snapshot)
        return time.thread_time() - started, decision


@contextmanager
def _limited(seconds: float) -> Iterator[None]:
    """Raise DecisionTooLong in the block after this process has used these processor seconds."""

    def stop(_number: int, _frame: object) -> None:
        raise DecisionTooLong(f"a decision took more than {seconds:g} processor seconds")

    previous = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, previous)


def _carried_out(
    workload: Workload, bound: dict[str, Binding], nominated: dict[str, Binding], evicted: set[str]
) -> Workload:
    pods = tuple(_pod_after(pod, bound, nominated, evicted) for pod in workload.pods)
    if all(pod is old for pod, old in zip(pods, workload.pods, strict=True)):
        return workload
    return replace(workload, pods=pods)


def _pod_after(pod: Pod, bound: dict[str, Binding], nominated: dict[str, Binding], evicted: set[str]) -> Pod:
    if binding := bound.get(pod.id):
        return replace(pod, state=PodState.ALLOCATED, node=binding.node, devices=binding.devices)
    state = PodState.RELEASING if pod.id in evicted else pod.state
    nomination = nominated.get(pod.id)
    node, devices = (nomination.node, nomination.devices) if nomination else (None, ())
    if (state, node, devices) == (pod.state, pod.nominated_node, pod.nominated_devices):
        return pod
    return replace(pod, state=state, nominated_node=node, nominated_devices=devices)
