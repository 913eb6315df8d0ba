"""The diagnosis of `muster explain` for a pending workload: reason, holders, and remedies that were tried."""

from __future__ import annotations

from dataclasses import replace

import pytest

from orchestrator.planner import model
from orchestrator.simulation.diagnosis import diagnose
from tests.planner import builders
from tests.simulation.clusters import (
    A_1,
    B_1,
    B_2,
    a_snapshot,
    on_parts_by_memory,
    one_claim_two_borrowers,
    running,
)


def test_a_diagnosis_of_a_job_that_starts_now_names_no_remedy() -> None:
    snapshot = a_snapshot(B_1, A_1)
    diagnosis = diagnose(snapshot, A_1)
    assert [place.node for place in diagnosis.starts] == ["dgx1-1"]
    assert (diagnosis.code, diagnosis.remedies, diagnosis.free_gpu_milli) == ("", (), 2000)


def test_a_diagnosis_names_the_victims_of_the_next_decision() -> None:
    diagnosis = diagnose(a_snapshot(B_1, B_2, A_1), A_1)
    assert [each.workload for each in diagnosis.evicts] == ["b-2"]
    assert [(each.name, each.gpu_milli) for each in diagnosis.holders] == [("b-1", 2000), ("b-2", 2000)]


def test_a_remedy_is_named_only_when_the_workload_then_runs() -> None:
    large = builders.workload("large", "team-a", 3000, age=9)
    diagnosis = diagnose(a_snapshot(B_1, B_2, large), large)
    (remedy,) = diagnosis.remedies
    assert (remedy.subject, remedy.evicts) == ("if it asked for 2 GPUs", ("team-b/b-2",))
    hopeless = builders.workload(
        "hopeless", "team-a", 3000, constraints=model.Constraints((("no", "where"),))
    )
    assert diagnose(a_snapshot(hopeless), hopeless).remedies == ()


@pytest.mark.parametrize(
    ("limits", "remedies"),
    [
        ((2000, None), {"with a limit of 3 GPUs for team-a"}),
        ((None, 2000), {"with a limit of 3 GPUs for all"}),
        ((2000, 2000), set()),
        ((3000, 3000), set()),
    ],
)
def test_a_higher_limit_is_named_where_it_lets_the_workload_run(
    limits: tuple[int | None, int | None], remedies: set[str]
) -> None:
    projects = (
        builders.project("all", 4000, limit_gpu_milli=limits[1]),
        builders.project("team-a", 4000, limit_gpu_milli=limits[0], parent="all"),
    )
    large = builders.workload("large", "team-a", 3000)
    diagnosis = diagnose(model.Snapshot((builders.node("dgx1-1", 4),), projects, (large,)), large)
    assert {remedy.subject for remedy in diagnosis.remedies if "limit" in remedy.subject} == remedies


def test_work_that_may_not_be_evicted_is_told_that_it_could_be() -> None:
    firm = builders.workload("firm", "team-a", 3000, age=9, interactive=True)
    diagnosis = diagnose(a_snapshot(firm), firm)
    assert diagnosis.code == "NonPreemptibleOverQuota"
    assert "as a preemptible job, which others may take GPUs from" in {
        each.subject for each in diagnosis.remedies
    }


@pytest.mark.parametrize(
    ("held", "requested", "deleted"),
    [
        (
            (4, 2, 2),
            2,
            ["if c of team-a was deleted", "if b of team-a was deleted", "if a of team-a was deleted"],
        ),
        ((4, 2, 2), 4, ["if a of team-a was deleted"]),
        ((3, 3, 2), 5, ["if c and b of team-a were deleted"]),
        ((3, 3, 2), 8, ["if c, b and a of team-a were deleted"]),
        ((1,) * 8, 5, ["if h, g, f, e and d of team-a were deleted"]),
        ((1, 1, 1, 5), 3, ["if d of team-a was deleted"]),
        ((2, 3, 1, 2), 5, ["if d and b of team-a were deleted"]),
        ((3, 3, 2), 9, []),
    ],
)
def test_jobs_of_the_project_are_named_whose_deletion_starts_the_workload(
    held: tuple[int, ...], requested: int, deleted: list[str]
) -> None:
    """Own jobs a, b, c, … hold all 8 GPUs of the only node; a job of another project is no remedy."""
    nodes = (builders.node("dgx1-1", 8), builders.node("dgx1-2", 8))
    projects = (builders.project("team-a", 8000), builders.project("team-b", 8000))
    workloads, first = [], 0
    for age, (name, gpus) in enumerate(zip("abcdefgh", held, strict=False)):
        workloads.append(
            running(name, "team-a", gpus, tuple(range(first, first + gpus)), created_at_us=age + 1)
        )
        first += gpus
    other = running("other", "team-b", 8, tuple(range(8)))
    other = replace(other, pods=(replace(other.pods[0], node="dgx1-2"),))
    wants = builders.workload("wants", "team-a", requested * 1000, age=99)
    diagnosis = diagnose(model.Snapshot(nodes, projects, (*workloads, other, wants)), wants)
    found = [each.subject for each in diagnosis.remedies if "deleted" in each.subject]
    assert found == deleted
    assert all(not each.evicts for each in diagnosis.remedies if "deleted" in each.subject)


def test_free_amounts_are_of_now_and_of_after_the_decision_that_the_reason_is_about() -> None:
    """The quota of team-b covers b-1, so a-1 cannot reclaim it, and b-2 starts on the other two GPUs."""
    snapshot = one_claim_two_borrowers()
    covering = replace(snapshot.projects[1], quota_gpu_milli=2000)
    snapshot = replace(snapshot, projects=(snapshot.projects[0], covering))
    diagnosis = diagnose(snapshot, snapshot.workloads[-1])
    assert "0 of 4 are free" in diagnosis.message
    assert (diagnosis.free_gpu_milli, diagnosis.free_after_gpu_milli) == (2000, 0)
    assert (diagnosis.starts_others, diagnosis.evicts_from) == (("team-b/b-2",), ())


def test_memory_of_a_gpu_counts_as_held_and_as_waiting() -> None:
    snapshot = on_parts_by_memory()
    large, last = (diagnose(snapshot, workload) for workload in snapshot.workloads[2:])
    assert [(each.name, each.gpu_milli) for each in large.holders] == [("a-1", 500)]
    assert [each.held for each in large.lineage] == [500]
    assert (large.free_gpu_milli, large.free_after_gpu_milli, large.total_gpu_milli) == (500, 0, 1000)
    assert (last.gpu_milli, last.pods) == (500, 1)


def test_the_missing_quota_for_memory_of_a_gpu_is_named() -> None:
    """A running job of half a GPU by memory fills the quota for jobs that are not preemptible, so another job needs 1
    GPU.
    """
    snapshot = on_parts_by_memory()
    runs, waits = (replace(each, preemptible=False) for each in snapshot.workloads[:2])
    projects = (builders.project("team-a", 500),)
    diagnosis = diagnose(replace(snapshot, projects=projects, workloads=(runs, waits)), waits)
    assert "with a quota of 1 GPU for team-a" in {each.subject for each in diagnosis.remedies}


def test_pods_on_a_closed_node_take_nothing_from_free_gpus_elsewhere() -> None:
    snapshot = a_snapshot(B_1, B_2, A_1)
    closed = replace(snapshot.nodes[0], schedulable=False)
    other = builders.node("dgx1-2", 4)
    diagnosis = diagnose(replace(snapshot, nodes=(closed, other)), A_1)
    assert (diagnosis.free_gpu_milli, diagnosis.total_gpu_milli) == (4000, 4000)
