"""The interactive time limit on real kubelets, by `muster validate`: the ended job has its grace period."""

import asyncio
from pathlib import Path

import pytest

from musterlab.cluster import start
from tests.control.operators import muster, prepare
from tests.validation.witnessed_runs import operator
from validation.judge.events import PodSeen
from validation.report import log, record

pytestmark = [pytest.mark.lab, pytest.mark.real_nodes, pytest.mark.rare]

SCENARIO = "muster-time-limit"


def test_the_time_limit_passes_with_grace_periods(tmp_path: Path) -> None:
    lab = start("limits", nodes=0, real_nodes=2, detach=False, state_dir=tmp_path / "l")
    options = ("--target", "cluster", "--profile", "current", "--scenario", SCENARIO)
    try:
        account = asyncio.run(prepare(lab.kubeconfig, tmp_path / "operator.kubeconfig"))
        with operator(account, tmp_path / "operator.log"):
            done = muster(lab.kubeconfig, "validate", *options, "--out", str(tmp_path / "r"), timeout=600)
    finally:
        lab.stop()
    assert done.returncode == 1, done.stderr  # INCONCLUSIVE: only one scenario of the catalogue ran
    report = record.read(tmp_path / "r")
    verdicts = {step.id: (step.verdict, step.reasons) for step in report.steps}
    assert not [each for each in verdicts.values() if each[0] in {"FAIL", "ERROR", "BLOCKED"}], verdicts
    assert verdicts[f"{SCENARIO}/invariant/interactive-within-quota"][0] == "PASS"
    pods = [event for event in log.read_log(tmp_path / "r").events if isinstance(event, PodSeen)]
    terminating = [pod.t_ms for pod in pods if pod.workload == "p-2-gg" and pod.terminating and pod.holds]
    bound = [pod.t_ms for pod in pods if pod.workload == "p-3-gg" and pod.node]
    assert max(terminating) <= min(bound)
    assert any(pod.nominated_node for pod in pods if pod.workload == "p-3-gg")
