"""The request of a pod, as it is read from its specification and annotations."""

from typing import Any

import pytest

from orchestrator.observe.request import UnreadableRequest, pod_constraints, pod_request
from orchestrator.planner.model import Request
from tests.observe.objects import pod

FRACTION = "muster.dev/gpu-fraction"
MEMORY = "muster.dev/gpu-memory"


def containers(*requests: dict[str, str]) -> list[dict[str, Any]]:
    return [{"name": f"c{index}", "resources": {"requests": each}} for index, each in enumerate(requests)]


@pytest.mark.parametrize(
    ("spec", "annotations", "requested"),
    [
        ({"containers": containers({"cpu": "2", "memory": "1Gi"})}, {}, Request(0, 0, 2000, 1 << 30)),
        (
            {"containers": containers({"nvidia.com/gpu": "2"}, {"nvidia.com/gpu": "1"})},
            {},
            Request(gpu_count=3),
        ),
        ({"containers": containers({})}, {FRACTION: "0.5"}, Request(gpu_portion_milli=500)),
        ({"containers": containers({})}, {MEMORY: "4G"}, Request(gpu_memory_mib=3815)),
        (
            {"containers": containers({})},
            {FRACTION: "0.5", "muster.dev/gpu-fraction-devices": "2"},
            Request(gpu_portion_milli=500, shared_devices=2),
        ),
        ({"containers": containers({})}, {FRACTION: "0.001"}, Request(gpu_portion_milli=1)),
        (
            {
                "containers": containers({"cpu": "1"}),
                "initContainers": containers({"cpu": "3"}, {"cpu": "2"}),
            },
            {},
            Request(cpu_milli=3000),
        ),
        (
            {
                "containers": containers({"cpu": "1"}),
                "initContainers": [
                    {"name": "s", "restartPolicy": "Always", "resources": {"requests": {"cpu": "1"}}}
                ],
                "overhead": {"cpu": "250m"},
            },
            {},
            Request(cpu_milli=2250),
        ),
        (
            {
                "containers": containers({"cpu": "1", "nvidia.com/gpu": "1"}),
                "resources": {"requests": {"cpu": "8"}, "limits": {"cpu": "9", "memory": "1Gi"}},
                "overhead": {"cpu": "250m"},
            },
            {},
            Request(1, 0, 8250, 1 << 30),
        ),
    ],
)
def test_a_pod_requests_the_amounts_that_kubernetes_would_reserve(
    spec: dict[str, Any], annotations: dict[str, str], requested: Request
) -> None:
    assert pod_request(pod("p", spec=spec, annotations=annotations)) == requested


def test_a_limit_alone_counts_as_the_request() -> None:
    assert pod_request(pod("p", gpus=4)).gpu_count == 4


@pytest.mark.parametrize("fraction", ["0", "1", "1.5", "-0.5", "half", "0.0001", "nan", "1e99999", ""])
def test_a_fraction_that_cannot_be_meant_is_named(fraction: str) -> None:
    with pytest.raises(UnreadableRequest, match=FRACTION):
        pod_request(pod("p", annotations={FRACTION: fraction}))


@pytest.mark.parametrize("name", ["nvidia.com/mig-1g.10gb", "nvidia.com/gpu.shared"])
def test_a_gpu_that_no_quota_counts_is_named_on_a_pending_pod_and_still_counts_on_its_node(name: str) -> None:
    spec = {"containers": containers({name: "2"})}
    with pytest.raises(
        UnreadableRequest, match=f"{name}, which is not implemented: request whole GPUs as nvidia"
    ):
        pod_request(pod("p", spec=spec))
    assert pod_request(pod("p", spec={**spec, "nodeName": "n1"})).scalars == ((name, 2),)


def test_whole_gpus_and_a_fraction_exclude_each_other() -> None:
    with pytest.raises(UnreadableRequest, match="remove one of them"):
        pod_request(pod("p", gpus=1, annotations={FRACTION: "0.5"}))


@pytest.mark.parametrize(("gpus", "others"), [(1, {}), (0, {FRACTION: "0.5"})])
def test_gpu_memory_excludes_whole_gpus_and_fractions(gpus: int, others: dict[str, str]) -> None:
    with pytest.raises(UnreadableRequest, match="remove one of them"):
        pod_request(pod("p", gpus=gpus, annotations={MEMORY: "4G", **others}))


@pytest.mark.parametrize(
    "annotations",
    [
        {MEMORY: "0"},
        {MEMORY: "-1G"},
        {MEMORY: "much"},
        *(
            {MEMORY: "4G", "muster.dev/gpu-fraction-devices": each}
            for each in ("0", "", "-1", "two", "99999")
        ),
    ],
)
def test_parts_of_gpus_that_cannot_be_meant_are_named(annotations: dict[str, str]) -> None:
    with pytest.raises(UnreadableRequest, match="its annotation"):
        pod_request(pod("p", annotations=annotations))


def test_a_resource_that_is_no_number_is_named() -> None:
    with pytest.raises(UnreadableRequest, match="cannot be read"):
        pod_request(pod("p", spec={"containers": containers({"nvidia.com/gpu": "many"})}))


def test_constraints_keep_selector_affinity_and_tolerations() -> None:
    term = {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    spec = {
        "nodeSelector": {"b": "2", "a": "1"},
        "affinity": {"nodeAffinity": required},
        "tolerations": [{"key": "gpu", "operator": "Exists"}],
    }
    constraints = pod_constraints(pod("p", spec=spec))
    assert constraints.node_selector == (("a", "1"), ("b", "2"))
    assert [each.key for each in constraints.node_terms[0]] == ["zone"]
    assert [each.operator for each in constraints.tolerations] == ["Exists"]


@pytest.mark.parametrize("operator", ["Lt", "Gt", "exists"])
def test_a_toleration_with_an_operator_that_is_not_known_is_refused(operator: str) -> None:
    spec = {"tolerations": [{"key": "sla", "operator": operator, "value": "90"}]}
    with pytest.raises(UnreadableRequest, match=f"'sla' has the operator '{operator}': allowed are Equal"):
        pod_constraints(pod("p", spec=spec))
