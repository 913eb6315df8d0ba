"""Events for the tests of the judge, with defaults for what a test does not care about."""

from typing import Any

from validation.judge.events import CommandRun, Event, Eviction, NodeSeen, PodSeen, ProjectSet

CLUSTER: list[Event] = [
    NodeSeen(0, "n1", 8),
    NodeSeen(0, "n2", 8),
    ProjectSet(0, "p", 2000),
    ProjectSet(0, "q", 8000),
]


def pod(t_ms: int, workload: str, **given: Any) -> PodSeen:
    """A running one-GPU pod of project p on n1, but for what is given."""
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
    """The same pod with an eviction announced."""
    values = {name: getattr(event, name) for name in event.__struct_fields__}
    return PodSeen(**{**values, "t_ms": t_ms, "eviction": Eviction("EvictionByEvictionAPI", "for q")})


def gone(event: PodSeen, t_ms: int) -> PodSeen:
    """The same pod, deleted."""
    values = {name: getattr(event, name) for name in event.__struct_fields__}
    return PodSeen(**{**values, "t_ms": t_ms, "change": "deleted"})


def delete(t_ms: int, *workloads: str) -> CommandRun:
    """A delete command of project p."""
    return CommandRun(t_ms, "delete", "p", workloads)
