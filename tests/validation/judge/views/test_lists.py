"""The lists that the orchestrator shows, compared with the state: each difference is named, and two judges agree."""

import json
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.validation.second_judge import World
from tests.validation.second_judge_views import is_shown
from tests.validation.shown import (
    Rows,
    shown_jobs,
    shown_nodes,
    shown_overview,
    shown_projects,
    shown_table,
)
from validation.judge.check_verdict import Circumstances, Window
from validation.judge.events import (
    AnswerSeen,
    Cause,
    CommandRun,
    Event,
    NodeSeen,
    PodSeen,
    ProjectDeleted,
    ProjectSet,
)
from validation.judge.evidence import Evidence
from validation.judge.state import State, fold
from validation.judge.timeline import Timeline
from validation.judge.verdict import Verdict
from validation.judge.views.job_table import COLUMNS, rows_of_table
from validation.judge.views.lists import (
    JOBS,
    NODES,
    OVERVIEW,
    PROJECTS,
    TABLE,
    VIEWS,
    ViewResult,
    is_view,
    judge_view,
    only_judged,
    view_of,
)

LEAST = Evidence(2, 16, 1, 1)


def pod(name: str, project: str = "team-a", **fields: Any) -> PodSeen:
    workload = name.rpartition("-")[0]
    known: dict[str, Any] = {
        "t_ms": 3,
        "change": "added",
        "uid": f"uid-{name}",
        "namespace": f"muster-{project}",
        "project": project,
        "workload": workload,
        "pod": name,
        "phase": "Running",
        "node": "n1",
        "devices": (0,),
        "gpu_milli": 1000,
    }
    return PodSeen(**(known | fields))


WORLD: list[Event] = [
    NodeSeen(0, "n1", 8),
    NodeSeen(0, "n2", 8),
    NodeSeen(0, "control", 0),
    ProjectSet(1, "team-a", 4000),
    ProjectSet(1, "team-b", 2500),
    CommandRun(2, "submit", "team-a", ("train", "part", "late")),
    CommandRun(2, "submit", "team-b", ("wait",)),
    pod("train-0", devices=(0, 1), gpu_milli=2000),
    pod("train-1", node="n2", devices=(3, 4), gpu_milli=2000),
    pod("part-0", devices=(2,), gpu_milli=500, preemptible=False, priority=100),
    pod("wait-0", "team-b", phase="Pending", node="", devices=()),
    pod("foreign-0", "else", devices=(5,)),
]


def cells(state: State) -> Rows:
    """Return the cells of the table of jobs, by column in lower case."""
    return [dict(row) for row in rows_of_table(shown_table(shown_jobs(state))) or []]


SHOWN = {
    JOBS: shown_jobs,
    TABLE: cells,
    NODES: shown_nodes,
    PROJECTS: shown_projects,
    OVERVIEW: shown_overview,
}


def shown(name: str) -> Rows:
    """Return the honest list, without the job of a project that the run did not create."""
    return SHOWN[name](fold(WORLD))


def judged(
    name: str,
    rows: object,
    *,
    exit_code: int = 0,
    problem: str = "",
    least: Evidence = LEAST,
    before: Sequence[Event] = (),
    more: Sequence[Event] = (),
) -> ViewResult:
    """Return the judgement on a list. The events `before` precede the command, and `more` happen while it runs."""
    output = rows if isinstance(rows, str) else json.dumps(rows)
    events = [*WORLD, *before, *more, AnswerSeen(9, name, view_of(name).line, exit_code, output, problem)]
    window = Window(0, len(WORLD) + len(before), len(events), 8, 9)
    return judge_view(name, Circumstances(), Timeline(events), window, least=least)


OF_NOW = sorted(set(VIEWS) - {"analytics"})
"""The views of the present. test_analytics.py tests the view over time."""


@pytest.mark.parametrize("name", OF_NOW)
def test_an_honest_list_passes(name: str) -> None:
    assert judged(name, shown(name)).judgement.verdict == Verdict.PASS


def changed(index: int, **fields: Any) -> Callable[[Rows], None]:
    return lambda rows: rows[index].update(fields)


def without(index: int) -> Callable[[Rows], None]:
    def remove(rows: Rows) -> None:
        del rows[index]

    return remove


def part(name: str, /, **fields: Any) -> Callable[[Rows], None]:
    """Return a function that changes fields of the first row of that part of a page."""
    return lambda rows: next(row for row in rows if row["of"] == name).update(fields)


