"""The part of the second judge for the API server's answers. It imports nothing of muster."""

import json
import re
from typing import Any

Json = dict[str, Any]
CLAIMS = "/apis/resource.k8s.io/v1/namespaces/dra-test/resourceclaims"
POD = "/api/v1/namespaces/dra-test/pods"
SYSTEM = "/namespaces/muster-system"
REQUESTS: dict[str, list[tuple[str, str]]] = {
    "version": [("GET", "/version"), ("GET", "/apis/resource.k8s.io")],
    "driver": [
        ("GET", "/api/v1/nodes?labelSelector=nvidia.com/gpu.present%3Dtrue"),
        ("GET", "/apis/resource.k8s.io/v1/resourceslices"),
    ],
    "claim": [
        ("POST", "/api/v1/namespaces"),
        ("POST", CLAIMS),
        ("GET", CLAIMS + "/gpu-claim"),
    ],
    "pod": [
        ("POST", "/api/v1/namespaces"),
        ("POST", CLAIMS),
        ("POST", POD),
        ("GET", CLAIMS + "/gpu-claim"),
        ("GET", POD + "/pod1"),
        ("GET", POD + "/pod1/log?container=ctr0"),
        ("GET", POD + "/pod1/log?container=ctr1"),
    ],
    "operator": [
        ("GET", f"/apis/apps/v1{SYSTEM}/deployments/muster-operator"),
        ("GET", f"/api/v1{SYSTEM}/pods?labelSelector=app.kubernetes.io/name=muster-operator"),
        ("GET", f"/apis/coordination.k8s.io/v1{SYSTEM}/leases/muster-operator"),
    ],
    "storage-class": [("GET", "/apis/storage.k8s.io/v1/storageclasses")],
    "client": [
        ("POST", "/apis/muster.dev/v1alpha1/projects"),
        ("POST", "/apis/batch/v1/namespaces/muster-other-client/jobs"),
        (
            "GET",
            "/api/v1/namespaces/muster-other-client/pods?labelSelector=batch.kubernetes.io/job-name=client",
        ),
    ],
}
BODIES = {
    "/api/v1/namespaces": ("v1", "Namespace", {"name": "dra-test"}, None),
    CLAIMS: (
        "resource.k8s.io/v1",
        "ResourceClaim",
        {"namespace": "dra-test", "name": "gpu-claim"},
        {"name": "gpu", "exactly": {"deviceClassName": "gpu.nvidia.com"}},
    ),
}


IMAGE = "nvcr.io/nvidia/k8s/cuda-sample:"
USES = [{"name": "gpu"}]
POD1: Json = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "pod1", "namespace": "dra-test"},
    "spec": {
        "restartPolicy": "OnFailure",
        "resourceClaims": [{"name": "gpu", "resourceClaimName": "gpu-claim"}],
        "containers": [
            {"name": "ctr0", "image": f"{IMAGE}vectoradd-cuda12.5.0", "resources": {"claims": USES}},
            {"name": "ctr1", "image": f"{IMAGE}devicequery", "resources": {"claims": USES}},
        ],
    },
}
WHOLE: dict[str, Json] = {
    POD: POD1,
    "/apis/muster.dev/v1alpha1/projects": {
        "apiVersion": "muster.dev/v1alpha1",
        "kind": "Project",
        "metadata": {"name": "other-client"},
        "spec": {"gpu": {"quota": 1}},
    },
    "/apis/batch/v1/namespaces/muster-other-client/jobs": {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "client", "namespace": "muster-other-client"},
        "spec": {
            "backoffLimit": 0,
            "template": {
                "spec": {
                    "restartPolicy": "Never",
                    "schedulerName": "muster",
                    "containers": [
                        {
                            "name": "client",
                            "image": "gcr.io/run-ai-demo/quickstart",
                            "resources": {"limits": {"nvidia.com/gpu": 1}},
                        }
                    ],
                }
            },
        },
    },
}
"""The objects that are sent, by the path of their POST."""


def judge_api(name: str, events: list[Json], given: list[Json]) -> str:
    """Return the verdict that follows from these answers."""
    objects: list[Json] = []
    for number, (method, path) in enumerate(REQUESTS[name]):
        if number == len(events):
            return "INCONCLUSIVE"
        verdict, entry = answered(method, path, events[number])
        if verdict:
            return verdict
        objects.append(entry)
    judges = {
        "version": version,
        "driver": driver,
        "claim": claim,
        "pod": pod,
        "operator": operator,
        "storage-class": storage_class,
        "client": client,
    }
    result: str = judges[name](objects)
    if name == "pod" and result == "PASS" and any(gives_otherwise(event, objects[4]) for event in given):
        result = "FAIL"
    gone = {
        e["path"] for e in events[len(objects) :] if e["method"] == "DELETE" and e["status"] in {200, 202}
    }
    created = [
        f"{path}/{WHOLE[path]['metadata']['name'] if path in WHOLE else BODIES[path][2]['name']}"
        for method, path in REQUESTS[name]
        if method == "POST"
    ]
    return "ERROR" if result == "PASS" and set(created) - gone else result


