"""`muster validate --target planner`: the scenarios on the planner alone. Covers validation/targets/planner.py."""

import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from orchestrator.planner import plan
from orchestrator.planner.model import Eviction, Plan, PodState, Snapshot
from tests import forks
from tests.validation.headlines import pass_headline
from tests.validation.replay import GANG, VICTIM, assert_second_judge_agrees, run_command
from validation.report import record
from validation.report.record import Report
from validation.report.redact import redact
from validation.report.verify import verify
from validation.run.session import Settings
from validation.scenario.loaded import SHIPPED
from validation.targets.kinds import PLANNER
from validation.targets.planner import PlannerTarget

PYTEST = (
    sys.executable,
    "-m",
    "pytest",
    "-p",
    "validation.harness.plugin",
    "-p",
    "no:cacheprovider",
    "-c",
    os.devnull,
)
NO_PLUGINS = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}


def command(out: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    return forks.run(["validate", "--target", "planner", "--out", str(out), *arguments], os.environ, 300)


def with_pytest(out: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    words = [
        *PYTEST,
        "--rootdir",
        str(SHIPPED),
        "--muster-target",
        "planner",
        "--muster-report",
        str(out),
        *arguments,
    ]
    return subprocess.run(
        words, capture_output=True, text=True, check=False, env={**os.environ, **NO_PLUGINS}
    )


def run_on(target: PlannerTarget, directory: Path, *paths: Path) -> Report:
    chosen = Settings(target=PLANNER, out=directory, open_target=lambda: target)
    _, report = run_command(paths, chosen)
    assert report is not None
    return report


Whole = tuple[Path, "subprocess.CompletedProcess[str]"]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Whole:
    """Run all shipped scenarios by the command; return the record and the ended command."""
    out = tmp_path_factory.mktemp("whole") / "r"
    return out, command(out)


def test_the_command_proves_the_requirements_of_the_planner_alone(whole: Whole, tmp_path: Path) -> None:
    out, done = whole
    assert pass_headline(22, "all that apply to the profile planner") in done.stdout, done.stderr
    assert done.returncode == 0
    report = json.loads((out / "report.json").read_text())
    assert report["target"]["kind"] == "planner"
    assert "no API server, no kubelet" in report["target"]["cluster is"]
    assert report["cluster"]["kubernetes"] == "none"
    assert {entry["verdict"] for entry in report["requirements"]} == {"PASS", "NOT_APPLICABLE"}
    assert forks.run(["report", "verify", str(out)], os.environ, 300).returncode == 0
    assert_second_judge_agrees(out)
    public = redact(out, tmp_path / "public")  # a redacted record of all shipped scenarios
    before = record.read(out)
    assert [step.verdict for step in public.steps] == [step.verdict for step in before.steps]
    assert (public.headline, public.acceptance) == (before.headline, before.acceptance)
    assert verify(tmp_path / "public").is_compared
    assert_second_judge_agrees(tmp_path / "public")


@pytest.mark.parametrize(
    ("of_command", "of_pytest"), [((), ()), (("--scenario", "muster-gang"), ("-k", "gang"))]
)
def test_pytest_ends_as_the_command_does(
    of_command: tuple[str, ...], of_pytest: tuple[str, ...], whole: Whole, tmp_path: Path
) -> None:
    ours = command(tmp_path / "command", *of_command) if of_command else whole[1]
    theirs = with_pytest(tmp_path / "pytest", *of_pytest, str(SHIPPED))
    assert theirs.returncode == ours.returncode == (1 if of_command else 0), theirs.stdout


def test_two_runs_do_not_differ(tmp_path: Path) -> None:
    for name in ("first", "second"):
        run_on(PlannerTarget(), tmp_path / name, GANG, VICTIM)
    done = forks.run(["report", "diff", str(tmp_path / "first"), str(tmp_path / "second")], os.environ, 300)
    assert (done.returncode, done.stdout) == (0, "")


def idle(snapshot: Snapshot) -> Plan:
    """Return the planner's decision without its bindings."""
    return dataclasses.replace(plan(snapshot), bindings=())


def on_the_first_gpus(snapshot: Snapshot) -> Plan:
    """Return the planner's decision with each binding on the first GPUs of its node."""
    decision = plan(snapshot)
    bindings = (dataclasses.replace(b, devices=tuple(range(len(b.devices)))) for b in decision.bindings)
    return dataclasses.replace(decision, bindings=tuple(bindings))


def restless(snapshot: Snapshot) -> Plan:
    """Return the planner's decision with an eviction of each running pod."""
    evictions = [
        Eviction(pod.id, workload.id, workload.id, "test", "for no reason")
        for workload in snapshot.workloads
        for pod in workload.pods
        if pod.state is PodState.ALLOCATED
    ]
    return dataclasses.replace(plan(snapshot), evictions=tuple(evictions))


def test_a_planner_that_binds_no_pod_fails(tmp_path: Path) -> None:
    report = run_on(PlannerTarget(idle), tmp_path, VICTIM)
    assert (report.verdict, report.steps[0].verdict) == ("FAIL", "FAIL")
    assert "the expected state was not reached within" in report.steps[0].reason


def test_a_planner_that_gives_a_gpu_twice_fails(tmp_path: Path) -> None:
    report = run_on(PlannerTarget(on_the_first_gpus), tmp_path, VICTIM)
    failed = [step.id for step in report.steps if step.verdict == "FAIL"]
    assert report.verdict == "FAIL"
    assert "muster-victim/invariant/gpu-capacity" in failed


def test_a_planner_that_does_not_come_to_rest_fails(tmp_path: Path) -> None:
    report = run_on(PlannerTarget(restless), tmp_path, GANG)
    assert report.verdict == "FAIL"
    assert "the planner still changes its mind after 100 decisions" in report.steps[0].reason
