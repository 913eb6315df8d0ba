"""The checks that need containers, on real kubelets: hyper1's log, a shell in build1, and a volume.

The volume is a directory of this machine, which both nodes share, instead of one by Trident.
"""

import asyncio
import json
import subprocess
from pathlib import Path

import pytest

from musterlab.cluster import Lab, start
from tests.control.operators import muster, prepare
from tests.validation.test_submission import FILES as SUBMISSION
from tests.validation.test_volumes import FILES as VOLUMES
from tests.validation.witnessed_runs import operator
from validation.report import record
from validation.report.verify import verify

pytestmark = [pytest.mark.lab, pytest.mark.real_nodes, pytest.mark.rare]


def make_volume(lab: Lab, path: Path) -> None:
    """Create a PersistentVolume to which many nodes may write."""
    path.mkdir(mode=0o777)
    path.chmod(0o777)
    volume = {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": "shared"},
        "spec": {
            "accessModes": ["ReadWriteMany"],
            "capacity": {"storage": "1Gi"},
            "hostPath": {"path": str(path), "type": "Directory"},
        },
    }
    command = [str(lab.kubectl_directory / "kubectl"), f"--kubeconfig={lab.kubeconfig}", "create", "-f", "-"]
    subprocess.run(command, input=json.dumps(volume), text=True, check=True, capture_output=True)


def test_checks_with_containers_are_judged_on_real_kubelets(tmp_path: Path) -> None:
    options = ["--target", "cluster", "--profile", "current", "--out", str(tmp_path / "r")]
    for path in [*SUBMISSION, *VOLUMES]:
        options += ["--scenarios", str(path)]
    lab = start("containers", nodes=0, real_nodes=2, detach=False, state_dir=tmp_path / "l")
    try:
        make_volume(lab, tmp_path / "volume")
        account = asyncio.run(prepare(lab.kubeconfig, tmp_path / "operator.kubeconfig"))
        with operator(account, tmp_path / "operator.log"):
            done = muster(lab.kubeconfig, "validate", *options, timeout=600)
    finally:
        lab.stop()
    report = record.read(tmp_path / "r")
    counted = {step.id: (step.verdict, step.reasons) for step in report.steps if step.required}
    assert {verdict for verdict, _ in counted.values()} == {"PASS"}, (counted, done.stderr)
    proven = {entry.id for entry in report.requirements if entry.verdict == "PASS"}
    rows = {f"submission.{name}" for name in ("train", "log", "build", "shell")}
    assert proven >= rows | {"storage.volume-reused"}
    assert {one.node for one in report.volatile.images or ()} == {"dgx1-real-1", "dgx1-real-2"}
    assert all(one.digest.startswith("sha256:") for one in report.volatile.images or ())
    assert verify(tmp_path / "r").problems == []
