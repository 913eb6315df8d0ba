"""Hints for unknown options and words, warnings of submit, and statements that must not claim too much."""

from __future__ import annotations

import traceback
from typing import TYPE_CHECKING, Any

import pytest

from orchestrator.client import Client, Submission, WaitTimeout
from tests.cli.memory_api_server import node, pod_of, project_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.cli.conftest import Outcome
    from tests.cli.memory_api_server import MemoryApiServer

NAMESPACE = "muster-team-a"


def job(server: MemoryApiServer, name: str) -> dict[str, Any]:
    found: dict[str, Any] | None = server.find("jobs", name, NAMESPACE)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("line", "hint"),
    [
        (("submit", "x", "-i", "image", "--gres", "gpu:2"), "The option for it is -g/--gpu"),
        (("submit", "x", "-i", "image", "--gpus=2"), "The option for it is -g/--gpu"),
        (("submit", "x", "-i", "image", "--priority", "high"), "muster edit JOB --priority CLASS"),
        (("list", "--pending"), "The option for it is --status Pending"),
        (("list", "-n", "team-b"), "The option for it is -p/--project"),
        (("list", "--sort-by", "age"), "The option for it is --sort FIELD"),
        (("delete", "--force", "x"), "The option for it is -y/--yes"),
        (("list", "--colums", "NAME"), "--columns"),
    ],
)
def test_an_unknown_option_is_answered_with_the_option_of_that_command(
    line: tuple[str, ...], hint: str, muster: Callable[..., Outcome], server: MemoryApiServer
) -> None:
    outcome = muster(*line)
    assert (outcome.code, outcome.out) == (2, "")
    assert hint in outcome.err
    assert outcome.err.count("\n") == 1
    assert server.requests == []


def test_a_hint_names_only_options_that_the_command_has(muster: Callable[..., Outcome]) -> None:
    outcome = muster("whoami", "--pending")
    assert outcome.code == 2
    assert "--status" not in outcome.err


@pytest.mark.parametrize(
    ("text", "forms"),
    [
        ("8GB", ("8G ", "8Gi")),
        ("1.5tb", ("1.5T ", "1.5Ti")),
        ("512KB", ("512k ", "512Ki")),
        ("8GiB", ("8G ", "8Gi")),
    ],
)
def test_an_amount_with_the_letter_b_is_answered_with_both_forms(
    text: str, forms: tuple[str, str], muster: Callable[..., Outcome]
) -> None:
    outcome = muster("submit", "x", "-i", "image", "--memory", text)
    assert outcome.code == 2
    assert all(form in outcome.err for form in forms)
    assert muster("submit", "x", "-i", "image", "--memory", forms[1], "--dry-run").code == 0


@pytest.mark.parametrize("word", ["jobs", "nodes", "projects", "templates"])
def test_get_with_a_plural_names_the_list(word: str, muster: Callable[..., Outcome]) -> None:
    outcome = muster("get", word)
    assert outcome.code == 2
    assert f"'muster list {word}'" in outcome.err


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (("-g", "200"), "a pod asks for 200 GPUs, and the largest node has 8"),
        (("-g", "8", "--nodes", "3"), "it asks for 24 GPUs at once, and the cluster has 16"),
    ],
)
def test_a_submission_that_no_node_can_hold_is_accepted_with_a_warning(
    flags: tuple[str, ...], words: str, muster: Callable[..., Outcome], server: MemoryApiServer
) -> None:
    outcome = muster("submit", "big", "-i", "image", *flags)
    assert outcome.code == 0
    assert outcome.err.startswith("Warning: ")
    assert words in outcome.err
    assert job(server, "big")


def test_a_submission_beyond_the_limit_of_its_project_is_accepted_with_a_warning(
    muster: Callable[..., Outcome], server: MemoryApiServer
) -> None:
    server.add(project_of("team-a", 4, gpu={"quota": 4, "limit": 6}))
    server.refuse("GET", "/api/v1/nodes", 403, "Forbidden")
    outcome = muster("submit", "big", "-i", "image", "-g", "8")
    assert outcome.code == 0
    assert "it asks for 8 GPUs, and the limit of project team-a is 6" in outcome.err


@pytest.mark.parametrize("flags", [("-g", "8"), ("-g", "8", "--nodes", "2"), ("-g", "0.5"), (), ("-g", "1")])
def test_a_submission_that_fits_has_no_warning(
    flags: tuple[str, ...], muster: Callable[..., Outcome]
) -> None:
    outcome = muster("submit", "fits", "-i", "image", *flags)
    assert (outcome.code, outcome.err) == (0, "")


def test_a_sweep_of_single_gpus_is_no_gang(muster: Callable[..., Outcome], server: MemoryApiServer) -> None:
    outcome = muster("submit", "sweep", "-i", "image", "-g", "1", "--array", "0-99")
    assert (outcome.code, outcome.err) == (0, "")
    assert ("GET", "/api/v1/nodes") not in server.requests


@pytest.mark.parametrize(
    ("key", "first"), [("-GPUs", "two"), ("GPUs", "one"), ("-gpus", "two"), ("Name", "one")]
)
def test_a_list_is_sorted_both_ways_in_any_letters(
    key: str, first: str, muster: Callable[..., Outcome]
) -> None:
    for name, gpus in (("one", "1"), ("two", "2")):
        muster("submit", name, "-i", "image", "-g", gpus)
    outcome = muster("list", "--sort", key, "-o", "name")
    assert (outcome.code, outcome.lines[0]) == (0, first)


