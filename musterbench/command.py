"""`muster bench`: planner, live, lab, metrics, poison, command line, pages, claims (also in a lab) and agent."""

import json
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from orchestrator.distribution import require_extra


@click.group()
def bench() -> None:
    """Measure how fast muster decides and binds on this machine."""


@bench.command()
@click.option(
    "--nodes",
    type=click.IntRange(min=8),
    multiple=True,
    help="How many nodes; can be repeated.  [default: 500; with --mix 125, 250, 500 and 1000]",
)
@click.option("--gpus", type=click.IntRange(min=1), default=8, show_default=True, help="GPUs of each node.")
@click.option(
    "--mix",
    "mixes",
    multiple=True,
    metavar="NAME",
    help="Decide on a busy cluster of this kind instead ('all', or a name; can be repeated).",
)
@click.option(
    "--limit",
    "limit_seconds",
    type=click.FloatRange(min=0, min_open=True),
    default=120.0,
    show_default=True,
    help="Processor seconds that a decision on a mix may take before it is stopped.",
)
@click.option(
    "--bounded/--unbounded",
    default=True,
    show_default=True,
    help="Whether a decision on a mix leaves work over for the next one, as the operator's does.",
)
@click.option(
    "--growth/--no-growth", default=True, show_default=True, help="Also 125, 250, 500 and 1000 nodes."
)
@click.option("--large/--no-large", default=True, show_default=True, help="Also 4,000 nodes, 140,000 pods.")
@click.option("--json", "as_json", is_flag=True, help="Print the machine and the results as JSON.")
def planner(
    *,
    nodes: tuple[int, ...],
    gpus: int,
    mixes: tuple[str, ...],
    limit_seconds: float,
    bounded: bool,
    growth: bool,
    large: bool,
    as_json: bool,
) -> None:
    """Time single decisions. The exit code is 1 if one of them was wrong, or was stopped."""
    require_extra("bench")
    if mixes:
        _time_mixes(mixes, nodes, gpus, limit_seconds, bounded=bounded, as_json=as_json)
        return
    from musterbench.planner import run

    results = [
        result
        for size in nodes or (500,)
        for result in run(size, gpus, growth=growth, large=large, progress=_say)
    ]
    _report(results, as_json=as_json)


def _time_mixes(
    names: tuple[str, ...],
    nodes: tuple[int, ...],
    gpus: int,
    limit_seconds: float,
    *,
    bounded: bool,
    as_json: bool,
) -> None:
    from musterbench.mix_times import SIZES, run
    from musterbench.mixes import MIXES

    if unknown := [name for name in names if name not in {"all", *MIXES}]:
        raise click.BadParameter(
            f"there is no mix '{unknown[0]}'; there are all, {', '.join(MIXES)}", param_hint="--mix"
        )
    chosen = list(MIXES) if "all" in names else list(dict.fromkeys(names))
    results = list(run(chosen, nodes or SIZES, gpus, limit_seconds, bounded=bounded, report=_say))
    _report(results, as_json=as_json, show=_shown_as_mixes)


@bench.command()
@click.option(
    "--nodes",
    type=click.IntRange(min=20),
    multiple=True,
    default=(500, 1000, 2000, 4000),
    show_default=True,
    help="How many nodes; can be repeated. Each has 35 pods.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the machine and the results as JSON.")
def live(*, nodes: tuple[int, ...], as_json: bool) -> None:
    """Time decisions from the watches' events to the plan, as the operator makes them on a full cluster."""
    require_extra("bench")
    from musterbench.live import run

    _report(list(run(nodes, _say)), as_json=as_json)


