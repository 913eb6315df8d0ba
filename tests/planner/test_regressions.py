"""Snapshots on which the planner was wrong once, or could be: each is settled, and the rules for plans are checked.

The files are for `muster simulate`. The first comment of each file describes the error.
"""

from collections import Counter, defaultdict
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from orchestrator.cli.main import muster
from orchestrator.planner import plan
from orchestrator.planner.cycle import ACTION_NAMES
from orchestrator.planner.model import Constraints, Plan, PodState, Snapshot
from orchestrator.simulation.reader import load
from orchestrator.simulation.run import settle
from tests.world.settling import Pace
from tests.world.settling import settle as settle_checked

FILES = sorted(Path(__file__).with_name("regressions").glob("*.yaml"))
NOT_MENDED = pytest.mark.xfail(strict=True, reason="docs/explanation/guarantees.md, known gaps")
MIGRATED_FOR_ANOTHER = pytest.mark.xfail(
    strict=True,
    reason="The GPUs that migrations free go to another workload in the next decision: one ahead in the queue that is "
    "beyond its share, or one that can reclaim only now. To see that in time, each migration needs a search for these.",
)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name.split(".")[0])
def test_a_snapshot_comes_to_rest_and_no_gpu_is_given_twice(path: Path) -> None:
    run = settle(load(path), max_decisions=20)
    assert run.is_stable, "the plan never came to rest"
    names = {
        pod.id: (each.id, pod.name)
        for snapshot in run.snapshots
        for each in snapshot.workloads
        for pod in each.pods
    }
    times = Counter(names[each.pod] for step in run.steps for each in step.evictions)
    assert all(count <= 2 for count in times.values()), "a pod is evicted again and again"
    assert_no_gpu_is_given_twice(run.after)
    for before, each in zip(run.before.workloads, run.after.workloads, strict=True):
        ran, runs = (sum(pod.state is PodState.ALLOCATED for pod in one.pods) for one in (before, each))
        had_lost_a_member = 0 < ran < each.min_member
        assert runs == 0 or runs >= each.min_member or had_lost_a_member, (
            f"{each.name} runs without what its gang needs"
        )
    again = plan(run.after)
    assert (again.bindings, again.evictions) == ((), ())


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name.split(".")[0])
def test_the_command_line_reads_the_file(path: Path) -> None:
    assert path.read_text().startswith("# "), "the first line says what the file is about"
    outcome = CliRunner().invoke(muster, ["simulate", str(path), "--until-stable"])
    assert outcome.exit_code == 0, outcome.output


def first_decision(name: str) -> Plan:
    return plan(load(Path(__file__).with_name("regressions") / f"{name}.yaml"))


def test_a_pod_within_quota_keeps_running_where_only_all_victims_together_take_the_quota() -> None:
    assert first_decision("quota-lost-piece-by-piece").evictions == ()


@pytest.mark.parametrize(
    ("name", "evicted", "moved"),
    [
        ("older-job-that-started-again", {"b/first"}, set()),
        ("hours-of-one-or-minutes-of-two", {"b/fresh1", "b/fresh2"}, set()),
        ("cpus-that-idle-gpus-need", {"b/hog"}, set()),
        ("one-eviction-and-a-move", {"batch/b2"}, {"protected/p2"}),
        ("covered-jobs-beside-a-borrowed-gang", {"p3/gang"}, set()),
        ("victims-that-leave-idle-gpus", {"q0/a"}, set()),
    ],
)
def test_the_victims_of_a_claim(name: str, evicted: set[str], moved: set[str]) -> None:
    decision = first_decision(name)
    gone = {each.workload: each.rule for each in decision.evictions}
    assert {each for each, rule in gone.items() if rule != "consolidation"} == evicted
    assert {each for each, rule in gone.items() if rule == "consolidation"} == moved


