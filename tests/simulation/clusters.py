"""Small snapshots for the tests of the simulation."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from orchestrator.planner import model
from orchestrator.workloads.submission import Submission
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
