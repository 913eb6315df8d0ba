"""`minimal_options`: the candidates that free enough on one node, and how much more they free."""

import pytest

from orchestrator.planner.cluster_state import ClusterState
from orchestrator.planner.model import Request
from orchestrator.planner.preemption.candidates import Candidates
from orchestrator.planner.preemption.node_options import _Node, missing_on
from orchestrator.planner.session import Session
from tests.world.scenes import saturated

REQUESTS = (
    Request(gpu_count=1),
    Request(gpu_count=3),
    Request(gpu_portion_milli=500),
    Request(gpu_portion_milli=300, shared_devices=2),
)


@pytest.mark.parametrize("request_", REQUESTS, ids=("one", "three", "half", "parts-of-two"))
def test_both_ways_to_count_the_excess_agree_where_no_device_is_lost(request_: Request) -> None:
    enough = 0
    for seed in range(20):
        session = Session(ClusterState(saturated(seed, trees=False)))
        candidates = Candidates(session)
        for position, account in enumerate(session.ledger.nodes):
            on_node = candidates.on(position)
            node = _Node(account, missing_on(account, request_), on_node)
            for index, candidate in enumerate(on_node if not account.lost else ()):
                excess_milli = node._excess_of_devices(node._held[index], candidate.gpu_milli)
                assert excess_milli == node._excess_without_lost(node._held[index], candidate.gpu_milli)
                enough += excess_milli is not None
    assert enough