def test_of_the_devices_of_a_node_those_without_a_terminating_pod_are_taken() -> None:
    decision = first_decision("devices-of-a-node-are-not-alike")
    assert {each.devices for each in decision.nominations if each.workload == "p2/big"} == {(0, 3)}


def test_the_next_notebook_waits_for_the_quota_of_the_terminating_one() -> None:
    path = Path(__file__).with_name("regressions") / "quota-held-by-a-terminating-notebook.yaml"
    decision = plan(load(path))
    assert (decision.bindings, decision.evictions) == ((), ())
    assert [each.workload for each in decision.nominations] == ["p/p-3"]
    assert decision.pending["p/p-3"].message.endswith(
        "; quota of p: 2 GPUs are still held by terminating pods"
    )
    run = settle(load(path), max_decisions=20, grace_decisions=3)
    assert [each.pod for step in run.steps for each in step.bindings] == ["p/p-3/0"]
    assert not any(step.evictions for step in run.steps)


def test_the_running_pods_of_a_job_are_protected_beside_its_nomination() -> None:
    assert first_decision("running-pod-of-a-job-with-a-place").evictions == ()


def test_a_nomination_remains_with_its_owner_when_a_more_urgent_workload_evicts_others() -> None:
    decision = first_decision("promise-goes-to-a-victim")
    assert {(each.pod, each.node) for each in decision.bindings} >= {("w010-0+1", "n2"), ("w010-1+1", "n3")}
    assert {each.beneficiary for each in decision.evictions} == {"w011"}


def test_a_job_that_requires_a_rack_has_its_quota_by_an_eviction_and_moves() -> None:
    path = Path(__file__).with_name("regressions") / "quota-of-a-job-that-requires-a-rack.yaml"
    after = settle(load(path), max_decisions=20).after
    (claim,) = next(workload.pods for workload in after.workloads if workload.id == "w015")
    assert claim.state is PodState.ALLOCATED


def test_a_gang_reclaims_borrowed_gpus_where_smaller_victims_are_not_enough() -> None:
    decision = first_decision("quota-needs-the-larger-borrower")
    assert {each.workload for each in decision.evictions} == {"p/large"}
    assert Counter(each.workload for each in decision.nominations) == {"q/claim": 4}


def test_among_many_nodes_too_a_pod_within_quota_keeps_running_where_others_are_enough() -> None:
    snapshot = load(Path(__file__).with_name("regressions") / "quota-needs-the-larger-borrower.yaml")
    without_gpus = (replace(snapshot.nodes[0], name=f"c{number}", gpu_count=0) for number in range(20))
    decision = plan(replace(snapshot, nodes=(*snapshot.nodes, *without_gpus)))
    assert {each.workload for each in decision.evictions} == {"p/large"}
    assert Counter(each.workload for each in decision.nominations) == {"q/claim": 4}


def test_a_victim_keeps_running_where_a_later_preemptor_frees_gpus_for_its_nominee() -> None:
    decision = first_decision("room-that-a-later-claim-freed")
    assert {each.workload for each in decision.evictions} == {"large"}
    assert {(each.workload, each.node) for each in decision.nominations} == {
        ("first", "n1"),
        ("second", "n1"),
    }


@NOT_MENDED
def test_a_victim_is_nominated_to_gpus_that_a_later_preemptor_frees_beyond_its_need() -> None:
    snapshot = load(Path(__file__).with_name("regressions") / "room-that-a-later-claim-freed.yaml")
    here = Constraints(node_selector=(("place", "here"),))
    workloads = {each.id: each for each in snapshot.workloads}
    (second,) = workloads["second"].pods
    workloads["second"] = replace(workloads["second"], pods=(replace(second, constraints=here),))
    nodes = tuple(
        replace(each, labels={"place": "here"}) if each.name == "n0" else each for each in snapshot.nodes
    )
    decision = plan(replace(snapshot, nodes=nodes, workloads=tuple(workloads.values())))
    assert {each.workload for each in decision.evictions} == {"small", "large"}
    assert {(each.workload, each.node) for each in decision.nominations} >= {("small", "n1")}


