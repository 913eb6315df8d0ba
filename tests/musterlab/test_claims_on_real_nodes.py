"""A DRA driver on a real kubelet: NVIDIA's if the user's folder has it, otherwise the example driver with the same
name.

The example driver gives a container no device file. It names the device in the environment, as `GPU_DEVICE_3=gpu-3`.
"""

import asyncio
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from musterlab.cluster import Lab
from musterlab.gpus.live import NodeGpus, Process
from musterlab.gpus.models import Gpus
from musterlab.realnodes import images
from tests.control.operators import must_all, operator, prepare
from tests.musterlab.gpu_labs import (
    NODE,
    ONE_GPU,
    PARTS,
    Eventually,
    check_nvidias_dra_driver,
    check_queries,
    lab_with,
    pod_resources,
    submit_parts,
)
from tests.musterlab.gpu_pods import (
    create,
    devices_seen,
    kube_scheduler_of,
    kubectl,
    pod,
    read,
    uuids_seen,
    wait_until_ready,
)
from tests.musterlab.node_processes import runtime_configuration

pytestmark = [pytest.mark.lab, pytest.mark.real_nodes]

NAMESPACE = "muster-team-a"
RECORDED = Path(__file__).parent / "recorded" / "resourceslice-memory.yaml"
CLAIM_VERSIONS = ("v1", "v1beta1")
FROM_CLAIM = {"claims": [{"name": "gpu"}]}


@pytest.fixture(scope="module", autouse=True)
def _containers_can_query() -> None:
    check_queries()


@pytest.fixture
def nvidias_driver() -> None:
    """Skip the test without NVIDIA's DRA driver."""
    check_nvidias_dra_driver()


@pytest.fixture(scope="module")
def dra_lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    for lab in lab_with(Gpus("v100", 8, "dra"), tmp_path_factory.mktemp("labs")):
        with kube_scheduler_of(lab, tmp_path_factory.mktemp("scheduler")):
            yield lab


@pytest.fixture(scope="module")
def claim_pods(dra_lab: Lab) -> Lab:
    """Return the lab with the DRA driver, and a pod for each version of ResourceClaims. The last container of each has
    no claim.
    """
    wish = {"deviceClassName": "gpu.nvidia.com"}
    for version in CLAIM_VERSIONS:
        request = {"name": "gpu", **({"exactly": wish} if version == "v1" else wish)}
        claim = {
            "apiVersion": f"resource.k8s.io/{version}",
            "kind": "ResourceClaim",
            "metadata": {"name": f"shared-{version}"},
            "spec": {"devices": {"requests": [request]}},
        }
        claims = [{"name": "gpu", "resourceClaimName": f"shared-{version}"}]
        create(dra_lab, claim, pod(version, [FROM_CLAIM, FROM_CLAIM, {}], resourceClaims=claims))
    wait_until_ready(dra_lab, *CLAIM_VERSIONS)
    return dra_lab


@pytest.fixture(scope="module")
def halves(dra_lab: Lab) -> list[dict[str, Any]]:
    """Return the `resourceClaims` of a pod for half of a GPU."""
    wish = {"deviceClassName": "gpu.nvidia.com", "capacity": {"requests": {"memory": "16Gi"}}}
    template = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": "half"},
        "spec": {"spec": {"devices": {"requests": [{"name": "gpu", "exactly": wish}]}}},
    }
    create(dra_lab, template)
    return [{"name": "gpu", "resourceClaimTemplateName": "half"}]


def devices(lab: Lab) -> list[dict[str, Any]]:
    (item,) = read(lab, "resourceslices")["items"]
    return sorted(item["spec"]["devices"], key=lambda device: str(device["name"]))


def tainted(lab: Lab) -> set[str]:
    return {
        f"{device['name']} {taint['key']}" for device in devices(lab) for taint in device.get("taints", ())
    }


def claimed(lab: Lab, claim: str) -> list[str]:
    """Return the devices of a claim."""
    results = read(lab, "resourceclaim", claim)["status"]["allocation"]["devices"]["results"]
    return sorted(str(result["device"]) for result in results)


def uuids(lab: Lab, names: list[str]) -> list[str]:
    by_name = {device["name"]: str(device["attributes"]["uuid"]["string"]) for device in devices(lab)}
    return [by_name[name] for name in names]


