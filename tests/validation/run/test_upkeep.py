"""Nodes are drained, and the operator is killed while jobs run, on doubles that follow the rules or break them."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.validation.fake_target import FakeTarget, HidesEvictions
from tests.validation.mutant_targets import ForgetsItsPromises, UsesCordonedNodes
from tests.validation.replay import assert_second_judge_agrees, run_command, settings
from validation.judge.events import NodesDrained, NodesOpened, OperatorKilled, PodSeen
from validation.report import log
from validation.report.record import Report
from validation.report.verify import verify
from validation.run.session import Settings
from validation.scenario.loaded import SHIPPED

DRAINED = SHIPPED / "muster" / "drained.scenario.yaml"
RESTARTED = SHIPPED / "muster" / "restarted.scenario.yaml"
EVENTS = {DRAINED: [NodesDrained, NodesOpened], RESTARTED: [OperatorKilled]}


class EvictsOneMore(FakeTarget):
    """Evicts for a drained job also a job that p has within its quota."""

    def evict(self, pod: PodSeen) -> None:
        super().evict(pod)
        covered = self.pods.get(("drained-p", "p-1-gggg"), [])
        if covered and covered[0].node:
            super().evict(covered[0])


class LetsItWait(FakeTarget):
    """Leaves drained jobs pending instead of binding them to other nodes."""

    async def drain(self, pods: Sequence[PodSeen]) -> None:
        for pod in pods:
            self.tell(pod, change="deleted")
            (other,) = self.pods[pod.project, pod.workload]
            self.tell(other, change="added", uid=f"{pod.uid}-next", node="", devices=(), phase="Pending")


class Spreads(FakeTarget):
    """Binds the second job of p to the other node."""

    def open_nodes(self) -> list[str]:
        assert self.recorder is not None
        held = self.recorder.state.holding()
        nodes = super().open_nodes()
        return sorted(nodes, key=lambda node: sum(pod.node == node for pod in held))


class CannotDrain(FakeTarget):
    """Ignores requests to cordon nodes."""

    async def cordon(self, nodes: Mapping[str, bool]) -> None:
        return None


class PromisesNothing(FakeTarget):
    """Keeps nominations only in memory."""

    def nominate(self, pod: PodSeen) -> PodSeen:
        return pod


class EvictsAgain(FakeTarget):
    """After the restart, evicts a second time the job that the killed operator had evicted."""

    async def operator_leads_again(self) -> None:
        await super().operator_leads_again()
        (successor,) = self.pods["restarted-p", "p-4-gggg"]
        bound = self.tell(successor, change="modified", node="n2", devices=(0, 1, 2, 3), phase="Running")
        self.slow.clear()
        self.evict(bound)


class IsNoPod(FakeTarget):
    """Runs its operator outside the cluster."""

    async def kill_operator(self) -> str:
        return "the operator that leads, me, is no pod of muster-system"


class DiesLate(FakeTarget):
    """Binds all pods just before its operator is killed."""

    async def kill_operator(self) -> str:
        await self.operator_leads_again()
        return ""


class Existing(LetsItWait):
    """An existing cluster, which validation must not delete."""

    disposable = False


def validated(path: Path, out: Path, target: Any = FakeTarget, **more: Any) -> Report:
    _, report = run_command([path], settings(out, target, profile="current", **more))
    assert report is not None
    assert_second_judge_agrees(out)
    return report


@pytest.mark.parametrize("path", [DRAINED, RESTARTED], ids=["drained", "restarted"])
def test_an_operator_that_keeps_the_rules_passes(path: Path, tmp_path: Path) -> None:
    report = validated(path, tmp_path / "r")
    verdicts = {step.id: step.verdict for step in report.steps if step.required}
    assert set(verdicts.values()) == {"PASS"}, verdicts
    invariant = "cordoned-node" if path is DRAINED else "nominations-last"
    assert f"{report.scenarios[0].id}/invariant/{invariant}" in verdicts
    events = log.read_log(tmp_path / "r").events
    acts = [type(event) for event in events if isinstance(event, NodesDrained | NodesOpened | OperatorKilled)]
    assert acts == EVENTS[path]
    assert verify(tmp_path / "r").problems == []


@pytest.mark.parametrize(
    ("path", "target", "expected"),
    [
        (DRAINED, EvictsOneMore, ("drain", "FAIL", "evicted but should not be: p-1-gggg")),
        (DRAINED, LetsItWait, ("drain", "FAIL", "drained-q: expected 4 GPUs, has 0")),
        (DRAINED, UsesCordonedNodes, ("invariant/cordoned-node", "FAIL", "which is cordoned")),
        (
            DRAINED,
            HidesEvictions,
            ("invariant/nothing-vanishes", "FAIL", "pod drained-p/p-2-gggg-2 vanished"),
        ),
        (
            DRAINED,
            Spreads,
            ("drain", "INCONCLUSIVE", "are on nodes with 16 GPUs in all, and 8 are to be drained"),
        ),
        (DRAINED, CannotDrain, ("drain", "ERROR", "node n2 was not cordoned within 60 s")),
        (RESTARTED, PromisesNothing, ("reclaim", "FAIL", "no pod is nominated to its GPUs, within 30 s")),
        (RESTARTED, ForgetsItsPromises, ("invariant/nominations-last", "FAIL", "and was nominated to n1")),
        (
            RESTARTED,
            EvictsAgain,
            ("invariant/nominations-last", "FAIL", "evicted again after the operator was"),
        ),
        (RESTARTED, IsNoPod, ("reclaim", "INCONCLUSIVE", "not run: the operator that leads, me, is no pod")),
        (RESTARTED, DiesLate, ("reclaim", "INCONCLUSIVE", "the operator was killed too late")),
    ],
)
def test_an_operator_that_breaks_the_rules_is_not_green(
    path: Path, target: Any, expected: tuple[str, str, str], tmp_path: Path
) -> None:
    check, verdict, reason = expected
    report = validated(path, tmp_path / "r", target, patience_percent=10)
    (step,) = [step for step in report.steps if step.id.partition("/")[2] == check]
    assert (step.verdict, reason in "; ".join(step.reasons)) == (verdict, True), step.reasons


def test_nodes_are_opened_again_after_any_result_of_the_step(tmp_path: Path) -> None:
    cluster = Existing()
    report = validated(DRAINED, tmp_path / "r", lambda: cluster, patience_percent=10)
    assert report.verdict == "FAIL"
    events = log.read_log(tmp_path / "r").events
    assert [event.nodes for event in events if isinstance(event, NodesOpened)] == [("n2",)]
    assert cluster.recorder is not None
    assert cluster.recorder.state.cordoned == set()


def test_the_planner_divides_the_rest_and_is_not_asked_about_an_operator(tmp_path: Path) -> None:
    chosen = Settings(out=tmp_path / "r", target="planner")
    _, report = run_command([DRAINED, RESTARTED], chosen)
    assert report is not None
    verdicts = {entry.id: entry.verdict for entry in report.requirements if entry.id.startswith("upkeep.")}
    assert verdicts == {"upkeep.drain": "PASS", "upkeep.operator": "NOT_APPLICABLE"}
    assert_second_judge_agrees(tmp_path / "r")
