"""Events for the tests of the judge, with defaults for fields that do not matter to a test."""

from typing import Any

from validation.judge.events import CommandRun, Event, Eviction, NodeSeen, PodSeen, ProjectSet

CLUSTER: list[Event] = [
    NodeSeen(0, "n1", 8),
    NodeSeen(0, "n2", 8),
    ProjectSet(0, "p", 2000),
    ProjectSet(0, "q", 8000),
]


def pod(t_ms: int, workload: str, **given: Any) -> PodSeen:
    """Return a running pod of project p with one GPU on n1, with the given changes."""
    values: dict[str, Any] = {
        "change": "modified",
        "uid": f"uid-{given.get('pod', workload)}",
        "namespace": "muster-p",
        "project": "p",
        "workload": workload,
        "pod": f"{workload}-0",
        "phase": "Running",
        "node": "n1",
        "devices": (0,),
        "gpu_milli": 1000,
        **given,
    }
    return PodSeen(t_ms=t_ms, **values)


def evicted(event: PodSeen, t_ms: int) -> PodSeen:
    """Return the pod with an announced eviction."""
    values = {name: getattr(event, name) for name in event.__struct_fields__}
    return PodSeen(**{**values, "t_ms": t_ms, "eviction": Eviction("EvictionByEvictionAPI", "for q")})


def gone(event: PodSeen, t_ms: int) -> PodSeen:
    """Return the pod's deletion."""
    values = {name: getattr(event, name) for name in event.__struct_fields__}
    return PodSeen(**{**values, "t_ms": t_ms, "change": "deleted"})


def delete(t_ms: int, *workloads: str) -> CommandRun:
    """Return a delete command of project p."""
    return CommandRun(t_ms, "delete", "p", workloads)
