"""NVIDIA's device plugin and DRA driver on a real kubelet: what they tell the cluster is what containers see."""

import asyncio
import json
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from musterlab import binaries, supervisor
from musterlab.cluster import Lab, start
from musterlab.errors import BinariesError, LabConflict
from musterlab.gpus.live import NodeGpus, Process
from musterlab.gpus.models import Gpus
from musterlab.gpus.recipe import DRIVER_VERSION, GPU_PROGRAMS
from musterlab.realnodes import images
from orchestrator import names
from orchestrator.agent.pod_resources import list_devices
from orchestrator.progress import Reporter
from tests.control.operators import must_all, operator, prepare
from tests.musterlab import gpu_pods, parts
from tests.musterlab.gpu_pods import (
    create,
    kube_scheduler_of,
    kubectl,
    pod,
    read,
    uuids_seen,
    wait_until_ready,
)
from tests.musterlab.node_processes import runtime_configuration
from tests.musterlab.random_parts import RESTARTS, RandomActions, script

pytestmark = [pytest.mark.lab, pytest.mark.real_nodes]

Eventually = Callable[[Callable[[], bool], str], None]

NODE = "dgx1-real-1"
NAMESPACE = "muster-team-a"
RECORDED = Path(__file__).parent / "recorded" / "resourceslice-memory.yaml"
ONE_GPU = {"limits": {"nvidia.com/gpu": "1"}}
PART = {"limits": {"muster.dev/gpu-part": "1"}}
CLAIM_VERSIONS = ("v1", "v1beta1")
FROM_CLAIM = {"claims": [{"name": "gpu"}]}


@pytest.fixture(scope="module", autouse=True)
def _the_programs_are_there() -> None:
    if not gpu_pods.answers_queries():
        pytest.skip("this machine's Python and C library are not below /usr, for containers to borrow")
    try:
        binaries.find(Reporter(lambda _line: None), GPU_PROGRAMS)
    except BinariesError as error:
        pytest.skip(str(error))


def lab_with(gpus: Gpus, directory: Path) -> Iterator[Lab]:
    """A lab of one real node, of which nothing is left when it is stopped."""
    running = start("gpus", nodes=0, real_nodes=1, detach=False, state_dir=directory, gpus=gpus)
    folders = supervisor.cgroups(running.state_directory)
    yield running
    running.stop()
    assert list(directory.iterdir()) == []
    assert [folder for folder in folders if folder.exists()] == []
    assert [line for line in Path("/proc/mounts").read_text().splitlines() if str(directory) in line] == []


@pytest.fixture(scope="module")
def plugin_lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    gpus = Gpus("v100", 8, "device-plugin", cuda_library=gpu_pods.SOME_LIBRARY)
    yield from lab_with(gpus, tmp_path_factory.mktemp("labs"))


@pytest.fixture(scope="module")
def dra_lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    for lab in lab_with(Gpus("v100", 8, "dra"), tmp_path_factory.mktemp("labs")):
        with kube_scheduler_of(lab, tmp_path_factory.mktemp("scheduler")):
            yield lab


@pytest.fixture(scope="module")
def plugin_pods(plugin_lab: Lab) -> Lab:
    """The lab with the device plugin, and pods there: `one`, and `more` with a container that only names claims."""
    two = {"limits": {"nvidia.com/gpu": "2"}}
    create(plugin_lab, pod("one", [ONE_GPU], nodeName=NODE), pod("more", [ONE_GPU, two, PART], nodeName=NODE))
    wait_until_ready(plugin_lab, "one", "more")
    return plugin_lab


@pytest.fixture(scope="module")
def claim_pods(dra_lab: Lab) -> Lab:
    """The lab with the DRA driver, and a pod for each version of claims; their last container has no claim."""
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
    """What a pod says to have half of a GPU."""
    wish = {"deviceClassName": "gpu.nvidia.com", "capacity": {"requests": {"memory": "16Gi"}}}
    template = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": "half"},
        "spec": {"spec": {"devices": {"requests": [{"name": "gpu", "exactly": wish}]}}},
    }
    create(dra_lab, template)
    return [{"name": "gpu", "resourceClaimTemplateName": "half"}]


