"""The cost of the library for a training, and the effect of a neighbour: ResNet-50 of torchvision in mixed precision.

TensorFlow, which the acceptance test uses, is not tested: it was never run on a GPU with the library.
"""

from typing import Final

import pytest

from orchestrator.control.projects.memory_watch import CONTEXT_MIB
from tests.gpu.conftest import Findings, Start, need
from tests.gpu.judge import Judge
from tests.gpu.processes import Program, Step, module
from tests.gpu.test_memory import beyond_mib, the

pytestmark = pytest.mark.gpu

BATCH: Final = 256
STEPS: Final = 100
STEPS_BESIDE: Final = 60
GREEDY_SECONDS: Final = 8
LEAST_RATIO: Final = 0.97
"""Minimum ratio of the rates, in images per second, with and without the library."""


def rate(steps: list[Step]) -> float:
    """Return the images per second of a training whose loss has fallen."""
    trained = the("trained", steps)
    assert trained["loss"] < the("first", steps)["loss"]
    return float(trained["images_per_second"])


def train(steps: int = STEPS) -> list[str]:
    return module("torch_train", BATCH, steps)


def test_the_library_costs_a_training_next_to_nothing(start: Start, judge: Judge, findings: Findings) -> None:
    need("torchvision")
    whole = judge.total_bytes
    limits = [None, whole, whole, None]  # alternating, so that a changing clock favours neither
    runs = [start(f"{turn}", train(), limit).finish() for turn, limit in enumerate(limits)]
    rates = [rate(steps) for steps in runs]
    ratio = (rates[1] + rates[2]) / (rates[0] + rates[3])
    beyond = [beyond_mib(runs[turn]) for turn in (1, 2)]
    findings.write("training/cost", {"rates": rates, "ratio": round(ratio, 4), "beyond_mib": beyond})
    assert the("trained", runs[1])["total_bytes"] <= whole
    assert ratio >= LEAST_RATIO
    assert max(beyond) <= CONTEXT_MIB


def begin(programs: list[Program]) -> None:
    """Let all programs warm up, and then continue at the same moment."""
    for program in programs:
        program.until("warm")


def test_two_trainings_share_the_gpu_with_half_each(start: Start, judge: Judge, findings: Findings) -> None:
    need("torchvision")
    half = judge.total_bytes // 2
    programs = [start(name, train(STEPS_BESIDE), half) for name in ("one", "other")]
    begin(programs)
    for program in programs:
        program.go_on()
    rates = [rate(program.finish()) for program in programs]
    findings.write("training/two-at-once", {"rates": rates})
    for program in programs:
        assert the("trained", program.steps)["total_bytes"] == half


def test_a_training_continues_beside_one_that_runs_into_its_limit(
    start: Start, judge: Judge, findings: Findings
) -> None:
    need("torchvision")
    half = judge.total_bytes // 2
    training = start("training", train(STEPS_BESIDE), half)
    greedy = start("greedy", module("torch_greedy", GREEDY_SECONDS), half)
    begin([training, greedy])
    greedy.go_on()
    steps = training.finish()
    refused = the("refused", greedy.finish())
    findings.write(
        "training/beside-a-greedy-one",
        {"rate": rate(steps), "refused": refused["times"], "fewest_bytes": refused["fewest_bytes"]},
    )
    assert refused["times"] >= 3
    assert refused["is_right"]
    assert refused["fewest_bytes"] > half - (1 << 30) - (1 << 29)
