"""Digests of exact computations in containers of two real kubelets, on their processors, by `muster validate`."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from musterlab.cluster import Lab, start
from tests.control.operators import muster, prepare
from tests.validation.digests_targets import DIGESTS
from tests.validation.replay import assert_second_judge_agrees
from tests.validation.training_image import build_python
from tests.validation.witnessed_runs import operator
from validation.judge.events import OutputSeen
from validation.judge.training.digests import parse_digests
from validation.report import log, record
from validation.report.verify import verify
from validation.workloads.digests import Plain

pytestmark = [pytest.mark.lab, pytest.mark.real_nodes, pytest.mark.rare]

IMAGE = "docker.io/library/plain-python:3"


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    archive = build_python(tmp_path, IMAGE)
    running = start(
        "digests", nodes=0, real_nodes=2, detach=False, state_dir=tmp_path / "l", image_archives=[archive]
    )
    try:
        yield running
    finally:
        running.stop()


def on_processors(directory: Path) -> Path:
    """Write the shipped scenario into the directory, with the image of the lab and for processors; return its path."""
    text = DIGESTS.read_text()
    for ours, other in (
        ("site/pytorch", IMAGE),
        ('--args "--num_devices=8"', '--args "--device=cpu" --args "--num_devices=8"'),
        ("  result: digests\n", "  result: digests\n  device: cpu\n"),
    ):
        assert text.count(ours) == 1
        text = text.replace(ours, other)
    directory.mkdir()
    path = directory / DIGESTS.name
    path.write_text(text)
    return path


def test_pods_on_two_nodes_have_equal_digests(lab: Lab, tmp_path: Path) -> None:
    account = asyncio.run(prepare(lab.kubeconfig, tmp_path / "operator.kubeconfig"))
    path, out = on_processors(tmp_path / "scenarios"), tmp_path / "report"
    command = ("validate", "--target", "cluster", "--profile", "current", "--scenarios", str(path))
    with operator(account, tmp_path / "operator.log"):
        done = muster(lab.kubeconfig, *command, "--patience", "4", "--out", str(out), timeout=3600)
    assert done.returncode == 1, done.stderr  # INCONCLUSIVE: only one scenario of the catalogue ran
    steps = {step.id: (step.verdict, step.reasons) for step in record.read(out).steps}
    assert steps["muster-digests/training/digests"] == (
        "PASS",
        [f"exact results of 16 devices in 5 repeats, by {Plain().version}"],
    ), (steps, done.stdout)
    assert steps["muster-digests/run"][0] == "PASS", steps
    outputs = [event for event in log.read_log(out).events if isinstance(event, OutputSeen)]
    documents = [parse_digests(output.line) for output in outputs]
    assert len({output.node for output in outputs}) == len(documents) == 2
    assert all(one is not None and len(one.devices) == 8 for one in documents)
    assert verify(out).problems == []
    assert_second_judge_agrees(out)