def test_the_cluster_has_eight_devices_and_the_node_no_gpu_of_its_own(dra_lab: Lab) -> None:
    assert [device["name"] for device in devices(dra_lab)] == [f"gpu-{number}" for number in range(8)]
    assert "nvidia.com/gpu" not in read(dra_lab, "node", NODE)["status"]["capacity"]


@pytest.mark.usefixtures("nvidias_driver")
def test_the_driver_publishes_the_recorded_devices(dra_lab: Lab) -> None:
    published = devices(dra_lab)
    sockets = [device["attributes"].pop("resource.kubernetes.io/pcieRoot")["string"] for device in published]
    numa_nodes = [device["attributes"].pop("resource.kubernetes.io/numaNode")["int"] for device in published]
    assert sockets == ["pci0000:00"] * 4 + ["pci0000:80"] * 4
    assert numa_nodes == [0] * 4 + [1] * 4
    assert published == yaml.safe_load(RECORDED.read_text())["devices"]


@pytest.mark.parametrize("version", CLAIM_VERSIONS)
def test_the_containers_of_a_claim_see_one_gpu(version: str, claim_pods: Lab) -> None:
    given = claimed(claim_pods, f"shared-{version}")
    assert len(given) == 1
    assert devices_seen(claim_pods, version, "c0") == devices_seen(claim_pods, version, "c1") == given
    assert devices_seen(claim_pods, version, "c2") == []
    if Gpus("v100", 8, "dra").has_nvidias_dra_driver:
        assert uuids_seen(claim_pods, version) == uuids(claim_pods, given)


def test_agents_are_told_of_the_device_of_a_claim(claim_pods: Lab, tmp_path: Path) -> None:
    containers = [(version, container) for version in CLAIM_VERSIONS for container in ("c0", "c1")]
    seen = {(*each, device) for each in containers for device in devices_seen(claim_pods, *each)}
    assert len(seen) == 4
    answer = pod_resources(claim_pods, tmp_path)
    assert {held for held in answer if held[0] in CLAIM_VERSIONS} == seen


def test_a_pod_gets_a_gpu_by_the_resource_of_the_class(dra_lab: Lab) -> None:
    create(dra_lab, pod("whole", [ONE_GPU]))
    wait_until_ready(dra_lab, "whole")
    claim = read(dra_lab, "pod", "whole")["status"]["extendedResourceClaimStatus"]["resourceClaimName"]
    assert devices_seen(dra_lab, "whole") == claimed(dra_lab, claim)
    assert len(claimed(dra_lab, claim)) == 1


@pytest.mark.usefixtures("nvidias_driver")
def test_two_halves_share_a_gpu(dra_lab: Lab, halves: list[dict[str, Any]]) -> None:
    names = ("half-1", "half-2")
    create(dra_lab, pod("half-1", [FROM_CLAIM], resourceClaims=halves))
    wait_until_ready(dra_lab, "half-1")
    # until kube-scheduler has written the first half, the second can go to another GPU
    create(dra_lab, pod("half-2", [FROM_CLAIM], resourceClaims=halves))
    wait_until_ready(dra_lab, "half-2")
    one, other = (devices_seen(dra_lab, name) for name in names)
    assert one == other
    assert len(one) == 1


def page(name: str, version: str, **spec: object) -> list[dict[str, Any]]:
    """Return the manifests of Google Distributed Cloud's page on dynamic resource allocation, unchanged except for the
    name.
    """
    wish = {"deviceClassName": "gpu.nvidia.com"}
    request = {"name": "gpu", **({"exactly": wish} if version == "v1" else wish)}
    samples = {"ctr0": "vectoradd-cuda12.5.0", "ctr1": "devicequery"}
    containers = [
        {"name": container, "image": f"nvcr.io/nvidia/k8s/cuda-sample:{tag}", "resources": FROM_CLAIM}
        for container, tag in samples.items()
    ]
    claims = [{"name": "gpu", "resourceClaimName": "gpu-claim"}]
    return [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}},
        {
            "apiVersion": f"resource.k8s.io/{version}",
            "kind": "ResourceClaim",
            "metadata": {"namespace": name, "name": "gpu-claim"},
            "spec": {"devices": {"requests": [request]}},
        },
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "pod1", "namespace": name},
            "spec": {
                "restartPolicy": "OnFailure",
                "resourceClaims": claims,
                "containers": containers,
                **spec,
            },
        },
    ]


