"""Values that an API server refuses are refused in a file, and values that it accepts are read."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, Final

import pytest
import yaml

from orchestrator.cluster.errors import AlreadyExists, Invalid
from orchestrator.cluster.transport import Transport
from orchestrator.errors import UsageError
from orchestrator.simulation.reader import load

if TYPE_CHECKING:
    from pathlib import Path

    from orchestrator.cluster.kubeconfig import Access

NAMESPACE: Final = "/api/v1/namespaces/default"
REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
GPU: Final = {"requests": {"nvidia.com/gpu": 1}, "limits": {"nvidia.com/gpu": 1}}
PORT: Final = {"containerPort": 9000}


def spec(container: dict[str, Any] | None = None, **fields: Any) -> dict[str, Any]:
    """Return the specification of a pod with one container."""
    return {"containers": [{"name": "c", "image": "i", "resources": container or GPU}], **fields}


def requests(name: str, request: object, limit: object) -> dict[str, Any]:
    return spec({"requests": {"cpu": 1, name: request}, "limits": {name: limit}})


def of_pod(
    name: str, request: object, limit: object = None, container: dict[str, Any] | None = None
) -> dict[str, Any]:
    """Return a pod with a request, or a limit, of its own."""
    parts = {"requests": request, "limits": limit}
    resources = {part: {name: amount} for part, amount in parts.items() if amount is not None}
    return spec(container or {"requests": {"cpu": 1}}, resources=resources)


def starter(**fields: Any) -> dict[str, Any]:
    return spec(initContainers=[{"name": "s", "image": "i", **fields}])


def on_field(**requirement: Any) -> dict[str, Any]:
    terms = [{"matchFields": [{"key": "metadata.name", **requirement}]}]
    return spec(affinity={"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": terms}}})


def tolerating(**fields: Any) -> dict[str, Any]:
    return spec(tolerations=[fields])


def spread(*when: str) -> dict[str, Any]:
    return spec(
        topologySpreadConstraints=[
            {"topologyKey": "zone", "whenUnsatisfiable": each, "maxSkew": number}
            for number, each in enumerate(when, 1)
        ]
    )


def host_network(port: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"containers": [{"name": "c", "image": "i", "ports": [port]}], "hostNetwork": True, **fields}


REFUSED: Final[dict[str, dict[str, Any]]] = {
    "nvidia.com/gpu: 1 is not the limit, 2": requests("nvidia.com/gpu", 1, 2),
    "hugepages-2Mi: 4Mi is not the limit, 8Mi": requests("hugepages-2Mi", "4Mi", "8Mi"),
    "memory: 2Gi is above the limit, 1Gi": requests("memory", "2Gi", "1Gi"),
    "hugepages-2Mi: 3Mi is no multiple": requests("hugepages-2Mi", "3Mi", "3Mi"),
    "hugepages-2Mi: cpu or memory must be requested": spec(
        {"requests": {"hugepages-2Mi": "4Mi"}, "limits": {"hugepages-2Mi": "4Mi"}}
    ),
    "hugepages-2Mi: cpu or memory": of_pod("hugepages-2Mi", "4Mi", "4Mi", GPU),
    "pool: the value is no text": spec(nodeSelector={"pool": 1}),
    "hugepages-large: the name has no size": requests("hugepages-large", "2Mi", "2Mi"),
    "'gpu' is no resource of a container": requests("gpu", 1, 1),
    "'pods' is no resource of a container": requests("pods", 1, 1),
    "'a/b/c' is no resource of a container": requests("a/b/c", 1, 1),
    "requests.nvidia.com/gpu is a name for a ResourceQuota": requests("requests.nvidia.com/gpu", 1, 1),
    "'slots' is no resource of a container": spec(overhead={"slots": 1}),
    "nvidia.com/gpu: a pod has no resource of this name": of_pod("nvidia.com/gpu", 1, 1),
    "ephemeral-storage: a pod has no resource": of_pod("ephemeral-storage", "1Gi"),
    "cpu: 4 is above the limit, 2": of_pod("cpu", 4, 2),
    "cpu: the containers of the pod request more": of_pod("cpu", 2, None, {"requests": {"cpu": 4}}),
    "memory: the containers of the pod request more": of_pod(
        "memory", None, "1Gi", {"requests": {"memory": "2Gi"}}
    ),
    "restartPolicy: 'always' is not": starter(restartPolicy="always", resources=GPU),
    "name: 'c' is there twice": starter(name="c"),
    "key: 'spec.unschedulable' is not": on_field(key="spec.unschedulable", operator="In", values=["false"]),
    "operator: 'Exists' is not implemented": on_field(operator="Exists"),
    "values: a field is compared with one": on_field(operator="NotIn", values=["n1", "n2"]),
    "nodeSelectorTerms is missing": spec(
        affinity={"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": []}}},
    ),
    "operator: a toleration without a key": tolerating(value="x", effect="NoSchedule"),
    "value: Exists has none": tolerating(key="k", operator="Exists", value="x"),
    "tolerationSeconds: it goes with": tolerating(
        key="k", operator="Exists", effect="NoSchedule", tolerationSeconds=5
    ),
    "key: 'a b' is no key of a taint": tolerating(key="a b", operator="Exists"),
    "value: 'a b' is no value of a taint": tolerating(key="k", value="a b"),
    "topologyKey and whenUnsatisfiable: 'zone' is there twice": spread("DoNotSchedule", "DoNotSchedule"),
    "hostPort: with hostNetwork it is the": host_network({**PORT, "hostPort": 9001}),
}
"""Specifications that the API server refuses, by the words of the message."""

SIDECAR: Final = {"name": "s", "image": "i", "restartPolicy": "Always", "ports": [PORT]}
READ: Final[dict[str, dict[str, Any]]] = {
    "an amount below its limit": requests("memory", "1Gi", "2Gi"),
    "a request of a pod": of_pod("cpu", 4, 4, {"requests": {"cpu": 4}, "limits": {"cpu": 4}}),
    "pages of a pod": spec(
        {"requests": {"cpu": 1}},
        resources={"requests": {"cpu": 1, "hugepages-2Mi": "4Mi"}, "limits": {"hugepages-2Mi": "4Mi"}},
    ),
    "a name of a driver": requests("deviceclass.resource.kubernetes.io/nic", 1, 1),
    "an init container that is started again": starter(restartPolicy="OnFailure"),
    "one node": on_field(operator="NotIn", values=["n1"]),
    "every taint": tolerating(operator="Exists", effect="NoExecute"),
    "a time to leave": tolerating(key="k", operator="Exists", effect="NoExecute", tolerationSeconds=5),
    "two kinds of a spread": spread("DoNotSchedule", "ScheduleAnyway"),
    "a port of the node": host_network({**PORT, "hostPort": 9000}),
    "the same port in a sidecar": spec(
        initContainers=[{**SIDECAR, "ports": [{**PORT, "hostPort": 80}]}, {**SIDECAR, "name": "t"}],
    ),
}


def written(path: Path, pod: dict[str, Any]) -> Path:
    file = {
        "nodes": [{"name": "n1", "gpus": 8}],
        "projects": {"a": {"quota": 8}},
        "workloads": [{"name": "w", "project": "a", "template": {"spec": pod}}],
    }
    path.write_text(yaml.safe_dump(file, sort_keys=False))
    return path


@pytest.mark.parametrize("words", REFUSED)
def test_a_template_that_an_api_server_refuses_is_refused_with_its_line(words: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError) as refused:
        load(written(tmp_path / "file.yaml", REFUSED[words]))
    assert words in str(refused.value)
    assert int(str(refused.value).split(":")[1]) > 9  # the line of the specification


@pytest.mark.parametrize("name", READ)
def test_a_template_that_an_api_server_accepts_is_read(name: str, tmp_path: Path) -> None:
    assert load(written(tmp_path / "file.yaml", READ[name])).workloads


def test_a_sidecar_in_the_network_of_the_node_needs_its_host_port(tmp_path: Path) -> None:
    """The API server fills it in, and a file has the values that the API server stores."""
    pod = host_network(
        {**PORT, "hostPort": 9000}, initContainers=[{**SIDECAR, "ports": [{"containerPort": 80}]}]
    )
    with pytest.raises(UsageError, match="hostPort is missing"):
        load(written(tmp_path / "file.yaml", pod))


@pytest.mark.parametrize(
    "fields",
    [
        {"nodeSelector": {"metadata.name": "n1"}},
        {
            "affinity": {
                "nodeAffinity": {
                    REQUIRED: {
                        "nodeSelectorTerms": [
                            {
                                "matchExpressions": [
                                    {"key": "metadata.name", "operator": "In", "values": ["n1"]}
                                ]
                            }
                        ]
                    }
                }
            }
        },
    ],
    ids=["selector", "affinity"],
)
def test_a_label_with_the_name_of_a_field_is_refused(fields: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"the label metadata\.name, which is a field: use matchFields"):
        load(written(tmp_path / "file.yaml", spec(**fields)))


@pytest.mark.lab
async def test_the_api_server_refuses_and_accepts_the_same(lab_access: Access) -> None:
    refused: set[str] = set()
    async with Transport(lab_access) as transport:
        account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}}
        with contextlib.suppress(AlreadyExists):
            await transport.create(f"{NAMESPACE}/serviceaccounts", account)
        for name, pod in {**REFUSED, **READ}.items():
            body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"generateName": "w-"}, "spec": pod}
            try:
                await transport.create(f"{NAMESPACE}/pods", body, params={"dryRun": "All"})
            except Invalid:
                refused.add(name)
    assert refused == REFUSED.keys()
