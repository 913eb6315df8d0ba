"""`muster validate` as a user runs it: its output, its exit code, and the files that it leaves."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from musterlab.ports import LOOPBACK
from orchestrator.cli.main import main
from tests.validation.headlines import pass_headline

COMMAND = [
    sys.executable,
    "-c",
    "import sys; from orchestrator.cli.main import main; sys.exit(main())",
    "validate",
]


def validate(*arguments: str, cwd: Path, **environment: str) -> "subprocess.CompletedProcess[str]":
    environ = {**os.environ, **environment}
    return subprocess.run(
        [*COMMAND, *arguments], cwd=cwd, capture_output=True, text=True, timeout=600, env=environ, check=False
    )


Validate = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def validate_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Validate:
    """Return a function that runs the command in this process: its start takes a second, a refusal does not."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str) -> "subprocess.CompletedProcess[str]":
        code = main(["validate", *arguments])
        return subprocess.CompletedProcess(arguments, code, *capsys.readouterr())

    return run


def unreachable(directory: Path) -> Path:
    """Return a kubeconfig of an unreachable server: port 1 of loopback refuses connections."""
    path = directory / "kubeconfig"
    config = {
        "clusters": [{"name": "c", "cluster": {"server": f"http://{LOOPBACK}:1"}}],
        "users": [{"name": "u", "user": {}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }
    path.write_text(yaml.safe_dump(config))
    return path


def verdicts(directory: Path) -> dict[str, str]:
    return {
        step["id"]: step["verdict"] for step in json.loads((directory / "report.json").read_text())["steps"]
    }


def test_the_plan_is_printed_without_running_anything(tmp_path: Path) -> None:
    done = validate("--collect-only", "--scenario", "tr4858-4.9", cwd=tmp_path)
    assert done.returncode == 0
    assert (
        "### tr4858-4.8/full\n\nThe cluster is full, 16 of 16 GPUs; no workload is pending\n" in done.stdout
    )
    assert "- least evidence: 2 nodes, 16 gpus, 15 pods, 15 events" in done.stdout
    assert "- fairness.shares: Spare GPUs are divided in the ratio of the quotas." in done.stdout
    assert "[TR-4858 §4.10]: not in this run" in done.stdout
    assert "[layer 9]: the lab has no hardware" in done.stdout
    assert "$ muster submit d-2-gg -i gcr.io/run-ai-demo/quickstart -g 2 -p team-d" in done.stdout
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("options", "profile", "gpus"),
    [((), "lab-real", 16), (("--gpus", "h100x4"), "lab-real", 8), (("--profile", "current"), "current", 16)],
)
def test_the_plan_for_real_nodes_is_of_their_profile_and_size(
    options: tuple[str, ...], profile: str, gpus: int, validate_here: Validate
) -> None:
    words = ("--collect-only", "--real-nodes", "2", "--scenario", "tr4858-4.8", *options)
    done = validate_here(*words)
    assert f"- profile: {profile} (" in done.stdout, done.stderr
    assert f"The cluster is full, {gpus} of {gpus} GPUs" in done.stdout


def test_an_unknown_scenario_is_a_usage_error_of_one_line(validate_here: Validate) -> None:
    done = validate_here("--scenario", "muster-gang", "--scenario", "nothing")
    assert done.returncode == 2
    assert done.stderr.startswith("Error: no scenario matches `nothing`; there are: hosts, dra, ")
    assert done.stdout == ""


def test_a_broken_scenario_file_is_an_error_that_names_its_line(
    validate_here: Validate, tmp_path: Path
) -> None:
    (tmp_path / "x.scenario.yaml").write_text("kind: Scenario\nsteps: 1\n")
    done = validate_here("--scenarios", str(tmp_path))
    assert done.returncode == 2
    assert "x.scenario.yaml:" in done.stderr


def test_a_part_that_there_is_not_is_refused(validate_here: Validate) -> None:
    done = validate_here("--part", "fairnes")
    assert done.returncode == 2
    assert done.stderr.startswith("Error: there is no part `fairnes`; there are: hardware, ")
    done = validate_here("--part", "hardware")
    assert done.returncode == 2
    assert "nothing of hardware applies to the profile lab: the lab has no hardware" in done.stderr


def test_patience_has_a_bound(validate_here: Validate) -> None:
    done = validate_here("--patience", "1000")
    assert done.returncode == 2
    assert "0.1<=x<=4.0" in done.stderr
    done = validate_here("--patience", "nan")
    assert (done.returncode, "nan is no number" in done.stderr) == (2, True)


def test_a_cluster_that_cannot_be_reached_leaves_a_report_that_is_not_green(tmp_path: Path) -> None:
    options = [
        "--target",
        "cluster",
        "--kubeconfig",
        str(unreachable(tmp_path)),
        "--out",
        str(tmp_path / "r"),
    ]
    done = validate(*options, "--scenario", "muster-victim", "--json", cwd=tmp_path)
    assert done.returncode == 1
    summary = json.loads(done.stdout)
    assert summary["verdict"] == "ERROR"
    found = verdicts(tmp_path / "r")
    assert found == summary["steps"]
    assert found.pop("muster-victim/fill") == "ERROR"
    assert set(found.values()) == {"BLOCKED"}
    assert "muster-victim/fill: ERROR" in done.stderr


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--real-nodes", "2"), "there is no image dist/muster-0.1.0.oci.tar: build it with `make image`"),
        (("--real-nodes", "2", "--image", "none.tar"), "there is no image none.tar"),
        (("--real-nodes", "2", "--target", "cluster"), "--real-nodes is for --target lab"),
        (("--real-nodes", "2", "--target", "planner"), "--real-nodes is for --target lab"),
        (("--real-nodes", "2", "--size", "2x8"), "--real-nodes and --gpus give the size"),
        (("--real-nodes", "2", "--gpus", "v200x8"), "give a model of v100, a100, h100 and 1 to 8"),
        (("--real-nodes", "2", "--profile", "lab"), "the profile `lab` is not for the target lab-real"),
        (("--real-nodes", "3", "--gpus", "v100x5"), "15 is neither a multiple nor a part of 16"),
        (("--profile", "lab-real"), "the profile `lab-real` is not for the target lab"),
        (("--gpus", "v100x8"), "--gpus is for --real-nodes"),
        (("--image", "operator.tar"), "--image is for --real-nodes"),
    ],
)
def test_real_nodes_that_cannot_be_had_are_refused_before_anything_starts(
    options: tuple[str, ...], message: str, validate_here: Validate, tmp_path: Path
) -> None:
    done = validate_here(*options)
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    assert message in line
    assert list(tmp_path.iterdir()) == []


