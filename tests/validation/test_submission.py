"""The paper's hyper1 and build1, on doubles that run, show and delete them, and on doubles that do not."""

from pathlib import Path
from typing import Any

import pytest

from tests.validation.fake_target import FakeTarget
from tests.validation.mutant_targets import (
    ForgetsTheDefaultProject,
    ServesNothing,
    ShowsAnotherContainer,
    ShowsWhatIsNotSo,
)
from tests.validation.replay import assert_check, assert_second_judge_agrees, both, run_command, settings
from validation.judge.events import AnswerSeen, RequestAnswered
from validation.report import log, record
from validation.report.record import Command
from validation.report.redact import redact
from validation.report.verify import verify
from validation.scenario.loaded import SHIPPED
from validation.targets.recorder import Recorder
from validation.witness.reader import ReadFailed
from validation.witness.urls import Opened

FILES = sorted((SHIPPED / "tr4858").glob("submission-*.scenario.yaml"))
GET, LOG, SHELL = (
    "hyper1/view/jobs/team-a/hyper1",
    "hyper1/view/log/team-a/hyper1",
    "build1/view/shell/team-a/build1",
)
SERVED = "test-ingress/view/url/team-a/test-ingress"


class KeepsWhatIsDeleted(FakeTarget):
    """Reports a deleted job, which continues to run."""

    async def execute(self, line: str, *, started_ms: int) -> Command:
        if line.startswith("muster delete "):
            return Command(line, 0, started_ms, 1)
        return await super().execute(line, started_ms=started_ms)


class EndsSessions(FakeTarget):
    """Its sessions end by themselves."""

    def schedule(self) -> None:
        super().schedule()
        for pods in self.pods.values():
            for pod in pods:
                if pod.priority == 100 and pod.node:
                    self.tell(pod, change="modified", phase="Succeeded")


class HasNoLog(FakeTarget):
    """Its kubelet does not answer."""

    def read_log(self, namespace: str, pod: str, container: str) -> str:
        raise ReadFailed("502 Bad Gateway")


class LogsNothing(FakeTarget):
    """Its jobs print nothing."""

    def log_of(self, project: str, workload: str) -> str:
        return ""


class CannotEnter(FakeTarget):
    """Its shells do not open."""

    async def execute(self, line: str, *, started_ms: int) -> Command:
        if line.startswith("muster bash "):
            return Command(line, 126, started_ms, 1, stderr="Error: there is no /bin/bash")
        return await super().execute(line, started_ms=started_ms)


class AnswersEverywhere(FakeTarget):
    """Its ingress controller answers each URL with a page of its own."""

    async def open_url(self, url: str) -> Opened:
        return Opened(200)


class IsOutOfReach(FakeTarget):
    """The name of its ingress controller cannot be resolved."""

    async def open_url(self, url: str) -> Opened:
        return Opened(0, "Name or service not known")


class HasNoUrl(FakeTarget):
    """Its jobs have no SERVICE URL yet."""

    def with_urls(self, project: str) -> list[dict[str, Any]]:
        return [{**row, "serviceUrls": ["<pending>"]} for row in super().with_urls(project)]


class NobodyWatches(FakeTarget):
    """A target without a reader of logs."""

    def recording(self, recorder: Recorder):  # type: ignore[no-untyped-def]
        context = super().recording(recorder)
        self.read_log = None  # type: ignore[assignment]
        return context


def test_all_of_it_passes(tmp_path: Path) -> None:
    outcome = both(tmp_path, FILES, profile="current")
    assert (outcome.command, outcome.pytest) == (1, 1), "the rest of the catalogue did not run"
    counted = {step.verdict for step in outcome.report.steps if step.required}
    assert counted == {"PASS"}, [step.reasons for step in outcome.report.steps]
    proven = {entry.id for entry in outcome.report.requirements if entry.verdict == "PASS"}
    assert proven >= {
        f"submission.{name}" for name in ("train", "log", "build", "shell", "ingress", "default-project")
    }
    assert verify(outcome.directory).problems == []
    assert_second_judge_agrees(outcome.directory)


