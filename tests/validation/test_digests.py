"""Silent data corruption: digests of exact computations on each GPU, by `muster validate` and by the second judge."""

import json
import shlex
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.validation import second_judge_digests
from tests.validation.digests_targets import (
    DIGESTS,
    IMAGE,
    Computes,
    CorruptsSilently,
    always_wrong,
    clean,
    computing,
    device,
    document,
    once_wrong,
    uuid,
    with_image,
)
from tests.validation.fake_target import FakeTarget
from tests.validation.replay import assert_second_judge_agrees, run_command, settings
from validation.judge.events import PodSeen
from validation.judge.training.digests import parse_digests
from validation.judge.training.training_job import parse
from validation.report import log, record
from validation.report.redact import redact
from validation.report.verify import verify
from validation.run.programs import PROGRAMS
from validation.scenario.scaling import parse_size

CHECK = "muster-digests/training/digests"
REPLACE = "-> replace the GPU"
NOTHING: dict[str, Any] = {}
OTHER_GPU = {"model": "NVIDIA H100 80GB HBM3"}


def twice() -> dict[str, dict[str, int]]:
    """Return the right digests of two repeats."""
    return {computation: dict.fromkeys(counts, 2) for computation, counts in clean().items()}


def run(directory: Path, target: type[FakeTarget], **more: Any) -> record.CheckResult:
    """Run the scenario at a site that names an image; return the result of the check of digests."""
    chosen = {"profile": "current", "patience_percent": 10, "open_hosts": with_image} | more
    _, report = run_command([DIGESTS], settings(directory, target, **chosen))
    assert report is not None
    return next(step for step in report.steps if step.id == CHECK)


def test_gpus_with_equal_results_pass(tmp_path: Path) -> None:
    step = run(tmp_path / "r", Computes)
    assert step.verdict == "PASS", step.reason
    assert step.reason == "exact results of 16 devices in 3 repeats, by PyTorch 2.9.1, CUDA 12.8"
    report = record.read(tmp_path / "r")
    assert {one.id: one.verdict for one in report.requirements}["results.equal"] == "PASS"
    assert_second_judge_agrees(tmp_path / "r")
    assert verify(tmp_path / "r").problems == []


N1, N2 = ("n1", 2), ("n2", 5)
GPU2, GPU4, GPU5 = f"n1 GPU 2 ({uuid(*N1)})", f"n2 GPU 4 ({uuid('n2', 4)})", f"n2 GPU 5 ({uuid(*N2)})"
EVERY = [(node, index) for node in ("n1", "n2") for index in range(8)]
WRONG = {"digests": always_wrong()}
UNREAD = {"digests": NOTHING, "problem": "no library"}
UNREAD_N2 = {at: UNREAD for at in EVERY if at[0] == "n2"}
OTHER = "another result of half, product, training than the exact one"
LIBRARY = "as on every device with PyTorch 2.9.1, CUDA 12.8 -> ask support"


class BothOnN1(Computes):
    """Its kubelets report both pods on the first node."""

    def _end(self, pod: PodSeen) -> None:
        super()._end(msgspec.structs.replace(pod, node="n1"))

    def lines_of(self, pod: PodSeen) -> list[str]:
        devices = [device("n1", index, uuid=f"GPU-{pod.pod}-{index}") for index in range(8)]
        return [json.dumps(document(devices))]


class WithoutUuids(BothOnN1):
    def lines_of(self, pod: PodSeen) -> list[str]:
        return [json.dumps(document([device("n1", index, uuid="") for index in range(8)]))]


class OneIndexTwice(Computes):
    def lines_of(self, pod: PodSeen) -> list[str]:
        devices = [device(pod.node, index) for index in range(8)]
        return [json.dumps(document([*devices[:5], devices[5] | {"index": 4}, *devices[6:]]))]