def figure(name: str, value: str) -> Callable[[Rows], None]:
    return lambda rows: next(row for row in rows if row.get("figure") == name).update(value=value)


LIES = [
    (JOBS, without(0), "job team-a/late is missing"),
    (JOBS, lambda rows: rows.append(rows[0]), "job team-a/late is there twice"),
    (JOBS, lambda rows: rows.append(rows[0] | {"name": "ghost"}), "there is no job team-a/ghost"),
    (JOBS, changed(2, status="Pending"), 'team-a/train: status is "Pending", not "Running"'),
    (JOBS, changed(3, status="Running"), 'team-b/wait: status is "Running", not "Pending"'),
    (JOBS, changed(2, gpusAllocated="3"), 'team-a/train: gpusAllocated is "3", not 4'),
    (JOBS, changed(1, gpus="0.501"), 'team-a/part: gpus is "0.501", not 0.5'),
    (JOBS, changed(2, nodes=["n1"]), 'team-a/train: nodes is ["n1"], not ["n1", "n2"]'),
    (JOBS, changed(1, type="Train"), 'team-a/part: type is "Train", not "Interactive"'),
    (JOBS, changed(2, user=""), "team-a/train: there is no user"),
    (JOBS, changed(2, durationSeconds=-1), "team-a/train: durationSeconds is -1"),
    (JOBS, changed(2, instances=[]), "team-a/train: a pod on n1 with GPUs 0,1 is not shown so"),
    (TABLE, without(0), "job team-a/late is missing"),
    (TABLE, lambda rows: rows.append(rows[0]), "job team-a/late is there twice"),
    (TABLE, changed(2, status="Pending"), 'team-a/train: status is "Pending", not "Running"'),
    (TABLE, changed(3, status="Running"), 'team-b/wait: status is "Running", not "Pending"'),
    (TABLE, changed(2, gpus="3"), 'team-a/train: gpus is "3", not 4'),
    (TABLE, changed(1, node="n2"), 'team-a/part: node is "n2", not "n1"'),
    (TABLE, changed(1, type="Train"), 'team-a/part: type is "Train", not "Interactive"'),
    (TABLE, changed(2, type="Interactive"), "team-a/train: type is Interactive, and it can be preempted"),
    (TABLE, changed(2, user="-"), 'team-a/train: user is "-"'),
    (TABLE, changed(2, image=""), 'team-a/train: image is ""'),
    (TABLE, changed(2, age=None), "team-a/train: age is null"),
    (TABLE, changed(2, **{"created by cli": "false"}), 'team-a/train: created by cli is "false", not "true"'),
    (NODES, without(1), "node with GPUs n2 is missing"),
    (NODES, changed(0, gpus="7"), 'n1: gpus is "7", not 8'),
    (NODES, changed(0, gpusAllocated="4.4"), 'n1: gpusAllocated is "4.4", not 3.5'),
    (NODES, changed(2, gpus="8"), "there is no node with GPUs control"),
    (PROJECTS, without(1), "project team-b is missing"),
    (PROJECTS, changed(1, spec={"gpu": {"quota": "2"}}), 'team-b: quota is "2", not 2.5'),
    (PROJECTS, changed(0, created=""), "team-a: there is no time of its creation"),
    (
        PROJECTS,
        changed(0, spec={"gpu": {"quota": "4"}, "nodeAffinity": {"train": ["a100"]}}),
        'team-a: nodeAffinity is {"train": ["a100"]}, and none was asked for',
    ),
    (PROJECTS, changed(0, spec={"gpu": {"quota": "4"}}), "team-a: nodeAffinity is null, and none was asked for"),
    (OVERVIEW, changed(0, current="no"), "the page does not say that it is current"),
    (OVERVIEW, figure("GPUs", "24"), 'GPUs is "24", not 16'),
    (OVERVIEW, figure("Allocated", "5.5 (33%)"), 'Allocated is "5.5 (33%)", not 5.5 (34%)'),
    (OVERVIEW, figure("Allocated", "5 (34%)"), 'Allocated is "5 (34%)", not 5.5 (34%)'),
    (OVERVIEW, figure("Free", "12"), 'Free is "12", not 10.5'),
    (OVERVIEW, figure("Nodes", "1"), 'Nodes is "1", not 2 to 3'),
    (OVERVIEW, figure("Jobs that hold GPUs", "4"), 'Jobs that hold GPUs is "4", not 3'),
    (OVERVIEW, figure("Jobs that wait", "0"), 'Jobs that wait is "0", not 1 to 2'),
    (OVERVIEW, figure("Allocated, but idle", "6"), 'Allocated, but idle is "6", and 5.5 are held'),
    (OVERVIEW, figure("Allocated, but idle", "?"), 'Allocated, but idle is "?", and 5.5 are held'),
    (OVERVIEW, part("share", value="4 of 4"), 'team-a: its share is "4 of 4", not 4.5 of 4, 0 waiting'),
    (OVERVIEW, part("share", value="4.5 of 4"), 'team-a: its share is "4.5 of 4", not 4.5 of 4, 0 waiting'),
    (OVERVIEW, part("share", project="team-b"), "project team-a is missing"),
    (OVERVIEW, part("waiting", name="part"), "team-b/part is no job that waits"),
    (OVERVIEW, part("waiting", of=""), "job that waits team-b/wait is missing"),
    (OVERVIEW, part("waiting", AGE="17s"), 'team-b/wait: AGE is "17s", not 1s'),
    (OVERVIEW, part("waiting", **{"WAITS BECAUSE": "-"}), "team-b/wait: the reason why it is pending is missing"),
    (OVERVIEW, part("waiting", GPUs="2"), 'team-b/wait: GPUs is "2", not 1'),
    (OVERVIEW, part("waiting", USER="-"), "team-b/wait: there is no user"),
    (OVERVIEW, part("holding", name="wait", project="team-b"), "team-b/wait is no job that holds GPUs"),
    (OVERVIEW, part("holding", of=""), "job that holds GPUs team-a/train is missing"),
    (OVERVIEW, part("holding", node="n1"), 'team-a/train: node is "n1", not ["n1", "n2"]'),
    (OVERVIEW, part("holding", GPUs="3"), 'team-a/train: GPUs is "3", not 4'),
    (OVERVIEW, part("holding", DURATION="-"), 'team-a/train: DURATION is "-"'),
    (OVERVIEW, part("holding", TYPE="Interactive"), 'team-a/train: TYPE is "Interactive"'),
    (OVERVIEW, part("nodes", ALLOCATED="4.5"), 'n1: ALLOCATED is "4.5", not 3.5'),
    (OVERVIEW, part("nodes", FREE="4"), 'n1: FREE is "4", not 4.5'),
    (OVERVIEW, part("nodes", GPUs="4"), 'n1: GPUs is "4", not 8'),
    (OVERVIEW, part("nodes", name="n3"), "node with GPUs n1 is missing"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "lie", "difference"), LIES, ids=[text for _, _, text in LIES])
