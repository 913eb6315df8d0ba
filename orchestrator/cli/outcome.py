"""How a simulated outcome is shown: tables for people, plain data for programs."""

from collections.abc import Callable, Iterable
from typing import Any, Final, TypeVar

import click

from orchestrator.cli.output import document, table
from orchestrator.cluster.quantity import format_gpu
from orchestrator.simulation.capture import Capture
from orchestrator.simulation.outcome import Outcome, Place, ProjectChange

Function = TypeVar("Function", bound=Callable[..., Any])

STARTED_HEADER: Final = ("PROJECT", "WORKLOAD", "GPUs", "WHERE")
EVICTED_HEADER: Final = ("PROJECT", "WORKLOAD", "GPUs", "FOR", "RULE", "AFTERWARDS", "BECAUSE")
WAITING_HEADER: Final = ("PROJECT", "WORKLOAD", "GPUs", "PODS", "SINCE", "BECAUSE")
PROJECTS_HEADER: Final = ("PROJECT", "QUOTA", "HELD", "FAIR SHARE")
UNLIMITED: Final = "unlimited"


def json_option() -> Callable[[Function], Function]:
    """Return the `--json` option."""
    return click.option("--json", "as_json", is_flag=True, default=None, help="Print JSON.")


def warn(captured: Capture, *, left_out: bool = True) -> None:
    """Say on stderr what is not known of the live cluster; `left_out`: also what is not in the snapshot."""
    if captured.doubt:
        click.echo(f"Warning: {captured.doubt}", err=True)
    for each in captured.left_out if left_out else ():
        click.echo(f"Warning: left out: {each}", err=True)


def show(result: Outcome, *, as_json: bool, more: dict[str, Any] | None = None) -> None:
    """Print an outcome; `more` are keys that stand in front in JSON."""
    if as_json:
        click.echo(document({**(more or {}), **record(result)}, "json"))
    else:
        click.echo(text(result))


def text(result: Outcome) -> str:
    """Return what people read."""
    blocks = [
        _block("Would run", STARTED_HEADER, ((*_who(each), _where(each.places)) for each in result.started)),
        _block(
            "Would be evicted",
            EVICTED_HEADER,
            (
                (
                    *_who(each),
                    f"{each.beneficiary_project}/{each.beneficiary}" if each.beneficiary else "",
                    each.rule,
                    "runs again" if each.runs_again else "waits",
                    each.message,
                )
                for each in result.evicted
            ),
        ),
        _block(
            "Would wait",
            WAITING_HEADER,
            (
                (
                    *_who(each),
                    str(each.pods),
                    "now" if each.is_new else "before",
                    f"{each.code}: {each.message}" if each.code else each.message,
                )
                for each in result.waiting
            ),
        ),
        _block("Projects", PROJECTS_HEADER, map(_standing, result.projects)),
    ]
    return "\n\n".join([*blocks, _closing(result)])


def record(result: Outcome) -> dict[str, Any]:
    """Return what programs read; GPUs are decimal text, as in `list -o json`."""
    return {
        "decisions": result.decisions,
        "stable": result.is_stable,
        "wouldRun": [
            {
                "project": each.project,
                "name": each.name,
                "gpus": format_gpu(each.gpu_milli),
                "pods": [place_record(place) for place in each.places],
            }
            for each in result.started
        ],
        "wouldBeEvicted": [
            {
                "project": each.project,
                "name": each.name,
                "gpus": format_gpu(each.gpu_milli),
                "pods": each.pods,
                "beneficiary": each.beneficiary,
                "beneficiaryProject": each.beneficiary_project,
                "rule": each.rule,
                "message": each.message,
                "runsAgain": each.runs_again,
            }
            for each in result.evicted
        ],
        "wouldWait": [
            {
                "project": each.project,
                "name": each.name,
                "gpus": format_gpu(each.gpu_milli),
                "pods": each.pods,
                "reason": each.code,
                "message": each.message,
                "new": each.is_new,
            }
            for each in result.waiting
        ],
        "projects": [
            {
                "name": each.project,
                "quota": {"before": gpus(each.quota_before), "after": gpus(each.quota_after)},
                "held": {"before": gpus(each.held_before), "after": gpus(each.held_after)},
                "fairShare": {"before": gpus(each.share_before), "after": gpus(each.share_after)},
            }
            for each in result.projects
        ],
    }


def place_record(place: Place) -> dict[str, Any]:
    """Return where one pod runs, for programs."""
    return {"name": place.pod, "node": place.node, "devices": list(place.devices)}


def gpus(gpu_milli: int | None) -> str:
    """Return an amount of GPUs, which may be unlimited."""
    return UNLIMITED if gpu_milli is None else format_gpu(gpu_milli)


def _closing(result: Outcome) -> str:
    made = f"{result.decisions} decision{'' if result.decisions == 1 else 's'}"
    if not result.is_stable:
        return f"After {made}; a further one may change more."
    return (
        f"After {made}; no further one would change anything."
        if result.decisions
        else "Nothing would change."
    )


def _block(title: str, header: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    cells = list(rows)
    return f"{title}:\n{table(header, cells)}" if cells else f"{title}: nothing"


def _who(each: Any) -> tuple[str, str, str]:
    return (each.project, each.name, format_gpu(each.gpu_milli))


def _where(places: tuple[Place, ...]) -> str:
    return " ".join(
        f"{place.node}[{','.join(map(str, place.devices))}]" if place.devices else place.node
        for place in places
    )


def _standing(each: ProjectChange) -> tuple[str, ...]:
    return (
        each.project,
        _change(each.quota_before, each.quota_after),
        _change(each.held_before, each.held_after),
        _change(each.share_before, each.share_after),
    )


def _change(before: int | None, after: int | None) -> str:
    return gpus(after) if before == after else f"{gpus(before)} -> {gpus(after)}"
