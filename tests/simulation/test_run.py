"""Planning and applying plans until nothing changes."""

from __future__ import annotations

from dataclasses import replace

from orchestrator.planner import model
from orchestrator.simulation.outcome import held_gpu_milli
from orchestrator.simulation.run import decide_once, settle
from tests.simulation.clusters import A_1, B_1, B_2, a_snapshot, state


def test_an_evicted_pod_waits_again_in_its_old_place() -> None:
    run = decide_once(a_snapshot(B_1, B_2, A_1))
    loser = run.after.workloads[1]
    assert (state(loser), loser.created_at_us, loser.started_at_us) == (["pending"], 2, 0)
    assert (loser.pods[0].node, loser.pods[0].devices) == (None, ())
    assert not run.is_stable


def test_settling_continues_until_a_decision_changes_nothing() -> None:
    run = settle(a_snapshot(B_1, B_2, A_1))
    assert (len(run.steps), run.is_stable) == (2, True)
    assert held_gpu_milli(run.after) == {"team-a": 2000, "team-b": 2000}
    assert settle(run.after).steps == ()
    assert decide_once(run.after).after is run.after


def test_a_planner_that_never_comes_to_rest_is_cut_off() -> None:
    def restless(snapshot: model.Snapshot) -> model.Plan:
        pod = snapshot.workloads[0].pods[0]
        if pod.state is model.PodState.PENDING:
            return model.Plan((model.Binding(pod.id, "b-1", "dgx1-1", (0, 1)),), (), {}, {}, {})
        return model.Plan((), (model.Eviction(pod.id, "b-1", "b-1", "whim", ""),), {}, {}, {})

    run = settle(a_snapshot(B_1), max_decisions=7, planner=restless)
    assert (len(run.steps), run.is_stable) == (7, False)


def test_terminating_pods_end_first_and_others_are_pending_instead() -> None:
    leaving = replace(B_1, pods=(replace(B_1.pods[0], state=model.PodState.RELEASING),))
    run = settle(a_snapshot(leaving, gpus=2))
    assert (run.is_stable, state(run.after.workloads[0])) == (True, ["allocated"])
    assert [pod.id for pod in run.after.workloads[0].pods] == ["b-1-0+1"]
