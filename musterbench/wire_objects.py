"""Objects of a benchmark as an API server sends them: with all that it and the controllers add."""

from typing import Any, Final

from orchestrator.names import ADMITTED_ANNOTATION, GPU_DEVICES_ANNOTATION

JSON = dict[str, Any]

CREATED: Final = "2026-01-01T00:00:00Z"
_MANAGED_FIELDS_BYTES: Final = 2800
"""What the API server adds to a pod to remember who set which field."""


def server_side(uid: str) -> JSON:
    """Return what the server adds to the metadata of an object."""
    return {
        "uid": uid,
        "resourceVersion": "1",
        "creationTimestamp": CREATED,
        "managedFields": [{"manager": "x", "fieldsV1": {"f:spec": "x" * _MANAGED_FIELDS_BYTES}}],
    }


def running_pod(job: JSON, node: str, devices: str) -> JSON:
    """Return the pod of a job that runs on a node and holds its devices."""
    template = job["spec"]["template"]
    name, uid = job["metadata"]["name"], f"pod-of-{job['metadata']['uid']}"
    annotations = template["metadata"]["annotations"] | {GPU_DEVICES_ANNOTATION: devices}
    annotations[ADMITTED_ANNOTATION] = uid
    pod = _pod(job, uid)
    return {
        "metadata": {**pod["metadata"], "annotations": annotations},
        "spec": template["spec"] | {"nodeName": node},
        "status": {
            "phase": "Running",
            "hostIP": "10.61.218.152",
            "podIP": "10.233.64.17",
            "startTime": CREATED,
            "conditions": [
                {"type": kind, "status": "True", "lastTransitionTime": CREATED}
                for kind in (
                    "PodReadyToStartContainers",
                    "Initialized",
                    "Ready",
                    "ContainersReady",
                    "PodScheduled",
                )
            ],
            "containerStatuses": [
                {"name": name, "ready": True, "state": {"running": {"startedAt": CREATED}}}
            ],
        },
    }


def waiting_pod(job: JSON, why: str) -> JSON:
    """Return the pod of a job that waits, with the sentence that says why."""
    condition = {
        "type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": why,
        "lastTransitionTime": CREATED,
    }  # fmt: skip
    pod = _pod(job, f"pod-of-{job['metadata']['uid']}")
    return {**pod, "status": {"phase": "Pending", "conditions": [condition]}}


def _pod(job: JSON, uid: str) -> JSON:
    template, metadata = job["spec"]["template"], job["metadata"]
    owner = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "name": metadata["name"],
        "uid": metadata["uid"],
        "controller": True,
    }
    return {
        "metadata": {
            **template["metadata"],
            **server_side(uid),
            "name": f"{metadata['name']}-x7x7x",
            "namespace": metadata["namespace"],
            "ownerReferences": [owner],
        },
        "spec": template["spec"],
    }
