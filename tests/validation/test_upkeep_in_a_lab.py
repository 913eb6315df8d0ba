"""Drained nodes and a killed operator on a real API server, with the verdicts on both."""

from pathlib import Path

import pytest

from tests.validation.replay import assert_second_judge_agrees, run_command
from validation.report.verify import verify
from validation.run.session import Settings
from validation.scenario.loaded import SHIPPED

pytestmark = [pytest.mark.lab, pytest.mark.rare]

NAMES = ("drained", "restarted")


def test_quotas_are_kept_while_a_node_is_drained_and_nominations_outlive_the_operator(tmp_path: Path) -> None:
    chosen = Settings(out=tmp_path / "r", parts=("upkeep",))
    paths = [SHIPPED / "muster" / f"{name}.scenario.yaml" for name in NAMES]
    code, report = run_command(paths, chosen)
    assert report is not None
    assert code == 0, report.summary
    judged = {step.id: step.volatile.subjects for step in report.steps if step.required}
    assert judged["muster-drained/invariant/cordoned-node"] > 0
    assert judged["muster-restarted/invariant/nominations-last"] == 2
    assert verify(tmp_path / "r").problems == []
    assert_second_judge_agrees(tmp_path / "r")
