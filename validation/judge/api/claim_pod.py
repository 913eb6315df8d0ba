"""Judges the pod of Google's page: both of its containers use the one GPU of a ResourceClaim, and the pod ends
successfully.

There are three sources. The API server has the allocation of the claim, with its device and its pod. The kubelet has
the exit codes and the output of the containers. The node's agent reports the GPUs that the kubelet gave the pod.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from validation.judge.api.api_request import (
    CLAIMS,
    CONFLICT,
    DEVICE_CLASS,
    DRA_NAMESPACE,
    OK,
    ApiCheck,
    Json,
    Request,
    at,
    claim_of,
    objects,
)
from validation.judge.check_verdict import Judgement
from validation.judge.events import ENDED, GpusSeen
from validation.judge.verdict import Verdict

POD: Final = "pod1"
CLAIM: Final = "gpu-claim"
IMAGES: Final = {
    "ctr0": "nvcr.io/nvidia/k8s/cuda-sample:vectoradd-cuda12.5.0",
    "ctr1": "nvcr.io/nvidia/k8s/cuda-sample:devicequery",
}
"""The images of the containers, as the page prints them."""
LINES: Final = re.compile(r"Test PASSED|Result = (PASS|FAIL)|Detected [0-9]+ CUDA Capable device\(s\)")
"""The lines with which NVIDIA's samples print their success and their number of GPUs."""
SAYS: Final[Mapping[str, tuple[str, ...]]] = {
    "ctr0": ("Test PASSED",),
    "ctr1": ("Detected 1 CUDA Capable device(s)", "Result = PASS"),
}
NAMESPACE_MS: Final = 60_000
ALLOCATED_MS: Final = 120_000
ENDED_MS: Final = 600_000
"""Maximum time until the pod ends. The node may have to pull the images first, which are some hundred MB."""
_PODS: Final = f"/api/v1/namespaces/{DRA_NAMESPACE}/pods"


def _leaves(status: int, answer: Json) -> bool:
    """Return whether the object cannot be created yet because an older object with its name is terminating."""
    message = answer.get("message")
    return status == CONFLICT and isinstance(message, str) and "being deleted" in message


def _has_none(status: int, answer: Json) -> bool:
    """Return whether the ResourceClaim has no allocation, or is reserved for no pod yet."""
    return status == OK and not (at(answer, "status", "allocation") and at(answer, "status", "reservedFor"))


def _still_runs(status: int, answer: Json) -> bool:
    """Return whether the pod has not ended yet."""
    return status == OK and at(answer, "status", "phase") not in ENDED


def _pod() -> Mapping[str, Any]:
    use = {"claims": [{"name": "gpu"}]}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": POD, "namespace": DRA_NAMESPACE},
        "spec": {
            "restartPolicy": "OnFailure",
            "resourceClaims": [{"name": "gpu", "resourceClaimName": CLAIM}],
            "containers": [
                {"name": name, "image": image, "resources": use} for name, image in IMAGES.items()
            ],
        },
    }


def _judge(documents: Sequence[Json]) -> Judgement:
    _, _, created, claim, pod, *logs = documents
    uid = at(created, "metadata", "uid")
    if not uid or at(pod, "metadata", "uid") != uid:
        return _fails(f"{POD} is not the pod that was created")
    problem = _waiting(claim, pod) or _ending(pod) or _device(claim, pod, uid)
    if problem:
        return _fails(problem)
    for (name, lines), log in zip(SAYS.items(), logs, strict=True):
        printed = str(log.get("lines")).split("\n")
        missing = [line for line in lines if line not in printed]
        if missing:
            return _fails(f"{name} did not print `{missing[0]}`")
    return Judgement(Verdict.PASS, f"two containers used {_results(claim)[0].get('device')}")


def _fails(reason: str) -> Judgement:
    return Judgement(Verdict.FAIL, reason)