@bench.command()
@click.option(
    "--nodes",
    type=click.IntRange(min=4),
    help="How many nodes.  [default: 100; with --against 500, and 2,000 with a backlog]",
)
@click.option("--jobs", type=click.IntRange(min=20), default=800, show_default=True, help="How many jobs.")
@click.option("--gpus", type=click.IntRange(1, 8), default=1, show_default=True, help="GPUs of each job.")
@click.option(
    "--rate",
    type=click.FloatRange(min=0, min_open=True),
    default=20.0,
    show_default=True,
    help="Jobs a second in the measurement of how long one waits.",
)
@click.option(
    "--rounds",
    type=click.IntRange(min=1),
    default=4,
    show_default=True,
    help="How often the operator and what it is measured beside each work off all of the jobs or pods.",
)
@click.option(
    "--growth/--no-growth",
    default=False,
    show_default=True,
    help="Before it, a quarter and half as many nodes and jobs, each in a lab of its own.",
)
@click.option(
    "--against",
    type=click.Choice(["kube-scheduler"]),
    help="Measure Kubernetes' own scheduler beside muster instead, with pods of one GPU.",
)
@click.option(
    "--pods",
    type=click.IntRange(min=4),
    help="How many pods, with --against.  [default: 3,000, and 10,000 with a backlog]",
)
@click.option(
    "--backlog", is_flag=True, help="With --against: all pods are created before the scheduler starts."
)
@click.option("--json", "as_json", is_flag=True, help="Print the machine and the results as JSON.")
def lab(
    *,
    nodes: int | None,
    jobs: int,
    gpus: int,
    rate: float,
    rounds: int,
    growth: bool,
    against: str | None,
    pods: int | None,
    backlog: bool,
    as_json: bool,
) -> None:
    """Start a lab, and time jobs from their creation to their binding, beside what the API server can do at all.

    With --against the other is Kubernetes' own scheduler, built on request; unless sizes are given, both cases are
    measured: 3,000 pods on 500 nodes, and a backlog of 10,000 on 2,000.
    Each result is told on stderr once it is there. If the measurement fails or is interrupted, those that there are so
    far are printed all the same.
    """
    require_extra("bench")
    from musterbench.result import Result, with_growth

    if not against and (pods or backlog):
        raise click.UsageError("--pods and --backlog go with --against; without it, give --jobs")
    before: dict[str, Result] = {}
    with _results(as_json=as_json, show=_shown_as_comparison if against else _shown) as add:

        def keep(result: Result) -> None:
            grown = with_growth(result, before.get(result.case)) if growth else result
            before[grown.case] = grown
            add(grown)

        if against:
            _compare(nodes, pods, rounds, backlog=backlog, keep=keep)
        else:
            _time_jobs(nodes or 100, jobs, gpus, rate, rounds, growth=growth, keep=keep)


def _time_jobs(
    nodes: int,
    jobs: int,
    gpus: int,
    rate: float,
    rounds: int,
    *,
    growth: bool,
    keep: Callable[[Any], None],
) -> None:
    import asyncio

    from musterbench.lab import run

    for part in (4, 2, 1) if growth else (1,):
        asyncio.run(
            run(
                nodes // part, jobs // part, gpus, rate=rate, rounds=rounds, progress=_say, on_result=keep,
            )
        )  # fmt: skip


def _compare(
    nodes: int | None, pods: int | None, rounds: int, *, backlog: bool, keep: Callable[[Any], None]
) -> None:
    import asyncio

    from musterbench.comparison import CASES, Case, compare

    cases = CASES
    if nodes or pods or backlog:
        usual = next(case for case in CASES if case.backlog == backlog)
        cases = (Case(nodes or usual.nodes, pods or usual.pods, backlog),)
    for case in cases:
        asyncio.run(compare(case, rounds, report=_say, keep=keep))


@bench.command()
@click.option("--nodes", type=click.IntRange(min=1), default=100, show_default=True, help="How many nodes.")
@click.option(
    "--pods", type=click.IntRange(min=4), default=800, show_default=True, help="How many pods of one GPU."
)
@click.option(
    "--pairs",
    type=click.IntRange(6, 400),
    default=40,
    show_default=True,
    help="How often an operator with metrics and one without each bind all pods.",
)
@click.option(
    "--minutes",
    type=click.FloatRange(min=0),
    default=11.0,
    show_default=True,
    help="After which no further pair is begun, if there are six.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the machine and the results as JSON.")
