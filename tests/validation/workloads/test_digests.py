"""The program that repeats exact computations, and the portion of flipped bits that its digests show."""

import json
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.validation.digests_targets import as_on_gpu, device, document
from tests.validation.workloads.flips import PRODUCTS, TINY, AddsInAnyOrder, AddsWholeRows, FlipsABit
from validation.judge.check_verdict import Judgement
from validation.judge.events import OutputSeen
from validation.judge.training.digests import KNOWN, KnownGpus, judge_digests, parse_digests
from validation.workloads import digests
from validation.workloads.digests import CPU, GPU, HALF_BOUND, Plain, Sizes, measure

PROGRAM = Path(digests.__file__)
REPEATS = 3
RIGHT = measure(Plain(), TINY, REPEATS)


def judged(*measured: dict[str, dict[str, int]]) -> Judgement:
    """Return the verdict on GPUs of one node with these digests."""
    devices = [device("n1", index, digests=as_on_gpu(one)) for index, one in enumerate(measured)]
    line = json.dumps(document(devices))
    output = OutputSeen(0, "uid", "team-a", "digests", "digests-1", "n1", 0, 60_000, "", line)
    gpus = KnownGpus({"n1": len(devices)}, {("n1", one["uuid"]): one["index"] for one in devices})
    return judge_digests("gpu", len(devices), [output], gpus)


def run_text(*arguments: str, **environment: str) -> dict[str, Any]:
    """Run the text of the program as a pod does; return the document in its last line."""
    command = [sys.executable, "-I", "-S", "-c", PROGRAM.read_text(), *arguments]
    done = subprocess.run(
        command, capture_output=True, text=True, check=True, env={"PATH": "", **environment}
    )
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer


def run_program(*arguments: str, path: Path) -> dict[str, Any]:
    """Run the text of the program with the modules in a folder; return the document in its last line."""
    text = PROGRAM.read_text().replace(
        "import argparse", f"import sys\nsys.path.insert(0, {str(path)!r})\nimport argparse", 1
    )
    command = [sys.executable, "-I", "-S", "-c", text, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer


def test_the_text_alone_computes_the_known_digests_on_a_processor() -> None:
    answer = run_text("--device", "cpu", "--num_devices", "2", "--repeats", "3")
    assert [one["index"] for one in answer["devices"]] == [0, 1]
    assert {one["problem"] for one in answer["devices"]} == {""}
    for one in answer["devices"]:
        assert one["digests"] == {name: {digest: 3} for name, digest in KNOWN["cpu"].items()}
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
    answer = run_program("--num_devices", "2", path=tmp_path)
    problems = [one["problem"] for one in answer["devices"]]
    assert problems == [f"its process ended with exit code {code}" for code in (0, 9)]


@pytest.mark.parametrize("sizes", [GPU, CPU, TINY])
def test_every_sum_is_exact_in_its_format(sizes: Sizes) -> None:
    assert sizes.bound() < 2**24
    if sizes is not GPU:  # that of GPUs depends on the factors: see the rare test
        assert sizes.product[1] * HALF_BOUND**2 <= 2**11


def test_the_order_of_summation_changes_no_digest() -> None:
    """The inner size is that of GPUs, so the sums come near the bound of float32."""
    wide = Sizes((2, GPU.product[1], 2), (4, 16, 16, 4))
    assert all(measure(AddsInAnyOrder(seed), wide, 1) == measure(Plain(), wide, 1) for seed in range(20))


@pytest.mark.rare
@pytest.mark.parametrize(("kind", "sizes"), [("cpu", CPU), ("gpu", GPU)])
def test_the_known_digests_are_those_of_sums_of_integers(kind: str, sizes: Sizes) -> None:
    library = AddsWholeRows()
    found = {name: next(iter(counts)) for name, counts in measure(library, sizes, 1).items()}
    assert found == KNOWN[kind]
    assert library.largest_half <= 2**11  # float16 has each integer up to it


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
            found += judgement.verdict == "FAIL" and judgement.reason.startswith("n1 GPU 1 (")
        else:
            assert judgement.verdict == "PASS"
    with capsys.disabled():
        print(f"\n{found} of {changed} flipped bits that changed a result were found, of 1000")
    assert changed > 500
    assert found >= 0.99 * changed


def test_a_bit_that_is_always_flipped_is_found_alone_and_beside_other_gpus() -> None:
    for seed in range(200):
        chosen = random.Random(seed)  # noqa: S311 - no secret
        measured = measure(
            FlipsABit(0, chosen.randrange(1000), chosen.randrange(32), always=True), TINY, REPEATS
        )
        assert all(len(counts) == 1 for counts in measured.values())
        for beside in ([], [RIGHT], [RIGHT, RIGHT]):
            judgement = judged(*beside, measured)
            assert judgement.verdict == "FAIL"
            assert judgement.reason.startswith(f"n1 GPU {len(beside)} (GPU-n1-0000-{len(beside)}): another")
            assert judgement.reason.count("GPU-n1") == 1


def test_a_bit_that_all_gpus_always_flip_is_found() -> None:
    measured = measure(FlipsABit(0, 3, 22, always=True), TINY, REPEATS)
    judgement = judged(*[measured] * 4)
    assert judgement.verdict == "FAIL"
    assert all(f"n1 GPU {index} (" in judgement.reason for index in range(4))


def test_texts_of_libraries_are_one_short_line_of_ascii(tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text("raise RuntimeError('first\\nsecond\\x07 \\u00e4 ' + 'x' * 1000)\n")
    answer = run_program("--num_devices", "1", path=tmp_path)
    (one,) = answer["devices"]
    assert one["problem"] == ("RuntimeError: first second? ? " + "x" * 300)[:300]
    assert parse_digests(json.dumps(answer)) is not None


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