def test_a_pod_migrated_for_an_elastic_job_is_not_evicted_while_that_job_waits_for_its_gpus() -> None:
    path = Path(__file__).with_name("regressions") / "moved-for-a-job-that-grows.yaml"
    run = settle(load(path), max_decisions=20, grace_decisions=5)
    bound = next(
        number
        for number, step in enumerate(run.steps)
        if step.bindings and step.bindings[0].workload == "grows"
    )
    lost = [
        number for number, step in enumerate(run.steps) for each in step.evictions if each.workload == "moved"
    ]
    assert lost[0] == 0
    assert all(number >= bound for number in lost[1:])


def test_a_nominee_keeps_its_gpus_where_a_more_urgent_workload_is_served_later() -> None:
    decision = first_decision("room-kept-for-urgent-work-of-a-later-tier")
    assert {each.workload for each in decision.bindings} == {"urgent", "more-urgent"}
    assert [(each.workload, each.node) for each in decision.nominations] == [("nominee", "n2")]


def test_shares_do_not_fall_while_a_successor_is_not_there_yet() -> None:
    decision = first_decision("share-of-what-leaves-before-its-successor")
    assert "claim" in {each.workload for each in decision.nominations}
    assert "small" not in {each.workload for each in decision.nominations}


def test_repacking_keeps_a_pod_within_quota_where_its_eviction_does_not_help() -> None:
    path = Path(__file__).with_name("regressions") / "quota-needs-the-borrowers-and-a-move.yaml"
    after = settle(load(path), max_decisions=20).after
    (claim,) = next(workload.pods for workload in after.workloads if workload.id == "claim")
    assert claim.state is PodState.ALLOCATED


def test_nominated_fractions_wait_until_less_is_used_than_a_lost_gpu_leaves() -> None:
    decision = first_decision("promised-parts-on-a-node-that-lost-a-gpu")
    assert (decision.bindings, len(decision.nominations)) == ((), 5)


def test_a_nomination_to_the_last_gpu_is_kept_while_enough_others_are_unused_for_a_lost_one() -> None:
    decision = first_decision("room-on-the-last-gpu-beside-a-lost-one")
    assert [each.devices for each in (*decision.bindings, *decision.nominations)] == [(3,)]


def test_a_nomination_remains_with_a_pod_of_which_a_sibling_waits_without() -> None:
    decision = first_decision("room-of-a-pod-that-is-not-the-first")
    assert [(each.workload, each.pod, each.devices) for each in decision.bindings] == [
        ("p/low", "p/low/1", (0,))
    ]


def test_a_job_that_prefers_a_zone_has_its_quota_by_an_eviction_that_allows_a_migration() -> None:
    decision = first_decision("quota-of-a-job-that-prefers-a-zone")
    assert {each.workload for each in decision.nominations} == {"p0/claim", "p1/covered"}


def test_a_gang_with_sub_groups_has_its_quota_by_an_eviction_that_allows_a_migration() -> None:
    decision = first_decision("quota-of-a-gang-with-sub-groups")
    assert Counter(each.workload for each in decision.nominations) == {"p0/claim": 3, "p1/fraction": 1}


def test_two_nominations_of_one_workload_pass_to_two_others_and_no_pod_is_evicted() -> None:
    decision = first_decision("rooms-of-one-go-to-two")
    assert decision.evictions == ()
    assert {each.workload for each in decision.nominations} == {"p/first", "p/second"}


def test_a_nominee_leaves_free_gpus_to_more_urgent_workloads_of_its_project() -> None:
    decision = first_decision("urgent-work-beside-a-room")
    assert [each.workload for each in decision.bindings] == ["p/urgent"]
    assert [(each.workload, each.node) for each in decision.nominations] == [("p/older", "n1")]


