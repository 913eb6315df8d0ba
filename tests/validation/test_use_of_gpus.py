"""The use of all GPUs, by the command and by pytest: 97 % pass; less, hidden or unknown use does not pass."""

from pathlib import Path

import pytest

from tests.validation.fake_target import FakeTarget
from tests.validation.headlines import pass_headline
from tests.validation.replay import assert_second_judge_agrees, both, run_command, settings
from tests.validation.use_targets import (
    Changes,
    EndsAJob,
    HasOneAgentOfTwo,
    IsSilentForAMoment,
    IsSilentForAWhile,
    LeavesOneIdle,
    LosesItsDriver,
    NeverGivesOne,
    RepeatsItsPage,
    SaysNonsense,
    Uses,
    UsesLess,
)
from validation.judge.events import SamplesSeen
from validation.judge.use.utilization import Standard, Utilization
from validation.report import log, manifest, record
from validation.report.diff import differences
from validation.report.redact import redact
from validation.report.sources import compare
from validation.report.verify import verify
from validation.scenario.loaded import SHIPPED

HEAVY = SHIPPED / "tr4858" / "utilization.scenario.yaml"
CHECK = "netapp-heavy/utilization"


def run(target: type[FakeTarget], directory: Path) -> record.CheckResult:
    run_command([HEAVY], settings(directory, target, profile="current", parts=["utilization"]))
    return use_of(record.read(directory))


def use_of(report: record.Report) -> record.CheckResult:
    return next(step for step in report.steps if step.id == CHECK)


def percents(step: record.CheckResult) -> dict[str, int | None]:
    use = step.volatile.utilization
    assert isinstance(use, Utilization)
    return {gpu.name: gpu.centi_percent for gpu in use.gpus}


def test_sixteen_gpus_at_97_percent_pass_and_the_pages_show_the_measured_values(tmp_path: Path) -> None:
    outcome = both(tmp_path, [HEAVY], Uses, profile="current", parts=["utilization"])
    assert (outcome.command, outcome.pytest) == (0, 0), outcome.report.summary
    assert outcome.report.headline == pass_headline(2, "utilization")
    step = use_of(outcome.report)
    assert percents(step) == {f"n{node}/{gpu}": 9700 for node in (1, 2) for gpu in range(8)}
    assert (step.least.samples, step.volatile.evidence.samples) == (960, 9600)
    for name in ("report.html", "report.md"):
        text = (outcome.directory / name).read_text()
        assert "97.00 % over 600.0 s, 16 of 16 GPUs held" in text
        assert "9600 samples of 960" in text or name == "report.md"


def test_one_idle_gpu_ends_both_front_doors_alike(tmp_path: Path) -> None:
    outcome = both(tmp_path, [HEAVY], LeavesOneIdle, profile="current", parts=["utilization"])
    assert (outcome.command, outcome.pytest) == (1, 1), outcome.report.headline
    assert outcome.report.headline.startswith("FAIL")
    assert "n2/5" in outcome.report.summary


@pytest.mark.parametrize(
    ("target", "verdict", "words"),
    [
        (UsesLess, "FAIL", "94.00 %, lowest n1/0 at 94.00 %; at least 95 % are asked for"),
        (LeavesOneIdle, "FAIL", "held, and idle for 60.0 s or more: n2/5"),
        (NeverGivesOne, "FAIL", "15 of 16 GPUs were held"),
        (EndsAJob, "FAIL", "not held all the time: n1/4, n1/5"),
        (IsSilentForAWhile, "INCONCLUSIVE", "nothing is known of n2/0 for 13.0 s"),
        (RepeatsItsPage, "INCONCLUSIVE", "nothing is known of n2/0 for 13.0 s"),
        (LosesItsDriver, "INCONCLUSIVE", "nothing is known of n2/0 for 306.0 s"),
        (IsSilentForAMoment, "PASS", ""),
        (HasOneAgentOfTwo, "ERROR", "no page of the agent of n2"),
        (SaysNonsense, "ERROR", "no page of the agent of n2"),
        (FakeTarget, "ERROR", "no page of the agent of n1, n2"),
    ],
)
def test_lower_hidden_or_unknown_use_is_not_green(
    target: type[FakeTarget], verdict: str, words: str, tmp_path: Path
) -> None:
    chosen = settings(tmp_path / "r", target, profile="current", parts=["utilization"])
    code, report = run_command([HEAVY], chosen)
    assert report is not None
    assert code == (0 if verdict == "PASS" else 1), report.headline
    step = use_of(report)
    assert (step.verdict, step.reason.startswith(words)) == (verdict, True), step.reason
    assert_second_judge_agrees(tmp_path / "r")


