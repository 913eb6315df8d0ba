"""Projects with a limit in time or in nodes, on a double that enforces the limits and on doubles that do not."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.validation.fake_target import FakeTarget
from tests.validation.mutant_targets import ForgetsTheTime, IgnoresNodeGroups
from tests.validation.replay import assert_second_judge_agrees, run_command, settings
from validation.judge.events import NodeSeen, PodSeen
from validation.report import rejudge
from validation.report.assemble import assemble
from validation.report.log import read_log
from validation.report.redact import redact
from validation.report.verify import verify
from validation.scenario.loaded import SHIPPED
from validation.targets.planner import SimulatedRecorder

AFFINITY = SHIPPED / "muster" / "affinity.scenario.yaml"
TIME_LIMIT = SHIPPED / "muster" / "time-limit.scenario.yaml"


class EndsEverything(FakeTarget):
    """Also ends the training jobs of a project with a limit."""

    def over_time(self) -> list[tuple[str, str]]:
        over = super().over_time()
        return [key for key in self.pods if key[0] in {project for project, _ in over}]


class EndsTooEarly(FakeTarget):
    """Ends interactive jobs after a third of their time."""

    def end(self, key: tuple[str, str]) -> None:
        assert isinstance(self.recorder, SimulatedRecorder)
        self.recorder.clock_ms -= 12_000
        super().end(key)


class LetsThemFailTooEarly(FakeTarget):
    """Gives interactive pods a deadline of a third of their time: they fail at it, and are deleted."""

    def end(self, key: tuple[str, str]) -> None:
        assert isinstance(self.recorder, SimulatedRecorder)
        self.recorder.clock_ms -= 12_000
        for pod in self.pods.pop(key):
            self.tell(self.tell(pod, change="modified", phase="Failed"), change="deleted")
        self.ended.add(key)


class EndsNothing(FakeTarget):
    """Ends no job."""

    def over_time(self) -> list[tuple[str, str]]:
        return []


class StartsBesideTerminatingPods(FakeTarget):
    """Starts the next job while the ended one still terminates."""

    terminating: tuple[PodSeen, ...] = ()

    def end(self, key: tuple[str, str]) -> None:
        pods = self.pods.pop(key)
        self.terminating = tuple(self.tell(pod, change="modified", terminating=True) for pod in pods)
        self.ended.add(key)

    def schedule(self) -> None:
        super().schedule()
        for pod in self.terminating:
            self.tell(pod, change="deleted")
        self.terminating = ()


class BeginsAgain(FakeTarget):
    """Makes an ended job pending again."""

    def end(self, key: tuple[str, str]) -> None:
        (pod,) = self.pods[key]
        super().end(key)
        self.tell(pod, change="added", uid="uid-again", node="", devices=(), phase="Pending")


class ShowsNoLimit(FakeTarget):
    """Its list of projects shows no time limit."""

    def show(self, last_word: str) -> list[dict[str, Any]]:
        rows = super().show(last_word)
        return [row | {"spec": row["spec"] | {"interactiveTimeLimit": None}} for row in rows]


class ShowsNoGroups(FakeTarget):
    """Its list of projects shows no node affinities."""

    def show(self, last_word: str) -> list[dict[str, Any]]:
        return [row | {"spec": row["spec"] | {"nodeAffinity": {}}} for row in super().show(last_word)]


class HasGroups(FakeTarget):
    """A site whose nodes already have groups, so that validation cannot group them."""

    def pod(self, action: Any) -> PodSeen:
        raise AssertionError("nothing is submitted where the nodes cannot be grouped")

    async def start(self, cluster: Any) -> bool:
        fresh = await super().start(cluster)
        assert self.cluster is not None
        return fresh

    def describe(self) -> dict[str, Any]:
        if self.recorder is not None:
            self.recorder.record(NodeSeen(self.recorder.now_ms(), "n2", 8, node_type="ours"))
        return super().describe()


@pytest.mark.parametrize(("path", "requirement"), [(AFFINITY, "affinity"), (TIME_LIMIT, "interactive-limit")])
def test_an_operator_that_keeps_the_limits_passes(path: Path, requirement: str, tmp_path: Path) -> None:
    _, report = run_command([path], settings(tmp_path / "r"))
    assert report is not None
    (entry,) = [entry for entry in report.requirements if entry.id == f"projects.{requirement}"]
    assert entry.verdict == "PASS", entry.reason
    assert {step.verdict for step in report.steps if step.required} == {"PASS"}
    assert verify(tmp_path / "r").problems == []
    assert rejudge.disagreements(report, assemble(read_log(tmp_path / "r"))) == []
    assert_second_judge_agrees(tmp_path / "r")


@pytest.mark.parametrize(
    ("path", "target", "check", "reason"),
    [
        (TIME_LIMIT, ForgetsTheTime, "end", "not ended but should be: p-2-gg"),
        (
            TIME_LIMIT,
            ForgetsTheTime,
            "invariant/interactive-time-limit",
            "that interactive jobs of limited-p may",
        ),
        (TIME_LIMIT, EndsNothing, "end", "not ended but should be: p-2-gg"),
        (TIME_LIMIT, EndsEverything, "end", "not ended but should be"),
        (TIME_LIMIT, EndsEverything, "invariant/nothing-vanishes", "limited-p/p-1-g-2 vanished"),
        (TIME_LIMIT, EndsTooEarly, "invariant/nothing-vanishes", "limited-p/p-2-gg-3 vanished"),
        (
            TIME_LIMIT,
            StartsBesideTerminatingPods,
            "invariant/interactive-within-quota",
            "limited-p holds 4 GPUs that cannot be taken back, over its quota of 2",
        ),
        (TIME_LIMIT, BeginsAgain, "end", "not ended but should be: p-2-gg"),
        (TIME_LIMIT, ShowsNoLimit, "view/projects", "limited-p: interactiveTimeLimit is null, not 15s"),
        (AFFINITY, IgnoresNodeGroups, "invariant/node-affinity", "training jobs of affinity-p may be on"),
        (AFFINITY, ShowsNoGroups, "view/projects", "affinity-p: nodeAffinity is {}, not"),
    ],
)
def test_an_operator_that_breaks_the_limits_fails(
    path: Path, target: Callable[[], FakeTarget], check: str, reason: str, tmp_path: Path
) -> None:
    code, report = run_command([path], settings(tmp_path / "r", target, patience_percent=10))
    assert code == 1
    assert report is not None
    failed = {
        step.id.partition("/")[2]: "; ".join(step.reasons) for step in report.steps if step.verdict == "FAIL"
    }
    assert check in failed
    assert reason in failed[check] or check == "end"
    assert_second_judge_agrees(tmp_path / "r")


def test_where_no_job_came_to_its_limit_nothing_is_proven(tmp_path: Path) -> None:
    """Such a job is only seen to fail by itself, which may happen to any job."""
    code, report = run_command([TIME_LIMIT], settings(tmp_path / "r", LetsThemFailTooEarly))
    assert code == 1
    assert report is not None
    (entry,) = [one for one in report.requirements if one.id == "projects.interactive-limit"]
    assert entry.verdict == "INCONCLUSIVE"
    assert "no interactive pod ran until its limit" in entry.reason
    assert_second_judge_agrees(tmp_path / "r")


def test_a_site_with_groups_of_its_own_is_left_alone(tmp_path: Path) -> None:
    code, report = run_command([AFFINITY], settings(tmp_path / "r", HasGroups))
    assert code == 1
    assert report is not None
    first = report.steps[0]
    assert (first.verdict, first.reason) == (
        "INCONCLUSIVE",
        "not run: n2 is in a group of the site's own, ours",
    )
    assert not any(step.verdict in {"FAIL", "ERROR"} for step in report.steps)
    assert_second_judge_agrees(tmp_path / "r")


@pytest.mark.parametrize(
    ("path", "target"),
    [(AFFINITY, FakeTarget), (TIME_LIMIT, FakeTarget), (TIME_LIMIT, ShowsNoLimit), (AFFINITY, ShowsNoGroups)],
)
def test_a_redacted_report_has_the_same_verdicts(
    path: Path, target: Callable[[], FakeTarget], tmp_path: Path
) -> None:
    _, report = run_command([path], settings(tmp_path / "r", target))
    assert report is not None
    public = redact(tmp_path / "r", tmp_path / "public")
    assert [step.verdict for step in public.steps] == [step.verdict for step in report.steps]
    assert verify(tmp_path / "public").problems == []
    assert_second_judge_agrees(tmp_path / "public")


class ListsWhatItHas(FakeTarget):
    """Lists its own projects, and not those of the recorder."""

    def show(self, last_word: str) -> list[dict[str, Any]]:
        return [row for row in super().show(last_word) if row["name"] in self.quotas]


def test_the_projects_of_the_scenarios_before_are_deleted(tmp_path: Path) -> None:
    _, report = run_command([AFFINITY, TIME_LIMIT], settings(tmp_path / "r", ListsWhatItHas))
    assert report is not None
    assert {step.id: step.verdict for step in report.steps if step.kind == "view"} == {
        "muster-affinity/view/projects": "PASS",
        "muster-time-limit/view/projects": "PASS",
    }
    assert_second_judge_agrees(tmp_path / "r")


def test_the_nodes_are_in_no_group_afterwards(tmp_path: Path) -> None:
    target = FakeTarget()
    target.disposable = False
    _, report = run_command([AFFINITY], settings(tmp_path / "r", lambda: target))
    assert report is not None
    assert target.recorder is not None
    assert set(target.recorder.state.node_types.values()) == {""}
    groups = [event.node_type for event in target.recorder.events if isinstance(event, NodeSeen)]
    assert groups == ["", "", "validation-interactive", "validation-train", "", ""]