def test_a_waiting_nominee_keeps_its_gpus_where_a_younger_workload_was_nominated_in_the_same_decision() -> (
    None
):
    decision = first_decision("room-promised-in-the-same-decision")
    places = {each.workload: each.node for each in decision.nominations}
    assert places["fair/nominee"] == places["owner/claim"] == "n1"


def test_of_several_victims_the_most_entitled_gets_the_placement() -> None:
    decision = first_decision("place-goes-to-the-better-claim")
    assert {each.workload for each in decision.evictions} == {"fair/younger", "borrower/older"}
    assert [each.workload for each in decision.nominations if each.node == "n0"] == ["fair/younger"]


def test_an_evicted_pod_loses_its_nomination_and_the_older_victim_is_evicted_too() -> None:
    decision = first_decision("promised-room-beside-an-older-victim")
    assert {each.pod for each in decision.evictions} == {"fair/pair/0", "borrower/older/0"}
    assert [each.pod for each in decision.nominations if each.node == "n0"] == ["fair/pair/0"]


@NOT_MENDED
def test_an_evicted_pod_keeps_a_nomination_that_no_other_pod_takes() -> None:
    decision = first_decision("promised-room-beside-an-older-victim")
    assert [each.pod for each in decision.nominations if each.node == "n0"] == ["fair/pair/1"]


def test_no_pod_is_migrated_for_a_workload_whose_gpus_a_more_entitled_one_gets() -> None:
    decision = first_decision("moved-before-a-better-claim")
    assert {each.beneficiary for each in decision.evictions} == {"right/gang"}


def test_a_quota_is_had_by_three_moves_that_only_help_together() -> None:
    decision = first_decision("quota-needs-cpus-packed-anew")
    assert Counter(each.workload for each in decision.nominations)["owner/claim"] == 3
    assert {each.rule for each in decision.evictions} == {"consolidation"}


def test_a_pod_back_with_its_gang_keeps_its_nomination_when_nodes_are_repacked() -> None:
    """A quota covers w023, which gets the GPUs of w021, but not w030, which has a higher priority in its project."""
    decision = first_decision("place-taken-for-nothing-by-packing-anew")
    assert ("w021-0", "w023") in {(each.pod, each.beneficiary) for each in decision.evictions}
    assert {each.workload for each in decision.nominations} >= {"w023"}


@pytest.mark.parametrize("grace_decisions", [0, 1, 5])
def test_no_pod_is_evicted_twice_for_an_elastic_workload(grace_decisions: int) -> None:
    path = Path(__file__).with_name("regressions") / "second-pod-takes-the-place-of-the-moved.yaml"
    run = settle(load(path), max_decisions=20, grace_decisions=grace_decisions)
    evicted = Counter(each.workload for step in run.steps for each in step.evictions)
    assert evicted == {"borrower/single": 1, "borrower/part": 1, "borrower/trio": 3}


def test_a_department_lends_the_newest_workloads_of_all_its_projects() -> None:
    decision = first_decision("department-lends-what-came-last")
    assert {eviction.workload for eviction in decision.evictions} == {"w011"}
    assert {nomination.workload for nomination in decision.nominations} == {"w007"}


def test_an_urgent_workload_beyond_the_fair_share_evicts_no_pod_within_quota() -> None:
    decision = first_decision("loop-priority-beyond-the-share")
    assert decision.evictions == ()
    assert {binding.workload for binding in decision.bindings} == {"w005", "w006"}


def test_a_pod_within_the_share_is_not_evicted_for_the_excess_of_a_sibling() -> None:
    path = Path(__file__).with_name("regressions") / "loop-sibling-beyond-its-share.yaml"
    run = settle(load(path), max_decisions=20, grace_decisions=1)
    assert run.is_stable
    assert Counter(each.workload for step in run.steps for each in step.evictions) == {"w013": 1, "w015": 2}


def test_the_elastic_pods_of_a_job_are_evicted_with_it_and_count_as_lost() -> None:
    decision = first_decision("quota-lost-with-what-grows")
    assert "w019" not in {each.workload for each in decision.evictions}


