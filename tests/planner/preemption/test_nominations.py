"""A nominated placement belongs to its pod from decision to decision, until the pod is bound there."""

from collections.abc import Iterable
from dataclasses import replace

import pytest

from orchestrator.planner import plan
from orchestrator.planner.model import Binding, Plan, Pod, PodState, Snapshot, Workload
from orchestrator.planner.settings import Settings
from tests.planner.builders import node, project, workload
from tests.planner.test_better import running

TEAMS = (project("a", 4000), project("b", 0), project("c", 4000, priority=1))


def decide(nodes: Iterable[str], *work: Workload, settings: Settings | None = None) -> Plan:
    return plan(Snapshot(tuple(node(name, 4) for name in nodes), TEAMS, work, 0, settings or Settings()))


def leaving(old: Workload, to: str | None = None, *devices: int) -> Workload:
    """Return the running workload with all its pods terminating; their successors are nominated to one device each on
    `to`.
    """
    pods = tuple(
        replace(
            pod,
            state=PodState.RELEASING,
            nominated_node=to,
            nominated_devices=devices[index : index + 1] if len(old.pods) > 1 else devices,
        )
        for index, pod in enumerate(old.pods)
    )
    return replace(old, pods=pods)


def nominated(new: Workload, to: str, *devices: int) -> Workload:
    (pod,) = new.pods
    return replace(new, pods=(replace(pod, nominated_node=to, nominated_devices=devices),))


def successors(old: Workload, count: int) -> tuple[Pod, ...]:
    """Return the pending pods that the controller created instead of the first pods of the workload."""
    return tuple(
        replace(
            pod,
            id=f"{pod.id}-next",
            name=f"{pod.name}-next",
            state=PodState.PENDING,
            node=None,
            devices=(),
            nominated_node=None,
            nominated_devices=(),
        )
        for pod in old.pods[:count]
    )


def places(bindings: Iterable[Binding]) -> dict[str, tuple[str, tuple[int, ...]]]:
    return {binding.pod: (binding.node, binding.devices) for binding in bindings}


def test_while_gpus_are_released_only_their_nominee_gets_them() -> None:
    """The rival's project comes first in the queue order, and the quota of this project covers the rival too."""
    old = leaving(running(workload("old", "b", 4000), "n1"))
    decision = decide(
        ["n1"],
        old,
        nominated(workload("new", "a", 4000, age=2), "n1", 0, 1, 2, 3),
        workload("rival", "c", 4000, age=1),
    )
    assert places(decision.nominations) == {"new-0": ("n1", (0, 1, 2, 3))}
    assert (decision.bindings, decision.evictions) == ((), ())


def test_nominated_gpus_that_are_free_by_now_are_bound_before_all_other_steps() -> None:
    new = nominated(workload("new", "a", 4000, age=2), "n1", 0, 1, 2, 3)
    decision = decide(["n1"], new, workload("rival", "c", 4000, age=1))
    assert places(decision.bindings) == {"new-0": ("n1", (0, 1, 2, 3))}


def test_a_nominee_is_bound_at_its_nomination_and_not_where_it_would_fit_best() -> None:
    """The first node is fuller, so a search would choose it."""
    busy = running(workload("busy", "c", 2000, interactive=True), "n1")
    decision = decide(["n1", "n2"], busy, nominated(workload("new", "a", 2000), "n2", 2, 3))
    assert places(decision.bindings) == {"new-0": ("n2", (2, 3))}


def test_a_nominee_starts_at_once_on_other_free_gpus() -> None:
    old = leaving(running(workload("old", "b", 4000), "n1"))
    decision = decide(["n1", "n2"], old, nominated(workload("new", "a", 4000), "n1", 0, 1, 2, 3))
    assert places(decision.bindings) == {"new-0": ("n2", (0, 1, 2, 3))}
    assert decision.nominations == ()


