"""The explanation of a job by a plan: the reason, tried remedies, and the jobs that hold the GPUs."""

import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

import click

from orchestrator.cli.explanation import Explanation, gpu_word, of_containers, written
from orchestrator.cli.outcome import gpus, place_record
from orchestrator.cli.output import age
from orchestrator.cli.settings import Settings
from orchestrator.errors import UsageError
from orchestrator.planner.model import Snapshot
from orchestrator.simulation.change import find
from orchestrator.simulation.diagnosis import Diagnosis, diagnose
from orchestrator.simulation.reader import load
from orchestrator.views.jobs import WorkloadView

MAX_HOLDERS: Final = 30
MAX_CHANGED: Final = 3
_NO_REMEDY: Final = (
    "No remedy: no smaller request, higher quota or limit, change to preemptible or deletion of jobs of its project "
    "would start it."
)


def planned(snapshot: Snapshot, view: WorkloadView, answer: dict[str, Any]) -> Explanation | None:
    """Explain a live job by a plan on the snapshot; None if the snapshot does not have the job."""
    alike = [
        workload
        for workload in snapshot.workloads
        if workload.id == view.uid or (workload.project, workload.name) == (view.project, view.name)
    ]
    if not alike:
        return None
    workload = next((workload for workload in alike if workload.id == view.uid), alike[0])
    result = diagnose(snapshot, workload)
    return _explained(result, answer | record(result), view)


def planned_in_file(file: Path, name: str) -> Explanation:
    """Explain a workload in a file. Raises UsageError."""
    snapshot = load(file)
    result = diagnose(snapshot, find(snapshot, _project_of(snapshot, name), name))
    return _explained(result, record(result))


def _project_of(snapshot: Snapshot, name: str) -> str:
    project = click.get_current_context().ensure_object(Settings).project
    if project is not None:
        return project
    projects = sorted({workload.project for workload in snapshot.workloads if workload.name == name})
    if len(projects) != 1:
        raise UsageError(
            f"{name}: several projects have a workload of this name; give the project with -p"
            if projects
            else f"the file has no workload {name}"
        )
    return projects[0]


def record(result: Diagnosis) -> dict[str, Any]:
    """Return a diagnosis for programs; GPUs are decimal text."""
    return {
        "project": result.project,
        "planned": True,
        "waiting": {"pods": result.pods, "gpus": gpus(result.gpu_milli)},
        "reason": result.code,
        "message": result.message,
        "endangered": result.endangered,
        "runs": [place_record(place) for place in result.places],
        "starts": [place_record(start) for start in result.starts],
        "evicts": [{"rule": evict.rule, "message": evict.message} for evict in result.evicts],
        "wouldFit": [{"what": remedy.subject, "evicts": list(remedy.evicts)} for remedy in result.remedies],
        "projects": [
            {
                "name": level.name,
                "quota": gpus(level.quota),
                "limit": gpus(level.limit),
                "held": gpus(level.held),
                "fairShare": gpus(level.share),
            }
            for level in result.lineage
        ],
        "gpusFree": gpus(result.free_gpu_milli),
        "gpusFreeAfterDecision": gpus(result.free_after_gpu_milli),
        "startsOthers": list(result.starts_others),
        "evictsFrom": list(result.evicts_from),
        "gpusTotal": gpus(result.total_gpu_milli),
        "holders": [
            {
                **{
                    key: value
                    for key, value in asdict(holder).items()
                    if key in {"project", "name", "preemptible"}
                },
                "gpus": gpus(holder.gpu_milli),
                "nodes": list(holder.nodes),
                "startedAtUs": holder.started_at_us,
            }
            for holder in result.holders
        ],
    }


def _explained(result: Diagnosis, answer: dict[str, Any], view: WorkloadView | None = None) -> Explanation:
    now_us = time.time_ns() // 1000
    workload_text = f"{result.name} of {result.project}"
    lines = []
    if view is not None:
        lines += of_containers(view)
    elif result.places:
        lines.append(f"{workload_text} runs on {', '.join(sorted({place.node for place in result.places}))}.")
    if result.endangered:
        lines.append(f"In danger: {result.endangered}.")
    if result.pods:
        lines.append(
            f"{workload_text} waits: {gpus(result.gpu_milli)} {gpu_word(result.gpu_milli)} "
            f"in {result.pods} pod{'s' * (result.pods > 1)}."
        )
    if result.starts:
        lines.append(f"It starts now, on {', '.join(sorted({start.node for start in result.starts}))}.")
    reason = f"{result.code}: {result.message}" if result.code else ""
    if reason:
        lines.append(reason)
    changes = result.starts_others or result.evicts_from
    if reason and changes:
        lines.append(_after_decision(result))
    lines += [f"For it: {evict.message}" for evict in result.evicts]
    if result.pods and not (result.remedies or result.starts or result.evicts):
        lines.append(_NO_REMEDY)
    by_operator = "" if view is None else written(view)
    if by_operator and by_operator != reason:
        lines.append(f"Written by the operator: {by_operator}")
    remedies = [
        remedy.subject + (f", which evicts {', '.join(remedy.evicts)}" if remedy.evicts else "")
        for remedy in result.remedies
    ]
    entitlement: list[Sequence[str]] = [
        (level.name, gpus(level.quota), gpus(level.limit), gpus(level.held), gpus(level.share))
        for level in result.lineage
    ]
    holders: list[Sequence[str]] = [
        (
            holder.project,
            holder.name,
            gpus(holder.gpu_milli),
            age((now_us - holder.started_at_us) // 1_000_000) if view and holder.started_at_us else "",
            "yes" if holder.preemptible else "no",
            ",".join(holder.nodes),
        )
        for holder in result.holders
    ]
    return Explanation(
        answer,
        lines,
        remedies,
        entitlement,
        _free(result, is_now=bool(changes)),
        holders[:MAX_HOLDERS],
        max(0, len(holders) - MAX_HOLDERS),
    )


def _free(result: Diagnosis, *, is_now: bool) -> str:
    """Return the sentence about the number of free GPUs, or that no node that takes pods has GPUs."""
    if not result.total_gpu_milli:
        return "No node that takes pods has GPUs."
    return f"Free{' now' if is_now else ''}: {gpus(result.free_gpu_milli)} of {gpus(result.total_gpu_milli)} GPUs."


def _after_decision(result: Diagnosis) -> str:
    """Return the sentence that says why the figures of the reason differ from the present figures."""
    changes = [
        f"{verb} {_first_of(names)}"
        for verb, names in (("starts", result.starts_others), ("evicts", result.evicts_from))
        if names
    ]
    return (
        f"That is after the next decision, which {' and '.join(changes)}; the rest shows the present state."
    )


def _first_of(names: Sequence[str]) -> str:
    more = len(names) - MAX_CHANGED
    return ", ".join(names[:MAX_CHANGED]) + (f" and {more} more" if more > 0 else "")
