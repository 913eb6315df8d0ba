"""Objects as users write them, made from one pod template."""

from __future__ import annotations

import copy
from typing import Any

from orchestrator.cluster.resources import (
    DEPLOYMENTS,
    JOBS,
    PODS,
    REPLICA_SETS,
    STATEFUL_SETS,
    Resource,
)

PEOPLE = "people"
"""The namespace of the service accounts, which belongs to no project."""
HOME, THEIRS = "muster-team-a", "muster-team-b"
"""The namespaces of the two projects."""
CRON_JOBS = Resource("batch", "v1", "cronjobs", "CronJob")

Body = dict[str, Any]


def account(person: str) -> str:
    """Return the user name of the service account."""
    return f"system:serviceaccount:{PEOPLE}:{person}"


def template(annotations: dict[str, str] | None = None, container: Body | None = None, **spec: Any) -> Body:
    """Return a pod template of one container with these fields of its specification."""
    containers = [{"name": "main", "image": "image", **(container or {})}]
    metadata = {"labels": {"app": "trust"}, "annotations": annotations or {}}
    return {"metadata": metadata, "spec": {"containers": containers, **spec}}


def gpus(count: int) -> Body:
    """Return the fields of a container with this number of GPUs."""
    return {"resources": {"limits": {"nvidia.com/gpu": str(count)}}}


def security(**context: Any) -> Body:
    """Return the fields of a container with this securityContext."""
    return {"securityContext": context}


def volume(source: Body, *, read_only: bool = False, **spec: Any) -> Body:
    """Return a pod template that mounts a volume of this source."""
    mount = {"name": "data", "mountPath": "/data", "readOnly": read_only}
    return template(container={"volumeMounts": [mount]}, volumes=[{"name": "data", **source}], **spec)


def pod(name: str, content: Body) -> Body:
    """Return a pod from a template."""
    body = copy.deepcopy(content)
    return {"apiVersion": "v1", "kind": "Pod", **body, "metadata": {**body["metadata"], "name": name}}


def job(name: str, content: Body, **spec: Any) -> Body:
    """Return a Job from a template."""
    body = copy.deepcopy(content)
    body["spec"].setdefault("restartPolicy", "Never")
    return _object(JOBS, name, {"template": body, "backoffLimit": 0, **spec})


def cron_job(name: str, content: Body) -> Body:
    """Return a CronJob whose Jobs are made from a template."""
    return _object(
        CRON_JOBS, name, {"schedule": "0 0 1 1 *", "jobTemplate": {"spec": job("", content)["spec"]}}
    )


def service_like(resource: Resource, name: str, content: Body, replicas: int = 1) -> Body:
    """Return a Deployment, StatefulSet or ReplicaSet from a template."""
    spec: Body = {
        "replicas": replicas,
        "selector": {"matchLabels": {"app": "trust"}},
        "template": copy.deepcopy(content),
    }
    if resource == STATEFUL_SETS:
        spec["serviceName"] = name
    return _object(resource, name, spec)


def of_members(name: str, content: Body) -> list[tuple[Resource, Body]]:
    """Return the objects from a template that a member of a project may create."""
    return [(JOBS, job(name, content)), (STATEFUL_SETS, service_like(STATEFUL_SETS, name, content))]


def of_editors(name: str, content: Body) -> list[tuple[Resource, Body]]:
    """Return the objects from a template that Kubernetes' role `edit` allows a user to create."""
    return [
        (PODS, pod(name, content)),
        (DEPLOYMENTS, service_like(DEPLOYMENTS, name, content)),
        (REPLICA_SETS, service_like(REPLICA_SETS, name, content)),
        (CRON_JOBS, cron_job(name, content)),
    ]


def _object(resource: Resource, name: str, spec: Body) -> Body:
    return {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "metadata": {"name": name},
        "spec": spec,
    }
