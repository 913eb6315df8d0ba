"""Counts made for one project's workload are reused for the next project, and hide no victim from it."""

from orchestrator.planner.cluster_state import ClusterState
from orchestrator.planner.gangs import chunk_amounts
from orchestrator.planner.model import Snapshot
from orchestrator.planner.preemption.candidates import Candidates
from orchestrator.planner.preemption.reclaim_policy import ReclaimPolicy
from orchestrator.planner.preemption.victim_selection import VictimSelector
from orchestrator.planner.session import Session
from tests.planner.builders import node, project, workload
from tests.planner.test_better import running


def test_candidates_of_the_first_preemptor_are_open_to_the_next() -> None:
    lender = running(workload("lender", "a", 4000), "n1", 0)
    claims = (workload("of-a", "a", 2000), workload("of-b", "b", 2000))
    snapshot = Snapshot((node("n1", 4),), (project("a", 0), project("b", 4000)), (lender, *claims))
    session = Session(ClusterState(snapshot))
    selector = VictimSelector(session, Candidates(session), ReclaimPolicy(session))

    options = {}
    for claim in claims:
        chunk = session.next_chunk(claim)
        selector.policy.start(claim, chunk)
        options[claim.id] = [
            [candidate.workload.id for candidate in option.candidates]
            for _, option in selector.options(claim, chunk[0], chunk_amounts(chunk))
        ]
    assert options == {"of-a": [], "of-b": [["lender"]]}
