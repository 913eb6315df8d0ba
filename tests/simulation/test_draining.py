"""Where the jobs of a drained node run then (simulation/draining.py)."""

from dataclasses import replace

from orchestrator.planner.model import PodState, Snapshot, Workload
from orchestrator.simulation.draining import departures
from tests.planner.builders import node, project, workload


def on(job: Workload, *places: str) -> Workload:
    """Return the workload with its pods running on these nodes, each with the first GPUs there."""
    pods = tuple(
        replace(pod, state=PodState.ALLOCATED, node=name, devices=tuple(range(pod.request.gpu_count)))
        for pod, name in zip(job.pods, places, strict=True)
    )
    return replace(job, pods=pods)


def outcomes(*jobs: Workload, nodes: int = 3) -> dict[str, tuple[str, tuple[str, ...]]]:
    snapshot = Snapshot(
        nodes=tuple(node(f"n{number}") for number in range(1, nodes + 1)),
        projects=(project("a", 24_000),),
        workloads=jobs,
    )
    return {each.name: (each.outcome, each.nodes) for each in departures(snapshot, "n1")}


def test_a_gang_moves_as_a_whole_and_jobs_of_other_nodes_are_left_out() -> None:
    gang = on(workload("gang", "a", 8_000, pods=2, gang=True), "n1", "n2")
    assert outcomes(gang, nodes=4) == {"gang": ("moves", ("n3", "n4"))}
    assert outcomes(on(workload("other", "a", 1_000), "n2")) == {}


def test_a_gang_that_fits_nowhere_else_is_not_migrated() -> None:
    gang = on(workload("gang", "a", 8_000, pods=3, gang=True), "n1", "n2", "n3")
    assert outcomes(gang) == {"gang": ("stays", ())}


def test_a_job_that_is_not_preemptible_is_not_migrated() -> None:
    note = on(workload("note", "a", 1_000, interactive=True), "n1")
    assert outcomes(note) == {"note": ("stays", ())}