def test_the_rest_of_a_stale_gang_counts_as_lost() -> None:
    snapshot = load(Path(__file__).with_name("regressions") / "quota-lost-with-a-stale-gang.yaml")
    decision = plan(snapshot, ACTION_NAMES - {"consolidate"})
    assert [(each.workload, each.rule) for each in decision.evictions] == [("w012", "quota")]
    moved = {each.pod for each in plan(snapshot).nominations}
    lost = [each.workload for each in plan(snapshot).evictions if each.pod not in moved]
    assert lost == ["w012"]


def test_the_nomination_of_a_migrated_pod_ends_with_its_gang_and_counts_as_lost() -> None:
    path = Path(__file__).with_name("regressions") / "quota-lost-with-a-moved-pod.yaml"
    run = settle(load(path), max_decisions=20, grace_decisions=1)
    lost = {(each.pod, each.rule) for step in run.steps for each in step.evictions if each.workload == "w004"}
    assert lost == {("w004-0", "consolidation")}


def test_a_victim_that_fits_beside_all_results_is_not_evicted() -> None:
    decision = first_decision("victim-that-need-not-go")
    assert {each.workload for each in decision.evictions} == {"w008"}
    assert {each.workload for each in decision.nominations} == {"w009"}


def test_a_nominee_of_this_decision_loses_its_gpus_before_an_older_nominee() -> None:
    decision = first_decision("room-beside-one-promised-now")
    assert "w028" in {each.workload for each in decision.nominations}


def test_a_gang_of_parts_of_two_gpus_has_its_quota_where_no_two_pods_share_both() -> None:
    decision = first_decision("quota-of-a-gang-of-parts-of-two-gpus")
    assert [each.workload for each in decision.evictions] == ["w005"]
    assert len({each.devices for each in decision.nominations if each.workload == "w007"}) == 3


def test_a_quota_is_had_by_four_moves() -> None:
    path = Path(__file__).with_name("regressions") / "quota-needs-four-moves.yaml"
    run = settle(load(path), max_decisions=20)
    assert {eviction.rule for eviction in run.steps[0].evictions} == {"consolidation"}
    assert {eviction.workload for eviction in run.steps[0].evictions} == {"w010", "w011", "w016", "w018"}
    (claim,) = next(workload.pods for workload in run.after.workloads if workload.id == "w017")
    assert claim.state is PodState.ALLOCATED


def test_a_gang_that_requires_a_rack_has_its_quota_by_moves_that_only_help_together() -> None:
    path = Path(__file__).with_name("regressions") / "quota-of-a-gang-that-requires-a-rack.yaml"
    after = settle(load(path), max_decisions=20).after
    pods = next(workload.pods for workload in after.workloads if workload.id == "w014")
    assert [pod.node for pod in pods] == ["n0", "n0", "n0"]


def test_nothing_is_reserved_any_more_for_a_pod_that_started_in_the_same_decision() -> None:
    decision = first_decision("room-kept-for-work-that-started")
    assert {(each.pod, each.node) for each in decision.bindings} >= {("w020-0", "n0"), ("w020-1", "n1")}


@NOT_MENDED
def test_a_workload_that_loses_the_nomination_of_its_first_pod_keeps_the_others() -> None:
    decision = first_decision("room-that-nobody-took")
    assert [each.node for each in decision.nominations if each.workload == "w020"] == ["n1"]


def test_the_pod_that_starts_first_gets_the_usable_nomination() -> None:
    decision = first_decision("room-goes-to-the-first-pod")
    assert [(each.pod, each.node) for each in decision.bindings] == [("w025-0", "n1")]


@NOT_MENDED
def test_a_gang_keeps_its_nomination_where_this_decision_frees_gpus_for_its_other_pod() -> None:
    decision = first_decision("room-of-a-gang-beside-what-was-freed")
    assert [each.node for each in decision.nominations if each.workload == "w007"] == ["n2", "n1"]


