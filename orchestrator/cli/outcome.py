"""Prints the outcome of a simulation: tables for people, plain data for programs."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import click

from orchestrator.cli.message import say
from orchestrator.cli.output import document, table
from orchestrator.cluster.gpu_fraction import format_gpu
from orchestrator.simulation.capture import Capture
from orchestrator.simulation.outcome import Outcome, Place, ProjectChange

Function = TypeVar("Function", bound=Callable[..., Any])

STARTED_HEADER: Final = ("PROJECT", "WORKLOAD", "GPUs", "WHERE")
EVICTED_HEADER: Final = ("PROJECT", "WORKLOAD", "GPUs", "FOR", "RULE", "AFTERWARDS", "BECAUSE")
WAITING_HEADER: Final = ("PROJECT", "WORKLOAD", "GPUs", "PODS", "SINCE", "BECAUSE")
PROJECTS_HEADER: Final = ("PROJECT", "QUOTA", "HELD", "FAIR SHARE")
UNLIMITED: Final = "unlimited"


@dataclass(frozen=True, slots=True)
class Block:
    """A table with its title."""

    title: str
    header: Sequence[str]
    rows: Sequence[Sequence[str]]


def warn(captured: Capture, *, left_out: bool = True) -> None:
    """Warn on stderr about unknown parts of the live cluster. With `left_out`, also warn about parts that the
    snapshot lacks.
    """
    if captured.doubt:
        say(f"Warning: {captured.doubt}", err=True)
    for line in captured.left_out if left_out else ():
        say(f"Warning: left out: {line}", err=True)


def show(result: Outcome, *, as_json: bool, more: dict[str, Any] | None = None) -> None:
    """Print an outcome. `more` has additional keys, which are the first ones in JSON."""
    if as_json:
        click.echo(document({**(more or {}), **record(result)}, "json"))
    else:
        say(text(result))


def text(result: Outcome) -> str:
    """Return the text for people."""
    return "\n\n".join([*(_text(block) for block in blocks(result)), closing(result)])


def blocks(result: Outcome) -> list[Block]:
    """Return tables of started, evicted and pending workloads, and of projects."""
    return [
        Block(
            "Would run",
            STARTED_HEADER,
            [(*_names_of(workload), _where(workload.places)) for workload in result.started],
        ),
        Block(
            "Would be evicted",
            EVICTED_HEADER,
            [
                (
                    *_names_of(workload),
                    f"{workload.beneficiary_project}/{workload.beneficiary}" if workload.beneficiary else "",
                    workload.rule,
                    "runs again" if workload.runs_again else "waits",
                    workload.message,
                )
                for workload in result.evicted
            ],
        ),
        Block(
            "Would wait",
            WAITING_HEADER,
            [
                (
                    *_names_of(workload),
                    str(workload.pods),
                    "now" if workload.is_new else "before",
                    f"{workload.code}: {workload.message}" if workload.code else workload.message,
                )
                for workload in result.waiting
            ],
        ),
        Block("Projects", PROJECTS_HEADER, [_project_row(project) for project in result.projects]),
    ]


def record(result: Outcome) -> dict[str, Any]:
    """Return the document for programs; GPUs are decimal text, as in `list -o json`."""
    return {
        "decisions": result.decisions,
        "stable": result.is_stable,
        "wouldRun": [
            {
                "project": workload.project,
                "name": workload.name,
                "gpus": format_gpu(workload.gpu_milli),
                "pods": [place_record(place) for place in workload.places],
            }
            for workload in result.started
        ],
        "wouldBeEvicted": [
            {
                "project": workload.project,
                "name": workload.name,
                "gpus": format_gpu(workload.gpu_milli),
                "pods": workload.pods,
                "beneficiary": workload.beneficiary,
                "beneficiaryProject": workload.beneficiary_project,
                "rule": workload.rule,
                "message": workload.message,
                "runsAgain": workload.runs_again,
            }
            for workload in result.evicted
        ],
        "wouldWait": [
            {
                "project": workload.project,
                "name": workload.name,
                "gpus": format_gpu(workload.gpu_milli),
                "pods": workload.pods,
                "reason": workload.code,
                "message": workload.message,
                "new": workload.is_new,
            }
            for workload in result.waiting
        ],
        "projects": [
            {
                "name": project.project,
                "quota": {"before": gpus(project.quota_before), "after": gpus(project.quota_after)},
                "held": {"before": gpus(project.held_before), "after": gpus(project.held_after)},
                "fairShare": {"before": gpus(project.share_before), "after": gpus(project.share_after)},
            }
            for project in result.projects
        ],
    }


def place_record(place: Place) -> dict[str, Any]:
    """Return the placement of one pod, for programs."""
    return {"name": place.pod, "node": place.node, "devices": list(place.devices)}


def gpus(gpu_milli: int | None) -> str:
    """Return an amount of GPUs, which may be unlimited."""
    return UNLIMITED if gpu_milli is None else format_gpu(gpu_milli)


def closing(result: Outcome) -> str:
    """Return the sentence with the number of decisions, and whether a further decision would change more."""
    decisions = f"{result.decisions} decision{'' if result.decisions == 1 else 's'}"
    if not result.is_stable:
        return f"After {decisions}; a further one may change more."
    return (
        f"After {decisions}; no further one would change anything."
        if result.decisions
        else "Nothing would change."
    )


def _text(block: Block) -> str:
    return f"{block.title}:\n{table(block.header, block.rows)}" if block.rows else f"{block.title}: nothing"


def _names_of(workload: Any) -> tuple[str, str, str]:
    return (workload.project, workload.name, format_gpu(workload.gpu_milli))


def _where(places: tuple[Place, ...]) -> str:
    return " ".join(
        f"{place.node}[{','.join(map(str, place.devices))}]" if place.devices else place.node
        for place in places
    )


def _project_row(change: ProjectChange) -> tuple[str, ...]:
    return (
        change.project,
        _change(change.quota_before, change.quota_after),
        _change(change.held_before, change.held_after),
        _change(change.share_before, change.share_after),
    )


def _change(before: int | None, after: int | None) -> str:
    return gpus(after) if before == after else f"{gpus(before)} -> {gpus(after)}"
