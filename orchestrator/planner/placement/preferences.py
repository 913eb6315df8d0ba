"""The score of nodes for a pod with preferences: the sum of the weights of all preferences that a node meets."""

from orchestrator.planner.accounting.neighbours import Neighbours
from orchestrator.planner.model import Pod
from orchestrator.planner.node_sets import NodeSets, positions_in
from orchestrator.planner.traits import Preferences


def scores_of(
    pod: Pod, preferences: Preferences, node_sets: NodeSets, others: Neighbours | None
) -> list[int]:
    """Return the score of each node by position. Call it while the pod is not on the ledger."""
    scores = [0] * node_sets.everywhere.bit_length()
    weighted = [
        (node_sets.matching((preference.requirements,)), preference.weight)
        for preference in preferences.nodes
    ]
    if others is not None:
        weighted += others.scores(pod, preferences)
    for nodes, weight in weighted:
        for position in positions_in(nodes):
            scores[position] += weight
    return scores