def test_wrong_values_are_named(name: str, lie: Callable[[Rows], None], difference: str) -> None:
    rows = shown(name)
    lie(rows)
    result = judged(name, rows)
    assert result.judgement.verdict == Verdict.FAIL
    assert difference in result.differences
    assert not agreed(name, rows)


@pytest.mark.parametrize("output", ["", "[", "{}", "[1]", "null", "[" * 100_000])
def test_an_output_that_is_no_list_fails(output: str) -> None:
    result = judged(NODES, output)
    assert result.judgement.verdict == Verdict.FAIL
    assert "printed no list of objects" in result.judgement.reason


def test_a_command_that_fails_is_a_failure_with_its_last_line() -> None:
    result = judged(JOBS, "[]", exit_code=1, problem="the cluster cannot be reached")
    assert result.judgement.verdict == Verdict.FAIL
    assert result.judgement.reason == (
        "`muster list jobs -A -o json` ended with exit code 1: the cluster cannot be reached"
    )


def test_a_list_may_be_that_of_any_moment_while_it_was_made() -> None:
    later = [pod("train-1", change="deleted", node="n2")]
    assert judged(JOBS, shown(JOBS), more=later).judgement.verdict == Verdict.PASS
    rows = shown_jobs(fold([*WORLD, *later]))
    assert judged(JOBS, rows, more=later).judgement.verdict == Verdict.PASS
    assert judged(JOBS, rows).judgement.verdict == Verdict.FAIL


