"""The effective request of a pod is that of Kubernetes' own code: as recorded, and computed anew if Go is installed."""

from __future__ import annotations

import json
import shutil
import subprocess
from typing import TYPE_CHECKING, Any, Final

import msgspec
import pytest

from orchestrator.cluster.objects import Pod
from orchestrator.observe.effective_request import effective_request, requested_names
from tests.observe.effective_requests import cases

if TYPE_CHECKING:
    from pathlib import Path

RECORD: Final[dict[str, Any]] = json.loads(cases.RECORDED.read_text(encoding="utf-8"))
NAMES: Final = [*cases.NAMED, *(f"drawn {number}" for number in range(cases.RECORDED_DRAWN))]


def ours(plain: dict[str, Any]) -> dict[str, int]:
    """Return the effective request that muster counts, in thousandths, without resources of amount 0."""
    pod = msgspec.convert({"metadata": {"name": "p"}, **plain}, Pod)
    counted = {name: effective_request(pod, name) for name in requested_names(pod)}
    return {name: amount for name, amount in counted.items() if amount}


@pytest.mark.parametrize("case", RECORD["cases"], ids=NAMES)
def test_the_request_of_a_pod_is_that_of_kubernetes(case: dict[str, Any]) -> None:
    assert ours(case["pod"]) == cases.amounts(case["requests"])


def test_the_record_is_of_the_pods_that_the_cases_name() -> None:
    assert [case["pod"] for case in RECORD["cases"]] == cases.recorded_pods()
    required = (cases.SOURCES / "go.mod").read_text(encoding="utf-8")
    assert RECORD["module"] == cases.MODULE
    assert f"\t{cases.MODULE}\n" in required


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the Go program that calls Kubernetes' code, and return its path."""
    if shutil.which("go") is None:
        pytest.skip("there is no 'go' on PATH")
    loaded = subprocess.run(
        ["go", "mod", "download"], cwd=cases.SOURCES, capture_output=True, text=True, timeout=120, check=False
    )
    if loaded.returncode:
        pytest.skip(f"{cases.MODULE} cannot be had: {loaded.stderr.strip()}")
    built = tmp_path_factory.mktemp("requests") / "effective-requests"
    done = subprocess.run(
        ["go", "build", "-mod=readonly", "-o", str(built), "."],
        cwd=cases.SOURCES, capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return built


def answers_of(program: Path, pods: list[dict[str, Any]]) -> list[dict[str, str]]:
    done = subprocess.run(
        [program], input=json.dumps(pods), capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    answers: list[dict[str, str]] = json.loads(done.stdout)
    return answers


@pytest.mark.lab
def test_kubernetes_still_gives_the_recorded_answers(program: Path) -> None:
    answers = answers_of(program, cases.recorded_pods())
    assert answers == [case["requests"] for case in RECORD["cases"]]


@pytest.mark.lab
def test_the_requests_of_two_thousand_drawn_pods_are_those_of_kubernetes(program: Path) -> None:
    pods = cases.drawn(2000, seed=40)
    for pod, answer in zip(pods, answers_of(program, pods), strict=True):
        assert ours(pod) == cases.amounts(answer), pod
