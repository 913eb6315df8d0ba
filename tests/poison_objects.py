"""Table of objects that an API server accepts and that once stopped all scheduling."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from orchestrator.names import (
    COMPLETION_INDEX_ANNOTATION,
    GPU_DEVICES_ANNOTATION,
    GPU_FRACTION_ANNOTATION,
    GPU_RESOURCE,
    MIN_MEMBER_ANNOTATION,
    SCHEDULER_NAME,
    SUB_GROUPS_ANNOTATION,
)

NAMESPACE: Final = "muster-team-a"
LONG: Final = "9" * 5000
HEALTHY: Final = "healthy"

Json = dict[str, Any]


@dataclass(frozen=True)
class Row:
    """Objects to add to a healthy cluster, and the message that they cause.

    The message names the object with the path `culprit` and contains `words`. `culprit` is empty if all of the objects
    are harmless now. `node_allocatable` overrides allocatable resources of a node.
    """

    culprit: str
    words: str
    pods: tuple[Json, ...] = ()
    projects: tuple[Json, ...] = ()
    claims: tuple[Json, ...] = ()
    storage_classes: tuple[Json, ...] = ()
    node_allocatable: Mapping[str, str] = field(default_factory=dict)


def pod(
    name: str,
    gpus: int | str = 0,
    *,
    annotations: Mapping[str, str] | None = None,
    node: str = "",
    scheduler: str = SCHEDULER_NAME,
    **spec: Any,
) -> Json:
    """Return a pod as a user creates it."""
    limits = {GPU_RESOURCE: str(gpus)} if gpus else {}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": NAMESPACE, "annotations": dict(annotations or {})},
        "spec": {
            "schedulerName": scheduler,
            "containers": [
                {"name": "main", "image": "image", "resources": {"limits": limits, "requests": limits}}
            ],
            **({"nodeName": node} if node else {}),
            **spec,
        },
    }


def affinity(*terms: Json) -> Json:
    """Return the part of a pod's specification that requires one of these terms."""
    selector = {"nodeSelectorTerms": list(terms)}
    return {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": selector}}}


def compared(operator: str, value: str) -> Json:
    """Return a term that compares the node label `slot`."""
    return {"matchExpressions": [{"key": "slot", "operator": operator, "values": [value]}]}


def nested(depth: int) -> str:
    """Return the annotation value for sub-groups nested to this depth."""
    return '[{"name":"a","children":' * depth + "[]" + "}]" * depth


def project(name: str, parent: str = "", quota: int = 0) -> Json:
    """Return a project as an administrator creates it."""
    spec: Json = {"gpu": {"quota": quota}, **({"parent": parent} if parent else {})}
    return {
        "apiVersion": "muster.dev/v1alpha1",
        "kind": "Project",
        "metadata": {"name": name},
        "spec": spec,
    }


def chain(length: int) -> tuple[Json, ...]:
    """Return projects each of which is the parent of the next."""
    return tuple(
        project(f"dept-{number}", f"dept-{number - 1}" if number else "") for number in range(length)
    )


def claim(name: str, storage_class: str) -> Json:
    """Return a PersistentVolumeClaim without a volume."""
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {
            "storageClassName": storage_class,
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "1Gi"}},
        },
    }


def zoned(name: str, label: str, zones: int = 3) -> Json:
    """Return a storage class that waits for the first consumer, with a topology term for each zone."""
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": name},
        "provisioner": "example.org/disk",
        "volumeBindingMode": "WaitForFirstConsumer",
        "allowedTopologies": [
            {"matchLabelExpressions": [{"key": label, "values": [f"zone-{number}"]}]}
            for number in range(zones)
        ],
    }


def mounting(*claims: str) -> Json:
    """Return the part of a pod's specification that has these PersistentVolumeClaims as volumes."""
    return {"volumes": [{"name": name, "persistentVolumeClaim": {"claimName": name}} for name in claims]}


