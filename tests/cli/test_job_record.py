"""`orchestrator.views.job_record`: each command and the Python client show a job in one form."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import yaml

from orchestrator.client import Client, Submission, job_record
from tests.cli.memory_api_server import pod_of
from tests.cli.test_watch import watching

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.cli.conftest import Outcome
    from tests.cli.memory_api_server import MemoryApiServer

    Muster = Callable[..., Outcome]

NAMESPACE = "muster-team-a"
HALF = ("-i", "image", "-g", "0.5", "--interactive", "-s", "ingress", "--port", "80")
CHANGES = {"ageSeconds", "events", "gpuDetails"}
"""Fields that can differ between two readings of one job."""


def without_changes(job: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in job.items() if key not in CHANGES}


def test_every_command_prints_a_job_in_one_form(
    muster: Muster, kubeconfig: Path, server: MemoryApiServer
) -> None:
    submitted = muster("submit", "x", *HALF, "-o", "json").json
    in_yaml = yaml.safe_load(muster("submit", "y", *HALF, "-o", "yaml").out)
    described, (_, listed) = muster("get", "x", "-o", "json").json, muster("list", "-o", "json").json
    (*_, listed_in_yaml) = yaml.safe_load(muster("list", "-o", "yaml").out)
    with watching(kubeconfig, "-o", "json") as watch:
        watched = json.loads(watch.next())
    forms = (submitted, in_yaml, described, listed, listed_in_yaml, watched)
    assert [form.keys() for form in forms] == [described.keys()] * len(forms)
    assert without_changes(submitted) == without_changes(described) == without_changes(listed)
    assert (submitted["status"], submitted["gpus"]) == ("Pending", "0.5")
    assert submitted["serviceUrls"] == ["<pending>"]
    assert (described["events"], listed["events"], submitted["events"]) == ([], None, None)


def test_the_client_has_the_form_of_the_command_line(
    muster: Muster, kubeconfig: Path, server: MemoryApiServer
) -> None:
    with Client(kubeconfig) as client:
        job = client.submit(Submission(name="z", image="image", user="ann", gpu_milli=2000))
        created, read = job_record(job.view, 0), job_record(client.get_job("z"), 0)
    assert created == read
    assert created.keys() == muster("get", "z", "-o", "json").json.keys()


def test_instances_and_events_have_one_form_too(muster: Muster, server: MemoryApiServer) -> None:
    muster("submit", "x", "-i", "image", "-g", "2")
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "none free"}
    server.add(pod_of(server.all("jobs")[0], "x-abc", conditions=[condition]))
    described, (listed,) = muster("get", "x", "-o", "json").json, muster("list", "-o", "json").json
    (one,), (other,) = described["instances"], listed["instances"]
    assert one.keys() == other.keys()
    assert without_changes(one) == without_changes(other)
    assert [event.keys() for event in described["events"]] == [{"source", "type", "age", "message"}]


def test_created_objects_have_no_managed_fields(kubeconfig: Path, server: MemoryApiServer) -> None:
    with Client(kubeconfig) as client:
        job = client.submit(Submission(name="z", image="image", user="ann"))
    (stored,) = server.all("jobs")
    assert stored["metadata"]["managedFields"]
    assert job.objects[0]["metadata"] == {
        key: value for key, value in stored["metadata"].items() if key != "managedFields"
    }
