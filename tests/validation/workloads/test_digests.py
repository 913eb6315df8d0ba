"""The program that repeats exact computations, and the portion of flipped bits that its digests show."""

import json
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.validation.digests_targets import device, document
from tests.validation.workloads.flips import PRODUCTS, TINY, AddsInAnyOrder, FlipsABit
from validation.judge.check_verdict import Judgement
from validation.judge.events import OutputSeen
from validation.judge.training.digests import judge_digests
from validation.workloads import digests
from validation.workloads.digests import CPU, GPU, Plain, Sizes, measure

PROGRAM = Path(digests.__file__)
REPEATS = 3
RIGHT = measure(Plain(), TINY, REPEATS)
CPU_DIGESTS = {
    "product": "90d15b98f225ad1ab163b5392badf21cd653319245d57ac88b19d15f55f35fb9",
    "half": "2acfaafe809c8b8727fb25302a5137b5fcd339596157971783caec2574d9eb1c",
    "training": "de9379dedf91ac57156c2a57283a05b6e8de68f7ff2086b0ebb3a92c42f13f31",
}
"""The digests of the sizes for processors. TensorFlow 2.21.0 and PyTorch have the same ones (docs/evidence.md)."""


def judged(*measured: dict[str, dict[str, int]]) -> Judgement:
    """Return the verdict on GPUs of one node with these digests."""
    devices = [device("n1", index, digests=one) for index, one in enumerate(measured)]
    line = json.dumps(document(devices))
    output = OutputSeen(0, "uid", "team-a", "digests", "digests-1", "n1", 0, 60_000, "", line)
    return judge_digests("gpu", len(devices), [output], [])


def run_text(*arguments: str, **environment: str) -> dict[str, Any]:
    """Run the text of the program as a pod does; return the document in its last line."""
    command = [sys.executable, "-I", "-S", "-c", PROGRAM.read_text(), *arguments]
    done = subprocess.run(
        command, capture_output=True, text=True, check=True, env={"PATH": "", **environment}
    )
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer


def test_the_text_alone_computes_the_known_digests_on_a_processor() -> None:
    answer = run_text("--device", "cpu", "--num_devices", "2", "--repeats", "3")
    assert [one["index"] for one in answer["devices"]] == [0, 1]
    assert {one["problem"] for one in answer["devices"]} == {""}
    for one in answer["devices"]:
        assert one["digests"] == {name: {digest: 3} for name, digest in CPU_DIGESTS.items()}
    assert (
        len(json.dumps(answer["devices"][0])) * 16 < 16_000
    )  # a longer line is divided by the container runtime


def test_without_a_library_no_gpu_has_a_digest() -> None:
    (one,) = run_text("--repeats", "3")["devices"]
    assert (one["digests"], one["problem"]) == (
        {},
        "RuntimeError: the image has neither PyTorch nor TensorFlow",
    )


def test_a_library_that_ends_its_process_is_the_problem_of_that_gpu(tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text(
        "import os\nos._exit(9 if os.environ['CUDA_VISIBLE_DEVICES'] == '1' else 0)\n"
    )
    text = PROGRAM.read_text().replace(
        "import argparse", f"import sys\nsys.path.insert(0, {str(tmp_path)!r})\nimport argparse", 1
    )
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", text, "--num_devices", "2"],
        capture_output=True,
        text=True,
        check=True,
    )
    problems = [one["problem"] for one in json.loads(done.stdout)["devices"]]
    assert problems == [f"its process ended with exit code {code}" for code in (0, 9)]


@pytest.mark.parametrize("sizes", [GPU, CPU, TINY])
def test_every_sum_is_exact_in_its_format(sizes: Sizes) -> None:
    in_float32, in_float16 = sizes.bounds()
    assert in_float32 < 2**24
    assert in_float16 < 65_504


def test_the_order_of_summation_changes_no_digest() -> None:
    """The inner size is that of GPUs, so the sums come near the bound of float32."""
    wide = Sizes((2, GPU.product[1], 2), (4, 16, 16, 4))
    assert all(measure(AddsInAnyOrder(seed), wide, 1) == measure(Plain(), wide, 1) for seed in range(20))


def flipped(seed: int) -> FlipsABit:
    """Return a library that flips a random bit in a random product of three repeats."""
    chosen = random.Random(seed)  # noqa: S311 - no secret
    return FlipsABit(chosen.randrange(PRODUCTS * REPEATS), chosen.randrange(1000), chosen.randrange(32))


def test_flipped_bits_that_change_a_result_are_found_in_three_repeats(
    capsys: pytest.CaptureFixture[str],
) -> None:
    right = FlipsABit()
    measure(right, TINY, REPEATS)
    changed = found = 0
    for seed in range(1000):
        library = flipped(seed)
        measured = measure(library, TINY, REPEATS)
        judgement = judged(RIGHT, measured, RIGHT)
        if library.results != right.results:
            changed += 1
            found += judgement.verdict == "FAIL" and judgement.reason.startswith("n1 device 1 of digests-1 (")
        else:
            assert judgement.verdict == "PASS"
    with capsys.disabled():
        print(f"\n{found} of {changed} flipped bits that changed a result were found, of 1000")
    assert changed > 500
    assert found >= 0.99 * changed


def test_a_bit_that_is_always_flipped_is_found_beside_other_gpus() -> None:
    for seed in range(200):
        chosen = random.Random(seed)  # noqa: S311 - no secret
        measured = measure(
            FlipsABit(0, chosen.randrange(1000), chosen.randrange(32), always=True), TINY, REPEATS
        )
        assert all(len(counts) == 1 for counts in measured.values())
        judgement = judged(RIGHT, RIGHT, measured)
        assert judgement.verdict == "FAIL"
        assert judgement.reason.startswith("n1 device 2 of digests-1 (GPU-n1-0000-2): another result of ")
        assert judgement.reason.count("device 0") == judgement.reason.count("device 1 ") == 0
        of_two = judged(RIGHT, measured)
        assert all(
            f"device {number} of digests-1 (GPU-n1-0000-{number}) is a suspect" in of_two.reason
            for number in (0, 1)
        )


def clean_runs(runs: int) -> int:
    """Return the number of runs of two GPUs without a defect, each with its own order of summation, that fail."""
    return sum(
        judged(*(measure(AddsInAnyOrder(2 * run + gpu), TINY, REPEATS) for gpu in (0, 1))).verdict != "PASS"
        for run in range(runs)
    )


def test_no_clean_run_is_an_alarm() -> None:
    assert clean_runs(100) == 0


@pytest.mark.rare
def test_none_of_ten_thousand_clean_runs_is_an_alarm(capsys: pytest.CaptureFixture[str]) -> None:
    alarms = clean_runs(10_000)
    with capsys.disabled():
        print(f"\n{alarms} alarms in 10000 clean runs")
    assert alarms == 0