@pytest.mark.parametrize(
    ("target", "check", "verdict", "words"),
    [
        (KeepsWhatIsDeleted, "hyper1-deleted/delete", "FAIL", "team-a: expected 1 GPUs, has 2"),
        (KeepsWhatIsDeleted, "build1-deleted/delete", "FAIL", "team-a: expected 1 GPUs, has 2"),
        (EndsSessions, "build1/submit", "FAIL", "expected"),
        (ShowsWhatIsNotSo, GET, "FAIL", 'team-a/hyper1: status is "Pending", not "Running"'),
        (ShowsAnotherContainer, LOG, "FAIL", "prints another log than the kubelet has"),
        (ShowsAnotherContainer, SHELL, "FAIL", "does not print the name of a pod of build1 that runs"),
        (HasNoLog, LOG, "ERROR", "the kubelet does not hand out the log: 502 Bad Gateway"),
        (NobodyWatches, LOG, "ERROR", "the cluster is not watched"),
        (LogsNothing, LOG, "INCONCLUSIVE", "the job has printed no line"),
        (CannotEnter, SHELL, "FAIL", "ended with exit code 126: Error: there is no /bin/bash"),
        (ServesNothing, SERVED, "FAIL", "the SERVICE URL is answered with 502"),
        (AnswersEverywhere, SERVED, "FAIL", "the SERVICE URL-no-such-job is answered with 200"),
        (IsOutOfReach, SERVED, "ERROR", "the SERVICE URL is not answered: Name or service not known"),
        (HasNoUrl, SERVED, "FAIL", "shows no SERVICE URL"),
        (ForgetsTheDefaultProject, "default-project/submit", "FAIL", "team-a: expected 1 GPUs, has 0"),
    ],
)
def test_missing_or_wrong_answers_are_not_green(
    target: type[FakeTarget], check: str, verdict: str, words: str, tmp_path: Path
) -> None:
    name = check.partition("/")[0].removesuffix("-deleted")
    chosen = settings(tmp_path / "r", target, profile="current", patience_percent=10)
    code, report = run_command([path for path in FILES if name in path.name], chosen)
    assert code == 1
    assert report is not None
    assert_check(report, tmp_path / "r", check, verdict, words)


def test_in_a_lab_checks_with_containers_do_not_apply(tmp_path: Path) -> None:
    _, report = run_command(FILES, settings(tmp_path / "r", parts=["submission"]))
    assert report is not None
    verdicts = {
        entry.id: entry.verdict for entry in report.requirements if entry.id.startswith("submission.")
    }
    assert verdicts == {
        "submission.train": "PASS",
        "submission.log": "NOT_APPLICABLE",
        "submission.build": "PASS",
        "submission.shell": "NOT_APPLICABLE",
        "submission.ingress": "NOT_APPLICABLE",
        "submission.default-project": "PASS",
        "submission.needs-command": "NOT_APPLICABLE",
        "submission.other-clients": "INCONCLUSIVE",
    }


def test_a_record_has_no_line_of_a_log_and_a_redacted_one_no_project(tmp_path: Path) -> None:
    run_command(FILES, settings(tmp_path / "r", profile="current"))
    assert b", epoch 1" not in (tmp_path / "r" / log.NAME).read_bytes()
    redacted = redact(tmp_path / "r", tmp_path / "public")
    before = record.read(tmp_path / "r")
    assert [step.verdict for step in redacted.steps] == [step.verdict for step in before.steps]
    assert verify(tmp_path / "public").problems == []
    events = log.read_log(tmp_path / "public").events
    shown = [event.view for event in events if isinstance(event, AnswerSeen)]
    read = [event.check for event in events if isinstance(event, RequestAnswered)]
    assert not [name for name in [*shown, *read] if "team-a" in name]
    content = (tmp_path / "public" / log.NAME).read_bytes()
    for printed in (
        b"tr4858-4.8/team-a",
        b"base_url=team-a-test-ingress",
    ):  # a step and a command of the paper
        assert printed in content
        content = content.replace(printed, b"")
    assert b"team-a" not in content
    assert b"gpus.example.com" not in content
