"""The judged parts of the command line's output for a state, for doubles of a cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from orchestrator.cli.job_table import HEADER
from orchestrator.cli.output import table
from orchestrator.cluster.gpu_fraction import format_gpu
from validation.judge.events import ProjectSet
from validation.judge.state import series

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from validation.judge.events import Event, PodSeen
    from validation.judge.state import State

Rows = list[dict[str, Any]]


def shown_jobs(state: State) -> Rows:
    """Return `muster list jobs -A -o json`."""
    running: set[tuple[str, str]] = state.running()
    rows: Rows = []
    submitted: dict[tuple[str, str], list[PodSeen]] = {key: [] for key in sorted(state.expected)}
    jobs = submitted | state.by_workload()
    for (project, name), pods in jobs.items():
        held = [pod for pod in pods if pod.holds]
        rows.append(
            {
                "name": name,
                "project": project,
                "type": "Train" if all(pod.preemptible for pod in pods) else "Interactive",
                "status": "Running" if (project, name) in running else "Pending",
                "gpus": format_gpu(sum(pod.gpu_milli for pod in pods)),
                "gpusAllocated": format_gpu(sum(pod.gpu_milli for pod in held)),
                "nodes": sorted({pod.node for pod in held}),
                "user": "ada",
                "image": "somewhere/secret",
                "durationSeconds": 1 if held else 0,
                "instances": [
                    {"name": pod.pod, "node": pod.node, "gpuDevices": ",".join(map(str, pod.devices))}
                    for pod in pods
                ],
            }
        )
    return rows


def shown_table(rows: Rows) -> str:
    """Return `muster list jobs -A` for the rows of `shown_jobs`."""
    lines = [
        (
            row["name"], row.get("status", ""), "2m", *(row.get("nodes") or [""])[:1], row.get("image", ""),
            row.get("type", ""), row["project"], row.get("user", ""), row.get("gpus", ""), "true", "",
        )
        for row in rows
    ]  # fmt: skip
    return table(HEADER, lines)


def shown_nodes(state: State) -> Rows:
    """Return `muster top node -o json`."""
    held = dict.fromkeys(state.nodes, 0)
    for pod in state.holding():
        held[pod.node] += pod.gpu_milli
    return [
        {"name": node, "gpus": format_gpu(gpus * 1000), "gpusAllocated": format_gpu(held[node])}
        for node, gpus in state.nodes.items()
    ]


def shown_overview(state: State) -> Rows:
    """Return the overview in the order of the page. Its time is the second after the newest submit."""
    held: dict[str, int] = {}
    for pod in state.holding():
        held[pod.node] = held.get(pod.node, 0) + pod.gpu_milli
    total, used = sum(state.nodes.values()) * 1000, sum(held.values())
    closed = sum(state.nodes[name] * 1000 - held.get(name, 0) for name in state.closed)
    jobs = {key: pods for key, pods in state.by_workload().items() if key not in state.deleted}
    holding = {key: pods for key, pods in jobs.items() if any(pod.holds and pod.gpu_milli for pod in pods)}
    waiting = {key: pods for key, pods in jobs.items() if not any(pod.node for pod in pods)}
    at = max((pod.submitted_us for pods in jobs.values() for pod in pods), default=0) // 1_000_000 + 1
    figures = {
        "GPUs": format_gpu(total),
        "Allocated": f"{format_gpu(used)} ({used * 100 // total if total else 0}%)",
        "Free": format_gpu(total - used - closed),
        "Not ready or cordoned": format_gpu(closed),
        "Allocated, but idle": "0" if state.witnesses else "-",
        "Unhealthy": "0",
        "Utilization": "97%" if state.witnesses else "-",
        "Nodes": str(len(state.nodes)),
        "Jobs that hold GPUs": str(len(holding)),
        "Jobs that wait": str(len(waiting)),
    }
    return [
        {"of": "state", "current": "yes", "at": at},
        *({"of": "figure", "figure": name, "value": value} for name, value in figures.items()),
        *({"of": "share", "project": name, "value": _share(state, waiting, name)} for name in state.quotas),
        *(_job_of_page("waiting", key, pods, at) for key, pods in list(waiting.items())[:12]),
        *(_job_of_page("holding", key, pods, at) for key, pods in list(holding.items())[:12]),
        *(
            _node_of_page(name, gpus * 1000, held.get(name, 0), is_open=name not in state.closed)
            for name, gpus in state.nodes.items()
        ),
    ]


def shown_analytics(events: Sequence[Event], state: State, now_ms: int) -> Rows:
    """Return the rows in the files of the analytics for the last minute and for now. The run began at time 0."""
    steps = series(events)
    rows: Rows = [{"of": "read", "at": now_ms}]
    for name, quota_milli in state.quotas.items():
        made_ms = next(e.t_ms for e in events if isinstance(e, ProjectSet) and e.project == name)
        for start_ms in range(0, now_ms, 60_000):
            first_ms, last_ms = max(start_ms, made_ms), min(start_ms + 60_000, now_ms)
            if last_ms > first_ms:
                ends = [t_ms for t_ms, _ in steps[1:]] + [now_ms]
                total = sum(
                    held.get(name, 0) * max(0, min(end, last_ms) - max(t_ms, first_ms))
                    for (t_ms, held), end in zip(steps, ends, strict=True)
                )
                mean = f"{total / (last_ms - first_ms) / 1000:.6g}"
                rows.append({"of": "point", "at": start_ms // 1000, "project": name, "GPUs ALLOCATED": mean})
        now = format_gpu(state.allocated_milli()[name])
        rows.append({"of": "summary", "project": name, "GPUs NOW": now, "QUOTA": format_gpu(quota_milli)})
    return rows


def _share(state: State, waiting: Iterable[tuple[str, str]], name: str) -> str:
    held, quota = state.allocated_milli()[name], state.quotas[name]
    pending = sum(project == name for project, _ in waiting)
    over = ", over its quota" if held > quota else ""
    return f"{format_gpu(held)} of {format_gpu(quota)}{over}{f', {pending} waiting' if pending else ''}"


def _job_of_page(of: str, key: tuple[str, str], pods: list[PodSeen], at: int) -> dict[str, Any]:
    nodes = sorted({pod.node for pod in pods if pod.holds})
    common = {
        "of": of,
        "project": key[0],
        "name": key[1],
        "GPUs": format_gpu(sum(pod.gpu_milli for pod in pods if not pod.finished)),
        "TYPE": "Train" if all(pod.preemptible for pod in pods) else "Interactive",
        "USER": "ada",
    }
    if of == "waiting":
        age = f"{at - min(pod.submitted_us for pod in pods) // 1_000_000}s"
        return {**common, "WAITS BECAUSE": "no node has room", "AGE": age}
    return {**common, "node": nodes[0] if len(nodes) == 1 else "<multiple>", "DURATION": "2s"}


def _node_of_page(name: str, gpus: int, held: int, *, is_open: bool) -> dict[str, Any]:
    free = gpus - held if is_open else 0
    counts = {"GPUs": gpus, "ALLOCATED": held, "FREE": free, "UNHEALTHY": 0}
    return {"of": "nodes", "name": name, **{title: format_gpu(count) for title, count in counts.items()}}


def shown_projects(state: State) -> Rows:
    """Return `muster list projects -o json`."""
    return [
        {
            "name": name,
            "created": "2026-11-21T10:00:05Z",
            "spec": {
                "gpu": {"quota": format_gpu(quota_milli)},
                "nodeAffinity": {
                    "train": list(state.projects[name].train_node_types),
                    "interactive": list(state.projects[name].interactive_node_types),
                },
                "interactiveTimeLimit": f"{state.projects[name].interactive_limit_ms // 1000}s",
            },
        }
        for name, quota_milli in state.quotas.items()
    ]