def metrics(*, nodes: int, pods: int, pairs: int, minutes: float, as_json: bool) -> None:
    """Start a lab, and time bindings of an operator whose metrics are read in each round beside one without.

    It tells whether the bindings a second are within 3 % ('shown'), are not ('excluded'), or whether the pairs do not
    decide it: by the clock, and by the operator's own processor time. What metrics take by themselves is measured, too.
    The exit code is 1 if one of the three is not within 3 %.
    """
    require_extra("bench")
    import asyncio

    from musterbench.metrics_cost import run

    with _results(as_json=as_json) as keep:
        asyncio.run(run(nodes, pods, pairs, 60 * minutes, report=_say, keep=keep))


@bench.command()
@click.option("--nodes", type=click.IntRange(min=2), default=100, show_default=True, help="How many nodes.")
@click.option(
    "--jobs",
    type=click.IntRange(min=1),
    default=40,
    show_default=True,
    help="How many healthy jobs, one after the other, alone and again beside the objects.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the machine and the results as JSON.")
def poison(*, nodes: int, jobs: int, as_json: bool) -> None:
    """Start a lab, and time healthy jobs alone and beside all objects that once stopped every decision.

    The exit code is 1 if one of them waited longer than a second beside those.
    """
    require_extra("bench")
    import asyncio

    from musterbench.poison_cost import run

    with _results(as_json=as_json) as keep:
        asyncio.run(run(nodes, jobs, progress=_say, on_result=keep))


@bench.command()
@click.option("--jobs", type=click.IntRange(min=1), default=1000, show_default=True, help="How many jobs.")
@click.option(
    "--repeats", type=click.IntRange(min=1), default=9, show_default=True, help="How often each case."
)
@click.option("--json", "as_json", is_flag=True, help="Print the machine and the results as JSON.")
def cli(*, jobs: int, repeats: int, as_json: bool) -> None:
    """Time commands from the start of their process to its end, against an API server on loopback."""
    require_extra("bench")
    from musterbench.cli import run

    _report(list(run(jobs, repeats, progress=_say)), as_json=as_json)


@bench.command()
@click.option("--nodes", type=click.IntRange(min=4), default=500, show_default=True, help="How many nodes.")
@click.option("--jobs", type=click.IntRange(min=10), default=4000, show_default=True, help="How many jobs.")
@click.option(
    "--viewers",
    type=click.IntRange(1, 200),
    default=50,
    show_default=True,
    help="How many people have a page open, each with a token of their own.",
)
@click.option(
    "--updates", type=click.IntRange(min=1), default=10, show_default=True, help="How many jobs start."
)
@click.option(
    "--growth/--no-growth",
    default=False,
    show_default=True,
    help="Before it, a quarter and half as many nodes and jobs.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the machine and the results as JSON.")
