"""A volume that is written, read on another node and reused, on a double that keeps it and on doubles that do not."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.validation.fake_target import FakeTarget
from tests.validation.mutant_targets import (
    ClonesNothing,
    HasTwoVolumes,
    HidesTheMount,
    TakesNoSnapshot,
)
from tests.validation.replay import assert_check, assert_second_judge_agrees, both, run_command, settings
from validation.report import record
from validation.report.redact import redact
from validation.report.verify import verify
from validation.scenario.commands import Action, Delete
from validation.scenario.loaded import SHIPPED

FILES = sorted((SHIPPED / "tr4858").glob("volume-*.scenario.yaml"))
WRITTEN = "pvc-test/view/written/team-a/pvc-test"
READ = "pvc-test/view/read/team-a/pvc-reader"
REUSED = "pvc-test-deleted/view/reused/team-a/pvc-again"
CLONED = "pvc-test-cloned/view/cloned/team-a/pvc-clone"
MOUNTS = "pvc-test/view/mounts/team-a/pvc-test"
SNAPSHOT = "pvc-test-cloned/view/snapshot/team-a/pvc-again"


class LosesWhatWasWritten(FakeTarget):
    """Its volume is empty after the job that wrote was deleted."""

    def act(self, action: Action) -> None:
        super().act(action)
        self.volume = "" if isinstance(action, Delete) else self.volume


class MakesTheClaimAnew(FakeTarget):
    """Deletes the PersistentVolumeClaim with its jobs, and creates it again."""

    def act(self, action: Action) -> None:
        super().act(action)
        self.claim_uid = "uid-of-another" if isinstance(action, Delete) else self.claim_uid


class AnswersOfClaims(FakeTarget):
    """Its API server gives wrong answers about PersistentVolumeClaims."""

    status, claim = 200, "{}"

    def send(self, method: str, path: str, body: str) -> tuple[int, str]:
        return super().send(method, path, body) if method == "POST" else (self.status, self.claim)


class HasNoClaim(AnswersOfClaims):
    """Its PersistentVolumeClaims are missing when they are read."""

    status = 404


class HasNoVolume(AnswersOfClaims):
    """Its PersistentVolumeClaim stays pending without a volume."""

    claim = json.dumps({"metadata": {"uid": "uid-of-test"}, "spec": {}})


class RefusesClaims(FakeTarget):
    """Refuses to create PersistentVolumeClaims."""

    def send(self, method: str, path: str, body: str) -> tuple[int, str]:
        return (403, "{}") if method == "POST" else super().send(method, path, body)


class MakesAnEmptyVolume(FakeTarget):
    """Gives a job a new volume that has the text and is no clone."""

    def clone(self, name: str) -> dict[str, Any]:
        its = super().clone(name)
        return {"metadata": its["metadata"], "spec": {"volumeName": "pvc-of-another"}}


class ClonesAnEmptyVolume(FakeTarget):
    """Its clones have no text."""

    def answer(self, line: str, pod: str) -> str:
        return pod if pod.startswith("pvc-clone") else super().answer(line, pod)


class TakesASnapshotOfAnother(FakeTarget):
    """Its snapshots are of another volume."""

    def snapshot(self, name: str) -> dict[str, Any]:
        return super().snapshot(name) | {"spec": {"source": {"persistentVolumeClaimName": "other"}}}


class HasNoSnapshots(FakeTarget):
    """Its API server does not know snapshots."""

    def send(self, method: str, path: str, body: str) -> tuple[int, str]:
        return (404, "{}") if "/volumesnapshots/" in path else super().send(method, path, body)


class MountsNothing(FakeTarget):
    """Its jobs mount no volume, and it shows none."""

    def __init__(self) -> None:
        super().__init__()
        self.mounted = []

    def send(self, method: str, path: str, body: str) -> tuple[int, str]:
        return (200, '{"items": []}') if "/pods?" in path else super().send(method, path, body)


class ShowsNoVolume(FakeTarget):
    """Shows no volumes of jobs."""

    def __init__(self) -> None:
        super().__init__()
        self.mounted = []


class AnswersFromElsewhere(FakeTarget):
    """Opens all shells in one pod."""

    def answer(self, line: str, pod: str) -> str:
        return super().answer(line, "pvc-test-1")


def test_a_volume_that_is_reused_passes(tmp_path: Path) -> None:
    outcome = both(tmp_path, FILES, profile="current")
    assert {step.verdict for step in outcome.report.steps if step.required} == {"PASS"}
    proven = {one.id for one in outcome.report.requirements if one.verdict == "PASS"}
    assert proven >= {f"storage.{name}" for name in ("volume-reused", "mount-shown", "clone", "workspace")}
    assert verify(outcome.directory).problems == []
    assert_second_judge_agrees(outcome.directory)


@pytest.mark.parametrize(
    ("target", "check", "verdict", "words"),
    [
        (LosesWhatWasWritten, REUSED, "FAIL", "pvc-again does not read the text that pvc-test wrote"),
        (HasTwoVolumes, READ, "FAIL", "pvc-reader reads a text that names no pod of pvc-test"),
        (HasTwoVolumes, WRITTEN, "FAIL", "did not run in a pod of pvc-test"),
        (MakesTheClaimAnew, REUSED, "FAIL", "the claim test is another one"),
        (HasNoClaim, WRITTEN, "ERROR", "the claim test cannot be read: 404"),
        (HasNoVolume, WRITTEN, "FAIL", "the claim test has no volume"),
        (AnswersOfClaims, READ, "FAIL", "the claim test has no volume"),
        (RefusesClaims, "pvc-test/submit", "FAIL", "claim test of team-a is not created: 403"),
        (HidesTheMount, MOUNTS, "FAIL", "does not show the volumes test at /tmp/pvc1mount"),
        (ShowsNoVolume, MOUNTS, "FAIL", "does not show the volumes test at /tmp/pvc1mount"),
        (MountsNothing, MOUNTS, "INCONCLUSIVE", "the pods of the job mount no volume"),
        (ClonesNothing, CLONED, "FAIL", "the clone is the claim test or its volume"),
        (MakesAnEmptyVolume, CLONED, "FAIL", "the claim of pvc-clone is no clone of test"),
        (ClonesAnEmptyVolume, CLONED, "FAIL", "pvc-clone does not read the text that pvc-test wrote"),
        (TakesNoSnapshot, SNAPSHOT, "FAIL", "the snapshot is not ready"),
        (TakesASnapshotOfAnother, SNAPSHOT, "FAIL", "the snapshot is not of the claim test"),
        (HasNoSnapshots, SNAPSHOT, "ERROR", "the snapshot cannot be read: 404"),
        (AnswersFromElsewhere, READ, "FAIL", "did not run in a pod of pvc-reader"),
    ],
)
def test_an_unshared_volume_is_not_green(
    target: type[FakeTarget], check: str, verdict: str, words: str, tmp_path: Path
) -> None:
    code, report = run_command(
        FILES, settings(tmp_path / "r", target, profile="current", patience_percent=10)
    )
    assert code == 1
    assert report is not None
    assert_check(report, tmp_path / "r", check, verdict, words)


def test_in_a_lab_it_does_not_apply_and_no_claim_is_made(tmp_path: Path) -> None:
    _, report = run_command(FILES, settings(tmp_path / "r", RefusesClaims))
    assert report is not None
    assert {step.verdict for step in report.steps} == {"NOT_APPLICABLE"}, (
        "nor do invariants of what does not run"
    )


def test_a_redacted_report_has_the_same_verdicts(tmp_path: Path) -> None:
    run_command(FILES, settings(tmp_path / "r", profile="current"))
    redacted = redact(tmp_path / "r", tmp_path / "public")
    assert [s.verdict for s in redacted.steps] == [s.verdict for s in record.read(tmp_path / "r").steps]
    assert verify(tmp_path / "public").problems == []
