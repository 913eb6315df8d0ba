"""`muster bench`: planner, live, lab and command line."""

import json
import signal
import sys
from typing import Any

import click


@click.group()
def bench() -> None:
    """Measure how fast muster decides and binds on this machine."""


@bench.command()
@click.option("--nodes", type=click.IntRange(min=20), default=500, show_default=True, help="How many nodes.")
@click.option("--gpus", type=click.IntRange(min=1), default=8, show_default=True, help="GPUs of each node.")
@click.option(
    "--growth/--no-growth", default=True, show_default=True, help="Also 125, 250, 500 and 1000 nodes."
)
@click.option("--large/--no-large", default=True, show_default=True, help="Also 4,000 nodes, 140,000 pods.")
@click.option("--json", "as_json", is_flag=True, help="Print the machine and the results as JSON.")
def planner(*, nodes: int, gpus: int, growth: bool, large: bool, as_json: bool) -> None:
    """Time single decisions. The exit code is 1 if one of them was wrong."""
    from benchmarks.planner import run

    _report(list(run(nodes, gpus, growth=growth, large=large, said=_say)), as_json=as_json)


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
    from benchmarks.live import run

    _report(list(run(nodes, _say)), as_json=as_json)


@bench.command()
@click.option("--nodes", type=click.IntRange(min=4), default=100, show_default=True, help="How many nodes.")
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
    help="How often the raw client and the operator each work off all of the jobs.",
)
@click.option(
    "--growth/--no-growth",
    default=False,
    show_default=True,
    help="Before it, a quarter and half as many nodes and jobs, each in a lab of its own.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the machine and the results as JSON.")
def lab(*, nodes: int, jobs: int, gpus: int, rate: float, rounds: int, growth: bool, as_json: bool) -> None:
    """Start a lab, and time jobs from their creation to their binding, beside what the API server can do at all.

    Each result is told on stderr once it is there. If the measurement fails or is interrupted, those that there are so
    far are printed all the same.
    """
    import asyncio

    from benchmarks.lab import run
    from benchmarks.result import Result, with_growth

    _end_like_an_interrupt()
    results: list[Result] = []
    before: dict[str, Result] = {}

    def keep(found: Result) -> None:
        each = with_growth(found, before.get(found.case))
        before[each.case] = each
        results.append(each)
        _say(each.line())

    try:
        for part in (4, 2, 1) if growth else (1,):
            asyncio.run(
                run(nodes // part, jobs // part, gpus, rate=rate, rounds=rounds, said=_say, found=keep)
            )
    except BaseException:
        _print(results, as_json=as_json)
        raise
    _report(results, as_json=as_json)


@bench.command()
@click.option("--jobs", type=click.IntRange(min=1), default=1000, show_default=True, help="How many jobs.")
@click.option(
    "--repeats", type=click.IntRange(min=1), default=9, show_default=True, help="How often each case."
)
@click.option("--json", "as_json", is_flag=True, help="Print the machine and the results as JSON.")
def cli(*, jobs: int, repeats: int, as_json: bool) -> None:
    """Time commands from the start of their process to its end, against an API server on loopback."""
    from benchmarks.cli import run

    _report(list(run(jobs, repeats, said=_say)), as_json=as_json)


def _end_like_an_interrupt() -> None:
    """Let SIGTERM and SIGHUP end this process as SIGINT does: what was started is stopped, nothing is left behind."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda _number, _frame: signal.raise_signal(signal.SIGINT))


def _say(line: str) -> None:
    click.echo(line, err=True)


def _report(results: list[Any], *, as_json: bool) -> None:
    _print(results, as_json=as_json)
    if any(each.problem for each in results):
        sys.exit(1)


def _print(results: list[Any], *, as_json: bool) -> None:
    from rich.console import Console

    from benchmarks.result import machine, show

    if as_json:
        click.echo(json.dumps({"machine": machine(), "results": [each.as_json() for each in results]}))
    else:
        show(results, Console())
