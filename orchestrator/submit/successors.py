"""The Job that replaces another one, and the suspended copy that has its description until then. Pure."""

from collections.abc import Iterator, Mapping
from copy import deepcopy
from typing import Any, Final, NamedTuple

from orchestrator import names
from orchestrator.submit.changes import Change, changed_template

Manifest = dict[str, Any]

COPY_SUFFIX: Final = "-edit"
_OF_ONE_JOB: Final = (
    "controller-uid", "job-name", "batch.kubernetes.io/controller-uid", "batch.kubernetes.io/job-name",
)  # fmt: skip
"""Labels that the API server adds to the template of a Job. It refuses them on a new Job."""


class Replaced(NamedTuple):
    """The Job that a copy replaces."""

    name: str
    uid: str
    is_suspended: bool


def successor(job: Mapping[str, Any], change: Change, submitted_at: str) -> Manifest:
    """Return the Job that replaces this one: with the change, and without fields that the API server sets."""
    metadata, spec = job["metadata"], deepcopy(job["spec"])
    template = changed_template(spec["template"], change)
    labels = template.setdefault("metadata", {}).get("labels", {})
    template["metadata"]["labels"] = {key: value for key, value in labels.items() if key not in _OF_ONE_JOB}
    template["metadata"].setdefault("annotations", {})[names.SUBMITTED_AT_ANNOTATION] = submitted_at
    annotations = {**metadata.get("annotations", {}), names.SUBMITTED_AT_ANNOTATION: submitted_at}
    annotations.pop(names.QUEUED_SINCE_ANNOTATION, None)
    if change.priority is not None:
        annotations[names.PRIORITY_ANNOTATION] = change.priority
    if not spec.get("manualSelector"):
        spec.pop("selector", None)
    return {
        "apiVersion": job["apiVersion"],
        "kind": job["kind"],
        "metadata": {
            "name": metadata["name"],
            "namespace": metadata["namespace"],
            "labels": metadata.get("labels", {}),
            "annotations": annotations,
        },
        "spec": spec | {"template": template},
    }


def suspended_copy(job: Mapping[str, Any], new_job: Mapping[str, Any]) -> Manifest:
    """Return the copy of `new_job`, which is to replace `job`."""
    metadata, spec = job["metadata"], new_job["spec"]
    suspended = "true" if spec.get("suspend") else "false"
    mark = {names.EDIT_OF_ANNOTATION: f"{metadata['name']}:{metadata['uid']}:{suspended}"}
    # The copy gets no dependencies. Otherwise the operator could start it, and it would run beside the
    # successor.
    annotations = {**new_job["metadata"]["annotations"], **mark}
    after = annotations.pop(names.AFTER_ANNOTATION, None)
    if after is not None:
        annotations[names.EDIT_AFTER_ANNOTATION] = after
    name = f"{metadata['name']}{COPY_SUFFIX}"
    return {
        **new_job,
        "metadata": {**new_job["metadata"], "name": name, "annotations": annotations},
        "spec": {**spec, "suspend": True},
    }


def replaced(copy: Mapping[str, Any]) -> Replaced | None:
    """Return the Job that the copy replaces; None if this Job is not a copy."""
    parts = copy["metadata"].get("annotations", {}).get(names.EDIT_OF_ANNOTATION, "").split(":")
    return Replaced(parts[0], parts[1], parts[2] == "true") if len(parts) == 3 else None


def successor_of_copy(copy: Manifest, of: Replaced) -> Manifest:
    """Return the Job of which this is the copy."""
    new_job = successor(copy, Change(), copy["metadata"]["annotations"][names.SUBMITTED_AT_ANNOTATION])
    annotations = new_job["metadata"]["annotations"]
    del annotations[names.EDIT_OF_ANNOTATION]
    after = annotations.pop(names.EDIT_AFTER_ANNOTATION, None)
    if after is not None:
        annotations[names.AFTER_ANNOTATION] = after
    new_job["metadata"]["name"] = of.name
    new_job["spec"]["suspend"] = of.is_suspended
    return new_job


def secrets_of(spec: Mapping[str, Any]) -> Iterator[str]:
    """Yield the names of the secrets in the variables of the containers, and of those that are volumes."""
    for volume in spec.get("volumes", []):
        if mounted := volume.get("secret"):
            yield mounted["secretName"]
    for container in (*spec["containers"], *spec.get("initContainers", [])):
        for variable in container.get("env", []):
            if reference := variable.get("valueFrom", {}).get("secretKeyRef"):
                yield reference["name"]