def test_the_pod_of_the_page_ends_well_and_the_fields_of_rhel_reach_its_containers(dra_lab: Lab) -> None:
    rhel = {"securityContext": {"seLinuxOptions": {"type": "nvidia_container_t"}}}
    pages = {version: page(f"dra-test-{version}", version) for version in CLAIM_VERSIONS}
    pages["rhel"] = page("dra-test-rhel", "v1beta1", **rhel)
    create(dra_lab, *(manifests[0] for manifests in pages.values()))
    for name in pages:
        kubectl(dra_lab, "wait", "--for=create", "serviceaccount/default", "-n", f"dra-test-{name}")
    create(dra_lab, *(one for manifests in pages.values() for one in manifests[1:]))
    for name in pages:
        there = ("-n", f"dra-test-{name}")
        kubectl(
            dra_lab, "wait", "--for=jsonpath={.status.phase}=Succeeded", "pod/pod1", *there, "--timeout=120s"
        )
        pod = read(dra_lab, "pod", "pod1", *there)
        ends = [one["state"]["terminated"]["exitCode"] for one in pod["status"]["containerStatuses"]]
        assert (ends, [one["restartCount"] for one in pod["status"]["containerStatuses"]]) == ([0, 0], [0, 0])
        (gpu, passed), other = (
            kubectl(dra_lab, "logs", "pod1", "-c", container, *there).splitlines()
            for container in ("ctr0", "ctr1")
        )
        assert re.fullmatch("(nvidia|gpu-)[0-7]", gpu)
        assert (passed, other) == (
            "Test PASSED",
            [gpu, " Detected 1 CUDA Capable device(s)", "Result = PASS"],
        )
        for status in pod["status"]["containerStatuses"]:
            configuration = runtime_configuration(dra_lab, NODE, status["containerID"].partition("://")[2])
            context = configuration["linux"]["security_context"]
            expected = {"type": "nvidia_container_t"} if name == "rhel" else None
            assert context.get("selinux_options") == expected


@pytest.mark.usefixtures("nvidias_driver")
def test_a_change_of_a_gpu_shows_in_containers_and_taints_its_device(
    claim_pods: Lab, eventually: Eventually
) -> None:
    gpus = NodeGpus(claim_pods)
    gpus.use("0", 93, [Process(4242, "python", 10240)])
    gpus.send_xid("5", 48)
    eventually(lambda: tainted(claim_pods) == {"gpu-5 gpu.nvidia.com/xid"}, "the driver taints the GPU")
    shown = kubectl(claim_pods, "exec", "v1", "-c", "c0", "--", "cat", "/config/nvml")
    assert "process 4242 10240 python" in shown.splitlines()
    gpus.lose("2")
    lost = {"gpu-2 gpu.nvidia.com/xid", "gpu-5 gpu.nvidia.com/xid"}
    eventually(lambda: tainted(claim_pods) == lost, "the driver taints the lost GPU, and no other")
    gpus.restore("all")
    assert all(not state.changes for state in gpus.states())


def test_a_claim_outlives_a_reboot_of_its_node(dra_lab: Lab, eventually: Eventually) -> None:
    claim = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": "rebooted"},
        "spec": {
            "devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu.nvidia.com"}}]}
        },
    }
    claims = [{"name": "gpu", "resourceClaimName": "rebooted"}]
    create(dra_lab, claim, pod("rebooted", [FROM_CLAIM], resourceClaims=claims, restartPolicy="Always"))
    wait_until_ready(dra_lab, "rebooted")
    before = devices_seen(dra_lab, "rebooted")
    dra_lab.restart(NODE, seconds=120)

    def restarts() -> int:
        status = read(dra_lab, "pod", "rebooted")["status"]["containerStatuses"][0]
        return int(status["restartCount"])

    eventually(lambda: restarts() == 1, "the container was started again")
    wait_until_ready(dra_lab, "rebooted")
    assert devices_seen(dra_lab, "rebooted") == before == claimed(dra_lab, "rebooted")


