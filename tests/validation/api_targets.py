"""Doubles of API servers, made of the answers of a real one: kube-apiserver v1.36.3 of a lab.

tests/validation/test_command.py runs `muster validate --part dra` on a real API server.
"""

import json
from typing import Any, Final

from tests.validation.fake_target import FakeTarget
from validation.witness.reader import ReadFailed

Answers = dict[tuple[str, str], tuple[int, Any]]
CLAIMS: Final = "/apis/resource.k8s.io/{}/namespaces/dra-test/resourceclaims"
V1 = CLAIMS.format("v1")
POD1: Final = "/api/v1/namespaces/dra-test/pods"
GROUP: Final = "/apis/resource.k8s.io"
DEPLOYMENT: Final = "/apis/apps/v1/namespaces/muster-system/deployments/muster-operator"
PODS: Final = "/api/v1/namespaces/muster-system/pods?labelSelector=app.kubernetes.io/name=muster-operator"
LEASE: Final = "/apis/coordination.k8s.io/v1/namespaces/muster-system/leases/muster-operator"
CLASSES: Final = "/apis/storage.k8s.io/v1/storageclasses"
POD: Final = "muster-operator-6d5f9c7b8-x2k4q"


def metadata(name: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "uid": f"uid-{name}", "resourceVersion": "393", **more}


def claim(name: str, **changes: Any) -> dict[str, Any]:
    """Return a ResourceClaim as the API server returns it; `changes` are fields of its device request."""
    device = {"deviceClassName": "gpu.nvidia.com", "allocationMode": "ExactCount", "count": 1} | changes
    return {
        "kind": "ResourceClaim",
        "apiVersion": "resource.k8s.io/v1",
        "metadata": metadata(name, namespace="dra-test"),
        "spec": {"devices": {"requests": [{"name": "gpu", "exactly": device}]}},
        "status": {},
    }


def deployment(replicas: int, available: int, observed: int = 1) -> dict[str, Any]:
    """Return the operator's Deployment with these numbers in its status."""
    return {
        "kind": "Deployment",
        "metadata": metadata("muster-operator", namespace="muster-system", generation=1),
        "spec": {
            "replicas": replicas,
            "template": {"spec": {"containers": [{"image": "registry.site/muster"}]}},
        },
        "status": {
            "observedGeneration": observed,
            "replicas": replicas,
            "updatedReplicas": replicas,
            "readyReplicas": available,
            "availableReplicas": available,
        },
    }


def pod(ready: str = "True", phase: str = "Running", **more: Any) -> dict[str, Any]:
    """Return a pod of the operator."""
    return {
        "metadata": metadata(POD, namespace="muster-system", **more),
        "status": {"phase": phase, "podIP": "10.9.8.7", "conditions": [{"type": "Ready", "status": ready}]},
    }


def lease(holder: str) -> dict[str, Any]:
    """Return the operator's lease, held by this replica."""
    return {
        "kind": "Lease",
        "metadata": metadata("muster-operator", namespace="muster-system"),
        "spec": {"holderIdentity": holder, "leaseDurationSeconds": 8},
    }


def storage_class(name: str, provisioner: str = "csi.trident.netapp.io", default: str = "true") -> Any:
    """Return a storage class, as the role `trident` creates it."""
    annotations = {"storageclass.kubernetes.io/is-default-class": default}
    return {"metadata": metadata(name, annotations=annotations), "provisioner": provisioner}


def allocated(*devices: dict[str, Any], **status: Any) -> dict[str, Any]:
    """Return the ResourceClaim while pod1 exists, allocated with one GPU of n1 or with these devices."""
    results = devices or (device(),)
    reserved = [{"resource": "pods", "name": "pod1", "uid": "uid-pod1"}]
    whole = {"allocation": {"devices": {"results": list(results)}}, "reservedFor": reserved}
    return {**claim("gpu-claim"), "status": {**whole, **status}}


def device(**changes: Any) -> dict[str, Any]:
    """Return a device in the allocation of a ResourceClaim."""
    return {"request": "gpu", "driver": "gpu.nvidia.com", "pool": "n1", "device": "gpu-3"} | changes


