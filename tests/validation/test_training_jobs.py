"""Results of training jobs, by the command and by pytest: an honest result passes, an
incomplete or invented one fails.
"""

import json
from pathlib import Path

import msgspec
import pytest

from tests.validation.fake_target import FakeTarget
from tests.validation.headlines import pass_headline
from tests.validation.replay import assert_second_judge_agrees, both, run_command, run_pytest, settings
from tests.validation.training_targets import (
    NETAPP1,
    SMALL,
    CannotBeRead,
    ClaimsMoreTime,
    LeavesNothing,
    LosesItsData,
    PrintsTwice,
    PrintsWithoutTraining,
    PrintsWords,
    Trains,
    TrainsElsewhere,
    WithoutAgents,
)
from validation.judge.events import OutputSeen
from validation.report import log, manifest, record
from validation.report.redact import redact
from validation.report.sources import compare
from validation.report.verify import verify

FILES = [NETAPP1, SMALL]
GPU, MOUNTS, CPU = "netapp1/training/resnet50", "netapp1/training/mounts", "muster-training/training/resnet50"


def test_jobs_that_trained_pass_and_the_rate_is_in_the_report(tmp_path: Path) -> None:
    outcome = both(tmp_path, FILES, Trains, profile="current", parts=["training"])
    assert (outcome.command, outcome.pytest) == (0, 0), outcome.report.summary
    assert outcome.report.headline == pass_headline(3, "training")
    reason = next(step.reason for step in outcome.report.steps if step.id == GPU)
    assert reason.startswith("2560 images/s (95 %: 2560 to 2560)")
    assert "2560 images/s" in (outcome.directory / "report.html").read_text()
    assert "2560 images/s" in (outcome.directory / "report.md").read_text()


@pytest.mark.parametrize(
    ("target", "check", "verdict", "words"),
    [
        (LeavesNothing, GPU, "FAIL", "netapp1 left no result in 180.0 s"),
        (PrintsWithoutTraining, GPU, "FAIL", "named processes of netapp1-1 on 0 GPUs, not on 1"),
        (WithoutAgents, GPU, "INCONCLUSIVE", "only the job says that it used its GPUs"),
        (ClaimsMoreTime, CPU, "FAIL", "it timed 50.0 s of training, and its container ran for 21.0 s"),
        (TrainsElsewhere, GPU, "FAIL", "it trained on 1 cpu, not on 1 gpu"),
        (PrintsTwice, CPU, "FAIL", "printed 2 documents of a training run, not one"),
        (PrintsWords, CPU, "FAIL", "printed 0 documents of a training run, not one"),
        (LosesItsData, MOUNTS, "FAIL", "exit code 10: data fault: train-00001 is empty"),
        (CannotBeRead, CPU, "ERROR", "could not be read: 502 Bad Gateway"),
    ],
)
def test_omitted_or_made_up_results_are_not_green(
    target: type[FakeTarget], check: str, verdict: str, words: str, tmp_path: Path
) -> None:
    outcome = both(tmp_path, FILES, target, profile="current", parts=["training"], patience_percent=10)
    assert (outcome.command, outcome.pytest) == (1, 1), outcome.report.headline
    step = next(step for step in outcome.report.steps if step.id == check)
    assert (step.verdict, words in step.reason) == (verdict, True), step.reason
    assert_second_judge_agrees(outcome.directory)


def test_two_judges_agree_on_jobs_that_trained(tmp_path: Path) -> None:
    run_command(FILES, settings(tmp_path / "r", Trains, profile="current", parts=["training"]))
    assert_second_judge_agrees(tmp_path / "r")


def test_omitting_the_result_with_k_is_not_green(tmp_path: Path) -> None:
    chosen = settings(tmp_path / "r", Trains, profile="current", parts=["training"])
    assert run_pytest(FILES, chosen, "-k", "not resnet50") == 1
    report = record.read(tmp_path / "r")
    assert report.verdict == "INCONCLUSIVE"
    reasons = {entry.id: entry.reason for entry in report.requirements}
    assert reasons["training.workload"].startswith("1 of ")


def test_an_edited_result_is_refused(tmp_path: Path) -> None:
    """If the log is edited too, with a new manifest, the record still does not follow from the log."""
    directory = tmp_path / "r"
    run_command(FILES, settings(directory, LosesItsData, profile="current", parts=["training"]))
    path = directory / log.NAME
    path.write_bytes(path.read_bytes().replace(b'"exitCode":10', b'"exitCode":0'))
    assert verify(directory).problems == [f"{log.NAME}: was changed after the run"]
    (directory / manifest.NAME).write_bytes(manifest.render(directory))
    assert any("volatile is recorded as" in line for line in verify(directory).problems)


def test_another_device_than_the_scenario_names_is_refused(tmp_path: Path) -> None:
    """Otherwise, with a changed log and record, a job on a CPU would pass for a job on a GPU."""
    run_command(FILES, settings(tmp_path / "r", TrainsElsewhere, profile="current", parts=["training"]))
    report = log.read_log(tmp_path / "r").opened.report
    step = next(step for step in report.steps if step.id == GPU)
    assert step.job is not None
    step.job = msgspec.structs.replace(step.job, device="cpu")
    assert compare(report).problems == [f"check {GPU}: job is not as the file has it"]


def test_a_redacted_report_has_no_address_and_the_same_verdicts(tmp_path: Path) -> None:
    run_command(FILES, settings(tmp_path / "r", Trains, profile="current", parts=["training"]))
    assert b"10.0.0.1:/imagenet" in (tmp_path / "r" / log.NAME).read_bytes()
    redacted = redact(tmp_path / "r", tmp_path / "public")
    content = (tmp_path / "public" / log.NAME).read_bytes()
    assert b"10.0.0.1" not in content
    assert b"docker.io/netapp/tensorflow@" not in content
    assert redacted.headline == record.read(tmp_path / "r").headline


def test_the_log_has_the_line_and_the_kubelets_report_of_its_container(tmp_path: Path) -> None:
    run_command([SMALL], settings(tmp_path / "r", Trains, profile="current", parts=["training"]))
    (output,) = (e for e in log.read_log(tmp_path / "r").events if isinstance(e, OutputSeen))
    assert json.loads(output.line)["kind"] == "TrainingResult"
    assert (output.exit_code, output.node, output.image.partition("@")[2]) == (0, "n1", "sha256:0")
