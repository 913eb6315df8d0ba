"""Submitting, deleting and changing quotas on a snapshot."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from orchestrator.errors import UsageError
from orchestrator.planner import model
from orchestrator.simulation import change
from orchestrator.simulation.apply_plan import moment_after
from tests.simulation.clusters import B_1, a_snapshot, asking


def test_a_submission_becomes_the_workload_that_the_operator_would_read() -> None:
    request = asking("gang", gpu_milli=1000, parallelism=3, completions=3, min_member=3, node_type="dgx1")
    workload = change.submit(a_snapshot(B_1), request, "team-a").workloads[-1]
    assert (workload.id, workload.project, workload.priority) == ("team-a/gang", "team-a", 50)
    assert (workload.preemptible, workload.min_member, len(workload.pods)) == (True, 3, 3)
    assert workload.created_at_us == moment_after(a_snapshot(B_1))
    assert {pod.request for pod in workload.pods} == {
        model.Request(gpu_count=1, cpu_milli=1000, memory_bytes=100 << 20)
    }
    assert workload.pods[0].constraints.node_selector == (("run.ai/type", "dgx1"),)


def test_an_interactive_submission_of_a_part_of_a_gpu_is_read_like_a_real_one() -> None:
    request = asking("note", gpu_milli=500, interactive=True)
    workload = change.submit(a_snapshot(), request, "team-a").workloads[-1]
    assert (workload.interactive, workload.preemptible, workload.priority) == (True, False, 100)
    assert workload.pods[0].request.gpu_portion_milli == 500


@pytest.mark.parametrize(
    ("action", "complaint"),
    [
        (lambda it: change.submit(it, asking("b-1"), "team-b"), "has a workload b-1 already"),
        (lambda it: change.submit(it, asking("x"), "team-x"), "there is no project team-x"),
        (lambda it: change.delete(it, "team-b", "b-9"), "has no pending or running workload b-9"),
        (lambda it: change.delete(it, "team-a", "b-1"), "has no pending or running workload b-1"),
        (lambda it: change.set_quota(it, "team-b", 2001), "the quotas add up to 4.001 GPUs"),
    ],
)
def test_changes_that_a_real_cluster_would_refuse_are_refused(action: Any, complaint: str) -> None:
    with pytest.raises(UsageError, match=complaint):
        action(a_snapshot(B_1))


def test_a_weight_that_was_the_quota_follows_it_and_another_is_kept() -> None:
    snapshot = a_snapshot()
    first = replace(snapshot.projects[0], over_quota_weight=7)
    snapshot = replace(snapshot, projects=(first, snapshot.projects[1]))
    changed = change.set_quota(change.set_quota(snapshot, "team-a", 1000), "team-b", 500)
    assert [(each.quota_gpu_milli, each.over_quota_weight) for each in changed.projects] == [
        (1000, 7),
        (500, 500),
    ]
