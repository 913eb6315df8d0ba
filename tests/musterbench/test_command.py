"""The benchmarks measure what they claim, with the smallest sizes. No test checks speed."""

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from musterbench.mix_times import measure
from musterbench.simple import SIMPLE

NODES = 20
GPUS = 2
BENCH = [sys.executable, "-P", "-m", "musterbench"]
FIELDS = {"case", "nodes", "gpus", "jobs", "seconds", "peak_rss_bytes"}


def bench(*arguments: str, codes: tuple[int, ...] = (0,)) -> dict[str, object]:
    done = subprocess.run(
        [*BENCH, *arguments, "--json"], capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode in codes, done.stderr
    answer: dict[str, object] = json.loads(done.stdout)
    return answer


@pytest.mark.parametrize("name", SIMPLE)
def test_every_simple_cluster_is_decided_as_it_should_be(name: str) -> None:
    result = measure(name, NODES, GPUS, limit_seconds=120)
    assert result.problem is None
    assert result.peak_rss_bytes > 1 << 20


def test_the_planner_benchmark_prints_the_machine_and_its_results() -> None:
    answer = bench("planner", "--mix", "fill", "--mix", "one", "--nodes", str(NODES), "--gpus", str(GPUS))
    assert set(answer["machine"]) >= {"processor", "processors", "memory_bytes"}  # type: ignore[call-overload]
    results = answer["results"]
    assert isinstance(results, list)
    assert [each["case"] for each in results] == ["mix: fill", "mix: one"]
    assert all(set(each) >= FIELDS | {"quiet_s", "again_s", "next_s"} for each in results)


def test_the_benchmark_of_claims_gives_every_gpu_once() -> None:
    results = bench("claims", "--nodes", "4", "--gpus", "2")["results"]
    assert isinstance(results, list)
    assert [(result["case"], result["jobs"]) for result in results] == [
        ("claims of one GPU each", 8),
        ("one claim more", 1),
        ("a whole decision on them", 8),
    ]
    assert not [result["problem"] for result in results if "problem" in result]
    assert all(set(result) >= FIELDS for result in results)


@pytest.mark.lab
def test_the_lab_benchmark_compares_the_operator_with_a_raw_client() -> None:
    answer = bench("lab", "--nodes", "4", "--jobs", "20", "--rounds", "1")
    results = answer["results"]
    assert isinstance(results, list)
    by_case = {each["case"]: each for each in results}
    whole = by_case["lab: backlog, all"]
    assert set(by_case) >= {"lab: raw-1", "lab: backlog-1"}
    assert whole["part_of_raw"] > 0
    assert whole["part_of_raw_running"] > 0
    assert whole["watches_begun_again"] >= 0
    assert whole["watch_lag_max_ms"] >= whole["watch_lag_p50_ms"] >= 0
    assert whole["peak_rss_bytes"] > 1 << 20
    assert by_case["lab: jobs at 20 a second"]["p99_ms"] >= by_case["lab: jobs at 20 a second"]["p50_ms"] > 0
    assert all(set(each) >= FIELDS for each in results)


@pytest.mark.lab
@pytest.mark.rare  # a tool for developers, on a lab of its own
@pytest.mark.parametrize(("rounds", "backlog"), [(1, ()), (2, ("--backlog",))])
def test_kube_scheduler_and_the_operator_bind_pods_alternately(rounds: int, backlog: tuple[str, ...]) -> None:
    answer = bench(
        "lab",
        "--against",
        "kube-scheduler",
        "--nodes",
        "4",
        "--pods",
        "20",
        "--rounds",
        str(rounds),
        *backlog,
    )
    results = answer["results"]
    assert isinstance(results, list)
    turns = [
        "against: kube-scheduler-1",
        "against: muster-1",
        "against: muster-2",
        "against: kube-scheduler-2",
    ]
    assert [result["case"] for result in results] == [
        *turns[: 2 * rounds],
        "against: kube-scheduler, all",
        "against: muster, all",
    ]
    assert all(set(result) >= FIELDS | {"pods_per_second", "processor_ms_per_pod"} for result in results)
    assert all(result["seconds"] * 1000 >= result["p99_ms"] >= result["p50_ms"] > 0 for result in results)
    assert all(result["peak_rss_bytes"] > 1 << 20 for result in results)
    assert [result["jobs"] for result in results] == [20] * 2 * rounds + [20 * rounds] * 2
    assert all(
        result["program"].startswith("Kubernetes v") == ("kube-scheduler" in result["case"])
        for result in results
    )
    assert all(result["processors_elsewhere"] > -0.5 for result in results)
    whole = results[-1]
    assert min(whole["pods_per_second_part"], whole["p50_ms_part"], whole["rss_part"]) > 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--pods", "20"), "--pods and --backlog go with --against"),
        (("--backlog",), "--pods and --backlog go with --against"),
        (("--against", "kube-scheduler", "--nodes", "4", "--pods", "33"), "33 pods of one GPU do not fit"),
    ],
)
def test_a_comparison_that_cannot_be_made_is_refused(arguments: tuple[str, ...], message: str) -> None:
    done = subprocess.run(
        [*BENCH, "lab", *arguments], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode != 0
    assert message in done.stderr


@pytest.mark.lab
def test_a_lab_benchmark_that_is_terminated_leaves_nothing_behind(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [*BENCH, "lab", "--nodes", "4", "--jobs", "20"],
        env={**os.environ, "TMPDIR": str(tmp_path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    killer = threading.Timer(240, process.kill)
    killer.start()
    try:
        assert process.stderr is not None
        next(line for line in process.stderr if line.startswith("round 1"))
        assert list(tmp_path.iterdir())
        process.send_signal(signal.SIGTERM)
        _, output = process.communicate()
    finally:
        killer.cancel()
        killer.join()
    assert output.splitlines()[-1] == "Error: interrupted"
    assert process.returncode == 130
    assert not list(tmp_path.iterdir())


@pytest.mark.rare  # takes a quarter of a minute
def test_the_benchmark_of_pages_brings_every_update_to_all_people() -> None:
    sizes = ("--nodes", "8", "--jobs", "60", "--viewers", "4", "--updates", "1")
    results = bench("web", *sizes)["results"]
    assert isinstance(results, list)
    assert not [result["problem"] for result in results if "problem" in result]
    cases = [result["case"] for result in results]
    assert cases[:2] == ["web: 4 people sign in at the same moment", "web: first page of all, of one person"]
    assert cases[-1] == "web: an update for 4 people"
    assert results[-1]["server_ms_per_person"] >= 0
    assert all(result["rss_mib"] > 1 for result in results)
