"""`python -m musterbench`: how fast muster decides, binds, allocates ResourceClaims and serves pages, on this machine.

The measurement is imported when its command runs. The exit code is 1 if a result has a problem.
"""

import asyncio
import json
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import click

from musterbench.result import Result, machine, show, with_increase
from orchestrator.cli.main import main

Show = Callable[[Sequence[Result]], None]
Keep = Callable[[Result], None]

_as_json = click.option("--json", "as_json", is_flag=True, help="Print the machine and the results as JSON.")
_three_sizes = click.option(
    "--growth",
    "three_sizes",
    is_flag=True,
    help="Also measure a quarter and half as many nodes and jobs before.",
)


@click.group(
    name="python -m musterbench",
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110, "show_default": True},
)
def musterbench() -> None:
    """Measure how fast muster is on this machine. Results go to stdout, progress to stderr."""


@musterbench.command()
@click.option(
    "--nodes",
    type=click.IntRange(min=8),
    multiple=True,
    help="Number of nodes; can be repeated.  [default: 125, 250, 500 and 1000]",
)
@click.option("--gpus", type=click.IntRange(min=1), default=8, help="GPUs of each node.")
@click.option(
    "--mix",
    "mixes",
    multiple=True,
    metavar="NAME",
    help="Cluster to decide on; can be repeated. 'all': the nine busy ones; 'simple': all simple ones.  [default: all]",
)
@click.option(
    "--limit",
    "limit_seconds",
    type=click.FloatRange(min=0, min_open=True),
    default=120.0,
    help="Maximum processor seconds of a decision; a longer one is stopped.",
)
@click.option(
    "--bounded/--unbounded",
    default=True,
    help="Whether a decision may leave work for the next one, as the operator's does. Simple clusters never do.",
)
@_as_json
def planner(
    *,
    nodes: tuple[int, ...],
    gpus: int,
    mixes: tuple[str, ...],
    limit_seconds: float,
    bounded: bool,
    as_json: bool,
) -> None:
    """Time single decisions of the planner. A result has a problem if a decision was wrong, or was stopped."""
    from rich.console import Console

    from musterbench.mix_times import ALL, SIZES, run, show_mixes
    from musterbench.mixes import MIXES
    from musterbench.simple import SIMPLE

    sets = {"all": [*MIXES], "simple": [*SIMPLE]}
    if unknown := [name for name in mixes if name not in {*sets, *ALL}]:
        raise click.BadParameter(
            f"there is no mix '{unknown[0]}'; there are {', '.join((*sets, *ALL))}", param_hint="--mix"
        )
    chosen = dict.fromkeys(each for name in mixes or ("all",) for each in sets.get(name, [name]))
    with _results(as_json=as_json, shown=lambda results: show_mixes(results, Console())) as keep:
        run([*chosen], nodes or SIZES, gpus, limit_seconds, bounded=bounded, on_result=keep)


