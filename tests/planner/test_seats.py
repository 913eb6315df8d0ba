"""`Seats` and `Queues`: undoing a decision also undoes their records."""

import pytest

from orchestrator.planner.cluster_state import ClusterState
from orchestrator.planner.cycle import ACTION_NAMES, ACTIONS
from orchestrator.planner.seats import SeatState
from orchestrator.planner.session import Session
from tests.world.scenes import saturated


@pytest.mark.parametrize("seed", [0, 1, 3, 4, 5, 6, 7, 10, 11])
def test_a_rollback_undoes_every_seat_eviction_and_queue_of_a_decision(seed: int) -> None:
    state = ClusterState(saturated(seed, trees=bool(seed % 2)))
    session = Session(state, ACTION_NAMES)
    checkpoint = session.ledger.checkpoint()
    for _, act in ACTIONS:
        act(session)
    assert any(session.seats.new()) or any(session.seats.nominated())

    session.ledger.rollback(checkpoint)

    assert [*session.seats.new(), *session.seats.nominated(), *session.seats.evictions] == []
    assert not any(name for kind in SeatState for name in session.seats.all_names(kind))
    assert {name: session.workload(name) for name in state.workloads} == state.workloads
    assert {name: session.queues.chunks(name) for name in state.waiting} == state.waiting
    assert not session.queues.queued_again


def test_a_lifted_workload_waits_again_and_a_rollback_starts_it_as_before() -> None:
    session = Session(ClusterState(saturated(0, trees=False)), ACTION_NAMES)
    for _, act in ACTIONS:
        act(session)
    before = [seat.binding for seat in session.seats.new()]
    started = [workload for name in session.tree.projects for workload in session.started(name)]
    assert started
    checkpoint = session.ledger.checkpoint()
    for workload in started:
        session.lift(workload)
    assert not any(session.seats.new())
    assert all(session.next_chunk(workload) for workload in started)

    session.ledger.rollback(checkpoint)

    assert sorted(before, key=repr) == sorted((seat.binding for seat in session.seats.new()), key=repr)
    assert started == [workload for name in session.tree.projects for workload in session.started(name)]
