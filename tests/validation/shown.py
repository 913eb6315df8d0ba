"""What the command line prints of a state, as far as it is judged: for doubles of a cluster."""

from typing import TYPE_CHECKING, Any

from orchestrator.cluster.gpu_fraction import format_gpu
from validation.judge.state import State

if TYPE_CHECKING:
    from validation.judge.events import PodSeen

Rows = list[dict[str, Any]]


def shown_jobs(state: State) -> Rows:
    """`muster list jobs -A -o json`."""
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


def shown_nodes(state: State) -> Rows:
    """`muster top node -o json`."""
    held = dict.fromkeys(state.nodes, 0)
    for pod in state.holding():
        held[pod.node] += pod.gpu_milli
    return [
        {"name": node, "gpus": format_gpu(gpus * 1000), "gpusAllocated": format_gpu(held[node])}
        for node, gpus in state.nodes.items()
    ]


def shown_projects(state: State) -> Rows:
    """`muster list projects -o json`."""
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