def pod1(phase: str, *codes: int, **changes: Any) -> dict[str, Any]:
    """Return the pod of the page on n1, whose containers ended with these exit codes, by default with 0."""
    use = {"claims": [{"name": "gpu"}]}
    statuses = [
        {"name": f"ctr{number}", "state": {"terminated": {"exitCode": code, "reason": "Completed"}}}
        for number, code in enumerate(codes or (0, 0))
    ]
    spec = {
        "nodeName": "n1",
        "restartPolicy": "OnFailure",
        "resourceClaims": [{"name": "gpu", "resourceClaimName": "gpu-claim"}],
        "containers": [
            {"name": f"ctr{number}", "image": "registry.site/a", "resources": use} for number in (0, 1)
        ],
    }
    return {
        "kind": "Pod",
        "metadata": metadata("pod1", namespace="dra-test"),
        "spec": spec | changes,
        "status": {"phase": phase, "podIP": "10.9.8.7", "containerStatuses": statuses},
    }


VECTOR_ADD: Final = (
    "[Vector addition of 50000 elements]\nCUDA kernel launch with 196 blocks\nTest PASSED\nDone\n"
)
DEVICE_QUERY: Final = ' Detected 1 CUDA Capable device(s)\n\nDevice 0: "Tesla V100"\n\nResult = PASS\n'
"""Lines of the output of CUDA's samples vectorAdd and deviceQuery: https://github.com/NVIDIA/cuda-samples."""

PROJECTS: Final = "/apis/muster.dev/v1alpha1/projects"
JOBS: Final = "/apis/batch/v1/namespaces/muster-other-client/jobs"
JOB_PODS: Final = (
    "/api/v1/namespaces/muster-other-client/pods?labelSelector=batch.kubernetes.io/job-name=client"
)


def job_pod(
    phase: str = "Running", devices: str = "3", owner: str = "uid-client", **spec: Any
) -> dict[str, Any]:
    """Return the pod of a Job that another client created, on n1 with one GPU."""
    owners = [{"kind": "Job", "name": "client", "uid": owner, "controller": True}]
    more = {"ownerReferences": owners, "annotations": {"muster.dev/gpu-devices": devices}}
    return {
        "metadata": metadata("client-x7k2p", **more),
        "spec": {"nodeName": "n1", "schedulerName": "muster"} | spec,
        "status": {"phase": phase, "podIP": "10.9.8.7"},
    }


def job_pods(*pods: dict[str, Any]) -> Answers:
    """Return the answer with these pods of the Job."""
    return {("GET", JOB_PODS): (200, {"kind": "PodList", "items": list(pods)})}


HONEST: Final[Answers] = {
    ("POST", PROJECTS): (201, {"kind": "Project", "metadata": metadata("other-client")}),
    ("POST", JOBS): (201, {"kind": "Job", "metadata": metadata("client")}),
    **job_pods(job_pod()),
    ("DELETE", f"{JOBS}/client"): (200, {"kind": "Status", "status": "Success"}),
    ("DELETE", f"{PROJECTS}/other-client"): (200, {"kind": "Status", "status": "Success"}),
    ("GET", "/version"): (200, {"major": "1", "minor": "36", "gitVersion": "v1.36.3"}),
    ("GET", GROUP): (
        200,
        {
            "kind": "APIGroup",
            "name": "resource.k8s.io",
            "versions": [
                {"groupVersion": "resource.k8s.io/v1", "version": "v1"},
                {"groupVersion": "resource.k8s.io/v1beta1", "version": "v1beta1"},
            ],
        },
    ),
    ("POST", "/api/v1/namespaces"): (201, {"kind": "Namespace", "metadata": metadata("dra-test")}),
    ("POST", V1): (201, claim("gpu-claim")),
    ("POST", POD1): (201, pod1("Pending")),
    ("GET", f"{V1}/gpu-claim"): (200, allocated()),
    ("GET", f"{POD1}/pod1"): (200, pod1("Succeeded")),
    ("GET", f"{POD1}/pod1/log?container=ctr0"): (200, VECTOR_ADD),
    ("GET", f"{POD1}/pod1/log?container=ctr1"): (200, DEVICE_QUERY),
    ("DELETE", f"{POD1}/pod1"): (200, pod1("Succeeded")),
    ("DELETE", f"{V1}/gpu-claim"): (200, claim("gpu-claim")),
    ("DELETE", "/api/v1/namespaces/dra-test"): (200, {"kind": "Namespace", "metadata": metadata("dra-test")}),
    ("GET", DEPLOYMENT): (200, deployment(2, 2)),
    ("GET", PODS): (200, {"kind": "PodList", "metadata": {}, "items": [pod()]}),
    ("GET", LEASE): (200, lease(f"{POD}_a50c0601-2534-4e6e-9e2d-5ae641035ade")),
    ("GET", CLASSES): (200, {"kind": "StorageClassList", "metadata": {}, "items": [storage_class("basic")]}),
}
NODES: Final = "/api/v1/nodes?labelSelector=nvidia.com/gpu.present%3Dtrue"
SLICES: Final = "/apis/resource.k8s.io/v1/resourceslices"