def gpus_to_be_had(lab: Lab) -> str:
    shown: str = read(lab, "node", NODE)["status"]["allocatable"]["nvidia.com/gpu"]
    return shown


def devices(lab: Lab) -> list[dict[str, Any]]:
    (item,) = read(lab, "resourceslices")["items"]
    return sorted(item["spec"]["devices"], key=lambda device: str(device["name"]))


def tainted(lab: Lab) -> set[str]:
    return {
        f"{device['name']} {taint['key']}" for device in devices(lab) for taint in device.get("taints", ())
    }


def claimed_uuids(lab: Lab, claim: str) -> list[str]:
    by_name = {device["name"]: device["attributes"]["uuid"]["string"] for device in devices(lab)}
    results = read(lab, "resourceclaim", claim)["status"]["allocation"]["devices"]["results"]
    return sorted(by_name[result["device"]] for result in results)


def test_the_plugin_tells_of_eight_gpus(plugin_lab: Lab) -> None:
    status = read(plugin_lab, "node", NODE)["status"]
    assert status["capacity"]["nvidia.com/gpu"] == status["allocatable"]["nvidia.com/gpu"] == "8"
    assert read(plugin_lab, "resourceslices")["items"] == []


def test_containers_see_the_gpus_that_the_kubelet_gave_them(plugin_pods: Lab) -> None:
    checkpoint = (
        plugin_pods.state_directory
        / "realnodes"
        / NODE
        / "kubelet/device-plugins/kubelet_internal_checkpoint"
    )
    entries = json.loads(checkpoint.read_text())["Data"]["PodDeviceEntries"]
    names = {read(plugin_pods, "pod", name)["metadata"]["uid"]: name for name in ("one", "more")}
    allotted = {
        (names[entry["PodUID"]], entry["ContainerName"]): sorted(
            uuid for uuids in entry["DeviceIDs"].values() for uuid in uuids
        )
        for entry in entries
    }
    assert sorted(map(len, allotted.values())) == [1, 1, 2]
    assert {key: uuids_seen(plugin_pods, *key) for key in allotted} == allotted
    assert len({uuid for uuids in allotted.values() for uuid in uuids}) == 4
    assert "nvidia" not in kubectl(plugin_pods, "exec", "more", "-c", "c2", "--", "ls", "/dev")
    cuda = f"/usr/lib64/libcuda.so.{DRIVER_VERSION}"
    size = kubectl(plugin_pods, "exec", "one", "--", "stat", "-L", "-c", "%s", cuda)
    assert int(size) == gpu_pods.SOME_LIBRARY.stat().st_size


def pod_resources(lab: Lab, directory: Path) -> set[tuple[str, str, str]]:
    """Pod, container and device, as the kubelet tells agents."""
    near = directory / "near"  # the path of a socket is short
    near.symlink_to(lab.state_directory / "realnodes" / NODE / "kubelet" / "pod-resources")
    answer = asyncio.run(list_devices(near / "kubelet.sock"))
    return {(held.holder.pod, held.holder.container, held.device) for held in answer}


def test_agents_are_told_of_the_gpus_that_the_containers_see(plugin_pods: Lab, tmp_path: Path) -> None:
    containers = (("one", "c0"), ("more", "c0"), ("more", "c1"))
    seen = {(*container, uuid) for container in containers for uuid in uuids_seen(plugin_pods, *container)}
    assert pod_resources(plugin_pods, tmp_path) == seen