@musterbench.command()
@click.option(
    "--nodes",
    type=click.IntRange(min=4),
    help="Number of nodes.  [default: 100; with --against 500, and 2,000 with a backlog]",
)
@click.option("--jobs", type=click.IntRange(min=20), default=800, help="Number of jobs.")
@click.option("--gpus", type=click.IntRange(1, 8), default=1, help="GPUs of each job.")
@click.option(
    "--rate",
    type=click.FloatRange(min=0, min_open=True),
    default=20.0,
    help="Jobs a second while the time from creation to binding is measured.",
)
@click.option(
    "--rounds",
    type=click.IntRange(min=1),
    default=4,
    help="How often the operator and its counterpart each bind all of the jobs or pods.",
)
@_three_sizes
@click.option(
    "--against",
    type=click.Choice(["kube-scheduler"]),
    help="Measure Kubernetes' own scheduler beside muster instead, with pods of one GPU.",
)
@click.option(
    "--pods",
    type=click.IntRange(min=4),
    help="Number of pods, with --against.  [default: 3,000, and 10,000 with a backlog]",
)
@click.option(
    "--backlog", is_flag=True, help="With --against: all pods are created before the scheduler starts."
)
@_as_json
def lab(
    *,
    nodes: int | None,
    jobs: int,
    gpus: int,
    rate: float,
    rounds: int,
    three_sizes: bool,
    against: str | None,
    pods: int | None,
    backlog: bool,
    as_json: bool,
) -> None:
    """Start a lab, and time jobs from creation to binding, beside a raw client that makes the same writes.

    With --against, the counterpart is Kubernetes' own scheduler. Unless sizes are given, two cases are
    measured: 3,000 pods on 500 nodes, and a backlog of 10,000 pods on 2,000 nodes.
    """
    from musterbench.comparison import CASES, Case, compare
    from musterbench.lab import run

    if not against and (pods or backlog):
        raise click.UsageError("--pods and --backlog go with --against; without it, give --jobs")
    with _results(as_json=as_json, three_sizes=three_sizes) as keep:
        if not against:
            for part in _parts(three_sizes):
                asyncio.run(
                    run(
                        (nodes or 100) // part, jobs // part, gpus,
                        rate=rate, rounds=rounds, progress=_say, on_result=keep,
                    )
                )  # fmt: skip
            return
        cases: Sequence[Case] = CASES
        if nodes or pods or backlog:
            usual = next(case for case in CASES if case.backlog == backlog)
            cases = (Case(nodes or usual.nodes, pods or usual.pods, backlog),)
        for case in cases:
            asyncio.run(compare(case, rounds, report=_say, keep=keep))


@musterbench.command()
@click.option("--nodes", type=click.IntRange(min=1), default=500, help="Number of nodes.")
@click.option("--gpus", type=click.IntRange(1, 128), default=8, help="GPUs of each node.")
@_as_json
def claims(*, nodes: int, gpus: int, as_json: bool) -> None:
    """Time the allocation of ResourceClaims of one GPU (DRA) until all GPUs are allocated, and of one claim more."""
    from musterbench.claims import run

    with _results(as_json=as_json) as keep:
        for result in run(nodes, gpus):
            keep(result)


@musterbench.command()
@click.option("--nodes", type=click.IntRange(min=4), default=500, help="Number of nodes.")
@click.option("--jobs", type=click.IntRange(min=10), default=4000, help="Number of jobs.")
@click.option(
    "--viewers",
    type=click.IntRange(1, 200),
    default=50,
    help="Number of users with an open page, each with a token.",
)
@click.option("--updates", type=click.IntRange(min=1), default=10, help="Number of jobs that start.")
@_three_sizes
@_as_json
def web(*, nodes: int, jobs: int, viewers: int, updates: int, three_sizes: bool, as_json: bool) -> None:
    """Time the pages of `muster web`: first pages, and updates for many users at the same time. Also measure its
    memory.

    Each user may see the whole cluster. A result has a problem if an update did not reach every user.
    """
    from musterbench.web import run

    with _results(as_json=as_json) as keep:
        for part in _parts(three_sizes):
            asyncio.run(run(nodes // part, jobs // part, viewers, updates, progress=_say, on_result=keep))


def _parts(three_sizes: bool) -> tuple[int, ...]:
    return (4, 2, 1) if three_sizes else (1,)


@contextmanager
def _results(*, as_json: bool, three_sizes: bool = False, shown: Show = show) -> Iterator[Keep]:
    """Yield a function that takes a result; print all results at the end, also if the measurement failed.

    With `three_sizes` a result is compared with the last one of the same case. SIGTERM and SIGHUP end the process like
    SIGINT: it stops the processes that it started.
    """
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda _number, _frame: signal.raise_signal(signal.SIGINT))
    results: list[Result] = []
    before: dict[str, Result] = {}

    def keep(result: Result) -> None:
        grown = with_increase(result, before.get(result.case)) if three_sizes else result
        before[grown.case] = grown
        results.append(grown)
        _say(grown.line())

    try:
        yield keep
    finally:
        if as_json:
            click.echo(
                json.dumps({"machine": machine(), "results": [result.as_json() for result in results]})
            )
        else:
            shown(results)
    if any(result.problem for result in results):
        sys.exit(1)


def _say(line: str) -> None:
    click.echo(line, err=True)


if __name__ == "__main__":
    sys.exit(main(program=musterbench))