def test_a_project_that_was_deleted_is_not_shown_any_more() -> None:
    gone: list[Event] = [pod("wait-0", "team-b", change="deleted", node=""), ProjectDeleted(4, "team-b")]
    world: list[Event] = [*WORLD, CommandRun(4, "delete", "team-b", ("wait",)), *gone]
    for name in (JOBS, PROJECTS):
        answers = {key: shown_rows(fold(world)) for key, shown_rows in SHOWN.items()}
        for rows, verdict in ((answers[name], Verdict.PASS), (shown(name), Verdict.FAIL)):
            answer = AnswerSeen(9, name, VIEWS[name].line, 0, json.dumps(rows))
            events: list[Event] = [*world, answer]
            window = Window(0, len(world), len(events), 8, 9)
            result = judge_view(name, Circumstances(), Timeline(events), window, least=LEAST)
            assert result.judgement.verdict == verdict, (name, result.differences)


@pytest.mark.parametrize("closed", [NodeSeen(4, "n2", 8, ready=False), NodeSeen(4, "n2", 8, cordoned=True)])
def test_gpus_of_a_node_that_takes_no_new_pods_are_shown_apart_and_not_as_free(closed: NodeSeen) -> None:
    lost: list[Event] = [*WORLD, closed]
    rows = shown_overview(fold(lost))
    figures = {row["figure"]: row["value"] for row in rows if row["of"] == "figure"}
    assert (figures["Free"], figures["Not ready or cordoned"]) == ("4.5", "6")
    as_free = {'Not ready or cordoned is "0", not 6', 'n2: FREE is "6", not 0'}
    apart = {'Not ready or cordoned is "6", not 0', 'n2: FREE is "0", not 6'}
    back = [*lost, NodeSeen(5, "n2", 8)]
    for world, answer, differences in (
        (lost, rows, set()),
        (lost, shown(OVERVIEW), as_free),
        (back, shown(OVERVIEW), set()),
        (back, rows, apart),
    ):
        events: list[Event] = [*world, AnswerSeen(9, OVERVIEW, VIEWS[OVERVIEW].line, 0, json.dumps(answer))]
        window = Window(len(world), len(world), len(events), 8, 9)
        result = judge_view(OVERVIEW, Circumstances(), Timeline(events), window, least=LEAST)
        assert set(result.differences) == differences


def test_a_list_may_be_that_of_the_moment_after_a_project_was_deleted() -> None:
    leaves: list[Event] = [ProjectDeleted(4, "team-b")]
    after = SHOWN[PROJECTS](fold([*WORLD, *leaves]))
    assert judged(PROJECTS, after, more=leaves).judgement.verdict == Verdict.PASS
    assert judged(PROJECTS, after).judgement.verdict == Verdict.FAIL


def test_too_few_nodes_are_an_error_and_a_run_that_was_cut_is_inconclusive() -> None:
    assert judged(NODES, shown(NODES), least=Evidence(3, 24, 1, 1)).judgement.verdict == Verdict.ERROR
    window = Window(0, len(WORLD), len(WORLD), 8, 9)
    cut = judge_view(NODES, Circumstances(), Timeline(WORLD), window, least=LEAST)
    assert cut.judgement.verdict == Verdict.INCONCLUSIVE


def test_of_very_many_differences_the_first_are_said() -> None:
    result = judged(NODES, [{"name": f"ghost-{number}", "gpus": "1"} for number in range(100)])
    assert len(result.differences) == 21
    assert result.differences[-1] == "and 82 more"


@pytest.mark.parametrize("name", OF_NOW)
def test_only_the_judged_part_of_an_answer_is_passed_on(name: str) -> None:
    rows = [row | {"commandLine": "muster submit --token secret", "user": "ada"} for row in shown(name)]
    answer = only_judged(AnswerSeen(9, name, VIEWS[name].line, 0, json.dumps(rows)), {"team-a", "team-b"})
    assert "secret" not in answer.output
    assert "ada" not in answer.output
    assert judged(name, answer.output).judgement.verdict == Verdict.PASS


def of_job(name: str, rows: Rows) -> dict[str, Any]:
    return next(row for row in rows if row["name"] == name)