def test_a_dry_run_of_delete_names_the_jobs_and_deletes_none(
    muster: Callable[..., Outcome], server: MemoryApiServer
) -> None:
    for name in ("one", "two"):
        muster("submit", name, "-i", "image")
    assert muster("delete", "--all", "--dry-run").lines == [
        "The job 'two' would be deleted",
        "The job 'one' would be deleted",
    ]
    outcome = muster("delete", "one", "nothing", "--dry-run")
    assert (outcome.code, outcome.out) == (1, "The job 'one' would be deleted\n")
    assert "nothing" in outcome.err
    assert len(server.all("jobs")) == 2


def test_the_duration_of_a_suspended_job_is_unknown(
    muster: Callable[..., Outcome], server: MemoryApiServer
) -> None:
    muster("submit", "train", "-i", "image")
    assert "TRAINING DURATION: 0s" in muster("get", "train").out
    muster("suspend", "train")
    assert "TRAINING DURATION" not in muster("get", "train").out
    assert muster("get", "train", "-o", "json").json["durationSeconds"] is None
    server.add(pod_of(job(server, "train"), "train-a", phase="Running", node_name="dgx1-1"))
    assert "TRAINING DURATION" in muster("get", "train").out


def test_a_wait_for_a_failure_ends_with_it_and_fails_with_a_success(
    muster: Callable[..., Outcome], server: MemoryApiServer
) -> None:
    for name, condition in (("bad", "Failed"), ("good", "Complete")):
        muster("submit", name, "-i", "image")
        server.add({**job(server, name), "status": {"conditions": [{"type": condition, "status": "True"}]}})
    assert muster("wait", "bad", "--for", "failed").code == 0
    outcome = muster("wait", "bad", "good", "--for", "failed")
    assert outcome.code == 1
    assert "good has succeeded" in outcome.err


def test_the_traceback_of_a_wait_that_is_over_is_one(kubeconfig: object) -> None:
    del kubeconfig
    with Client() as client:
        made = client.submit(Submission(name="one", image="image", user="ann"))
        with pytest.raises(WaitTimeout) as caught:
            made.wait(timeout_seconds=0.2)
    text = "".join(traceback.format_exception(caught.value))
    assert text.count("Traceback (most recent call last)") == 1


def test_a_failed_command_names_the_job_that_it_has_created(
    muster: Callable[..., Outcome], server: MemoryApiServer
) -> None:
    outcome = muster("submit", "note", "--jupyter", "--wait-timeout", "1s")
    assert outcome.code == 1
    assert "The job 'note' stays in project team-a: 'muster delete note' deletes it" in outcome.err
    assert len(server.all("statefulsets")) == 1


RUNS = [{"name": "main", "state": {"running": {}}}]


@pytest.mark.parametrize("line", [("logs", "train"), ("exec", "train", "--", "true")])
def test_a_simulated_node_is_named_and_not_the_request(
    line: tuple[str, ...], muster: Callable[..., Outcome], server: MemoryApiServer
) -> None:
    muster("submit", "train", "-i", "image")
    server.add(pod_of(job(server, "train"), "train-a", phase="Running", node_name="dgx1-1"))
    pod = server.find("pods", "train-a", NAMESPACE)
    assert pod is not None
    name = pod["spec"]["containers"][0]["name"]
    pod["status"]["containerStatuses"] = [{"name": name, "state": {"running": {}}}]
    for verb in ("log", "exec"):
        server.refuse("GET", f"/api/v1/namespaces/{NAMESPACE}/pods/train-a/{verb}", 502, "BadGateway")
    outcome = muster(*line)
    assert outcome.code == 1
    assert "pod train-a is on the simulated node dgx1-1, which runs no containers" in outcome.err
    assert "/api/v1" not in outcome.err
    pod["status"]["containerStatuses"][0]["containerID"] = "containerd://a"
    assert "the kubelet of node dgx1-1 does not answer for pod train-a" in muster(*line).err


def fraction(server: MemoryApiServer, **annotations: str) -> None:
    pod = pod_of(job(server, "half"), "half-a", phase="Running", node_name="dgx1-1")
    pod["metadata"]["uid"] = "uid-of-half"
    pod["metadata"]["annotations"] |= {"muster.dev/admitted": "uid-of-half", **annotations}
    pod["status"]["containerStatuses"] = [
        {"name": "half", "containerID": "containerd://a", "state": {"running": {}}}
    ]
    server.add(pod)


def test_a_fraction_without_a_gpu_is_not_said_to_be_all_right(
    muster: Callable[..., Outcome], server: MemoryApiServer
) -> None:
    ready = {"conditions": [{"type": "Ready", "status": "True"}]}
    server.add({**node("dgx1-1", 8), "status": node("dgx1-1", 8)["status"] | ready})
    muster("submit", "half", "-i", "image", "-g", "0.5")
    fraction(server)
    assert "Without the GPU of their fraction: half" in muster("list").err
    assert muster("list", "-o", "json").json[0]["waitsBecause"].startswith("GpuNotReserved: ")
    assert "GpuNotReserved: it runs without the GPU" in muster("get", "half").out
    answer = muster("explain", "half").out
    assert "half of team-a runs on dgx1-1." in answer
    assert "GpuNotReserved" in answer
    fraction(server, **{"muster.dev/gpu-uuids": "GPU-1"})
    assert (muster("list").err, muster("list", "-o", "json").json[0]["waitsBecause"]) == ("", "")


def test_no_remedy_is_said(muster: Callable[..., Outcome], server: MemoryApiServer) -> None:
    server.add(node("dgx1-1", 0), node("dgx1-2", 0))
    muster("submit", "train", "-i", "image", "-g", "1")
    server.add(pod_of(job(server, "train"), "train-a"))
    assert "No remedy: " in muster("explain", "train", "--remedies").out