def test_the_older_workload_keeps_its_nomination_if_gpus_are_missing() -> None:
    """Both workloads were nominated to the same two devices, because two others of the node are in use."""
    old = leaving(running(workload("old", "b", 2000), "n1"))
    busy = running(workload("busy", "c", 2000, interactive=True), "n1", 2)
    younger = nominated(workload("a-younger", "a", 2000, age=2), "n1", 0, 1)
    older = nominated(workload("b-older", "a", 2000, age=1), "n1", 0, 1)
    decision = decide(["n1"], old, busy, younger, older)
    assert places(decision.nominations) == {"b-older-0": ("n1", (0, 1))}


def test_the_pod_that_a_controller_makes_next_has_the_place_that_is_kept() -> None:
    old = leaving(running(workload("moved", "a", 2000), "n1"), "n2", 2, 3)
    busy = running(workload("busy", "c", 2000, interactive=True), "n2")
    rival = workload("rival", "c", 2000)
    decision = decide(["n1", "n2"], replace(old, pods=(*old.pods, *successors(old, 1))), busy, rival)
    assert places(decision.bindings).get("moved-0-next") == ("n2", (2, 3))


@pytest.mark.parametrize("count", [0, 1], ids=["none", "one"])
def test_nominations_of_a_gang_are_kept_while_its_pods_are_not_all_made_again(count: int) -> None:
    old = leaving(running(workload("gang", "a", 1000, pods=2, gang=True), "n1"), "n2", 2, 3)
    others = [
        running(workload("busy", "c", 2000, interactive=True), "n1", 2),
        running(workload("more", "c", 2000), "n2"),
    ]
    rival = workload("rival", "b", 2000)
    decision = decide(["n1", "n2"], replace(old, pods=(*old.pods, *successors(old, count))), *others, rival)
    assert decision.bindings == ()
    held_on_n2 = {place for place in places(decision.nominations).values() if place[0] == "n2"}
    assert held_on_n2 == {("n2", (2,)), ("n2", (3,))}


@pytest.mark.parametrize("cap", [None, 0])
def test_a_more_entitled_workload_takes_a_nominees_gpus_without_an_eviction(cap: int | None) -> None:
    old = leaving(running(workload("old", "b", 4000), "n1"))
    nominee = nominated(workload("nominee", "b", 4000, age=1), "n1", 0, 1, 2, 3)
    new = workload("new", "a", 4000, age=2)
    decision = decide(["n1"], old, nominee, new, settings=Settings(max_evictions=cap))
    assert decision.evictions == ()
    assert places(decision.nominations) == {"new-0": ("n1", (0, 1, 2, 3))}


def test_a_nominee_loses_its_gpus_before_any_running_pod() -> None:
    """The running pod is younger, so of two running pods it would be the victim."""
    old = leaving(running(workload("old", "b", 2000), "n1"))
    runs = running(workload("runs", "b", 2000), "n1", 2, started=9)
    nominee = nominated(workload("nominee", "b", 2000, age=1), "n1", 0, 1)
    decision = decide(["n1"], old, runs, nominee, workload("new", "a", 2000, age=10))
    assert decision.evictions == ()
    assert places(decision.nominations) == {"new-0": ("n1", (0, 1))}


def test_gpus_that_evictions_free_beyond_the_need_are_nominated_at_once() -> None:
    """A gang of four is evicted for one device. The other three are nominated to workloads that may not evict any pod
    yet.
    """
    gang = running(workload("gang", "b", 1000, pods=4, gang=True), "n1")
    late = replace(workload("late", "c", 3000), evicts_from_us=100)
    decision = plan(Snapshot((node("n1", 4),), TEAMS, (gang, workload("new", "a", 1000), late), 50))
    assert {eviction.beneficiary for eviction in decision.evictions} == {"new"}
    assert set(places(decision.nominations)) == {"new-0", "late-0"}


def test_nominated_gpus_that_are_still_used_are_freed_before_the_free_ones_are_given_away() -> None:
    """The operator ended after writing the nomination and before requesting the eviction."""
    projects = (project("a", 2000), project("b", 2000, over_quota_weight=0))
    borrowed = running(workload("borrowed", "b", 1000), "node-1", 0, started=2)
    covered = running(workload("covered", "b", 2000), "node-2", 0)
    large = workload("large", "a", 2000, age=5)
    promised = replace(
        large, pods=(replace(large.pods[0], nominated_node="node-1", nominated_devices=(0, 1)),)
    )
    small = workload("small", "a", 1000, age=1)
    nodes = (node("node-1", 2), node("node-2", 2))
    decision = plan(Snapshot(nodes, projects, (borrowed, covered, promised, small)))
    assert [eviction.pod for eviction in decision.evictions] == ["borrowed-0"]
    assert [nomination.pod for nomination in decision.nominations] == ["large-0"]
    assert decision.bindings == ()