class OneMoreThanAll(Computes):
    """A pod computes on a ninth GPU."""

    def lines_of(self, pod: PodSeen) -> list[str]:
        devices = [device(pod.node, index) for index in range(9 if pod.node == "n2" else 8)]
        return [json.dumps(document(devices))]


class FailsOnN2(Computes):
    """Its GPU on the first node has a wrong result, and the pod of the other node `fails`."""

    fails: dict[str, Any] = {"exit_code": 1}
    changed = {N1: WRONG}

    def _end(self, pod: PodSeen) -> None:
        for name, value in self.fails.items():
            setattr(self, name, value if pod.node == "n2" else getattr(Computes, name))
        super()._end(pod)


@pytest.mark.parametrize(
    ("target", "verdict", "reason"),
    [
        (CorruptsSilently, "FAIL", f"{GPU5}: {OTHER} {REPLACE}"),
        (
            computing({N2: {"digests": once_wrong()}}),
            "FAIL",
            f"{GPU5}: 2 different results of product in 3 repeats {REPLACE}",
        ),
        (computing({N1: {"digests": once_wrong()}, N2: WRONG}), "FAIL", f"; {GPU5}: another"),
        (computing(dict.fromkeys(EVERY, WRONG)), "FAIL", f"{GPU2}: {OTHER}, {LIBRARY}"),
        (computing(dict.fromkeys(EVERY, WRONG)), "FAIL", "; 8 more: n2 GPU 0, n2 GPU 1, n2 GPU 2, n2 "),
        (
            computing({at: {**WRONG, **OTHER_GPU} for at in EVERY if at[0] == "n1"}),
            "FAIL",
            f"{GPU2}: {OTHER} {REPLACE}",
        ),
        (
            computing({N2: {**WRONG, "library": "PyTorch 2.8.0"}}),
            "FAIL",
            f"{GPU5}: {OTHER}, as on every device with PyTorch 2.8.0 -> ask support",
        ),
        (computing({N2: OTHER_GPU}), "PASS", "exact results of 16 devices"),
        (computing({N2: {"library": "PyTorch 2.8.0"}}), "PASS", "by PyTorch 2.8.0; PyTorch 2.9.1, CUDA 12.8"),
        (
            computing({N2: {**UNREAD, "problem": "RuntimeError: CUDA error"}}),
            "FAIL",
            f"{GPU5} computed nothing: RuntimeError: CUDA error -> ask support",
        ),
        (computing({N2: {"problem": "ECC error"}}), "FAIL", f"{GPU5} reported: ECC error -> ask support"),
        (
            computing(dict.fromkeys(EVERY, UNREAD)),
            "INCONCLUSIVE",
            "not read: n1: no library; n2: no library",
        ),
        (computing(UNREAD_N2), "INCONCLUSIVE", "not read: n2: no library"),
        (computing({N1: WRONG} | UNREAD_N2), "FAIL", f"{GPU2}: {OTHER} {REPLACE}; not read: n2: no library"),
        (FailsOnN2, "FAIL", f"{GPU2}: {OTHER} {REPLACE}; digests-2 ended with exit code 1"),
        (
            type("UnreadOnN2", (FailsOnN2,), {"fails": {"problem_of_output": "502 Bad Gateway"}}),
            "FAIL",
            f"{GPU2}: {OTHER} {REPLACE}; the output of digests-2 could not be read: 502 Bad Gateway",
        ),
        (computing({N2: {"uuid": uuid("n2", 4)}}), "FAIL", f"{GPU4}: device 5 of digests-2 is there twice"),
        (OneIndexTwice, "FAIL", "device 4 of digests-2 is there twice"),
        (computing({N2: {"uuid": ""}}), "INCONCLUSIVE", "model or UUID of n2 device 5 of digests-2 (UUID not read)"),
        (computing({N2: {"model": ""}}), "INCONCLUSIVE", f"not read: model or UUID of {GPU5}"),
        (computing({N2: {"uuid": "GPU-1"}}), "INCONCLUSIVE", "the agent of n2 knows no such GPU: n2 device 5"),
        (BothOnN1, "INCONCLUSIVE", "not read: 8 of 8 GPUs of n2"),
        (WithoutUuids, "INCONCLUSIVE", "not read: 8 of 8 GPUs of n2"),
        (OneMoreThanAll, "FAIL", "17 devices computed, not 16"),
        (computing({}, devices=[device("n1", 0)] * 8), "FAIL", "device 0 of digests-1 is there twice"),
        (computing({}, devices=[device("n1", 0)]), "FAIL", "device 0 of digests-1 is there twice"),
        (computing({}, devices=[]), "INCONCLUSIVE", "not read: n1: no device; n2: no device"),
        (computing({}, deviceKind="cpu"), "FAIL", "digests-1 did not compute on a gpu"),
        (computing({N2: {"model": "CPU x86_64"}}), "FAIL", "digests-2 did not compute on a gpu"),
        (computing({}, kind="TrainingResult"), "FAIL", "printed no document of digests"),
        (computing({N2: {"digests": {"": {"": 3}}}}), "FAIL", "digests-2 printed no document of digests"),
        (computing({N2: {"digests": {"product": {"": 3}}}}), "FAIL", "digests-2 printed no document of digests"),
        (computing({N2: {"library": "P" * 101}}), "FAIL", "digests-2 printed no document of digests"),
        (computing({N2: {"library": "PyTorch\n"}}), "FAIL", "digests-2 printed no document of digests"),
        (computing({}, repeats=2), "ERROR", "has not 3 whole repeats"),
        (computing({at: {"digests": twice()} for at in EVERY}, repeats=2), "ERROR", "has not 3 whole repeats"),
        (computing({}, repeats=5), "ERROR", "has not 3 whole repeats"),
        (computing({N2: {"digests": {"product": clean()["product"]}}}), "ERROR", f"{GPU5} has not 3 whole"),
        (computing({N2: {"digests": clean() | {"half": {}}}}), "ERROR", f"{GPU5} has not 3 whole"),
        (computing({N2: {"digests": clean() | {"more": clean()["half"]}}}), "ERROR", f"{GPU5} has not 3 whole"),
        (type("Crashes", (Computes,), {"exit_code": 1}), "FAIL", "ended with exit code 1"),
        (type("Unread", (Computes,), {"problem_of_output": "502 Bad Gateway"}), "ERROR", "502 Bad Gateway"),
        (type("WithoutAgents", (Computes,), {"uuid": lambda *_: ""}), "INCONCLUSIVE", "no agent of n1 reports UUIDs"),
    ],
)  # fmt: skip
def test_another_result_names_the_gpu_and_an_unread_one_does_not_pass(
    target: type[FakeTarget], verdict: str, reason: str, tmp_path: Path
) -> None:
    step = run(tmp_path / "r", target)
    assert (step.verdict, reason in step.reason) == (verdict, True), step.reason
    assert_second_judge_agrees(tmp_path / "r")