def node(name: str, count: str = "8") -> dict[str, Any]:
    """Return a node with GPUs."""
    labels = {"nvidia.com/gpu.present": "true", "nvidia.com/gpu.count": count, "site": "basement"}
    status = {"addresses": [{"type": "InternalIP", "address": "10.9.8.7"}]}
    return {"metadata": metadata(name, labels=labels), "spec": {}, "status": status}


def resource_slice(node: str, gpus: int = 8, kind: object = "gpu", **pool: Any) -> dict[str, Any]:
    """Return a slice of NVIDIA's driver with this number of devices."""
    devices = [
        {
            "name": f"gpu-{number}",
            "attributes": {"type": {"string": kind}, "uuid": {"string": f"GPU-{number}"}},
        }
        for number in range(gpus)
    ]
    its = {"name": node, "generation": 1, "resourceSliceCount": 1} | pool
    spec = {"driver": "gpu.nvidia.com", "nodeName": node, "pool": its, "devices": devices}
    return {"metadata": metadata(f"{node}-gpu.nvidia.com-x7k2p"), "spec": spec}


def published(*slices: dict[str, Any]) -> Answers:
    """Return the answer with these slices."""
    return {("GET", SLICES): (200, {"items": list(slices)})}


HONEST[("GET", NODES)] = (200, {"kind": "NodeList", "metadata": {}, "items": [node("n1"), node("n2")]})
HONEST.update(published(resource_slice("n1"), resource_slice("n2")))
NO_PAGE: Final = (404, {"kind": "Status", "message": "the server could not find the requested resource"})


class AnswersRequests(FakeTarget):
    """A target whose API server gives the right answers to all requests. Subclasses change some answers."""

    others: Answers = {}

    def __init__(self) -> None:
        super().__init__()
        self.requests: list[tuple[str, str, str]] = []

    def send(self, method: str, path: str, body: str) -> tuple[int, str]:
        """Return status and body of the answer. Status 0 means no answer; a text is sent as it is."""
        self.requests.append((method, path, body))
        status, answer = (HONEST | self.others).get((method, path), NO_PAGE)
        if not status:
            raise ReadFailed(str(answer))
        return status, answer if isinstance(answer, str) else json.dumps(answer)


def answering(others: Answers) -> type[AnswersRequests]:
    """Return a double with these answers instead of the right ones."""
    return type("AnswersOtherwise", (AnswersRequests,), {"others": others})


TooOldForClaims = answering({("GET", "/version"): (200, {"gitVersion": "v1.32.9"})})
AltersClaims = answering(
    {("GET", f"{V1}/gpu-claim"): (200, claim("gpu-claim", deviceClassName="gpu.example.com"))}
)
HasNoDriverOnANode = answering(published(resource_slice("n1")))
SharesTheGpu = answering({("GET", f"{V1}/gpu-claim"): (200, allocated(device(), device(device="gpu-4")))})
TwoDefaultClasses = answering(
    {
        ("GET", CLASSES): (
            200,
            {"items": [storage_class("basic"), storage_class("local", "rancher.io/local-path")]},
        )
    }
)
IgnoresOtherClients = answering(job_pods(job_pod("Pending", "", nodeName="")))
NobodyLeads = answering({("GET", LEASE): (200, lease("a-laptop_a50c0601"))})
