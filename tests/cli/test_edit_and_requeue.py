"""`muster edit` and `muster requeue` (client/editing.py, submit/changes.py), and what a failed step leaves."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from orchestrator.client import Change, Client, InvalidField
from tests.cli.memory_api_server import claim_of, pod_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.cli.conftest import Outcome
    from tests.cli.memory_api_server import JSON, MemoryApiServer

    Muster = Callable[..., Outcome]

NAMESPACE = "muster-team-a"
JOBS = f"/apis/batch/v1/namespaces/{NAMESPACE}/jobs"


def find(server: MemoryApiServer, plural: str, name: str) -> dict[str, Any]:
    found: dict[str, Any] | None = server.find(plural, name, NAMESPACE)
    assert found is not None
    return found


def container(job: JSON) -> JSON:
    found: JSON = job["spec"]["template"]["spec"]["containers"][0]
    return found


def with_controllers(server: MemoryApiServer) -> None:
    """Let a read of a suspended workload show that its controller has seen the suspension."""

    def see(token: str, method: str, path: str, body: JSON | None) -> None:
        del token, body
        name = path.rpartition("/")[2]
        if method == "GET" and (job := server.find("jobs", name, NAMESPACE)) and job["spec"].get("suspend"):
            job["status"] = {"conditions": [{"type": "Suspended", "status": "True"}]}

    server.admit = see


@pytest.fixture
def pending(muster: Muster, server: MemoryApiServer) -> JSON:
    """Submit a job of four nodes with a service, and a job that starts after it."""
    muster("submit", "train", "-i", "old", "--nodes", "4", "-g", "2")
    muster("submit", "next", "-i", "image", "--after", "train")
    return find(server, "jobs", "train")


def test_a_pending_job_gets_another_image_and_number_of_gpus(
    muster: Muster, server: MemoryApiServer, pending: JSON
) -> None:
    # as the API server has it
    pending["spec"]["selector"] = {"matchLabels": {"batch.kubernetes.io/controller-uid": "a"}}
    pending["spec"]["template"]["metadata"]["labels"] |= {"batch.kubernetes.io/controller-uid": "a"}
    outcome = muster("edit", "train", "-g", "4", "--image", "new")
    assert (outcome.code, outcome.err) == (0, "")
    assert outcome.out == "The job 'train' has been changed, and is the last of its priority in the queue\n"
    made = find(server, "jobs", "train")
    assert made["metadata"]["uid"] != pending["metadata"]["uid"]
    assert container(made)["image"] == "new"
    assert container(made)["resources"] == {
        "limits": {"nvidia.com/gpu": "4"},
        "requests": {"cpu": "4", "memory": "400Mi"},
    }
    assert {"name": "RUNAI_NUM_OF_GPUS", "value": "4"} in container(made)["env"]
    assert "selector" not in made["spec"]
    assert "batch.kubernetes.io/controller-uid" not in made["spec"]["template"]["metadata"]["labels"]
    assert made["spec"]["suspend"] is False
    assert made["spec"]["parallelism"] == 4
    assert_complete(server, made)


def assert_complete(server: MemoryApiServer, made: JSON) -> None:
    """Check that the service and the dependent job belong to the job, and that no copy is left."""
    (service,) = server.all("services")
    assert [owner["uid"] for owner in service["metadata"]["ownerReferences"]] == [made["metadata"]["uid"]]
    after = find(server, "jobs", "next")["metadata"]["annotations"]["muster.dev/after"]
    assert after == f"train:succeeded:{made['metadata']['uid']}"
    assert sorted(job["metadata"]["name"] for job in server.all("jobs")) == ["next", "train"]


WRITES = 7
"""The copy, its ownership of the service, the deletion, the successor, the owner, the dependent job, the copy again."""


@pytest.mark.parametrize("step", range(WRITES))
def test_nothing_is_lost_if_a_step_fails_and_the_next_edit_continues(
    step: int, muster: Muster, server: MemoryApiServer, pending: JSON
) -> None:
    del pending
    writes = 0

    def fail(token: str, method: str, path: str, body: JSON | None) -> tuple[int, JSON] | None:
        nonlocal writes
        del token, body, path
        writes += method != "GET"
        return (
            (403, {"reason": "Broken", "message": "the test"}) if method != "GET" and writes > step else None
        )

    server.admit = fail
    outcome = muster("edit", "train", "-g", "4")
    assert outcome.code == 1
    assert outcome.err.count("\n") == 1
    there = {job["metadata"]["name"] for job in server.all("jobs")}
    assert there & {"train", "train-edit"}
    if "train" not in there:
        assert "train-edit has its description; run the command again" in outcome.err
    assert len(server.all("services")) == 1
    server.admit = lambda *_: None
    assert muster("edit", "train", "-g", "4").code == 0
    made = find(server, "jobs", "train")
    assert container(made)["resources"]["limits"] == {"nvidia.com/gpu": "4"}
    assert_complete(server, made)


def test_the_number_of_writes_is_that_of_the_test_above(
    muster: Muster, server: MemoryApiServer, pending: JSON
) -> None:
    del pending
    server.requests.clear()
    assert muster("edit", "train", "-g", "4").code == 0
    assert len(server.writes()) == WRITES


def test_a_dry_run_changes_nothing(muster: Muster, server: MemoryApiServer, pending: JSON) -> None:
    outcome = muster("edit", "train", "-g", "4", "--priority", "interactive", "--dry-run")
    assert (outcome.code, outcome.out) == (0, "The job 'train' would be changed\n")
    assert find(server, "jobs", "train") == pending
    assert len(server.all("jobs")) == 2


def test_a_change_that_the_api_server_refuses_changes_nothing(
    muster: Muster, server: MemoryApiServer, pending: JSON
) -> None:
    server.refuse("POST", JOBS, 422, "Invalid")
    assert muster("edit", "train", "--image", "new").code == 1
    assert find(server, "jobs", "train") == pending


def test_a_job_that_runs_can_change_its_priority_alone(muster: Muster, server: MemoryApiServer) -> None:
    muster("submit", "train", "-i", "image", "-g", "1")
    job = find(server, "jobs", "train")
    server.add(pod_of(job, "train-a", phase="Running", node_name="dgx1-1"))
    for flags in (("-g", "2"), ("-i", "new"), ("-g", "2", "--priority", "inference")):
        outcome = muster("edit", "train", *flags)
        assert outcome.code == 1
        assert "train runs: only its priority can change; 'muster suspend train' stops it" in outcome.err
    assert muster("get", "train", "-o", "json").json["priority"] == "muster-train"
    server.requests.clear()
    outcome = muster("edit", "job", "train", "--priority", "interactive-preemptible")
    assert (outcome.code, outcome.out) == (0, "The job 'train' has been changed\n")
    assert server.writes() == [("PATCH", f"{JOBS}/train")]
    assert find(server, "jobs", "train")["metadata"]["uid"] == job["metadata"]["uid"]
    assert muster("get", "train", "-o", "json").json["priority"] == "muster-interactive-preemptible"


def test_a_job_whose_image_cannot_be_pulled_gets_another(muster: Muster, server: MemoryApiServer) -> None:
    muster("submit", "train", "-i", "wrong", "-g", "1")
    server.add(pod_of(find(server, "jobs", "train"), "train-a", phase="Pending", node_name="dgx1-1"))
    assert muster("edit", "train", "-i", "right").code == 0
    assert container(find(server, "jobs", "train"))["image"] == "right"


def test_a_suspended_job_is_edited_and_still_suspended(muster: Muster, server: MemoryApiServer) -> None:
    muster("submit", "train", "-i", "old", "-g", "1")
    muster("suspend", "train")
    assert muster("edit", "train", "-i", "new").code == 0
    made = find(server, "jobs", "train")
    assert (container(made)["image"], made["spec"]["suspend"]) == ("new", True)
    assert muster("resume", "train").code == 0


def test_a_job_with_dependencies_is_edited_and_keeps_them(
    muster: Muster, server: MemoryApiServer, pending: JSON
) -> None:
    assert muster("edit", "next", "-i", "new").code == 0
    made = find(server, "jobs", "next")
    assert container(made)["image"] == "new"
    after = f"train:succeeded:{pending['metadata']['uid']}"
    assert (made["metadata"]["annotations"]["muster.dev/after"], made["spec"]["suspend"]) == (after, True)
    assert not {"muster.dev/edit-of", "muster.dev/edit-after"} & made["metadata"]["annotations"].keys()


def test_a_job_whose_replacement_would_lose_something_is_refused(
    muster: Muster, server: MemoryApiServer
) -> None:
    muster("submit", "data", "-i", "image", "--pvc-new", "size=1Gi,path=/data")
    muster("submit", "part", "-i", "image", "--array", "0-9")
    find(server, "jobs", "part")["status"] = {"succeeded": 3}
    muster("submit", "secret", "-i", "image", "--git-sync", "source=https://git.example.com/a.git,password=x")
    muster("submit", "ended", "-i", "image")
    find(server, "jobs", "ended")["status"] = {"conditions": [{"type": "Complete", "status": "True"}]}
    server.requests.clear()
    for name, words in (
        ("data", "has the volume"),
        ("part", "3 succeeded"),
        ("secret", "has the secret"),
        ("ended", "has ended"),
        ("nothing", "does not exist"),
    ):
        outcome = muster("edit", name, "-i", "new")
        assert outcome.code == 1
        assert words in outcome.err
    assert server.writes() == []


SIDECAR = {"name": "sidecar", "image": "image"}


@pytest.mark.parametrize(
    ("part", "value", "words"),
    [
        (
            "metadata",
            {"ownerReferences": [{"apiVersion": "x/v1", "kind": "JobSet", "name": "above", "uid": "a"}]},
            "JobSet above",
        ),
        ("metadata", {"finalizers": ["example.com/keep"]}, "the finalizer example.com/keep"),
        ("metadata", {"deletionTimestamp": "2026-01-01T00:00:00Z"}, "is being deleted"),
        ("pod", {"containers": [SIDECAR, SIDECAR]}, "the containers sidecar, sidecar"),
        ("pod", {"resourceClaims": [{"name": "gpu", "resourceClaimName": "gpu"}]}, "ResourceClaims"),
    ],
)
def test_a_job_of_a_form_that_an_edit_does_not_know_is_refused(
    part: str, value: JSON, words: str, muster: Muster, server: MemoryApiServer
) -> None:
    muster("submit", "train", "-i", "image", "-g", "1")
    job = find(server, "jobs", "train")
    place = job["metadata"] if part == "metadata" else job["spec"]["template"]["spec"]
    place.update(value)
    server.requests.clear()
    outcome = muster("edit", "train", "-g", "2")
    assert outcome.code == 1
    assert words in outcome.err
    assert server.writes() == []


def interrupt(muster: Muster, server: MemoryApiServer) -> None:
    """Interrupt an edit of the job before the deletion of the Job, so that its copy stays."""
    server.refuse("DELETE", f"{JOBS}/train", 403, "Forbidden")
    assert muster("edit", "train", "-g", "4").code == 1
    server.allow("DELETE", f"{JOBS}/train")
    assert find(server, "jobs", "train-edit")


def test_an_edit_keeps_the_copy_of_a_terminating_job(
    muster: Muster, server: MemoryApiServer, pending: JSON
) -> None:
    interrupt(muster, server)
    pending["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    server.refuse("DELETE", f"{JOBS}/train", 403, "Forbidden")
    outcome = muster("edit", "train", "-g", "0.5")
    assert outcome.code == 1
    assert "train-edit has its description; run the command again" in outcome.err
    assert find(server, "jobs", "train-edit")


def test_a_resumed_copy_is_neither_deleted_nor_edited(
    muster: Muster, server: MemoryApiServer, pending: JSON
) -> None:
    del pending
    interrupt(muster, server)
    assert "the copy of an interrupted edit" in muster("edit", "train-edit", "-g", "2").err
    muster("resume", "train-edit")
    outcome = muster("edit", "train", "-g", "4")
    assert outcome.code == 1
    assert (
        "its copy train-edit was resumed: 'muster suspend train-edit' lets the edit continue" in outcome.err
    )
    assert find(server, "jobs", "train-edit")
    assert find(server, "jobs", "train")


@pytest.mark.parametrize(
    ("request_of_first", "words"),
    [
        (("GET", f"{JOBS}/train-edit"), "another edit of the job has begun in the meantime"),
        (("DELETE", f"{JOBS}/train"), "409 the uid does not match"),
    ],
)
def test_another_edit_at_the_same_time_loses_nothing(
    request_of_first: tuple[str, str], words: str, muster: Muster, server: MemoryApiServer, pending: JSON
) -> None:
    del pending
    others: list[Outcome] = []

    def edit_too(token: str, method: str, path: str, body: JSON | None) -> None:
        del token, body
        copy = server.find("jobs", "train-edit", NAMESPACE)
        if (method, path) == request_of_first and copy is not None:
            server.admit = lambda *_: None
            others.append(muster("edit", "train", "-g", "3"))

    server.admit = edit_too
    outcome = muster("edit", "train", "-g", "4")
    assert [other.code for other in others] == [0]
    assert outcome.code == 1
    assert words in outcome.err
    made = find(server, "jobs", "train")
    assert container(made)["resources"]["limits"] == {"nvidia.com/gpu": "3"}
    assert_complete(server, made)


def test_a_job_that_another_command_created_during_an_edit_is_named(
    muster: Muster, server: MemoryApiServer, pending: JSON
) -> None:
    interrupt(muster, server)
    muster("delete", "train")
    muster("submit", "train", "-i", "other")
    outcome = muster("edit", "train", "-i", "new")
    assert outcome.code == 1
    assert "another command has created train during its edit" in outcome.err
    assert find(server, "jobs", "train")["metadata"]["uid"] != pending["metadata"]["uid"]
    assert find(server, "jobs", "train-edit")


def test_a_volume_of_the_project_is_no_obstacle(muster: Muster, server: MemoryApiServer) -> None:
    server.add(claim_of("data", NAMESPACE))
    muster("submit", "train", "-i", "image", "--pvc", "data:/data")
    assert muster("edit", "train", "-i", "new").code == 0
    assert container(find(server, "jobs", "train"))["image"] == "new"
    assert find(server, "persistentvolumeclaims", "data")


@pytest.mark.parametrize(
    ("submitted", "edited", "words"),
    [
        (("-g", "1"), "0.5", "was made for whole GPUs"),
        (("-g", "0.5"), "1", "was made for 0.5 of a GPU"),
        (("--gpu-memory", "4G"), "1", "memory of GPUs"),
        ((), "0.5", "was made for no GPU"),
        (("--extended-resource", "nvidia.com/mig-1g.5gb=1"), "1", "asks for nvidia.com/mig-1g.5gb"),
        (("--extended-resource", "nvidia.com/gpu.shared=1"), "1", "asks for nvidia.com/gpu.shared"),
    ],
)
def test_gpus_that_need_another_container_are_refused(
    submitted: tuple[str, ...], edited: str, words: str, muster: Muster, server: MemoryApiServer
) -> None:
    muster("submit", "train", "-i", "image", *submitted)
    before = find(server, "jobs", "train")
    outcome = muster("edit", "train", "-g", edited)
    assert outcome.code == 2
    assert "-g/--gpu" in outcome.err
    assert words in outcome.err
    assert find(server, "jobs", "train") == before


@pytest.mark.parametrize("flags", [(), ("--interactive",)])
def test_a_priority_changes_together_with_the_gpus_or_not_at_all(
    flags: tuple[str, ...], muster: Muster, server: MemoryApiServer
) -> None:
    muster("submit", "one", "-i", "image", "-g", "1", *flags)
    if flags:
        find(server, "statefulsets", "one")["status"] = {"replicas": 0}
    server.requests.clear()
    outcome = muster("edit", "one", "--priority", "inference", "-g", "0.5")
    assert (outcome.code, server.writes()) == (2, [])
    assert muster("edit", "one", "--priority", "inference", "-g", "2").code == 0
    record = muster("get", "one", "-o", "json").json
    assert (record["priority"], record["gpus"]) == ("muster-inference", "2")


@pytest.mark.parametrize(
    "annotation", [{"muster.dev/gpu-fraction": "half"}, {"muster.dev/gpu-fraction-devices": "x"}]
)
def test_a_request_that_cannot_be_read_is_not_changed(
    annotation: JSON, muster: Muster, server: MemoryApiServer
) -> None:
    muster("submit", "one", "-i", "image", "-g", "0.5")
    find(server, "jobs", "one")["spec"]["template"]["metadata"]["annotations"] |= annotation
    outcome = muster("edit", "one", "-g", "0.25")
    assert outcome.code == 2
    assert "-g/--gpu is not possible: the present request of the job cannot be read" in outcome.err


@pytest.mark.parametrize("word", ["high", "train", "system-node-critical", ""])
def test_a_priority_that_the_scheduler_ignores_is_not_shown(
    word: str, muster: Muster, server: MemoryApiServer
) -> None:
    muster("submit", "one", "-i", "image")
    find(server, "jobs", "one")["metadata"]["annotations"]["muster.dev/priority"] = word
    assert muster("get", "one", "-o", "json").json["priority"] == "muster-train"


LIMITS = ("--cpu-limit", "2", "--memory-limit", "200Mi")


@pytest.mark.parametrize(
    ("submitted", "edited", "flags"),
    [
        (("-g", "0.5"), "0.25", ("-g", "0.25")),
        ((), "2", ("-g", "2")),
        (("-g", "1", "--cpu", "9"), "2", ("-g", "2", "--cpu", "9")),
        (("-g", "1", *LIMITS), "4", ("-g", "4", *LIMITS)),
        (("-g", "4", *LIMITS), "1", ("-g", "1", *LIMITS)),
    ],
)
def test_the_edited_pods_are_those_of_a_submission(
    submitted: tuple[str, ...], edited: str, flags: tuple[str, ...], muster: Muster, server: MemoryApiServer
) -> None:
    muster("submit", "one", "-i", "image", *submitted)
    assert muster("edit", "one", "-g", edited).code == 0
    made = find(server, "jobs", "one")["spec"]["template"]
    assert muster("delete", "one").code == 0
    muster("submit", "one", "-i", "image", *flags)
    expected = find(server, "jobs", "one")["spec"]["template"]
    for template in (made, expected):
        del template["metadata"]["annotations"]["muster.dev/submitted-at"]
        template["spec"]["containers"][0]["env"].sort(key=lambda variable: variable["name"])
    assert made == expected


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ((), "nothing is to be changed"),
        (("--priority", "high"), "--priority 'high' is not possible: use one of train, "),
        (("-g", "0"), "-g/--gpu"),
        (("other", "-g", "1"), "name one job"),
    ],
)
def test_an_invalid_edit_reads_nothing(
    flags: tuple[str, ...], words: str, muster: Muster, server: MemoryApiServer
) -> None:
    outcome = muster("edit", "train", *flags)
    assert outcome.code == 2
    assert words in outcome.err
    assert server.requests == []


def test_another_job_of_the_name_of_the_copy_is_not_touched(
    muster: Muster, server: MemoryApiServer, pending: JSON
) -> None:
    muster("submit", "train-edit", "-i", "image")
    outcome = muster("edit", "train", "-i", "new")
    assert outcome.code == 1
    assert "there is a job train-edit" in outcome.err
    assert find(server, "jobs", "train") == pending
    assert find(server, "jobs", "train-edit")


def test_a_notebook_keeps_its_place_and_is_made_anew(muster: Muster, server: MemoryApiServer) -> None:
    muster("submit", "note", "-i", "old", "-g", "1", "--interactive")
    before = find(server, "statefulsets", "note")
    before["status"] = {"replicas": 0}
    outcome = muster("edit", "note", "-g", "2", "-i", "new")
    assert (outcome.code, outcome.out) == (0, "The job 'note' has been changed\n")
    after = find(server, "statefulsets", "note")
    assert after["metadata"]["uid"] == before["metadata"]["uid"]
    assert (container(after)["image"], after["spec"]["replicas"]) == ("new", 1)
    path = f"/apis/apps/v1/namespaces/{NAMESPACE}/statefulsets/note"
    assert server.writes()[-3:] == [("PATCH", path)] * 3


def test_the_answer_for_programs_is_that_of_get(
    muster: Muster, server: MemoryApiServer, pending: JSON
) -> None:
    del server, pending
    record = muster("edit", "train", "-g", "1", "-o", "json").json
    assert (record["name"], record["gpus"], record["status"]) == ("train", "4", "Pending")
    assert record.keys() == muster("get", "train", "-o", "json").json.keys()


@pytest.mark.parametrize("phase", ["", "Pending"])
@pytest.mark.parametrize("kind", [(), ("--interactive",)])
def test_a_dry_run_prints_the_job_as_it_would_be(
    phase: str, kind: tuple[str, ...], muster: Muster, server: MemoryApiServer
) -> None:
    muster("submit", "train", "-i", "old", "-g", "1", "-s", "nodeport", "--port", "80", *kind)
    plural = "statefulsets" if kind else "jobs"
    present = find(server, plural, "train")
    if phase:
        server.add(pod_of(present, "train-0", phase=phase, node_name="dgx1-1"))
    before = muster("get", "train", "-o", "json").json
    server.requests.clear()
    words = ("edit", "train", "-g", "3", "-i", "new", "--priority", "inference", "--dry-run", "-o")
    record = muster(*words, "json").json
    changed = {"gpus": "3", "image": "new", "priority": "muster-inference"}
    assert {key: record[key] for key in changed} == changed
    assert (record["name"], record["status"], record["instances"]) == ("train", "Pending", [])
    assert (record["serviceUrls"], record["user"]) == (before["serviceUrls"], before["user"])
    assert "image: new" in muster(*words, "yaml").out
    assert find(server, plural, "train") == present
    assert {method for method, path in server.writes() if path} <= {"POST", "PATCH"}
    after = muster("get", "train", "-o", "json").json
    assert {key: after[key] for key in changed} == {key: before[key] for key in changed}


def test_a_dry_run_of_a_priority_keeps_the_pods(muster: Muster, server: MemoryApiServer) -> None:
    muster("submit", "train", "-i", "image", "-g", "1")
    server.add(pod_of(find(server, "jobs", "train"), "train-0", phase="Running", node_name="dgx1-1"))
    record = muster("edit", "train", "--priority", "inference", "--dry-run", "-o", "json").json
    assert (record["priority"], record["status"], record["node"]) == ("muster-inference", "Running", "dgx1-1")


def test_a_requeued_job_is_stopped_and_queued_from_now_on(muster: Muster, server: MemoryApiServer) -> None:
    with_controllers(server)
    muster("submit", "train", "-i", "image", "-g", "1")
    server.requests.clear()
    outcome = muster("requeue", "train")
    assert (outcome.code, outcome.out) == (0, "The job 'train' has been requeued successfully\n")
    assert server.writes() == [("PATCH", f"{JOBS}/train")] * 2
    job = find(server, "jobs", "train")
    assert job["spec"]["suspend"] is False
    assert job["metadata"]["annotations"]["muster.dev/queued-since"].endswith("Z")


def test_jobs_that_cannot_be_requeued_are_named(
    muster: Muster, server: MemoryApiServer, pending: JSON
) -> None:
    del pending
    muster("submit", "stopped", "-i", "image")
    muster("suspend", "stopped")
    server.requests.clear()
    outcome = muster("requeue", "stopped", "next", "nothing")
    assert (outcome.code, outcome.out, server.writes()) == (1, "", [])
    for words in ("'muster resume stopped'", "next has not started", "nothing does not exist"):
        assert words in outcome.err


def test_a_requeue_that_fails_in_between_names_the_way(muster: Muster, server: MemoryApiServer) -> None:
    muster("submit", "train", "-i", "image")
    server.refuse("GET", f"{JOBS}/train", 500, "InternalError")

    def fail_later(token: str, method: str, path: str, body: JSON | None) -> None:
        del token, path, body
        if method == "PATCH":
            server.refuse("GET", f"{JOBS}/train", 500, "InternalError")

    server.allow("GET", f"{JOBS}/train")
    server.admit = fail_later
    outcome = muster("requeue", "train")
    assert outcome.code == 1
    assert "'muster resume train' returns it to the queue" in outcome.err
    assert find(server, "jobs", "train")["spec"]["suspend"] is True


def test_programs_edit_and_requeue_too(muster: Muster, server: MemoryApiServer) -> None:
    muster("submit", "train", "-i", "image", "-g", "1")
    with_controllers(server)
    with Client() as client:
        edited = client.edit_job("train", Change(gpu_milli=2000, priority="muster-interactive"))
        assert (edited.gpus, edited.priority_class) == ("2", "muster-interactive")
        client.requeue_job("train")
        view = client.get_job("train")
    assert "muster.dev/queued-since" in find(server, "jobs", "train")["metadata"]["annotations"]
    assert (view.gpus, view.priority_class) == ("2", "muster-interactive")
    with pytest.raises(InvalidField, match="priority 'high'"):
        Change(priority="high")