def test_the_nomination_of_half_a_gang_ends_when_the_other_half_is_evicted_for_good() -> None:
    """The half could never start alone, so others can use its placement in the same decision."""
    gang = running(workload("gang", "b", 1000, pods=2, gang=True), "n1")
    half = replace(gang.pods[0], state=PodState.RELEASING, nominated_node="n2", nominated_devices=(3,))
    decision = decide(
        ["n1", "n2"],
        replace(gang, pods=(half, gang.pods[1])),
        running(workload("busy", "c", 2000, interactive=True), "n1", 2),
        running(workload("full", "a", 3000, interactive=True), "n2"),
        nominated(workload("next", "c", 1000, age=1), "n1", 0),
        workload("new", "a", 1000, age=2),
    )
    assert {each.pod for each in decision.evictions} == {"gang-1"}
    assert places(decision.nominations) == {"new-0": ("n1", (1,))}
    assert places(decision.bindings) == {"next-0": ("n2", (3,))}


def test_the_rest_of_a_gang_is_not_moved_before_those_that_were_moved_first_run_again() -> None:
    """If the rest were migrated in the next decision, the pods that had just restarted would lose their placement."""
    gang = running(workload("gang", "b", 1000, pods=2, gang=True), "n1")
    back = replace(
        gang.pods[1],
        state=PodState.PENDING,
        node=None,
        devices=(),
        nominated_node="n2",
        nominated_devices=(3,),
    )
    decision = decide(
        ["n1", "n2"],
        replace(gang, pods=(gang.pods[0], back)),
        running(workload("busy", "c", 1000, interactive=True), "n2"),
        workload("large", "b", 4000, age=1),
    )
    assert places(decision.bindings) == {"gang-1": ("n2", (3,))}
    assert decision.evictions == ()


def test_a_migrated_pod_that_loses_its_nomination_is_evicted_for_the_preemptor_of_its_gang() -> None:
    """The pod's eviction names the workload that finally uses its placement, not the one for which it was migrated."""
    gang = running(workload("gang", "a", 300, pods=4, gang=True), "n1")
    on = {"gang-0": (0,), "gang-1": (2,), "gang-2": (2,), "gang-3": (2,)}
    decision = decide(
        ["n1"],
        replace(gang, pods=tuple(replace(pod, devices=on[pod.id]) for pod in gang.pods)),
        running(workload("part", "a", 400, interactive=True), "n1", 0),
        running(workload("half", "a", 600, interactive=True), "n1", 1),
        running(workload("busy", "c", 1000, interactive=True), "n1", 3),
        workload("small", "a", 600, age=2),
        workload("urgent", "a", 1000, priority=100, age=3),
    )
    assert places(decision.nominations) == {"small-0": ("n1", (0,)), "urgent-0": ("n1", (2,))}
    assert {each.pod: each.beneficiary for each in decision.evictions} == dict.fromkeys(on, "urgent")
    assert {each.rule for each in decision.evictions} == {"priority"}


def test_a_nominee_keeps_its_free_seat_when_an_eviction_alone_is_not_enough() -> None:
    """The rival needs a whole node. On the other node, the nominated pod would wait for terminating pods."""
    firm = running(workload("firm", "a", 2000, age=1, preemptible=False), "n1", 0)
    old = running(workload("old", "b", 2000, age=1), "n1", 2)
    other = running(workload("other", "b", 2000, age=1), "n2", 2)
    new = nominated(workload("new", "a", 2000, age=2), "n2", 0, 1)
    decision = decide(["n1", "n2"], firm, old, other, new, workload("rival", "c", 4000, age=3))
    assert places(decision.bindings) == {"new-0": ("n2", (0, 1))}
    assert decision.evictions == ()
