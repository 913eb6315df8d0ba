"""Judges a Job that another client than muster creates in the namespace of a project: muster gives it its GPU."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from validation.judge.api.api_request import CONFLICT, OK, ApiCheck, Json, Request, at, objects
from validation.judge.check_verdict import Judgement
from validation.judge.verdict import Verdict

PROJECT: Final = "other-client"
NAME: Final = "client"
NAMESPACE: Final = f"muster-{PROJECT}"
DEVICES: Final = "muster.dev/gpu-devices"
"""The annotation that muster's operator writes when it gives a pod its GPUs."""
_PROJECTS: Final = "/apis/muster.dev/v1alpha1/projects"
_JOBS: Final = f"/apis/batch/v1/namespaces/{NAMESPACE}/jobs"
_PODS: Final = f"/api/v1/namespaces/{NAMESPACE}/pods?labelSelector=batch.kubernetes.io/job-name={NAME}"
_NOT_FOUND: Final = 404
NAMESPACE_MS: Final = 60_000
RUNS_MS: Final = 600_000
"""Maximum time until the pod runs. The node may have to pull the image first."""


def _project() -> Mapping[str, Any]:
    return {
        "apiVersion": "muster.dev/v1alpha1",
        "kind": "Project",
        "metadata": {"name": PROJECT},
        "spec": {"gpu": {"quota": 1}},
    }


def _job() -> Mapping[str, Any]:
    container = {
        "name": NAME,
        "image": "gcr.io/run-ai-demo/quickstart",
        "resources": {"limits": {"nvidia.com/gpu": 1}},
    }
    pod = {"restartPolicy": "Never", "schedulerName": "muster", "containers": [container]}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": NAME, "namespace": NAMESPACE},
        "spec": {"backoffLimit": 0, "template": {"spec": pod}},
    }


def _leaves(status: int, answer: Json) -> bool:
    """Return whether an older project of the name is terminating."""
    message = answer.get("message")
    return status == CONFLICT and isinstance(message, str) and "being deleted" in message


def _has_no_namespace(status: int, _answer: Json) -> bool:
    return status == _NOT_FOUND


def _waits(status: int, answer: Json) -> bool:
    """Return whether the Job has no pod yet, or its pod has not started."""
    phases = [at(pod, "status", "phase") for pod in objects(answer.get("items"))]
    return status == OK and all(phase in {None, "Pending"} for phase in phases)


def _judge(documents: Sequence[Json]) -> Judgement:
    _, job, pods = documents
    items = objects(pods.get("items"))
    if len(items) != 1:
        return _fails(f"the Job {NAME} has {len(items)} pods, not 1")
    (pod,) = items
    uid = at(job, "metadata", "uid")
    if not uid or uid not in [owner.get("uid") for owner in objects(at(pod, "metadata", "ownerReferences"))]:
        return _fails(f"the pod is not of the Job {NAME} that was created")
    phase, node = at(pod, "status", "phase"), at(pod, "spec", "nodeName")
    if phase != "Running" or not isinstance(node, str) or not node:
        return _fails(f"the pod of the Job {NAME} is {phase}, not Running on a node")
    if at(pod, "spec", "schedulerName") != "muster":
        return _fails(f"the pod of the Job {NAME} is not scheduled by muster")
    devices = at(pod, "metadata", "annotations", DEVICES)
    if not isinstance(devices, str) or not devices.isdecimal():
        return _fails(f"the pod of the Job {NAME} has not one GPU by muster")
    return Judgement(Verdict.PASS)


def _fails(reason: str) -> Judgement:
    return Judgement(Verdict.FAIL, reason)


CHECK: Final = ApiCheck(
    "A Job that another client creates in the namespace of a project gets its GPU from muster",
    "TR-4858, Creating Projects for Data Science Teams and Allocating GPUs, first paragraph",
    (
        Request("POST", _PROJECTS, _project(), is_early=_leaves, within_ms=NAMESPACE_MS),
        Request("POST", _JOBS, _job(), is_early=_has_no_namespace, within_ms=NAMESPACE_MS),
        Request("GET", _PODS, is_early=_waits, within_ms=RUNS_MS),
    ),
    _judge,
    vanishes=f"/api/v1/namespaces/{NAMESPACE}",
)