CRASHES = Cause("container a", "CrashLoopBackOff")
WAITS: dict[str, Any] = {"phase": "Pending", "node": "", "devices": ()}
# Rows of an honest orchestrator for jobs that are neither just running nor just pending: id, pods, status,
# fields.
HONEST: list[tuple[str, list[Event], str, dict[str, Any]]] = [
    (
        "a finished job, with what it asked for and where it was",
        [pod("part-0", phase="Succeeded", gpu_milli=500, preemptible=False, priority=100)],
        "part",
        {"status": "Succeeded", "gpus": "0.5", "gpusAllocated": "0", "nodes": ["n1"]},
    ),
    (
        "a pod that leaves, beside its successor",
        [
            pod("train-1", node="n2", devices=(3, 4), gpu_milli=2000, terminating=True),
            pod("train-2", gpu_milli=2000, **WAITS),
        ],
        "train",
        {"gpus": "4", "gpusAllocated": "4", "status": "Running"},
    ),
    ("a job whose pods are not there yet", [], "late", {"gpus": "8", "status": "Suspended"}),
    (
        "one of its pods crashes, and enough run",
        [pod("train-1", node="n2", devices=(3, 4), gpu_milli=2000, cause=CRASHES)],
        "train",
        {"status": "CrashLoopBackOff"},
    ),
    (
        "training that must not be preempted",
        [pod("part-0", devices=(2,), gpu_milli=500, preemptible=False, priority=50)],
        "part",
        {"type": "Train"},
    ),
    (
        "a job that kubectl made",
        [pod("kubectl-0", devices=(6,))],
        "kubectl",
        {"type": "Interactive", "user": "", "status": "Running"},
    ),
    (
        "a job that is being deleted",
        [CommandRun(3, "delete", "team-a", ("train",))],
        "train",
        {"status": "Terminating", "user": ""},
    ),
]  # fmt: skip


@pytest.mark.parametrize(("more", "job", "fields"), [case[1:] for case in HONEST], ids=[c[0] for c in HONEST])
def test_an_honest_list_of_jobs_in_every_state_passes(
    more: list[Event], job: str, fields: dict[str, Any]
) -> None:
    rows = shown_jobs(fold([*WORLD, *more]))
    of_job(job, rows).update(fields)
    assert judged(JOBS, rows, before=more).differences == ()
    assert agreed(JOBS, rows, more)


def test_unhealthy_gpus_of_a_node_may_be_shown_among_the_others() -> None:
    rows = [*shown(NODES), {"name": "dead", "gpus": "8", "gpusUnhealthy": "8", "gpusAllocated": "0"}]
    rows[0] |= {"gpus": "9", "gpusUnhealthy": "1"}
    assert judged(NODES, rows).differences == ()
    rows[0] |= {"gpus": "10"}
    assert 'n1: gpus is "10", not 8' in judged(NODES, rows).differences


def test_projects_of_others_are_nothing_to_a_run() -> None:
    rows = [*shown(PROJECTS), {"name": "else"}, {"name": "else"}, {"name": []}]
    assert judged(PROJECTS, rows).differences == ()


ODD = [
    (JOBS, changed(0, project=[]), "job team-a/late is missing"),
    (JOBS, changed(0, name="\ud800\x1b[2J"), 'there is no job "team-a/\\ud800\\u001b[2J"'),
    (JOBS, changed(2, gpus="1e999999"), 'team-a/train: gpus is "1e999999", not 4'),
    (JOBS, changed(2, gpus="4.0000000000000000000000000000000001"), "gpus is"),
    (JOBS, changed(2, gpus="\u0664"), "gpus is"),
    (JOBS, changed(3, durationSeconds=5), "team-b/wait: durationSeconds is 5, and it has not run"),
    (JOBS, changed(2, type="Interactive"), 'team-a/train: type is "Interactive"'),
    (JOBS, lambda rows: rows[2]["instances"].append({"name": "ghost"}), "3 pods are shown, not 2"),
    (JOBS, changed(0, status="Running"), 'team-a/late: status is "Running", and it waits'),
    (NODES, changed(0, gpus="0"), 'n1: gpus is "0", not 8'),
    (NODES, changed(0, name=5), "node with GPUs n1 is missing"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "change", "difference"), ODD, ids=[text for _, _, text in ODD])
def test_odd_values_are_differences(name: str, change: Callable[[Rows], None], difference: str) -> None:
    rows = shown(name)
    change(rows)
    result = judged(name, rows)
    assert any(difference in line for line in result.differences), result.differences
    assert msgspec.json.encode(result.differences)
    assert not agreed(name, rows)


