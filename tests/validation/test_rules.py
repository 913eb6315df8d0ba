"""Muster's own scenarios on shares, order, simultaneous requests and refused quotas, on honest
and dishonest doubles.
"""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.validation.fake_target import FakeTarget
from tests.validation.headlines import pass_headline
from tests.validation.replay import assert_second_judge_agrees, run_command, settings
from validation.judge.events import PodSeen
from validation.report.log import read_log
from validation.report.record import Command
from validation.report.sources import compare
from validation.report.verify import verify
from validation.scenario.loaded import SHIPPED

MUSTER = SHIPPED / "muster"
NAMES = ("weights-equal", "weights-unset", "reverse-order", "two-reclaims", "quotas")


class IgnoresWeights(FakeTarget):
    """Divides GPUs by quotas, and ignores weights."""

    def schedule(self) -> None:
        for options in self.limits.values():
            options.pop("--over-quota-weight", None)
        super().schedule()


class WeighsAllTheSame(FakeTarget):
    """Takes an unset weight as 1."""

    def schedule(self) -> None:
        for options in self.limits.values():
            options.setdefault("--over-quota-weight", "1")
        super().schedule()


class EvictsTwice(FakeTarget):
    """Evicts one pod too many for the second request."""

    def evict(self, pod: PodSeen) -> None:
        super().evict(pod)
        covered = self.pods.get(("together-p", "p-1-gg"), [])
        if covered and covered[0].node:
            super().evict(covered[0])


class PromisesTooMuch(FakeTarget):
    """Accepts every quota."""

    async def execute(self, line: str, *, started_ms: int) -> Command:
        if " update " in line:
            return Command(line, 0, started_ms, 1)
        return await super().execute(line, started_ms=started_ms)


class Breaks(FakeTarget):
    """Fails with an error when a quota is raised, instead of refusing it."""

    async def execute(self, line: str, *, started_ms: int) -> Command:
        if " update " in line:
            return Command(line, 1, started_ms, 1, stderr="Error: the API server does not answer")
        return await super().execute(line, started_ms=started_ms)


def test_an_operator_that_keeps_the_rules_passes(tmp_path: Path) -> None:
    _, report = run_command(
        [MUSTER / f"{name}.scenario.yaml" for name in NAMES], settings(tmp_path / "r", parts=("rules",))
    )
    assert report is not None
    assert report.headline == pass_headline(4, "rules")
    assert verify(tmp_path / "r").problems == []
    assert_second_judge_agrees(tmp_path / "r")


@pytest.mark.parametrize(
    ("name", "target", "check", "reason"),
    [
        ("weights-equal", IgnoresWeights, "divide", "weights-p: expected 10 GPUs, has 12"),
        ("weights-unset", WeighsAllTheSame, "divide", "evicted but should not be: p-6-gg"),
        ("two-reclaims", EvictsTwice, "reclaim", "evicted but should not be: p-1-gg"),
        (
            "quotas",
            PromisesTooMuch,
            "refuse",
            "`muster project update quotas-p -g 12` was done, and should have been",
        ),
        ("quotas", Breaks, "refuse", "ended with exit code 1: Error: the API server does not answer"),
    ],
)
def test_an_operator_that_breaks_the_rules_fails(
    name: str, target: Callable[[], FakeTarget], check: str, reason: str, tmp_path: Path
) -> None:
    code, report = run_command(
        [MUSTER / f"{name}.scenario.yaml"], settings(tmp_path / "r", target, patience_percent=10)
    )
    assert code == 1
    assert report is not None
    (step,) = [step for step in report.steps if step.verdict == "FAIL" and "/invariant/" not in step.id]
    assert step.id == f"muster-{name}/{check}"
    assert reason in "; ".join(step.reasons)
    assert_second_judge_agrees(tmp_path / "r")


def test_a_record_with_other_weights_is_noticed(tmp_path: Path) -> None:
    run_command([MUSTER / "weights-equal.scenario.yaml"], settings(tmp_path / "r"))
    report = read_log(tmp_path / "r").opened.report
    assert report.scenarios[0].weights_milli == {"weights-p": 1000, "weights-q": 1000}
    assert compare(report).problems == []
    report.scenarios[0].weights_milli = {"weights-p": 1000, "weights-q": 2000}
    assert compare(report).problems == [
        "scenario muster-weights-equal: weights_milli is not as the file has it"
    ]