def test_a_gpu_with_an_error_and_a_lost_one_are_no_longer_to_be_had(
    plugin_lab: Lab, eventually: Eventually
) -> None:
    gpus = NodeGpus(plugin_lab)
    gpus.send_xid("5", 48)
    eventually(lambda: gpus_to_be_had(plugin_lab) == "7", "seven GPUs are left")
    gpus.lose("6")
    eventually(lambda: gpus_to_be_had(plugin_lab) == "6", "six GPUs are left")
    assert [state.index for state in gpus.states() if state.changes] == [5, 6]
    gpus.restore("all")
    gpus.restart_plugin()
    eventually(lambda: gpus_to_be_had(plugin_lab) == "8", "a plugin that was started again has all")


def test_a_lab_that_runs_with_other_gpus_is_another_one(plugin_lab: Lab) -> None:
    directory = plugin_lab.state_directory.parent
    with pytest.raises(LabConflict, match="GPUs v100x8 by device-plugin, not v100x4 by device-plugin"):
        start("gpus", nodes=0, real_nodes=1, state_dir=directory, gpus=Gpus("v100", 4, "device-plugin"))


@pytest.fixture(scope="module")
def parts_site(plugin_lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[parts.Site]:
    """The lab with the device plugin, where an agent and muster run, with a project for parts of GPUs."""
    with parts.site(plugin_lab, tmp_path_factory.mktemp("s")) as site:
        must_all(plugin_lab.kubeconfig, "project create team-b -g 8")
        yield site


def reservations(lab: Lab) -> list[str]:
    shown = read(lab, "pods", "-n", names.SYSTEM_NAMESPACE, "-l", names.RESERVATION_LABEL)["items"]
    return [one["metadata"]["name"] for one in shown]


def test_parts_of_a_gpu_see_the_gpu_that_is_held_for_them_and_nobody_else_has_it(
    parts_site: parts.Site, eventually: Eventually
) -> None:
    lab = parts_site.lab
    submit_parts(lab, left="-g 0.5", right="-g 0.5", large="-g 0.6", memory="--gpu-memory 8Gi", whole="-g 1")
    bound = {
        one["metadata"]["labels"][names.WORKLOAD_LABEL]: one
        for one in read(lab, "pods", "-n", PARTS)["items"]
    }
    held = {device.holder.pod: device.device for device in parts_site.held()}
    by_uid = {
        one["metadata"]["uid"]: held[one["metadata"]["name"]]
        for one in read(lab, "pods", "-n", names.SYSTEM_NAMESPACE)["items"]
    }
    seen = {}
    for job in ("left", "right", "large", "memory"):
        name, annotations = bound[job]["metadata"]["name"], bound[job]["metadata"]["annotations"]
        seen[job] = kubectl(
            lab, "exec", "-n", PARTS, name, "--", "sh", "-c", "echo $NVIDIA_VISIBLE_DEVICES"
        ).strip()
        assert seen[job] == annotations[names.GPU_UUIDS_ANNOTATION]
        assert seen[job] == by_uid[annotations[names.GPU_RESERVATIONS_ANNOTATION]]
        index = int(annotations[names.GPU_DEVICES_ANNOTATION])
        assert parts_site.gpus.states()[index].uuid == seen[job]
    assert seen["left"] == seen["right"] != seen["large"] == seen["memory"]
    assert held[bound["whole"]["metadata"]["name"]] not in seen.values()
    kubectl(lab, "delete", "job", "--all", "-n", PARTS, "--cascade=orphan")
    kubectl(lab, "delete", "pod", "--all", "-n", PARTS, "--now")
    eventually(lambda: reservations(lab) == [], "no reservation is left")
    eventually(
        lambda: PARTS not in {device.holder.namespace for device in parts_site.held()}, "all GPUs are free"
    )


def act(site: parts.Site, seed: int, *, count: int, restarts: Sequence[str], settle: int) -> None:
    actions = RandomActions(site, PARTS, seed)
    asyncio.run(actions.run(script(count, restarts, settle, seed)))
    print(actions.figures)
    assert actions.figures.bound_parts
    assert actions.figures.bound_whole
    assert len(actions.figures.bound_parts | actions.figures.bound_whole) >= count // 20
    assert not any("Traceback" in site.log(name) for name in ("operator", "agent"))


def test_random_actions_give_no_gpu_to_two_owners(parts_site: parts.Site) -> None:
    act(parts_site, 1, count=60, restarts=("operator", "plugin"), settle=3)


@pytest.mark.rare
@pytest.mark.parametrize("seed", range(2, 6))
def test_2000_random_actions_give_no_gpu_to_two_owners(parts_site: parts.Site, seed: int) -> None:
    act(parts_site, seed, count=500, restarts=RESTARTS * 4, settle=60)


@pytest.mark.rare  # a minute, until the agent looks at its Node
def test_a_node_that_is_registered_anew_gives_parts_of_its_gpus_again(
    parts_site: parts.Site, eventually: Eventually
) -> None:
    """Its pods, their reservation and what the agent wrote are gone with it."""
    lab = parts_site.lab
    submit_parts(lab, before="-g 0.5")
    uid = read(lab, "node", NODE)["metadata"]["uid"]
    kubectl(lab, "delete", "job", "--all", "-n", PARTS, "--cascade=orphan")
    kubectl(lab, "delete", "node", NODE)
    parts_site.kill_kubelet()
    kubectl(lab, "wait", "--for=create", f"node/{NODE}", "--timeout=60s")
    kubectl(lab, "wait", "--for=condition=Ready", f"node/{NODE}", "--timeout=60s")
    assert read(lab, "node", NODE)["metadata"]["uid"] != uid

    def owner() -> str:
        items = read(lab, "gpunodes")["items"]
        return str(items[0]["metadata"]["ownerReferences"][0]["uid"]) if items else ""

    eventually(
        lambda: owner() == read(lab, "node", NODE)["metadata"]["uid"], "the agent writes for the new Node"
    )
    kubectl(lab, "delete", "pod", "--all", "-n", PARTS, "--now")
    eventually(lambda: gpus_to_be_had(lab) == "8", "the plugin has registered again")
    submit_parts(lab, after="-g 0.5")
    (bound,) = read(lab, "pods", "-n", PARTS)["items"]
    held = {device.holder.pod: device.device for device in parts_site.held()}
    (reservation,) = reservations(lab)
    assert bound["metadata"]["annotations"][names.GPU_UUIDS_ANNOTATION] == held[reservation]
    kubectl(lab, "delete", "job", "--all", "-n", PARTS, "--cascade=orphan")
    kubectl(lab, "delete", "pod", "--all", "-n", PARTS, "--now")
    eventually(lambda: reservations(lab) == [], "no reservation is left")


def test_the_driver_publishes_what_was_recorded(dra_lab: Lab) -> None:
    published = devices(dra_lab)
    sockets = [device["attributes"].pop("resource.kubernetes.io/pcieRoot")["string"] for device in published]
    numa_nodes = [device["attributes"].pop("resource.kubernetes.io/numaNode")["int"] for device in published]
    assert sockets == ["pci0000:00"] * 4 + ["pci0000:80"] * 4
    assert numa_nodes == [0] * 4 + [1] * 4
    assert published == yaml.safe_load(RECORDED.read_text())["devices"]
    assert "nvidia.com/gpu" not in read(dra_lab, "node", NODE)["status"]["capacity"]


@pytest.mark.parametrize("version", CLAIM_VERSIONS)
def test_the_containers_of_a_claim_see_one_gpu(version: str, claim_pods: Lab) -> None:
    claimed = claimed_uuids(claim_pods, f"shared-{version}")
    assert len(claimed) == 1
    assert uuids_seen(claim_pods, version, "c0") == uuids_seen(claim_pods, version, "c1") == claimed
    assert "nvidia" not in kubectl(claim_pods, "exec", version, "-c", "c2", "--", "ls", "/dev")


def test_agents_are_told_of_the_device_of_a_claim(claim_pods: Lab, tmp_path: Path) -> None:
    names = {device["attributes"]["uuid"]["string"]: device["name"] for device in devices(claim_pods)}
    containers = [(version, container) for version in CLAIM_VERSIONS for container in ("c0", "c1")]
    seen = {(*each, names[uuid]) for each in containers for uuid in uuids_seen(claim_pods, *each)}
    assert len(seen) == 4
    answer = pod_resources(claim_pods, tmp_path)
    assert {held for held in answer if held[0] in CLAIM_VERSIONS} == seen


def test_two_halves_share_a_gpu_and_a_pod_gets_whole_ones_by_the_classes_resource(
    dra_lab: Lab, halves: list[dict[str, Any]]
) -> None:
    names = ("half-1", "half-2")
    create(dra_lab, pod("whole", [ONE_GPU]), pod("half-1", [FROM_CLAIM], resourceClaims=halves))
    wait_until_ready(dra_lab, "half-1", "whole")
    # where kube-scheduler has not written down the first half yet, the second may go to another GPU
    create(dra_lab, pod("half-2", [FROM_CLAIM], resourceClaims=halves))
    wait_until_ready(dra_lab, "half-2")
    one, other = (uuids_seen(dra_lab, name) for name in names)
    assert one == other
    claim = read(dra_lab, "pod", "whole")["status"]["extendedResourceClaimStatus"]["resourceClaimName"]
    assert uuids_seen(dra_lab, "whole") == claimed_uuids(dra_lab, claim) != one


def page(name: str, version: str, **spec: object) -> list[dict[str, Any]]:
    """The manifests of Google Distributed Cloud's page on dynamic resource allocation, as printed, by another name."""
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
        assert re.fullmatch("nvidia[0-7]", gpu)
        assert (passed, other) == (
            "Test PASSED",
            [gpu, " Detected 1 CUDA Capable device(s)", "Result = PASS"],
        )
        for status in pod["status"]["containerStatuses"]:
            configuration = runtime_configuration(dra_lab, NODE, status["containerID"].partition("://")[2])
            context = configuration["linux"]["security_context"]
            expected = {"type": "nvidia_container_t"} if name == "rhel" else None
            assert context.get("selinux_options") == expected


def test_what_a_gpu_does_is_seen_in_containers_and_by_the_driver(
    claim_pods: Lab, eventually: Eventually
) -> None:
    gpus = NodeGpus(claim_pods)
    gpus.use("0", 93, [Process(4242, "python", 10240)])
    gpus.send_xid("5", 48)
    eventually(lambda: tainted(claim_pods) == {"gpu-5 gpu.nvidia.com/xid"}, "the driver taints the GPU")
    overrides = kubectl(claim_pods, "exec", "v1", "-c", "c0", "--", "cat", "/config/overrides.yaml")
    assert yaml.safe_load(overrides)["devices"]["0"]["processes"][0]["pid"] == 4242
    gpus.lose("2")
    lost = {"gpu-2 gpu.nvidia.com/xid", "gpu-5 gpu.nvidia.com/xid"}
    eventually(lambda: tainted(claim_pods) == lost, "the driver taints the lost GPU, and no other")
    gpus.restore("all")
    assert all(not state.changes for state in gpus.states())


def test_a_claim_outlives_a_reboot_of_its_node(
    dra_lab: Lab, halves: list[dict[str, Any]], eventually: Eventually
) -> None:
    create(dra_lab, pod("rebooted", [FROM_CLAIM], resourceClaims=halves, restartPolicy="Always"))
    wait_until_ready(dra_lab, "rebooted")
    before = uuids_seen(dra_lab, "rebooted")
    dra_lab.restart(NODE, seconds=120)

    def restarts() -> int:
        status = read(dra_lab, "pod", "rebooted")["status"]["containerStatuses"][0]
        return int(status["restartCount"])

    eventually(lambda: restarts() == 1, "the container was started again")
    wait_until_ready(dra_lab, "rebooted")
    assert uuids_seen(dra_lab, "rebooted") == before


def gpus_in(lab: Lab, pod_name: str, container: str, namespace: str = NAMESPACE) -> list[int]:
    """The numbers of the device files of GPUs in a container of a project's namespace."""
    shown = kubectl(lab, "exec", "-n", namespace, pod_name, "-c", container, "--", "ls", "/dev")
    return sorted(int(name[6:]) for name in shown.split() if re.fullmatch("nvidia[0-9]+", name))


@pytest.fixture(scope="module")
def muster_lab(dra_lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """The lab with the DRA driver, where muster runs."""
    directory = tmp_path_factory.mktemp("operator")
    account = asyncio.run(prepare(dra_lab.kubeconfig, directory / "kubeconfig"))
    with operator(account, directory / "log"):
        yield dra_lab


def test_muster_gives_devices_to_claims_and_for_whole_gpus(muster_lab: Lab) -> None:
    container = {"image": images.SHELL, "command": ["sleep", "3600"], "resources": FROM_CLAIM}
    claim = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": "one", "namespace": NAMESPACE},
        "spec": {
            "devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu.nvidia.com"}}]}
        },
    }
    user = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "one", "namespace": NAMESPACE},
        "spec": {
            "schedulerName": "muster",
            "terminationGracePeriodSeconds": 0,
            "resourceClaims": [{"name": "gpu", "resourceClaimName": "one"}],
            "containers": [{"name": "c0", **container}, {"name": "c1", **container}],
        },
    }
    must_all(
        muster_lab.kubeconfig,
        "project create team-a -g 3",
        f"submit whole -p team-a -g 2 -i {images.SHELL} --command -- sleep 3600",
    )
    create(muster_lab, claim, user)
    everything = ("pod", "--all", "-n", NAMESPACE, "--timeout=120s")
    kubectl(muster_lab, "wait", "--for=condition=Ready", *everything)
    pods = read(muster_lab, "pods", "-n", NAMESPACE)["items"]
    claims = read(muster_lab, "resourceclaims", "-n", NAMESPACE)["items"]
    held: dict[str, list[int]] = {}
    for bound in pods:
        name = bound["metadata"]["name"]
        (mine,) = (
            shown["status"]
            for shown in claims
            if [each["name"] for each in shown["status"]["reservedFor"]] == [name]
        )
        results = mine["allocation"]["devices"]["results"]
        held[name] = sorted(int(result["device"].removeprefix("gpu-")) for result in results)
        written = bound["metadata"]["annotations"]["muster.dev/gpu-devices"]
        assert [int(text) for text in written.split(",")] == held[name]
        for shown in bound["spec"]["containers"]:
            assert gpus_in(muster_lab, name, shown["name"]) == held[name]
    assert sorted(map(len, held.values())) == [1, 2]
    assert len({gpu for gpus in held.values() for gpu in gpus}) == 3
    must_all(muster_lab.kubeconfig, "delete whole -p team-a")
    kubectl(muster_lab, "delete", "pod", "--all", "-n", NAMESPACE, "--now")


PARTS = "muster-team-b"


def submit_parts(lab: Lab, **jobs: str) -> None:
    command = f"-p team-b -i {images.SHELL} --command -- sleep 3600"
    must_all(lab.kubeconfig, *(f"submit {name} {options} {command}" for name, options in jobs.items()))
    kubectl(lab, "wait", "--for=condition=Ready", "pod", "--all", "-n", PARTS, "--timeout=120s")


def gpus_of_parts(lab: Lab, *jobs: str) -> dict[str, list[list[int]]]:
    """By job, the GPUs that the containers of its pods see, which are those of the claims and annotations."""
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
        seen = gpus_in(lab, name, job, PARTS)
        assert sorted(int(result["device"].removeprefix("gpu-")) for result in results[name]) == seen
        assert bound["metadata"]["annotations"]["muster.dev/gpu-devices"] == ",".join(map(str, seen))
        held.setdefault(job, []).append(seen)
    return held


def test_muster_gives_parts_of_gpus_by_claims(muster_lab: Lab) -> None:
    must_all(muster_lab.kubeconfig, "project create team-b -g 4")
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