def test_a_value_that_is_nested_as_deep_as_can_be_read_is_a_difference() -> None:
    for depth in range(900, 1000):
        value = "[" * depth + "]" * depth
        output = json.dumps(shown(JOBS)).replace('"Train"', value)
        assert judged(JOBS, output).judgement.verdict == Verdict.FAIL
        assert judged(NODES, f'[{{"name": {value}}}]').judgement.verdict == Verdict.FAIL
        only_judged(AnswerSeen(9, JOBS, "", 0, output), {"team-a"})


def test_a_list_of_very_many_is_judged_in_time() -> None:
    rows = [{"project": "team-a", "name": f"ghost-{number}"} for number in range(100_000)] * 2
    assert judged(JOBS, rows).differences[-1] == "and 9980 more"


def test_no_difference_names_values_that_differ_in_each_run() -> None:
    rows = [row | {"instances": []} for row in shown(JOBS)]
    assert "train-0" not in "".join(judged(JOBS, rows).differences)


def test_a_passed_on_answer_says_nothing_of_others() -> None:
    rows = [*shown(PROJECTS), shown(PROJECTS)[0] | {"name": "secret"}]
    rows[0] |= {"spec": rows[0]["spec"] | {"members": [{"kind": "User", "name": "secret"}]}}
    answer = only_judged(AnswerSeen(9, PROJECTS, "", 0, json.dumps(rows)), {"team-a", "team-b"})
    assert "secret" not in answer.output
    assert judged(PROJECTS, answer.output).judgement.verdict == Verdict.PASS


def agreed(name: str, rows: object, before: Sequence[Event] = ()) -> bool:
    """Return whether both judges accept the list for the state."""
    world = World()
    for event in [*WORLD, *before]:
        world.apply(msgspec.to_builtins(event))
    ours = judged(name, rows, before=before)
    theirs = is_shown(name, world, rows if isinstance(rows, str) else json.dumps(rows))
    assert theirs == (ours.judgement.verdict == Verdict.PASS), (ours.differences, rows)
    return theirs


VALUES: st.SearchStrategy[Any] = st.sampled_from(
    ["", "Running", "Pending", "Interactive", "1", "0.5", "1e3", "NaN", " 2", "00", "4.0", "n2", "team-a", "train",
     -1, 0, 8, 10**400, True, None, [], {}, ["n1"], ["n1", "n1"], [[]], [{}], 1.5, float("nan")]
)  # fmt: skip
PODS: st.SearchStrategy[Event] = st.builds(
    pod,
    st.sampled_from(["train-0", "train-1", "train-2", "part-0", "wait-0", "late-0", "new-0"]),
    change=st.sampled_from(["modified", "modified", "deleted"]),
    phase=st.sampled_from(["Running", "Pending", "Succeeded", "Failed"]),
    node=st.sampled_from(["", "n1", "n2"]),
    devices=st.just(()),
    terminating=st.booleans(),
    preemptible=st.booleans(),
    priority=st.sampled_from([50, 100]),
    cause=st.sampled_from([None, CRASHES]),
    min_member=st.sampled_from([1, 2]),
)


@given(st.sampled_from(sorted(SHOWN)), st.lists(PODS, max_size=3), st.data())
def test_two_judges_agree_on_lists_that_were_changed_at_random(
    name: str, pods: list[Event], data: st.DataObject
) -> None:
    deletes = CommandRun(3, "delete", "team-a", ("part",))
    more = [*pods, *([deletes] if data.draw(st.booleans()) else [])]
    rows = SHOWN[name](fold([*WORLD, *more]))
    for _ in range(data.draw(st.integers(0, 2))):
        if rows:
            row = data.draw(st.sampled_from(rows))
            row[data.draw(st.sampled_from([*sorted(row), "gpusUnhealthy"]))] = data.draw(VALUES)
            what = data.draw(st.sampled_from(["", "removed", "twice"]))
            if what == "removed":
                rows.remove(row)
            elif what == "twice":
                rows.append(dict(row))
    agreed(name, rows, more)


ONE = "jobs/team-a/train"


def described(job: str = "train", **fields: Any) -> Any:
    """Return the description of one job of team-a, with these changes."""
    return next(row for row in shown(JOBS) if row["name"] == job) | fields


def test_an_honest_description_of_one_job_passes() -> None:
    assert view_of(ONE).line == "muster get train -p team-a -o json"
    assert judged(ONE, described(events=[], gpuDetails=[])).judgement.verdict == Verdict.PASS
    assert agreed("jobs/team-a/late", described("late"))
    assert agreed("jobs/team-a/part", described("part"))


