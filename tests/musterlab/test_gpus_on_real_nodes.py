"""NVIDIA's device plugin on a real kubelet: the GPUs that it reports are those that containers see."""

import asyncio
import json
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import pytest

from musterlab.cluster import Lab, start
from musterlab.errors import LabConflict
from musterlab.gpus.live import NodeGpus
from musterlab.gpus.models import Gpus, driver_version
from orchestrator import names
from tests.control.operators import must_all
from tests.musterlab import parts
from tests.musterlab.gpu_labs import (
    NODE,
    ONE_GPU,
    PARTS,
    Eventually,
    check_queries,
    lab_with,
    pod_resources,
    submit_parts,
)
from tests.musterlab.gpu_pods import create, kubectl, pod, read, uuids_seen, wait_until_ready
from tests.musterlab.node_processes import processes
from tests.musterlab.nvml_facts import facts_folder
from tests.musterlab.random_parts import RESTARTS, RandomActions, script

pytestmark = [pytest.mark.lab, pytest.mark.real_nodes]

PART = {"limits": {"muster.dev/gpu-part": "1"}}


@pytest.fixture(scope="module", autouse=True)
def _containers_can_query() -> None:
    check_queries()


@pytest.fixture(scope="module")
def cuda_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return an empty library with the name of the driver's libcuda. No test calls it."""
    library = tmp_path_factory.mktemp("cuda") / "libcuda.so"
    command = ["cc", "-shared", "-x", "c", "/dev/null", "-Wl,-soname,libcuda.so.1", "-o", str(library)]
    subprocess.run(command, check=True)
    return library


@pytest.fixture(scope="module")
def plugin_lab(cuda_library: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    gpus = Gpus("v100", 8, "device-plugin", cuda_library=cuda_library)
    yield from lab_with(gpus, tmp_path_factory.mktemp("labs"))


@pytest.fixture(scope="module")
def plugin_pods(plugin_lab: Lab) -> Lab:
    """Return the lab with the device plugin, and the pods `one`, and `more` with a container that only names claims."""
    two = {"limits": {"nvidia.com/gpu": "2"}}
    create(plugin_lab, pod("one", [ONE_GPU], nodeName=NODE), pod("more", [ONE_GPU, two, PART], nodeName=NODE))
    wait_until_ready(plugin_lab, "one", "more")
    return plugin_lab


def gpus_to_be_had(lab: Lab) -> str:
    shown: str = read(lab, "node", NODE)["status"]["allocatable"]["nvidia.com/gpu"]
    return shown


def test_the_plugin_tells_of_eight_gpus(plugin_lab: Lab) -> None:
    status = read(plugin_lab, "node", NODE)["status"]
    assert status["capacity"]["nvidia.com/gpu"] == status["allocatable"]["nvidia.com/gpu"] == "8"
    assert read(plugin_lab, "resourceslices")["items"] == []


def test_containers_see_the_gpus_that_the_kubelet_gave_them(plugin_pods: Lab, cuda_library: Path) -> None:
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
    cuda = f"/usr/lib64/libcuda.so.{driver_version()}"
    size = kubectl(plugin_pods, "exec", "one", "--", "stat", "-L", "-c", "%s", cuda)
    assert int(size) == cuda_library.stat().st_size


def test_agents_are_told_of_the_gpus_that_the_containers_see(plugin_pods: Lab, tmp_path: Path) -> None:
    containers = (("one", "c0"), ("more", "c0"), ("more", "c1"))
    seen = {(*container, uuid) for container in containers for uuid in uuids_seen(plugin_pods, *container)}
    assert pod_resources(plugin_pods, tmp_path) == seen


def edits(specification: dict[str, Any]) -> dict[str, Any]:
    """Return the edits for containers in a CDI specification, without paths and versions of one machine."""
    common = specification["containerEdits"]
    return {
        "kind": specification["kind"],
        "devices": {
            device["name"]: [
                (node["path"], node["major"], node.get("minor", 0))
                for node in device["containerEdits"]["deviceNodes"]
            ]
            for device in specification["devices"]
        },
        "common": sorted(
            (node["path"], node["major"], node.get("minor", 0)) for node in common["deviceNodes"]
        ),
        "environment": sorted(common["env"]),
        "hooks": [hook["args"][:2] for hook in common["hooks"]],
        "links": [
            argument
            for argument in common["hooks"][0]["args"]
            if "::" in argument and "nvidia-ml" in argument
        ],
        "mounts": sorted((mount["containerPath"], tuple(mount["options"])) for mount in common["mounts"]),
    }


def test_the_cdi_specification_is_the_one_that_was_recorded(plugin_lab: Lab) -> None:
    recorded = edits(json.loads((facts_folder() / "observed" / "cdi-device-plugin.yaml").read_text()))
    of_a_newer_plugin = ["nvidia-cdi-hook", "update-application-profile"]  # the recording is of 0.20.0
    assert recorded["hooks"].pop() == of_a_newer_plugin
    (pid, *_) = processes(plugin_lab, NODE, "containerd")
    path = f"/proc/{pid}/root/run/cdi/k8s.device-plugin.nvidia.com-gpu.json"
    assert edits(json.loads(Path(path).read_text())) == recorded


PAIRS: Final = tuple(f"pair-{number}" for number in range(4))


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """Yield a lab with four pods of two GPUs each, created one after the other."""
    for lab in lab_with(Gpus("v100", 8, "device-plugin"), tmp_path_factory.mktemp("labs")):
        for name in PAIRS:
            create(lab, pod(name, [{"limits": {"nvidia.com/gpu": "2"}}], nodeName=NODE))
            wait_until_ready(lab, name)
        yield lab


def links_between(uuids: Iterable[str]) -> int:
    """Return the number of NVLinks between two GPUs of a DGX-1."""
    one, other = (int(uuid[-1]) for uuid in uuids)
    links: list[int] = Gpus("v100", 8, "device-plugin").of_node(1)[one]["links"]
    return links.count(other)


def test_the_plugin_chooses_pairs_with_two_nvlinks_as_was_recorded(pairs: Lab, tmp_path: Path) -> None:
    """Of several pairs with two links it may choose any pair, and of single GPUs any GPU."""
    recorded = {
        entry["name"]: [device["device_ids"][0] for device in entry["containers"][0]["devices"]]
        for entry in json.loads((facts_folder() / "observed" / "podresources-device-plugin.json").read_text())
    }
    chosen: dict[str, set[str]] = {name: set() for name in PAIRS}
    for name, _, uuid in pod_resources(pairs, tmp_path):
        chosen[name].add(uuid)
    assert {links_between(uuids) for uuids in chosen.values()} == {links_between(recorded["smi2"])} == {2}


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
    """Yield the lab with the device plugin, an agent and muster, and a project for GPU fractions."""
    with parts.site(plugin_lab, tmp_path_factory.mktemp("s")) as site:
        must_all(plugin_lab.kubeconfig, "project create team-b -g 8")
        yield site


def reservations(lab: Lab) -> list[str]:
    shown = read(lab, "pods", "-n", names.SYSTEM_NAMESPACE, "-l", names.RESERVATION_LABEL)["items"]
    return [one["metadata"]["name"] for one in shown]


def test_fractions_of_a_gpu_see_their_reserved_gpu_and_no_other_pod_has_it(
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


@pytest.mark.rare  # takes a minute, until the agent reads its Node again
def test_a_node_that_is_registered_anew_gives_parts_of_its_gpus_again(
    parts_site: parts.Site, eventually: Eventually
) -> None:
    """Its pods, their reservation and the agent's GpuNode vanished with it."""
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