def answered(method: str, path: str, event: Json) -> tuple[str, Json]:
    """Return the object in an answer, and a verdict if the answer ends the check."""
    if (event["method"], event["path"]) != (method, path) or not is_sent(method, path, event["body"]):
        return "ERROR", {}
    status = event["status"]
    if event["problem"]:
        return "ERROR", {}
    if status != (201 if method == "POST" else 200):
        graver = status in {401, 403, 429} or status >= 500 or (method == "POST" and status == 409)
        return "ERROR" if graver else "FAIL", {}
    entry = {"text": event["answer"]} if "/log?" in path else parse(event["answer"])
    return ("FAIL", {}) if entry is None else ("", entry)


def is_sent(method: str, path: str, body: str) -> bool:
    if method != "POST":
        return body == ""
    if path in WHOLE:
        return parse(body) == WHOLE[path]
    version, kind, metadata, request = BODIES[path]
    content = {"apiVersion": version, "kind": kind, "metadata": metadata}
    if request:
        content["spec"] = {"devices": {"requests": [request]}}
    return parse(body) == content


def parse(text: str) -> Json | None:
    try:
        entry = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return entry if isinstance(entry, dict) else None


def under(entry: Any, *keys: str) -> Any:
    for key in keys:
        entry = entry.get(key) if isinstance(entry, dict) else None
    return entry


def several(entries: Any) -> list[Json]:
    return [one for one in entries if isinstance(one, dict)] if isinstance(entries, list) else []


def version(objects: list[Json]) -> str:
    release = objects[0].get("gitVersion")
    if not isinstance(release, str):
        return "FAIL"
    numbers = re.match(r"v([0-9]{1,9})\.([0-9]{1,9})(\.|$)", release)
    if numbers is None or [int(numbers[1]), int(numbers[2])] < [1, 33]:
        return "FAIL"
    known = [one.get("version") for one in several(objects[1].get("versions"))]
    return "PASS" if any(one in known for one in ("v1", "v1beta1", "v1beta2")) else "FAIL"


def driver(objects: list[Json]) -> str:
    nodes, slices = (several(entry.get("items")) for entry in objects)
    found = [published(one, slices) for one in nodes]
    return "FAIL" if "FAIL" in found else "PASS" if set(found) == {"PASS"} else "INCONCLUSIVE"


def published(node: Json, slices: list[Json]) -> str:
    """Return PASS if the newest slices of the node are complete and have all its GPUs."""
    pools: dict[str, list[Json]] = {}
    for entry in slices:
        spec, pool = under(entry, "spec"), under(entry, "spec", "pool")
        name, generation = under(pool, "name"), under(pool, "generation")
        is_ours = under(spec, "driver") == "gpu.nvidia.com" and under(spec, "nodeName") is not None
        if not is_ours or spec["nodeName"] != under(node, "metadata", "name"):
            continue
        if not isinstance(name, str) or not isinstance(generation, int):
            continue
        others = pools.setdefault(name, [])
        newest = max([generation, *(under(one, "pool", "generation") for one in others)])
        pools[name] = [one for one in [*others, spec] if one["pool"]["generation"] == newest]
    kinds = [
        under(device, "attributes", "type", "string")
        for specs in pools.values()
        for spec in specs
        for device in several(spec.get("devices"))
    ]
    whole = all(len(specs) == under(specs[0], "pool", "resourceSliceCount") for specs in pools.values())
    count = under(node, "metadata", "labels", "nvidia.com/gpu.count")
    is_counted = isinstance(count, str) and all(kind == "gpu" for kind in kinds)
    if not kinds or not whole or (is_counted and count != str(len(kinds))):
        return "FAIL"
    return "PASS" if all(kind in ("gpu", "mig", "vfio") for kind in kinds) else "INCONCLUSIVE"


def claim(objects: list[Json]) -> str:
    entry = objects[2]
    requests = several(under(entry, "spec", "devices", "requests"))
    if len(requests) != 1 or requests[0].get("name") != "gpu":
        return "FAIL"
    one = under(requests[0], "exactly")
    asks = [under(one, key) for key in ("deviceClassName", "allocationMode", "count")]
    is_right = asks == ["gpu.nvidia.com", "ExactCount", 1]
    return "PASS" if is_right and under(entry, "metadata", "namespace") == "dra-test" else "FAIL"