def test_a_duty_that_was_put_in_is_found_within_one_point(tmp_path: Path) -> None:
    step = run(Changes, tmp_path / "r")
    window = step.volatile.window
    assert window is not None
    seconds = range(window.started_ms // 1000 + 1, window.ended_ms // 1000 + 1)
    for name, centi_percent in percents(step).items():
        gpu = int(name.partition("/")[2])
        truth = sum((second * (gpu + 1) * 7) % 101 for second in seconds) / len(seconds)
        assert centi_percent is not None
        assert abs(centi_percent / 100 - truth) <= 1
    assert_second_judge_agrees(tmp_path / "r")


def test_in_the_lab_the_row_does_not_apply_and_no_time_is_spent(tmp_path: Path) -> None:
    run_command([HEAVY], settings(tmp_path / "r", Uses, parts=["utilization"]))
    report = record.read(tmp_path / "r")
    step = use_of(report)
    assert (step.verdict, step.reason) == ("NOT_APPLICABLE", "rates of real GPUs")
    assert report.volatile.run.duration_ms < 60_000
    assert report.headline == pass_headline(1, "utilization")


def test_why_a_node_is_not_known_is_in_the_report_and_not_in_a_redacted_one(tmp_path: Path) -> None:
    step = run(IsSilentForAWhile, tmp_path / "r")
    assert step.volatile.causes == ["n2: its agent does not answer: 503 Service Unavailable of 10.1.2.3"]
    redacted = redact(tmp_path / "r", tmp_path / "public")
    content = (tmp_path / "public" / log.NAME).read_bytes()
    assert b"10.1.2.3" not in content
    assert b"muster-team-a" not in content
    assert b'"project":"team-a"' not in content
    assert (use_of(redacted).verdict, redacted.headline) == (
        step.verdict,
        record.read(tmp_path / "r").headline,
    )
    assert verify(tmp_path / "public").problems == []


def test_two_runs_do_not_differ_and_an_easier_standard_is_refused(tmp_path: Path) -> None:
    run(Uses, tmp_path / "r")
    run(Uses, tmp_path / "again")
    report = record.read(tmp_path / "r")
    assert differences(report, record.read(tmp_path / "again")) == []
    opened = log.read_log(tmp_path / "r").opened.report
    use_of(opened).utilization = Standard(minimum_percent=50)
    assert compare(opened).problems == [f"check {CHECK}: utilization is not as the file has it"]


def test_an_edited_sample_is_refused(tmp_path: Path) -> None:
    """If the log is edited too, with a new manifest, the record still does not follow from the log."""
    run(UsesLess, tmp_path / "r")
    path = tmp_path / "r" / log.NAME
    path.write_bytes(path.read_bytes().replace(b'"percent":94', b'"percent":97'))
    (tmp_path / "r" / manifest.NAME).write_bytes(manifest.render(tmp_path / "r"))
    problems = verify(tmp_path / "r").problems
    assert any("verdict is recorded as" in line and CHECK in line for line in problems), problems


def test_samples_are_events_of_the_log(tmp_path: Path) -> None:
    run(Uses, tmp_path / "r")
    samples = [e for e in log.read_log(tmp_path / "r").events if isinstance(e, SamplesSeen)]
    assert len(samples) == 2 * 901
    assert {len(event.gpus) for event in samples} == {8}
    assert samples[0].gpus[0].holders[0].startswith("muster-team-a/netapp-heavy-a-1-")