def web(*, nodes: int, jobs: int, viewers: int, updates: int, growth: bool, as_json: bool) -> None:
    """Time the pages of `muster web`: the first ones, and updates for many people at once; and weigh its memory.

    Everybody sees the whole cluster. The exit code is 1 if an update did not reach everybody.
    """
    require_extra("bench")
    require_extra("web")
    import asyncio

    from musterbench.web import run

    with _results(as_json=as_json) as keep:
        for part in (4, 2, 1) if growth else (1,):
            asyncio.run(run(nodes // part, jobs // part, viewers, updates, progress=_say, on_result=keep))


@bench.command()
@click.option("--nodes", type=click.IntRange(min=1), default=500, show_default=True, help="How many nodes.")
@click.option("--gpus", type=click.IntRange(1, 128), default=8, show_default=True, help="GPUs of each node.")
@click.option("--json", "as_json", is_flag=True, help="Print the machine and the results as JSON.")
def claims(*, nodes: int, gpus: int, as_json: bool) -> None:
    """Time the allocation of claims of one GPU (DRA) until all GPUs are held, and of one claim more."""
    require_extra("bench")
    from musterbench.claims import run

    _report(list(run(nodes, gpus, progress=_say)), as_json=as_json)


@bench.command("lab-claims")
@click.option(
    "--claims",
    type=click.IntRange(min=8),
    multiple=True,
    default=(250, 500, 1000),
    show_default=True,
    help="How many claims, and as many GPUs; can be repeated. Each size has a lab of its own.",
)
@click.option(
    "--rounds",
    type=click.IntRange(min=1),
    default=2,
    show_default=True,
    help="How often the operator and the raw client each work off all claims.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the machine and the results as JSON.")
def lab_claims(*, claims: tuple[int, ...], rounds: int, as_json: bool) -> None:
    """Start a lab, and time claims of one GPU (DRA) until their pods are bound, beside a raw client's same writes.

    The exit code is 1 if a claim got no GPU, or a GPU was given twice.
    """
    require_extra("bench")
    import asyncio

    from musterbench.lab_claims import run

    with _results(as_json=as_json) as keep:
        for count in claims:
            asyncio.run(run(count, rounds, progress=_say, on_result=keep))


@bench.command()
@click.option(
    "--seconds",
    type=click.FloatRange(min=1),
    default=60.0,
    show_default=True,
    help="How long it is measured.",
)
@click.option(
    "--driver-root",
    type=click.Path(path_type=Path),
    help="Directory that has the driver, or NVIDIA's mock of it, as / has it. Default: where the linker finds it.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the machine and the results as JSON.")
def agent(*, seconds: float, driver_root: Path | None, as_json: bool) -> None:
    """Measure what the agent takes on the GPUs of this machine. The exit code is 1 beyond 1 % of a CPU or 80 MB."""
    require_extra("bench")
    import asyncio

    from musterbench.agent import run

    _end_like_an_interrupt()
    _report([asyncio.run(run(seconds, driver_root, progress=_say))], as_json=as_json)


def _end_like_an_interrupt() -> None:
    """Let SIGTERM and SIGHUP end this process as SIGINT does: what was started is stopped, nothing is left behind."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda _number, _frame: signal.raise_signal(signal.SIGINT))


@contextmanager
def _results(
    *, as_json: bool, show: Callable[[list[Any]], None] | None = None
) -> Iterator[Callable[[Any], None]]:
    """Yield what takes a result and says it on stderr; print all at the end, also of a measurement that failed.

    Ends the process with 1 if one of them has a problem.
    """
    _end_like_an_interrupt()
    results: list[Any] = []

    def add(result: Any) -> None:
        results.append(result)
        _say(result.line())

    try:
        yield add
    except BaseException:
        _print(results, as_json=as_json, show=show or _shown)
        raise
    _report(results, as_json=as_json, show=show or _shown)


def _say(line: str) -> None:
    click.echo(line, err=True)


def _shown(results: list[Any]) -> None:
    from rich.console import Console

    from musterbench.result import show

    show(results, Console())


def _shown_as_comparison(results: list[Any]) -> None:
    from rich.console import Console

    from musterbench.comparison import show_comparison

    show_comparison(results, Console())


def _shown_as_mixes(results: list[Any]) -> None:
    from rich.console import Console

    from musterbench.mix_times import show_mixes

    show_mixes(results, Console())


def _report(results: list[Any], *, as_json: bool, show: Callable[[list[Any]], None] = _shown) -> None:
    _print(results, as_json=as_json, show=show)
    if any(result.problem for result in results):
        sys.exit(1)


def _print(results: list[Any], *, as_json: bool, show: Callable[[list[Any]], None]) -> None:
    from musterbench.result import machine

    if as_json:
        click.echo(json.dumps({"machine": machine(), "results": [result.as_json() for result in results]}))
    else:
        show(results)