def test_no_nominee_loses_its_gpus_to_workloads_for_which_a_stale_gang_is_evicted() -> None:
    decision = first_decision("rooms-beside-a-stale-gang")
    assert {each.rule for each in decision.evictions} == {"stale-gang"}
    assert {each.workload for each in decision.bindings} == {"w022"}
    assert {each.workload for each in decision.nominations} == {"w018", "w023"}


def test_the_nomination_of_a_migrated_pod_of_a_stale_gang_ends_with_it() -> None:
    decision = first_decision("rooms-beside-a-stale-gang")
    assert "w014-2" not in {each.pod for each in decision.nominations}


@NOT_MENDED
def test_a_workload_that_an_eviction_puts_within_quota_precedes_unentitled_ones() -> None:
    decision = first_decision("within-quota-by-an-eviction")
    assert {each.beneficiary for each in decision.evictions} == {"w011", "w004"}
    assert [each.node for each in decision.nominations if each.workload == "w004"] == ["n1"]


def test_a_kept_victim_counts_in_the_limits_of_the_nominee_of_its_devices() -> None:
    path = Path(__file__).with_name("regressions") / "limit-beside-who-was-spared.yaml"
    assert not settle_checked(load(path), Pace()).violations


def test_a_workload_that_is_no_longer_within_quota_migrates_no_others() -> None:
    path = Path(__file__).with_name("regressions") / "turn-of-whom-the-quota-covers-no-more.yaml"
    first, second = settle(load(path), max_decisions=2).steps
    assert "w01" in {each.workload for each in first.bindings}
    assert second.evictions == ()


def test_no_nominee_loses_its_gpus_because_less_urgent_workloads_of_its_project_got_some_meanwhile() -> None:
    path = Path(__file__).with_name("regressions") / "room-taken-for-what-started-behind.yaml"
    run = settle(load(path), max_decisions=40, grace_decisions=5)
    assert [each.beneficiary for step in run.steps for each in step.evictions if each.pod == "w013-0"] == [
        "w020"
    ]
    assert sum(each.beneficiary == "w020" for step in run.steps[1:] for each in step.evictions) == 0


def test_a_quota_is_had_where_nearly_everything_is_packed_anew() -> None:
    path = Path(__file__).with_name("regressions") / "quota-needs-all-packed-anew.yaml"
    after = settle(load(path), max_decisions=20).after
    assert all(pod.state is PodState.ALLOCATED for workload in after.workloads for pod in workload.pods)


def test_a_nominee_that_cannot_start_elsewhere_keeps_its_own_gpus() -> None:
    decision = first_decision("room-of-its-own-after-a-better-start")
    assert [each.node for each in decision.nominations if each.workload == "w009"] == ["n1"] * 3


def test_a_rescheduled_victim_starts_on_its_new_node() -> None:
    decision = first_decision("room-passed-on-by-a-nominee")
    assert {each.pod: each.node for each in decision.bindings}["w015-1"] == "n3"


def test_shares_are_the_same_whether_work_waits_or_runs() -> None:
    path = Path(__file__).with_name("regressions") / "share-that-rises-when-work-starts.yaml"
    run = settle(load(path), max_decisions=20)
    assert len({plan(snapshot).shares_gpu_milli["p1"] for snapshot in run.snapshots}) == 1


def test_a_job_evicts_for_its_next_pods_only_when_the_first_have_their_place() -> None:
    path = Path(__file__).with_name("regressions") / "grows-before-its-first-pod-has-started.yaml"
    # the grace periods of its victims must differ
    assert not settle_checked(load(path), Pace(5, is_mixed=True)).violations


