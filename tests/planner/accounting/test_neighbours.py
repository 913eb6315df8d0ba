"""Running, terminating and nominated pods, as constraints between pods count them."""

from __future__ import annotations

from dataclasses import replace

from orchestrator.labels import LabelRequirement
from orchestrator.planner.accounting.neighbours import Neighbours
from orchestrator.planner.model import Pod, Request
from orchestrator.planner.node_sets import NodeSets
from orchestrator.planner.traits import HostPort, PodSelector, PodTerm, PodTraits, SpreadConstraint
from tests.planner.builders import node

HOST = "kubernetes.io/hostname"
MINE = PodSelector(("a",), (LabelRequirement("app", "In", ("x",)),))
X = PodTraits("a", (("app", "x"),))
APART = replace(X, anti_affinity=(PodTerm(MINE, HOST),))
BESIDE = replace(X, affinity=(PodTerm(MINE, HOST),))
EVENLY = replace(X, spread=(SpreadConstraint(HOST, 1, MINE),))


def three_nodes(*foreign: PodTraits) -> Neighbours:
    nodes = [node("n0", foreign_traits=foreign), node("n1"), node("n2")]
    return Neighbours(nodes, NodeSets(nodes))


def pod(name: str, traits: PodTraits) -> Pod:
    return Pod(id=name, name=name, request=Request(gpu_count=1), traits=traits)


def test_a_terminating_pod_keeps_others_away_and_counts_for_nothing_else() -> None:
    neighbours = three_nodes()
    old = pod("old", APART)
    neighbours.occupy(old, 0, 1)
    neighbours.release(old, 0, 1)
    assert neighbours.admitting(pod("new", APART), later=False) == 0b110
    assert neighbours.admitting(pod("new", APART), later=True) == 0b111
    assert neighbours.admitting(pod("new", X), later=False) == 0b110
    neighbours.release(old, 0, -1)
    neighbours.occupy(old, 0, -1)
    assert neighbours.admitting(pod("new", X), later=False) == 0b111
    neighbours.occupy(pod("old", X), 0, 1)
    assert neighbours.admitting(pod("new", EVENLY), later=False) == 0b110
    assert neighbours.admitting(pod("new", BESIDE), later=False) == 0b001
    neighbours.release(pod("old", X), 0, 1)
    assert neighbours.admitting(pod("new", EVENLY), later=False) == 0b111
    assert neighbours.admitting(pod("new", BESIDE), later=False) == 0b111


def test_no_pod_starts_beside_a_nominated_one_and_it_may_be_nominated_there() -> None:
    neighbours = three_nodes()
    nominee = pod("nominee", X)
    neighbours.occupy(nominee, 1, 1)
    neighbours.waiting = lambda: [(nominee, 1)]
    other = replace(BESIDE, labels=())
    assert neighbours.admitting(pod("new", other), later=False) == 0
    assert neighbours.admitting(pod("new", other), later=True) == 0b010


def test_a_pod_of_another_scheduler_is_no_blocker_that_can_be_evicted() -> None:
    neighbours = three_nodes(X)
    neighbours.occupy(pod("ours", X), 1, 1)
    wants = pod("wants", APART)
    assert [neighbours.blockers(wants, position) for position in range(3)] == [None, {"ours"}, set()]


def test_ports_conflict_by_protocol_and_address() -> None:
    at_one = HostPort(80, address="10.0.0.1")
    assert HostPort(80).conflicts(at_one)
    assert at_one.conflicts(HostPort(80))
    assert not at_one.conflicts(HostPort(80, address="10.0.0.2"))
    assert not HostPort(80).conflicts(HostPort(80, "UDP"))


def test_the_later_of_two_pods_that_exclude_each_other_is_broken() -> None:
    neighbours = three_nodes()
    first, second = pod("first", APART), pod("second", APART)
    placed = [(first, 0), (second, 0)]
    for one, position in placed:
        neighbours.occupy(one, position, 1)
    assert neighbours.first_broken(placed) is second
    assert neighbours.first_broken(placed[:1]) is first  # the other pod is already there
    assert neighbours.admitting(pod("third", APART), later=False) == 0b110
