"""hyper1 and build1 on real kubelets, by `muster validate`: the log is read, and a shell opens in the container."""

import asyncio
from pathlib import Path

import pytest

from musterlab.cluster import start
from tests.control.operators import muster, prepare
from tests.validation.test_submission import FILES
from tests.validation.witnessed_runs import operator
from validation.report import record
from validation.report.verify import verify

pytestmark = [pytest.mark.lab, pytest.mark.real_nodes, pytest.mark.rare]


def test_the_log_is_read_and_a_shell_opens(tmp_path: Path) -> None:
    lab = start("submission", nodes=0, real_nodes=2, detach=False, state_dir=tmp_path / "l")
    options = ["--target", "cluster", "--profile", "current", "--out", str(tmp_path / "r")]
    for path in FILES:
        options += ["--scenarios", str(path)]
    try:
        account = asyncio.run(prepare(lab.kubeconfig, tmp_path / "operator.kubeconfig"))
        with operator(account, tmp_path / "operator.log"):
            done = muster(lab.kubeconfig, "validate", *options, timeout=600)
    finally:
        lab.stop()
    report = record.read(tmp_path / "r")
    counted = {step.id: (step.verdict, step.reasons) for step in report.steps if step.required}
    assert {verdict for verdict, _ in counted.values()} == {"PASS"}, (counted, done.stderr)
    proven = {entry.id for entry in report.requirements if entry.verdict == "PASS"}
    assert proven >= {f"submission.{name}" for name in ("train", "log", "build", "shell")}
    assert verify(tmp_path / "r").problems == []
