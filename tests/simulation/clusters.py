"""Small snapshots for the tests of the simulation."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from orchestrator.planner import model
from orchestrator.submit.submission import Submission
from tests.planner import builders


def a_snapshot(*workloads: model.Workload, gpus: int = 4) -> model.Snapshot:
    projects = (builders.project("team-a", 2000), builders.project("team-b", 2000))
    return model.Snapshot((builders.node("dgx1-1", gpus),), projects, workloads)


def running(name: str, project: str, gpus: int, devices: tuple[int, ...], **changes: Any) -> model.Workload:
    workload = builders.workload(name, project, gpus * 1000)
    pod = replace(workload.pods[0], state=model.PodState.ALLOCATED, node="dgx1-1", devices=devices)
    return replace(workload, pods=(pod,), **({"started_at_us": 5} | changes))


def state(workload: model.Workload) -> list[str]:
    return [pod.state.value for pod in workload.pods]


def asking(name: str, **values: Any) -> Submission:
    return Submission(name=name, image="image", user="me", **values)


B_1 = running("b-1", "team-b", 2, (0, 1), created_at_us=1)
B_2 = running("b-2", "team-b", 2, (2, 3), created_at_us=2)
A_1 = builders.workload("a-1", "team-a", 2000, age=7)


def one_claim_two_borrowers() -> model.Snapshot:
    """Return a snapshot of four GPUs: a-1 needs all of them within its quota, b-1 borrows two, and b-2 would borrow the
    rest.
    """
    projects = (builders.project("team-a", 4000), builders.project("team-b", 0, over_quota_weight=1))
    waiting = builders.workload("b-2", "team-b", 2000, age=2)
    large = builders.workload("a-1", "team-a", 4000, age=3)
    return replace(a_snapshot(B_1, waiting, large), projects=projects)


def on_parts_by_memory() -> model.Snapshot:
    """Return a snapshot of one GPU: a-1 runs on half of its memory, a-2 and a-4 wait for as much, a-3 for two whole
    GPUs.
    """
    node = builders.node("dgx1-1", 1, gpu_memory_mib=81_920)
    request = model.Request(gpu_memory_mib=40_960)

    def half(name: str, age: int) -> model.Workload:
        workload = builders.workload(name, "team-a", 1000, age=age)
        return replace(workload, pods=(replace(workload.pods[0], request=request),))

    first = half("a-1", 1)
    runs = replace(first.pods[0], state=model.PodState.ALLOCATED, node="dgx1-1", devices=(0,))
    large = builders.workload("a-3", "team-a", 2000, age=3)
    workloads = (replace(first, pods=(runs,), started_at_us=5), half("a-2", 2), large, half("a-4", 4))
    return model.Snapshot((node,), (builders.project("team-a", 1000),), workloads)
