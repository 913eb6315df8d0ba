"""`Candidates`: the possible victims on each node."""

from collections.abc import Iterator
from dataclasses import replace

from orchestrator.planner.cluster_state import ClusterState
from orchestrator.planner.model import PodState, Snapshot, Workload
from orchestrator.planner.preemption.candidates import Candidates
from orchestrator.planner.session import Session
from tests.world.scenes import saturated


def test_the_movable_amount_of_a_node_is_that_of_the_migrations() -> None:
    total = 0
    for session in sessions():
        candidates = Candidates(session)
        for position in range(len(session.ledger.nodes)):
            movable = candidates.movable_milli(position)
            assert movable == sum(
                pod.request.gpu_milli
                for candidate in candidates.on(position, moves=True)
                if candidate.is_move and not candidate.is_evicted(session.ledger.evicted)
                for pod in candidate.pods_on[position]
            )
            total += movable
    assert total


def sessions() -> Iterator[Session]:
    """Yield saturated clusters with terminating workloads, and with workloads that are already evicted."""
    for seed in range(20):
        snapshot = saturated(seed, trees=bool(seed % 2))
        workloads = [leaving(work) if number % 2 else work for number, work in enumerate(snapshot.workloads)]
        session = Session(ClusterState(replace(snapshot, workloads=tuple(workloads))))
        evict(session, session.snapshot)
        yield session


def leaving(work: Workload) -> Workload:
    """Return the workload with its first pod terminating, if it runs."""
    first, *others = work.pods
    if first.state is not PodState.ALLOCATED:
        return work
    return replace(work, pods=(replace(first, state=PodState.RELEASING), *others))


def evict(session: Session, snapshot: Snapshot) -> None:
    """Evict all pods of every fifth workload."""
    for work in snapshot.workloads[::5]:
        for pod in work.pods:
            if pod.state is PodState.ALLOCATED:
                session.ledger.evict(work, pod)
