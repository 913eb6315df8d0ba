"""Scenarios that change and delete projects, on a double that does so and on doubles that do not."""

from pathlib import Path

import pytest

from tests.validation.fake_target import FakeTarget
from tests.validation.replay import assert_second_judge_agrees, run_command, settings
from validation.report.record import Command
from validation.scenario.loaded import SHIPPED

CHAIN = [
    SHIPPED / "muster" / f"{name}.scenario.yaml"
    for name in ("projects", "projects-changed", "projects-deleted")
]


class KeepsOldQuotas(FakeTarget):
    """Reports a changed quota, and continues with the old one."""

    async def execute(self, line: str, *, started_ms: int) -> Command:
        if " update " in line:
            return Command(line, 0, started_ms, 1)
        return await super().execute(line, started_ms=started_ms)


class KeepsProjects(FakeTarget):
    """Reports a deleted project, whose namespace stays."""

    async def execute(self, line: str, *, started_ms: int) -> Command:
        if " delete managed-" in line:
            self.quotas.pop(line.split()[3], None)
            return Command(line, 0, started_ms, 1)
        return await super().execute(line, started_ms=started_ms)


class Refuses(FakeTarget):
    """Refuses to change quotas."""

    async def execute(self, line: str, *, started_ms: int) -> Command:
        if " update " in line:
            return Command(line, 1, started_ms, 1, stderr="Error: quotas are not changed here")
        return await super().execute(line, started_ms=started_ms)


def test_projects_are_created_changed_and_deleted(tmp_path: Path) -> None:
    code, report = run_command(CHAIN, settings(tmp_path / "r"))
    assert report is not None
    assert code == 1, "the rest of the catalogue did not run"
    (requirement,) = [entry for entry in report.requirements if entry.id == "projects.manage"]
    assert requirement.verdict == "PASS", requirement.reason
    assert [scenario.quotas_milli for scenario in report.scenarios] == [
        {"managed-p": 8000, "managed-q": 8000},
        {"managed-p": 4000, "managed-q": 12000},
        {"managed-p": 16000},
    ]
    lines = [command.line for step in report.steps for command in step.volatile.commands]
    changes = [line for line in lines if line.startswith("muster project")]
    assert changes == [
        "muster project create managed-p -g 8",
        "muster project create managed-q -g 8",
        "muster project update managed-p -g 4",
        "muster project update managed-q -g 12",
        "muster project delete managed-q",
        "muster project update managed-p -g 16",
    ]
    assert_second_judge_agrees(tmp_path / "r")


@pytest.mark.parametrize(
    ("target", "check", "reason"),
    [
        (KeepsOldQuotas, "muster-projects-changed/reclaim", "managed-q: expected 12 GPUs, has 8"),
        (
            KeepsProjects,
            "muster-projects-deleted/queue",
            "the namespace of managed-q was not deleted within 60 s",
        ),
        (Refuses, "muster-projects-changed/reclaim", "Error: quotas are not changed here"),
    ],
)
def test_an_operator_that_does_not_follow_fails(
    target: type[FakeTarget], check: str, reason: str, tmp_path: Path
) -> None:
    code, report = run_command(CHAIN, settings(tmp_path / "r", target, patience_percent=10))
    assert code == 1
    assert report is not None
    first = next(step for step in report.steps if step.verdict == "FAIL")
    assert first.id == check
    assert reason in "; ".join(first.reasons)
    assert_second_judge_agrees(tmp_path / "r")