def _waiting(claim: Json, pod: Json) -> str:
    """Return why the pod never started; empty if it started, or if a device was allocated."""
    if at(pod, "status", "phase") != "Pending" or _results(claim):
        return ""
    return (
        f"{POD} is Pending, for no device is allocated to {CLAIM}: `kubectl get resourceslices` lists the devices "
        f"of DRA drivers, `kubectl get deviceclass {DEVICE_CLASS}` their class"
    )


def _ending(pod: Json) -> str:
    """Return why the end of the pod proves nothing.

    Empty if both containers use the ResourceClaim and ended with exit code 0.
    """
    phase = at(pod, "status", "phase")
    statuses = {str(one.get("name")): one for one in objects(at(pod, "status", "containerStatuses"))}
    for name in IMAGES:
        code = at(statuses.get(name), "state", "terminated", "exitCode")
        if isinstance(code, bool) or code != 0:
            waits = at(statuses.get(name), "state", "waiting", "reason")
            because = f": {waits}" if isinstance(waits, str) and waits else ""
            return f"{name} of {POD}, which is {phase}, did not end with exit code 0{because}"
    if phase != "Succeeded":
        return f"{POD} is {phase}, not Succeeded"
    containers = {
        str(one.get("name")): at(one, "resources", "claims") for one in objects(at(pod, "spec", "containers"))
    }
    if containers != {name: [{"name": "gpu"}] for name in IMAGES}:
        return f"the containers of {POD} do not both use the claim"
    if at(pod, "spec", "resourceClaims") != [{"name": "gpu", "resourceClaimName": CLAIM}]:
        return f"{POD} does not use {CLAIM}"
    return ""


def _results(claim: Json) -> list[Json]:
    return objects(at(claim, "status", "allocation", "devices", "results"))


def _device(claim: Json, pod: Json, uid: object) -> str:
    """Return why the ResourceClaim proves nothing.

    Empty if one GPU of the pod's node was allocated to the claim for this pod alone.
    """
    results = _results(claim)
    if len(results) != 1:
        return f"{len(results)} devices were allocated to {CLAIM} while {POD} was there, not 1"
    node = at(pod, "spec", "nodeName")
    if (results[0].get("driver"), results[0].get("request")) != (DEVICE_CLASS, "gpu"):
        return f"the allocation of {CLAIM} is no device of {DEVICE_CLASS}"
    if not node or results[0].get("pool") != node:
        return f"the allocation of {CLAIM} is not on the node of {POD}"
    users = [
        (one.get("resource"), one.get("name"), one.get("uid"))
        for one in objects(at(claim, "status", "reservedFor"))
    ]
    return "" if users == [("pods", POD, uid)] else f"{CLAIM} was not reserved for {POD} alone"


def _contradicts(documents: Sequence[Json], seen: Sequence[GpusSeen]) -> str:
    """Return the contradiction of a kubelet, which gave the pod several GPUs, or a GPU of another node. Empty if there
    is none.
    """
    name = f"{DRA_NAMESPACE}/{POD}"
    node = at(documents[4], "spec", "nodeName")
    for event in seen:
        held = [gpu.index for gpu in event.gpus if name in gpu.holders]
        if len(held) > 1 or (held and event.node != node):
            return f"the kubelet of {event.node} gave {POD} {len(held)} GPUs"
    return ""


CHECK: Final = ApiCheck(
    "The pod of the page ends successfully, and both of its containers use the one GPU of the claim",
    "Google Distributed Cloud, GPU workloads with DRA, manifest of the page",
    (
        Request(
            "POST",
            "/api/v1/namespaces",
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": DRA_NAMESPACE}},
            is_early=_leaves,
            within_ms=NAMESPACE_MS,
        ),
        Request("POST", CLAIMS, claim_of(CLAIM)),
        Request("POST", _PODS, _pod()),
        Request("GET", f"{CLAIMS}/{CLAIM}", is_early=_has_none, within_ms=ALLOCATED_MS),
        Request("GET", f"{_PODS}/{POD}", is_early=_still_runs, within_ms=ENDED_MS),
        *(Request("GET", f"{_PODS}/{POD}/log?container={name}", lines=LINES) for name in IMAGES),
    ),
    _judge,
    _contradicts,
)