@pytest.mark.lab
def test_a_scenario_passes_on_a_real_api_server(tmp_path: Path) -> None:
    done = validate("--part", "victims", "--part", "dra", "--out", str(tmp_path / "r"), cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith(pass_headline(3, "victims, dra") + "\n")
    report = json.loads((tmp_path / "r" / "report.json").read_text())
    counted = {step["id"]: step["verdict"] for step in report["steps"] if step["required"]}
    not_applicable = [step for step, verdict in counted.items() if verdict == "NOT_APPLICABLE"]
    assert not_applicable == ["dra/api/driver", "dra/api/pod"], "simulated nodes run no container"
    passed = [step for step, verdict in counted.items() if verdict == "PASS"]
    assert len(passed) == len(counted) - 2 == 8, (
        "five invariants had no subject: no gang, no interactive job, nothing beside one, no kubelet, no driver"
    )
    assert (report["verdict"], report["acceptance"]) == ("PASS", "INCONCLUSIVE")
    verify = [*COMMAND[:-1], "report", "verify", str(tmp_path / "r")]
    assert subprocess.run(verify, capture_output=True, check=False).returncode == 0
    (eviction,) = report["volatile"]["evictions"]
    assert (eviction["workload"], eviction["step"]) == ("p-2-gggg", "muster-victim/reclaim")
    assert "over its quota" in eviction["message"]
    assert report["cluster"]["gpus"] == 16


@pytest.mark.lab
def test_a_run_that_is_interrupted_while_it_installs_leaves_a_report_and_no_lab(tmp_path: Path) -> None:
    environ = {**os.environ, "XDG_STATE_HOME": str(tmp_path / "state")}
    command = [*COMMAND, "--scenario", "muster-victim", "--out", str(tmp_path / "r")]
    with subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True, env=environ) as process:
        deadline = time.monotonic() + 300
        for line in process.stderr or ():
            if "install: [1/" in line or time.monotonic() > deadline:
                break
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=300)
    assert process.returncode == 130
    report = json.loads((tmp_path / "r" / "report.json").read_text())
    assert report["verdict"] == "INCONCLUSIVE"
    assert report["interrupted"] == "interrupted by SIGTERM"
    assert list((tmp_path / "state" / "muster" / "labs").iterdir()) == []


@pytest.mark.lab
def test_an_operator_that_is_to_be_replaced_by_nothing_is_refused(tmp_path: Path) -> None:
    done = validate("--scenario", "muster-gang", cwd=tmp_path, MUSTER_OPERATOR_PYTHONPATH=str(tmp_path))
    assert done.returncode == 1
    assert "there is no directory `orchestrator` in it" in done.stderr
