"""The annotations of nominations on pods. Pure.

    a pending pod          status.nominatedNodeName: n2, muster.dev/nominated-devices: "0,1"
    a pod that is evicted  muster.dev/successor-nomination: "n2:0,1", for the pod that its controller makes next

Users can write annotations of their pods, but cannot write their status or evict them. So an annotation counts only
together with a field that only the API server or the operator's account can write.
"""

from typing import Any, Final

import msgspec

from orchestrator.cluster.objects import FINISHED, Condition, Pod
from orchestrator.cluster.wire import has_condition
from orchestrator.names import (
    DISRUPTED_CONDITION,
    EVICTION_REASON,
    NOMINATED_DEVICES_ANNOTATION,
    SUCCESSOR_NOMINATION_ANNOTATION,
)
from orchestrator.observe.request import devices_text
from orchestrator.planner.placements import Placement

MAX_NOMINATED_DEVICES: Final = 64
_MAX_DIGITS: Final = 4
_MAX_CHARACTERS: Final = MAX_NOMINATED_DEVICES * (_MAX_DIGITS + 1)


_EVICTED: Final = Condition(type=DISRUPTED_CONDITION, status="True", reason=EVICTION_REASON)


def nomination_of(pod: Pod) -> Placement | None:
    """Return the nomination of an unbound pod, or of an evicted pod's successor; None without a readable nomination.

    The node and the devices may not exist: callers that know the nodes check this.
    """
    if not shows_nomination(pod):
        return None
    if pod.spec.node_name:
        node, _, text = pod.metadata.annotations[SUCCESSOR_NOMINATION_ANNOTATION].partition(":")
    else:
        node = pod.status.nominated_node_name
        text = pod.metadata.annotations.get(NOMINATED_DEVICES_ANNOTATION, "")
    devices = _devices(text)
    return None if devices is None or not node else Placement(node, devices)


def shows_nomination(pod: Pod) -> bool:
    """Return whether the pod has a nomination, even an unreadable one."""
    if pod.status.phase in FINISHED:
        return False
    leaves = pod.metadata.deletion_timestamp is not None
    if not pod.spec.node_name:
        return bool(pod.status.nominated_node_name) and not leaves
    return leaves and SUCCESSOR_NOMINATION_ANNOTATION in pod.metadata.annotations and _is_evicted(pod)


def waiting_annotations(place: Placement | None) -> dict[str, str | None]:
    """Return the annotations of a nomination on an unbound pod; a value of None removes one."""
    return {NOMINATED_DEVICES_ANNOTATION: devices_text(place.devices) if place and place.devices else None}


def eviction_annotations(place: Placement | None) -> dict[str, str | None]:
    """Return the annotations of an evicted pod with the successor's nomination; a value of None removes one."""
    if place is None:
        return {SUCCESSOR_NOMINATION_ANNOTATION: None}
    return {SUCCESSOR_NOMINATION_ANNOTATION: f"{place.node}:{devices_text(place.devices)}"}


def bound_annotations(pod: Pod, place: Placement | None) -> dict[str, str]:
    """Return the annotations that empty the nomination in a binding, which cannot remove annotations.

    The API server removes the nominated node since Kubernetes 1.35; before, the kubelet did so with its first report.
    """
    is_written = NOMINATED_DEVICES_ANNOTATION in pod.metadata.annotations or (place and place.devices)
    return {NOMINATED_DEVICES_ANNOTATION: ""} if is_written else {}


def with_nomination(pod: Pod, place: Placement | None) -> Pod:
    """Return the pod with exactly this nomination; the same object if nothing changes.

    A bound pod can have a nomination only for its successor, after its eviction.
    """
    waits, leaves = not pod.spec.node_name, pod.metadata.deletion_timestamp is not None
    if nomination_of(pod) == place or not (waits or leaves):
        return pod
    written = waiting_annotations(place) if waits else eviction_annotations(place)
    annotations = {key: text for key, text in pod.metadata.annotations.items() if key not in written}
    annotations |= {key: text for key, text in written.items() if text is not None}
    metadata: dict[str, Any] = {"annotations": annotations}
    status: dict[str, Any] = {"conditions": [_EVICTED, *pod.status.conditions]}
    if waits:
        status = {"nominated_node_name": place.node if place else ""}
    return msgspec.structs.replace(
        pod,
        metadata=msgspec.structs.replace(pod.metadata, **metadata),
        status=msgspec.structs.replace(pod.status, **status),
    )


def _is_evicted(pod: Pod) -> bool:
    """Return whether the Eviction API evicted the pod, which only administrators and the operator may use."""
    condition = has_condition(pod.status.conditions, DISRUPTED_CONDITION)
    return condition is not None and condition.reason == EVICTION_REASON


def _devices(text: str) -> tuple[int, ...] | None:
    """Return the indices in the order of the text. None for a text that muster does not write.

    Example: `_devices("0,1")` returns `(0, 1)`.
    """
    if not text:
        return ()
    parts = text.split(",", MAX_NOMINATED_DEVICES - 1) if len(text) <= _MAX_CHARACTERS else [""]
    if not all(part.isascii() and part.isdecimal() and len(part) <= _MAX_DIGITS for part in parts):
        return None
    devices = tuple(map(int, parts))
    return devices if len(set(devices)) == len(devices) else None