def pod(objects: list[Json]) -> str:
    created, claimed, ended, first, second = objects[2:]
    uid, node = under(created, "metadata", "uid"), under(ended, "spec", "nodeName")
    if not uid or under(ended, "metadata", "uid") != uid or under(ended, "status", "phase") != "Succeeded":
        return "FAIL"
    codes = {
        str(one.get("name")): under(one, "state", "terminated", "exitCode")
        for one in several(under(ended, "status", "containerStatuses"))
    }
    if any(type(codes.get(name)) is not int or codes[name] != 0 for name in ("ctr0", "ctr1")):
        return "FAIL"
    uses = {
        str(one.get("name")): under(one, "resources", "claims")
        for one in several(under(ended, "spec", "containers"))
    }
    asks = under(ended, "spec", "resourceClaims")
    if uses != {"ctr0": USES, "ctr1": USES} or asks != POD1["spec"]["resourceClaims"]:
        return "FAIL"
    results = several(under(claimed, "status", "allocation", "devices", "results"))
    wanted = {"driver": "gpu.nvidia.com", "request": "gpu", "pool": node}
    if len(results) != 1 or not node or any(results[0].get(key) != wanted[key] for key in wanted):
        return "FAIL"
    users = [
        [one.get(key) for key in ("resource", "name", "uid")]
        for one in several(under(claimed, "status", "reservedFor"))
    ]
    says = [set(entry["text"].split("\n")) for entry in (first, second)]
    whole = "Test PASSED" in says[0] and {"Detected 1 CUDA Capable device(s)", "Result = PASS"} <= says[1]
    return "PASS" if users == [["pods", "pod1", uid]] and whole else "FAIL"


def gives_otherwise(event: Json, ended: Json) -> bool:
    """Return whether a kubelet gave the pod more than one GPU, or a GPU of another node."""
    count = sum("dra-test/pod1" in gpu["holders"] for gpu in event["gpus"])
    return count > 1 or (count == 1 and event["node"] != under(ended, "spec", "nodeName"))


def operator(objects: list[Json]) -> str:
    deployment, pods, lease = objects
    replicas = under(deployment, "spec", "replicas")
    if type(replicas) is not int:
        return "FAIL"
    if replicas == 0:
        return "INCONCLUSIVE"
    status = under(deployment, "status")
    if any(under(status, name) != replicas for name in ("updatedReplicas", "availableReplicas")):
        return "FAIL"
    if under(status, "observedGeneration") != under(deployment, "metadata", "generation"):
        return "FAIL"
    holder = under(lease, "spec", "holderIdentity")
    leader = holder.split("_")[0] if isinstance(holder, str) else ""
    good = [pod for pod in several(pods.get("items")) if under(pod, "metadata", "name") == leader and leader]
    return "PASS" if any(ready(pod) for pod in good) else "FAIL"


def ready(pod: Json) -> bool:
    states = [(one.get("type"), one.get("status")) for one in several(under(pod, "status", "conditions"))]
    runs = under(pod, "status", "phase") == "Running" and ("Ready", "True") in states
    return runs and under(pod, "metadata", "deletionTimestamp") is None


def client(objects: list[Json]) -> str:
    created, pods = under(objects[1], "metadata", "uid"), several(objects[2].get("items"))
    if len(pods) != 1 or not created:
        return "FAIL"
    owners = several(under(pods[0], "metadata", "ownerReferences"))
    devices = under(pods[0], "metadata", "annotations", "muster.dev/gpu-devices")
    good = (
        any(owner.get("uid") == created for owner in owners)
        and under(pods[0], "status", "phase") == "Running"
        and isinstance(under(pods[0], "spec", "nodeName"), str)
        and under(pods[0], "spec", "nodeName") != ""
        and under(pods[0], "spec", "schedulerName") == "muster"
        and isinstance(devices, str)
        and devices.isdecimal()
    )
    return "PASS" if good else "FAIL"


def storage_class(objects: list[Json]) -> str:
    names = [f"storageclass.{middle}kubernetes.io/is-default-class" for middle in ("", "beta.")]
    default = [
        one
        for one in several(objects[0].get("items"))
        if any(under(one, "metadata", "annotations", name) == "true" for name in names)
    ]
    return (
        "PASS" if len(default) == 1 and default[0].get("provisioner") == "csi.trident.netapp.io" else "FAIL"
    )