def test_every_wrong_gpu_of_many_is_named(tmp_path: Path) -> None:
    nodes = [f"n{number}" for number in range(1, 11)]
    changed = {(node, index): {"digests": once_wrong()} for node in nodes for index in range(8)}
    step = run(tmp_path / "r", computing(changed), size=parse_size("10x8"))
    named = [f"{node} GPU {index}" in step.reason for node in nodes for index in range(8)]
    assert (sum(named), len(named)) == (72, 80)
    assert "; 72 more: n" in step.reason
    assert step.reason.endswith(", and others")


def test_without_an_agent_the_index_is_that_within_the_pod(tmp_path: Path) -> None:
    double = type("NoUuids", (CorruptsSilently,), {"uuid": FakeTarget.__dict__.get("uuid", lambda *_: "")})
    step = run(tmp_path / "r", double)
    assert step.reason.startswith(f"n2 device 5 of digests-2 ({uuid(*N2)}): another result"), step.reason


def test_another_size_has_the_pods_for_all_gpus(tmp_path: Path) -> None:
    size = parse_size("4x8")
    step = run(tmp_path / "r", Computes, size=size)
    assert step.reason.startswith("exact results of 32 devices"), step.reason
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


SECRET = "10.9.8.7 /home/alice"


def test_a_redacted_report_has_no_words_of_a_pod_and_the_same_verdicts(tmp_path: Path) -> None:
    """The pods put an address and a path into each text that they choose."""
    changed: dict[tuple[str, int], dict[str, Any]] = {
        N2: WRONG,
        N1: {"uuid": f"sha256:{SECRET}"},
        ("n1", 0): {**UNREAD, "problem": f"lost {SECRET}"},
    }
    changed |= {("n1", 3): {"library": f"PyTorch {SECRET}"}, ("n1", 4): {"model": f"Tesla {SECRET}"}}
    changed |= {("n2", 1): {"model": f"CPU {SECRET}"}}
    run(tmp_path / "r", computing(changed))
    assert (tmp_path / "r" / log.NAME).read_bytes().count(SECRET.encode()) == 5
    redacted = redact(tmp_path / "r", tmp_path / "public")
    content = b"".join(path.read_bytes() for path in (tmp_path / "public").rglob("*") if path.is_file())
    for word in ("10.9.8.7", "alice", uuid(*N2), IMAGE):
        assert word.encode() not in content
    reason = next(step.reason for step in redacted.steps if step.id == CHECK)
    assert "GPU 5 (sha256:" in reason
    assert "digests-2 did not compute on a gpu" in reason
    assert verify(tmp_path / "public").problems == []
    assert_second_judge_agrees(tmp_path / "public")