@pytest.mark.parametrize(
    ("row", "difference"),
    [
        (described(status="Pending"), 'team-a/train: status is "Pending", not "Running"'),
        (described(gpusAllocated="3"), 'team-a/train: gpusAllocated is "3", not 4'),
        (described(user=""), "team-a/train: there is no user"),
        (described(instances=[]), "team-a/train: a pod on n1 with GPUs 0,1 is not shown so"),
        (described("late"), "the answer does not show team-a/train"),
        (described(project="team-b"), "the answer does not show team-a/train"),
        ({}, "the answer does not show team-a/train"),
    ],
)
def test_wrong_values_of_one_job_are_named(row: Any, difference: str) -> None:
    result = judged(ONE, row)
    assert result.judgement.verdict == Verdict.FAIL
    assert difference in result.differences
    assert not agreed(ONE, row)


@pytest.mark.parametrize("output", ["", "[]", "[{}]", "null", "1", "[" * 100_000])
def test_an_output_that_is_no_object_fails(output: str) -> None:
    result = judged(ONE, output)
    assert result.judgement.reason == "`muster get train -p team-a -o json` printed no object"


def test_a_job_without_a_submission_is_not_described() -> None:
    result = judged("jobs/team-a/ghost", described("train", name="ghost"))
    assert result.differences == ["there is no job team-a/ghost"]
    assert not agreed("jobs/team-a/ghost", described("train", name="ghost"))


def test_of_a_description_only_the_judged_part_is_passed_on() -> None:
    row = described(commandLine="--token secret", events=[{"message": "secret"}], user="ada")
    answer = only_judged(AnswerSeen(9, ONE, "", 0, json.dumps(row)), {"team-a"})
    assert not any(word in answer.output for word in ("secret", "ada"))
    assert judged(ONE, answer.output).judgement.verdict == Verdict.PASS
    assert (
        judged(ONE, only_judged(AnswerSeen(9, ONE, "", 0, "[]"), {"team-a"}).output).judgement.verdict
        == "FAIL"
    )


@pytest.mark.parametrize(
    "name", ["", "job", "jobs/", "jobs/a", "jobs/a/", "jobs/a/b/c", "jobs/a/b -A", "jobs/A/b"]
)
def test_other_names_are_no_view(name: str) -> None:
    assert not is_view(name)


@given(st.lists(PODS, max_size=3), st.data())
def test_two_judges_agree_on_descriptions_that_were_changed_at_random(
    pods: list[Event], data: st.DataObject
) -> None:
    rows = shown_jobs(fold([*WORLD, *pods]))
    row = data.draw(st.sampled_from(rows))
    for _ in range(data.draw(st.integers(0, 2))):
        row[data.draw(st.sampled_from(sorted(row)))] = data.draw(VALUES)
    agreed(f"jobs/team-a/{data.draw(st.sampled_from(['train', 'part', 'late', 'new', 'ghost']))}", row, pods)


TABLES = [
    lambda text: text.replace("SERVICE URL(S)", "URL"),
    lambda text: text.replace("IMAGE", "STATE"),
    lambda text: text.replace("  GPUs", ""),
    lambda text: text.split("\n", 2)[2],
    lambda text: text.replace("2m  ", ""),
    lambda text: text + "  \n\nand more",
    lambda text: "",
]
"""Changes of a table after which it has other columns or rows."""


@pytest.mark.parametrize("change", TABLES)
def test_a_table_with_other_columns_or_cells_is_none(change: Callable[[str], str]) -> None:
    text = f"All projects\n{shown_table(shown_jobs(fold(WORLD)))}\n"
    assert agreed(TABLE, text)
    assert not agreed(TABLE, change(text))


def test_a_redacted_table_has_neither_image_nor_user_and_the_same_verdict() -> None:
    text = shown_table(shown_jobs(fold(WORLD)))
    answer = AnswerSeen(9, TABLE, view_of(TABLE).line, 0, text)
    output = only_judged(answer, {"team-a", "team-b"}).output
    assert ("somewhere" in text, "somewhere" in output, "ada" in output) == (True, False, False)
    assert set(json.loads(output)[0]) == {column.lower() for column in COLUMNS}
    assert agreed(TABLE, output)
