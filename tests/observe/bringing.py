"""Minimal objects of other projects' controllers, with the names that those projects give their fields.

`orchestrator.cluster.controller_objects` and `orchestrator.observe.controllers` say where each name comes from.
"""

from typing import Any

import msgspec

from orchestrator.cluster.objects import Object
from orchestrator.cluster.wire import OwnerReference
from orchestrator.observe.controllers import CONTROLLERS, Controller, decode

JSON = dict[str, Any]
VERSIONS = {
    "apps": "v1",
    "batch": "v1",
    "jobset.x-k8s.io": "v1alpha2",
    "leaderworkerset.x-k8s.io": "v1",
    "ray.io": "v1",
    "kubeflow.org": "v1",
    "trainer.kubeflow.org": "v1alpha1",
}
GROUPS = {
    "Job": "batch",
    "CronJob": "batch",
    "Pod": "",
    "ReplicaSet": "apps",
    "StatefulSet": "apps",
    "RayService": "ray.io",
    **{kind: group for group, kind in CONTROLLERS},
}


def reference(kind: str, name: str, group: str | None = None) -> JSON:
    """Return the owner reference that names a controller. The uid of a controller is KIND/NAME here."""
    group = GROUPS[kind] if group is None else group
    version = f"{group}/{VERSIONS.get(group, 'v1')}" if group else "v1"
    return {"apiVersion": version, "kind": kind, "name": name, "uid": f"{kind}/{name}", "controller": True}


def body(
    kind: str, name: str, spec: JSON | None = None, *, owner: JSON | None = None, **metadata: Any
) -> JSON:
    """Return an object as the API server sends it."""
    return {
        "apiVersion": reference(kind, name, None if kind in GROUPS else "example.org")["apiVersion"],
        "kind": kind,
        "metadata": {
            "name": name,
            "namespace": "muster-team-a",
            "uid": f"{kind}/{name}",
            "resourceVersion": "1",
            "creationTimestamp": "2026-11-21T09:00:00Z",
            "ownerReferences": [owner] if owner else [],
            **metadata,
        },
        "spec": spec or {},
    }


def metadata_of(kind: str, name: str, *, owner: JSON | None = None, **metadata: Any) -> Object:
    """Return an object of which only the metadata is read."""
    raw = msgspec.json.encode(body(kind, name, owner=owner, **metadata))
    return msgspec.json.decode(raw, type=Object)


def controller(
    kind: str, name: str, spec: JSON | None = None, *, owner: JSON | None = None, **more: Any
) -> Controller:
    """Return an object of a kind in `CONTROLLERS`, as the operator reads it."""
    raw = msgspec.json.encode(body(kind, name, spec, owner=owner, **more))
    return decode(raw, CONTROLLERS[GROUPS[kind], kind])


def replicated_job(name: str, replicas: int | None = 1, parallelism: int | None = None, **more: Any) -> JSON:
    """Return an entry of a JobSet's `replicatedJobs`."""
    annotations = more.pop("annotations", {})
    completions = more.pop("completions", None)
    counts = {"parallelism": parallelism, "completions": completions}
    template = {
        "metadata": {"annotations": annotations},
        "spec": {key: value for key, value in counts.items() if value is not None}
        | {"template": {"spec": {}}},
    }
    return {
        "name": name,
        "template": template,
        **({} if replicas is None else {"replicas": replicas}),
        **more,
    }


def owner_of(value: JSON) -> OwnerReference:
    """Return an owner reference as the operator reads it."""
    return msgspec.convert(value, OwnerReference)