@pytest.mark.parametrize(
    ("name", "pace"),
    [
        ("places-of-one-of-which-one-is-needed", Pace(5)),
        ("place-taken-for-nothing-by-packing-anew", Pace(5, is_mixed=True)),
        ("gang-goes-for-the-model-of-one-pod", Pace(1, is_mixed=True)),
        ("share-of-what-leaves-after-its-successor", Pace(5, is_mixed=True)),
        ("stale-gang-that-is-moved-whole", Pace(3, is_mixed=True)),
        ("gang-on-its-way-beyond-the-quota", Pace(5, is_mixed=True)),
        ("nominee-that-started-elsewhere-is-evicted", Pace(1, is_mixed=True)),
        ("rearranged-beside-its-own-nomination", Pace(1, is_mixed=True)),
        ("quota-of-a-model-for-the-first-of-two", Pace(3, is_mixed=True)),
        ("surplus-for-one-and-the-rest-for-another", Pace()),
        ("started-and-made-way-in-one-decision", Pace()),
        ("elastic-job-with-a-place-and-a-minimum-runtime", Pace(3, is_mixed=True)),
        ("room-lost-by-a-rule-that-did-not-last", Pace(5, is_mixed=True)),
        ("rearranged-and-granted-in-part", Pace(5, is_mixed=True)),
        ("place-beside-a-lost-gpu-and-a-victim", Pace(0, is_mixed=True)),
        ("gang-that-is-partly-on-a-closed-node", Pace(0, is_mixed=True)),
        ("started-in-the-places-of-a-nominee", Pace(0, is_mixed=True)),
        ("slot-of-an-older-nominee", Pace(1)),
        ("affinity-to-each-other-only", Pace(1)),
        ("affinity-to-a-migrated-pod", Pace(5, is_mixed=True)),
        pytest.param("moved-twice-for-one-job", Pace(5, is_mixed=True), marks=MIGRATED_FOR_ANOTHER),
        pytest.param("moved-twice-for-parts-of-two", Pace(1, is_late=True), marks=MIGRATED_FOR_ANOTHER),
        pytest.param("limit-taken-from-who-was-moved", Pace(5, is_mixed=True), marks=NOT_MENDED),
        pytest.param("promise-beside-a-lost-gpu", Pace(5, is_mixed=True), marks=NOT_MENDED),
        ("covered-before-a-sibling-takes", Pace()),
        ("moved-then-evicted-for-one", Pace()),
        ("nomination-beside-a-withdrawn-start", Pace(3, is_mixed=True)),
        ("nomination-of-the-first-of-a-group", Pace(is_mixed=True)),
        ("nomination-of-the-first-without-room", Pace(1, is_late=True)),
        ("overtaken-after-an-eviction-for-its-share", Pace(0, is_mixed=True)),
        ("reserved-beyond-the-quota", Pace()),
        ("first-of-a-group-beside-its-victim", Pace(5, is_mixed=True)),
        ("nominated-beside-a-kept-victim", Pace(1, is_mixed=True)),
        pytest.param(
            "nominated-beside-a-start-elsewhere", Pace(is_mixed=True, is_failing=True), marks=NOT_MENDED
        ),
        ("nominated-beside-a-withdrawn-start", Pace()),
        ("start-before-a-spread-nominee", Pace(5, is_mixed=True)),
        ("started-beside-a-spread-nominee", Pace(5, is_mixed=True, is_late=True)),
    ],
)
def test_every_decision_on_a_world_of_a_soak_passes_its_checks(name: str, pace: Pace) -> None:
    path = Path(__file__).with_name("regressions") / f"{name}.yaml"
    assert not settle_checked(load(path), pace).violations


def assert_no_gpu_is_given_twice(snapshot: Snapshot) -> None:
    used: dict[tuple[str | None, int], int] = defaultdict(int)
    nodes = {each.name: each for each in snapshot.nodes}
    for each in snapshot.workloads:
        for pod in each.pods:
            if pod.state is PodState.ALLOCATED and pod.node in nodes:
                node = nodes[pod.node]
                for device in pod.devices:
                    assert device < node.gpu_count
                    used[pod.node, device] += pod.request.portion_milli(node.gpu_memory_mib)
    assert all(amount <= 1000 for amount in used.values())