@pytest.mark.parametrize(
    "library",
    [
        "PyTorch 2.9.1, CUDA 12.8",
        "PyTorch 2.6.0a0+ecf3bae40a.nv25.01, CUDA 12.8",
        "PyTorch 2.10.0.dev20251001+cu130, CUDA 13.0",
        "TensorFlow 2.21.0",
        "Python 3.11",
    ],
)
def test_a_redacted_report_keeps_the_names_of_known_libraries(library: str, tmp_path: Path) -> None:
    changed = {at: {"library": library} for at in EVERY}
    run(tmp_path / "r", computing(changed))
    redacted = redact(tmp_path / "r", tmp_path / "public")
    assert next(step.reason for step in redacted.steps if step.id == CHECK).endswith(f"by {library}")


def test_a_redacted_pass_has_no_words_of_a_pod(tmp_path: Path) -> None:
    run(tmp_path / "r", computing({N1: {"library": SECRET}, N2: {"model": SECRET}}))
    redacted = redact(tmp_path / "r", tmp_path / "public")
    content = b"".join(path.read_bytes() for path in (tmp_path / "public").rglob("*") if path.is_file())
    assert b"10.9.8.7" not in content
    assert next(step.verdict for step in redacted.steps if step.id == CHECK) == "PASS"


def test_a_redacted_report_does_not_say_why_a_log_was_not_read(tmp_path: Path) -> None:
    problem = "HTTPSConnectionPool(host='10.9.8.7', port=6443)"
    run(tmp_path / "r", type("Unread", (Computes,), {"problem_of_output": problem}))
    redacted = redact(tmp_path / "r", tmp_path / "public")
    content = b"".join(path.read_bytes() for path in (tmp_path / "public").rglob("*") if path.is_file())
    assert b"10.9.8.7" not in content
    assert next(step.verdict for step in redacted.steps if step.id == CHECK) == "ERROR"


@pytest.mark.parametrize("line", ["\ud800", "[" * 200_000, '{"devices": ' + "[" * 200_000, "", "null"])
def test_a_line_of_another_form_is_no_document(line: str) -> None:
    assert parse_digests(line) is None
    assert parse(line) is None
    assert second_judge_digests.document(line) is None