SUB_GROUPS: Final = {SUB_GROUPS_ANNOTATION: '[{"name":"leader"},{"name":"worker"}]'}
TERMS: Final = [compared("Gt", str(number)) for number in range(1000)]


def rows(node: str) -> dict[str, Row]:
    """Return the rows of the table by name. Pods of some rows run on `node`."""
    digits = f"'{LONG[:60]}' and 4940 characters more"
    return {
        "a gang of 5000 digits": Row(
            "muster-team-a/gang",
            f"its annotation muster.dev/min-member is {digits}",
            (pod("gang", 1, annotations={MIN_MEMBER_ANNOTATION: LONG}),),
        ),
        "an affinity with two signs": Row(
            "muster-team-a/signs", "NoNodeMatches", (pod("signs", 1, **affinity(compared("Gt", "--5"))),)
        ),
        "an affinity with an unknown operator": Row(
            "muster-team-a/later",
            "its expression on the label 'slot' has the operator 'Later'; use In, NotIn, Exists, DoesNotExist, Gt, Lt",
            (pod("later", 1, **affinity(compared("Later", "5"), compared("Exists", ""))),),
        ),
        "an affinity of 5000 digits": Row(
            "muster-team-a/digits", "NoNodeMatches", (pod("digits", 1, **affinity(compared("Lt", LONG))),)
        ),
        "sub-groups nested 500 deep": Row(
            "muster-team-a/nested",
            "sub-groups may be nested 16 deep",
            (pod("nested", 1, annotations={SUB_GROUPS_ANNOTATION: nested(500)}),),
        ),
        "an index of 5000 digits": Row(
            "muster-team-a/index",
            "it does not say in which sub-group it is",
            (pod("index", 1, annotations={**SUB_GROUPS, COMPLETION_INDEX_ANNOTATION: LONG}),),
        ),
        "a bound pod with devices of 5000 digits": Row(
            "muster-team-a/devices",
            f"its annotation muster.dev/gpu-devices is {digits}",
            (pod("devices", 2, node=node, annotations={GPU_DEVICES_ANNOTATION: LONG}),),
        ),
        "a bound pod with a fraction that is none": Row(
            "muster-team-a/fraction",
            "it asks for nvidia.com/gpu and for muster.dev/gpu-fraction",
            (pod("fraction", 2, node=node, annotations={GPU_FRACTION_ANNOTATION: "x"}),),
        ),
        "another scheduler's pod with 1000 GPUs": Row(
            "muster-team-a/foreign",
            f"its node {node} has no more for it",
            (pod("foreign", "1k", node=node, scheduler="default-scheduler"),),
        ),
        "another scheduler's pod with more GPUs than can be meant": Row(
            "muster-team-a/huge",
            f"its node {node} has no more for it",
            (pod("huge", (1 << 63) - 1, node=node, scheduler="default-scheduler"),),
        ),
        "a node with room for 1000 pods": Row("", "", node_allocatable={"pods": "1k"}),
        "a chain of 1000 departments": Row(
            "dept-65", "there are more than 64 departments above it", projects=chain(1000)
        ),
        "affinities of 1000 terms": Row(
            "muster-team-a/terms-7",
            "its node affinity has 1000 terms: at most 32 are read",
            tuple(pod(f"terms-{number}", 1, **affinity(*TERMS)) for number in range(20)),
        ),
        "12 claims of one class of 3 topologies": Row(
            "",
            "",
            (pod("claims", 1, **mounting(*(f"data-{number}" for number in range(12)))),),
            claims=tuple(claim(f"data-{number}", "zoned") for number in range(12)),
            storage_classes=(zoned("zoned", "zone"),),
        ),
        "12 claims of 12 classes of 3 topologies": Row(
            "muster-team-a/classes",
            "its node affinity and its volumes have together",
            (pod("classes", 1, **mounting(*(f"disk-{number}" for number in range(12)))),),
            claims=tuple(claim(f"disk-{number}", f"class-{number}") for number in range(12)),
            storage_classes=tuple(zoned(f"class-{number}", f"zone-{number}") for number in range(12)),
        ),
    }
