"""Silent data corruption: digests of exact computations on each GPU, by `muster validate` and by the second judge."""

import shlex
from pathlib import Path
from typing import Any

import pytest

from tests.validation.digests_targets import (
    DIGESTS,
    IMAGE,
    Computes,
    CorruptsSilently,
    always_wrong,
    clean,
    computing,
    once_wrong,
    uuid,
    with_image,
)
from tests.validation.fake_target import FakeTarget
from tests.validation.replay import assert_second_judge_agrees, run_command, settings
from validation.report import log, record
from validation.report.redact import redact
from validation.report.verify import verify
from validation.run.programs import PROGRAMS
from validation.scenario.scaling import parse_size

CHECK = "muster-digests/training/digests"
REPLACE = "-> replace the GPU"
NOTHING: dict[str, Any] = {"digests": {}}
OTHER_GPU = {"model": "NVIDIA H100 80GB HBM3", "processors": 132}


def run(directory: Path, target: type[FakeTarget], **more: Any) -> record.CheckResult:
    """Run the scenario at a site that names an image; return the result of the check of digests."""
    chosen = {"profile": "current", "patience_percent": 10, "open_hosts": with_image} | more
    _, report = run_command([DIGESTS], settings(directory, target, **chosen))
    assert report is not None
    return next(step for step in report.steps if step.id == CHECK)


def test_gpus_with_equal_results_pass(tmp_path: Path) -> None:
    step = run(tmp_path / "r", Computes)
    assert step.verdict == "PASS", step.reason
    assert step.reason == "equal digests of 16 devices in 3 repeats, by PyTorch 2.9.1, CUDA 12.8"
    report = record.read(tmp_path / "r")
    assert {one.id: one.verdict for one in report.requirements}["results.equal"] == "PASS"
    assert_second_judge_agrees(tmp_path / "r")
    assert verify(tmp_path / "r").problems == []


N1, N2 = ("n1", 2), ("n2", 5)
WRONG = next(iter(always_wrong()["product"]))
GPU2, GPU5 = f"n1 GPU 2 ({uuid(*N1)})", f"n2 GPU 5 ({uuid(*N2)})"
EVERY: dict[tuple[str, int], dict[str, Any]] = {
    (node, index): {} for node in ("n1", "n2") for index in range(8)
}


@pytest.mark.parametrize(
    ("target", "verdict", "reason"),
    [
        (
            CorruptsSilently,
            "FAIL",
            f"{GPU5}: another result of product than 15 devices of its kind {REPLACE}",
        ),
        (
            computing({N2: {"digests": once_wrong()}}),
            "FAIL",
            f"{GPU5}: 2 different results of product in 3 repeats {REPLACE}",
        ),
        (computing({N1: {"digests": once_wrong()}, N2: {"digests": always_wrong()}}), "FAIL", f"; {GPU5}: another"),
        (
            computing({N1: {**OTHER_GPU, "digests": always_wrong()}, N2: OTHER_GPU}),
            "FAIL",
            f"{GPU2} is a suspect: product is {WRONG[:8]}, of 2 results without a majority {REPLACE}; {GPU5} is",
        ),
        (computing({N2: OTHER_GPU}), "INCONCLUSIVE", f"{GPU5} is the only one of its kind: a constant defect"),
        (computing({N2: {"library": "PyTorch 2.8.0"}}), "INCONCLUSIVE", f"{GPU5} is the only one of its kind"),
        (
            computing({N2: {**NOTHING, "problem": "RuntimeError: CUDA error"}}),
            "FAIL",
            f"{GPU5} computed nothing: RuntimeError: CUDA error -> ask support",
        ),
        (
            computing({at: {**NOTHING, "problem": "the image has neither"} for at in EVERY}),
            "INCONCLUSIVE",
            "not read: n1: the image has neither; n2: the image has neither",
        ),
        (
            computing({at: {**NOTHING, "problem": "no library"} for at in EVERY if at[0] == "n2"}),
            "INCONCLUSIVE",
            "not read: n2: no library",
        ),
        (computing({N2: {"uuid": uuid("n2", 4)}}), "FAIL", "15 devices computed, not 16"),
        (computing({}, devices=[]), "INCONCLUSIVE", "not read: n1: no device; n2: no device"),
        (computing({}, deviceKind="cpu"), "FAIL", "did not compute on a gpu"),
        (computing({}, kind="TrainingResult"), "FAIL", "printed no document of digests"),
        (computing({}, repeats=2), "ERROR", "has not 3 whole repeats"),
        (computing({}, repeats=5), "ERROR", "has not 3 whole repeats"),
        (computing({N2: {"digests": {"product": clean()["product"]}}}), "ERROR", f"{GPU5} has not 3 whole"),
        (type("Crashes", (Computes,), {"exit_code": 1}), "FAIL", "ended with exit code 1"),
        (type("Unread", (Computes,), {"problem_of_output": "502 Bad Gateway"}), "ERROR", "502 Bad Gateway"),
    ],
)  # fmt: skip
def test_another_result_names_the_gpu_and_an_unread_one_does_not_pass(
    target: type[FakeTarget], verdict: str, reason: str, tmp_path: Path
) -> None:
    step = run(tmp_path / "r", target)
    assert (step.verdict, reason in step.reason) == (verdict, True), step.reason
    assert_second_judge_agrees(tmp_path / "r")