@pytest.fixture(scope="module")
def muster_lab(dra_lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """Yield the lab with the DRA driver, in which muster runs."""
    directory = tmp_path_factory.mktemp("operator")
    account = asyncio.run(prepare(dra_lab.kubeconfig, directory / "kubeconfig"))
    with operator(account, directory / "log"):
        yield dra_lab


def test_muster_gives_devices_to_the_claims_of_a_project(muster_lab: Lab) -> None:
    quota = 3 if Gpus("v100", 8, "dra").has_nvidias_dra_driver else 0  # devices of other drivers are no GPUs
    must_all(muster_lab.kubeconfig, f"project create team-a -g {quota}")
    container = {"image": images.SHELL, "command": ["sleep", "3600"], "resources": FROM_CLAIM}
    counts = {"one": 1, "two": 2}
    for name, count in counts.items():
        wish = {"deviceClassName": "gpu.nvidia.com", "allocationMode": "ExactCount", "count": count}
        claim = {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaim",
            "metadata": {"name": name, "namespace": NAMESPACE},
            "spec": {"devices": {"requests": [{"name": "gpu", "exactly": wish}]}},
        }
        user = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "namespace": NAMESPACE},
            "spec": {
                "schedulerName": "muster",
                "terminationGracePeriodSeconds": 0,
                "resourceClaims": [{"name": "gpu", "resourceClaimName": name}],
                "containers": [{"name": "c0", **container}, {"name": "c1", **container}],
            },
        }
        create(muster_lab, claim, user)
    kubectl(muster_lab, "wait", "--for=condition=Ready", "pod", "--all", "-n", NAMESPACE, "--timeout=120s")
    held = {}
    for name, count in counts.items():
        status = read(muster_lab, "resourceclaim", name, "-n", NAMESPACE)["status"]
        assert [user["name"] for user in status["reservedFor"]] == [name]
        held[name] = sorted(str(result["device"]) for result in status["allocation"]["devices"]["results"])
        assert len(held[name]) == count
        for container_name in ("c0", "c1"):
            assert devices_seen(muster_lab, name, container_name, NAMESPACE) == held[name]
    assert not set(held["one"]) & set(held["two"])
    kubectl(muster_lab, "delete", "pod", "--all", "-n", NAMESPACE, "--now")
    must_all(muster_lab.kubeconfig, "project delete team-a --force")


def gpus_of_parts(lab: Lab, *jobs: str) -> dict[str, list[list[int]]]:
    """Return by job the GPUs that the containers of its pods see. They must be those in the claims and annotations."""
    claims = read(lab, "resourceclaims", "-n", PARTS)["items"]
    results = {
        user["name"]: claim["status"]["allocation"]["devices"]["results"]
        for claim in claims
        for user in claim["status"]["reservedFor"]
    }
    held: dict[str, list[list[int]]] = {}
    for bound in read(lab, "pods", "-n", PARTS)["items"]:
        name, job = bound["metadata"]["name"], bound["metadata"]["labels"]["muster.dev/workload"]
        if job not in jobs:
            continue
        seen = [int(device.removeprefix("gpu-")) for device in devices_seen(lab, name, job, PARTS)]
        assert sorted(int(result["device"].removeprefix("gpu-")) for result in results[name]) == seen
        assert bound["metadata"]["annotations"]["muster.dev/gpu-devices"] == ",".join(map(str, seen))
        held.setdefault(job, []).append(seen)
    return held


@pytest.mark.usefixtures("nvidias_driver")
def test_muster_gives_whole_gpus_and_fractions_by_claims(muster_lab: Lab) -> None:
    must_all(muster_lab.kubeconfig, "project create team-b -g 4")
    submit_parts(muster_lab, whole="-g 2")
    ((first, second),) = gpus_of_parts(muster_lab, "whole")["whole"]
    assert first != second
    must_all(muster_lab.kubeconfig, "delete whole -p team-b")
    kubectl(muster_lab, "delete", "pod", "--all", "-n", PARTS, "--now")
    submit_parts(muster_lab, eighths="-g 0.125 --parallelism 8 --completions 8")
    eighths = gpus_of_parts(muster_lab, "eighths")["eighths"]
    assert len(eighths) == 8
    assert len({gpu for gpus in eighths for gpu in gpus}) == 1
    submit_parts(muster_lab, half="-g 0.5", large="-g 0.6", memory="--gpu-memory 16Gi")
    held = gpus_of_parts(muster_lab, "half", "large", "memory")
    assert held["half"] == held["memory"]
    assert len({gpus[0] for gpus in (held["half"][0], held["large"][0], eighths[0])}) == 3
    must_all(muster_lab.kubeconfig, "delete eighths half memory large -p team-b")
    kubectl(muster_lab, "delete", "pod", "--all", "-n", PARTS, "--now")
    submit_parts(muster_lab, two="-g 0.5 --gpu-devices 2")
    ((one, other),) = gpus_of_parts(muster_lab, "two")["two"]
    assert one != other