def test_a_gpu_with_another_result_in_one_repeat_is_no_vote(tmp_path: Path) -> None:
    """Otherwise two GPUs that are wrong in different ways could make the others suspects."""
    changed = {at: {"digests": once_wrong(number)} for number, at in enumerate(list(EVERY)[:9]) if number}
    step = run(tmp_path / "r", computing(changed))
    assert step.verdict == "FAIL"
    assert "suspect" not in step.reason


def test_without_an_agent_the_index_is_that_within_the_pod(tmp_path: Path) -> None:
    double = type("NoUuids", (CorruptsSilently,), {"uuid": FakeTarget.__dict__.get("uuid", lambda *_: "")})
    step = run(tmp_path / "r", double)
    assert step.reason.startswith(f"n2 device 5 of digests-2 ({uuid(*N2)}): another result"), step.reason


def test_another_size_has_the_pods_for_all_gpus(tmp_path: Path) -> None:
    size = parse_size("4x8")
    step = run(tmp_path / "r", Computes, size=size)
    assert step.reason.startswith("equal digests of 32 devices"), step.reason
    assert_second_judge_agrees(tmp_path / "r")


class Remembers(Computes):
    """Keeps the command lines that it was given."""

    lines_given: list[str] = []

    async def execute(self, line: str, *, started_ms: int) -> Any:
        self.lines_given.append(line)
        return await super().execute(line, started_ms=started_ms)


def test_the_pod_gets_the_text_of_the_program_and_the_record_its_name(tmp_path: Path) -> None:
    Remembers.lines_given = []
    run(tmp_path / "r", Remembers)
    (line,) = (line for line in Remembers.lines_given if line.startswith("muster submit"))
    (program,) = PROGRAMS.values()
    assert program.read_text() in shlex.split(line)
    assert IMAGE in line
    commands = [c.line for step in record.read(tmp_path / "r").steps for c in step.volatile.commands]
    assert any("{digests.py}" in line for line in commands)
    assert not any("import hashlib" in line for line in commands)


def test_without_a_name_of_the_image_nothing_runs_and_nothing_passes(tmp_path: Path) -> None:
    class MustNotStart(Computes):
        async def start(self, cluster: Any) -> bool:
            raise AssertionError("the cluster is used")

    step = run(tmp_path / "r", MustNotStart, open_hosts=None)
    assert step.verdict == "INCONCLUSIVE"
    assert step.reason == "not run: name the image site/pytorch under validation.images of the site file"
    report = record.read(tmp_path / "r")
    assert {one.verdict for one in report.steps} == {"INCONCLUSIVE"}
    assert_second_judge_agrees(tmp_path / "r")


def test_a_redacted_report_has_no_uuid_and_the_same_verdicts(tmp_path: Path) -> None:
    double = computing({N2: {"digests": always_wrong()}, ("n1", 0): {**NOTHING, "problem": "lost 10.9.8.7"}})
    run(tmp_path / "r", double)
    assert b"10.9.8.7" in (tmp_path / "r" / log.NAME).read_bytes()
    redacted = redact(tmp_path / "r", tmp_path / "public")
    content = (tmp_path / "public" / log.NAME).read_bytes()
    assert not any(word in content for word in (b"10.9.8.7", uuid(*N2).encode(), IMAGE.encode()))
    reason = next(step.reason for step in redacted.steps if step.id == CHECK)
    assert "GPU 5 (sha256:" in reason
    assert verify(tmp_path / "public").problems == []
    assert_second_judge_agrees(tmp_path / "public")
