"""The names of NVIDIA's DRA driver, device plugin and feature discovery that muster uses exist there.

The names are read from the roles `dra` and `device_plugin`, the matrix, the lab and the whole product.
"""

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from deployment.matrix import images_of, tables
from musterlab.gpus import stack
from orchestrator import names as muster_names
from orchestrator.agent.failures import PROGRAMS_XIDS
from tests.upstream import facts
from tests.upstream.names import ROOT, found, role_file, task_text, tasks
from validation.judge.api import api_request
from validation.witness import names as witness_names

Facts = dict[str, Any]
DEFAULTS = role_file("dra", "defaults/main.yml")
NEWEST = tables()["dra"][0]


def _values() -> dict[str, Any]:
    """Return all values that the role may give to the chart, with both groups of feature gates merged."""
    (task,) = (task for task in tasks("dra") if task["name"] == "Install the driver")
    always, sharing = task["vars"]["dra_all_values"], task["vars"]["dra_sharing_values"]
    return {**always, **sharing, "featureGates": {**always["featureGates"], **sharing["featureGates"]}}


def _paths(values: dict[str, Any], before: str = "") -> Iterator[str]:
    for name, value in values.items():
        if isinstance(value, dict):
            yield from _paths(value, f"{before}{name}.")
        else:
            yield f"{before}{name}"


VALUES = sorted(path for path in _paths(_values()) if not path.startswith("featureGates."))
GATES = sorted(
    {*_values()["featureGates"], *re.findall(r"(\w+)=true", " ".join(stack._dra_driver("node", "memory")))}
)


@pytest.mark.parametrize("value", VALUES)
def test_a_value_of_the_role_is_one_of_the_chart(dra_driver: Facts, value: str) -> None:
    assert value in dra_driver["chart"]["values"]


def _plugin_values() -> dict[str, Any]:
    (task,) = (task for task in tasks("device_plugin") if task["name"] == "Install the device plugin")
    values: dict[str, Any] = task["vars"]["device_plugin_all_values"]
    return values


@pytest.mark.parametrize("value", sorted(_paths(_plugin_values() | {"nodeSelector": ""})))
def test_a_value_of_the_role_device_plugin_is_one_of_the_chart(device_plugin: Facts, value: str) -> None:
    assert value in device_plugin["chart"]["values"]


def test_the_role_lets_the_kubelet_pass_the_files_of_devices(device_plugin: Facts) -> None:
    """Without them, systemd takes the devices from running containers when it reloads its units."""
    assert "PASS_DEVICE_SPECS" in device_plugin["device_plugin_flags"]["pass-device-specs"]["env"]
    containers = device_plugin["objects"]["daemonset-device-plugin.yml"][0]["containers"]
    assert any("PASS_DEVICE_SPECS" in container["env"] for container in containers)
    assert _plugin_values()["compatWithCPUManager"] is True


def test_the_device_plugin_is_the_one_that_deepops_names(deepops: Facts) -> None:
    defaults, row = role_file("device_plugin", "defaults/main.yml"), tables()["device_plugin"][0]
    assert defaults["device_plugin_version"] == row["release"]
    assert defaults["device_plugin_sha256"] == row["sha256"]
    for role, prefix in (("device-plugin", "plugin"), ("feature-discovery", "feature_discovery")):
        own = deepops["roles"][f"nvidia-k8s-gpu-{role}"]["variables"]["defaults/main.yml"]
        assert own[f"k8s_gpu_{prefix}_chart_version"] == row["release"]
        assert defaults["device_plugin_chart"].startswith(f"{own[f'k8s_gpu_{prefix}_helm_repo']}/")
    own = deepops["roles"]["nvidia-k8s-gpu-device-plugin"]["variables"]["defaults/main.yml"]
    assert defaults["device_plugin_release"] == own["k8s_gpu_plugin_release_name"]
    assert _plugin_values()["migStrategy"] == own["k8s_gpu_mig_strategy"]
    assert json.dumps(_plugin_values()["failOnInitError"]) == own["k8s_gpu_plugin_init_error"]


def test_the_chart_of_the_device_plugin_has_both_programs_and_its_images(device_plugin: Facts) -> None:
    chart = device_plugin["chart"]
    assert {"/usr/bin/gpu-feature-discovery", "/usr/bin/nvidia-device-plugin"} <= set(
        device_plugin["programs_of_image"]
    )
    images = images_of("device_plugin", tables()["device_plugin"][0]["release"])
    assert f"{chart['values']['image.repository']}:v0.19.3" in images
    (dependency,) = chart["dependencies"]
    assert any(f"/{dependency['name']}:" in image for image in images), (
        "feature discovery needs it for labels"
    )


@pytest.mark.parametrize("gate", GATES)
def test_a_feature_gate_of_the_role_or_the_lab_exists(dra_driver: Facts, gate: str) -> None:
    assert gate in dra_driver["feature_gates"]
    first = tuple(int(part) for part in dra_driver["feature_gates"][gate]["since"].split("."))
    oldest = min(tuple(int(part) for part in row["release"].split(".")[:2]) for row in tables()["dra"])
    # the role refuses to set the gate for an older release
    since = re.findall(r"dra_version is version\('(\d+)\.(\d+)', '>='\)", task_text("dra"))
    assert first <= oldest or (
        gate == "ConsumableShares" and [tuple(map(int, each)) for each in since] == [first]
    )


@pytest.mark.versions
def test_the_newest_release_of_the_matrix_is_that_of_the_facts(dra_driver: Facts) -> None:
    assert (
        dra_driver["version"].removeprefix("v").partition("-")[0]
        == NEWEST["release"]
        == DEFAULTS["dra_version"]
    )
    assert dra_driver["source"]["commit"][:7] in NEWEST["source"]


def test_the_chart_is_where_it_is_published(dra_driver: Facts) -> None:
    assert DEFAULTS["dra_chart"] == dra_driver["chart_location"]
    assert DEFAULTS["dra_release"] == dra_driver["chart"]["name"]


@pytest.mark.versions
def test_the_matrix_allows_no_kubernetes_that_the_chart_refuses(dra_driver: Facts) -> None:
    (least,) = re.findall(r"^>=(\d+)\.(\d+)", dra_driver["chart"]["kubeVersion"])
    for row in tables()["dra"]:
        (promised,) = re.findall(r"^>=(\d+)\.(\d+)", row["kubernetes"])
        assert tuple(map(int, promised)) >= tuple(map(int, least))


def _class(dra_driver: Facts) -> Facts:
    (found,) = dra_driver["objects"]["deviceclass-gpu.yaml"]
    return dict(found)


def test_the_class_of_gpus_gives_whole_ones_by_their_resource(dra_driver: Facts) -> None:
    assert _class(dra_driver)["spec"]["extendedResourceName"] == muster_names.GPU_RESOURCE
    assert witness_names.GPU_RESOURCE == muster_names.GPU_RESOURCE
    assert _class(dra_driver)["name"] == api_request.DEVICE_CLASS
    (selector,) = _class(dra_driver)["spec"]["selectors"]
    assert f"device.driver == '{muster_names.GPU_DRIVER}'" in selector["cel"]["expression"]


@pytest.mark.parametrize("name", sorted(found(r"(?<![\w.-])(?:[a-z-]+\.)*gpu\.nvidia\.com\b")))
def test_a_name_of_the_driver_is_its_driver_or_a_class(dra_driver: Facts, name: str) -> None:
    classes = {
        each["name"]
        for group in dra_driver["objects"].values()
        for each in group
        if each["kind"] == "DeviceClass"
    }
    assert name in classes | {dra_driver["constants"]["DriverName"]}


PUBLISHED = (ROOT / "orchestrator" / "observe" / "published_gpus.py").read_text()


@pytest.mark.parametrize("attribute", sorted({*re.findall(r'_text\([^,]+, "(\w+)"\)', PUBLISHED), "type"}))
def test_an_attribute_that_muster_reads_is_published(dra_driver: Facts, attribute: str) -> None:
    assert dra_driver["attributes"]["gpu, vfio"][attribute] == "string"


def test_the_memory_of_a_gpu_is_a_capacity_that_is_published(dra_driver: Facts) -> None:
    read = set(re.findall(r'for name in \("(\w+)", f"\{GPU_DRIVER\}/(\w+)"\)', PUBLISHED)[0])
    assert read <= set(dra_driver["capacities"])
    assert f"{read.pop()}:" in facts.observed("resourceslice-memory.yaml")


def test_the_kind_of_a_gpu_is_the_drivers_own(dra_driver: Facts) -> None:
    assert f'== "{dra_driver["constants"]["GpuDeviceType"]}"' in PUBLISHED


def test_the_driver_reads_the_shares_of_the_role(dra_driver: Facts) -> None:
    (plugin,) = dra_driver["objects"]["kubeletplugin.yaml"]
    assert "CONSUMABLE_SHARES" in plugin["env"]
    assert (
        dra_driver["flags"]["consumable-shares"]["default"] == DEFAULTS["dra_consumable_shares"] == "disabled"
    )


# Flags from packages of the driver. The facts list only flags in the main file of the program.
_SHARED_FLAGS = {"kubeconfig": "pkg/flags/kubeclient.go", "feature-gates": "pkg/flags/featuregates.go"}


def _flags(words: list[str]) -> list[str]:
    return sorted({word.removeprefix("--").partition("=")[0] for word in words if word.startswith("--")})


def _known(flags: Facts) -> set[str]:
    return {name for flag, each in flags.items() for name in (flag, *each.get("aliases", []))}


@pytest.mark.parametrize("flag", _flags(stack._dra_driver("node", "memory")))
def test_a_flag_that_the_lab_gives_the_driver_exists(dra_driver: Facts, flag: str) -> None:
    assert flag in _known(dra_driver["flags"]) | _SHARED_FLAGS.keys()


@pytest.mark.parametrize("source", ["trees"], indirect=True, scope="session")
@pytest.mark.parametrize("flag", _SHARED_FLAGS)
def test_a_flag_of_a_package_of_the_driver_exists(dra_driver: Facts, flag: str) -> None:
    assert f'"{flag}"' in (facts.checkout("dra_driver") / _SHARED_FLAGS[flag]).read_text()


@pytest.mark.parametrize("flag", _flags(stack._device_plugin()))
def test_a_flag_that_the_lab_gives_the_device_plugin_exists(device_plugin: Facts, flag: str) -> None:
    assert flag in _known(device_plugin["device_plugin_flags"])


def test_devices_reach_containers_by_a_strategy_of_the_device_plugin(device_plugin: Facts) -> None:
    (strategy,) = re.findall(r"--device-list-strategy=(\S+)", " ".join(stack._device_plugin()))
    assert strategy in device_plugin["constants"].values()


def test_faults_of_programs_are_those_that_nvidia_ignores(dra_driver: Facts, device_plugin: Facts) -> None:
    assert set(device_plugin["ignored_xids"]) == set(dra_driver["ignored_xids"]) == PROGRAMS_XIDS


LABELS = found(r"(?<![\w./-])nvidia\.com/[\w.-]*\w")


@pytest.mark.parametrize("label", sorted(LABELS))
def test_a_name_under_nvidias_domain_is_one_of_nvidia(
    device_plugin: Facts, dra_driver: Facts, label: str
) -> None:
    text = json.dumps([device_plugin, dra_driver])
    known = set(re.findall(r"nvidia\.com/[\w.-]*\w", text))
    resource = muster_names.GPU_RESOURCE
    known |= {f"{resource}.{suffix}" for suffix in device_plugin["suffixes_of_resource_labels"]}
    known.add(resource + device_plugin["constants"]["DefaultSharedResourceNameSuffix"])
    known |= set(re.findall(r"(?m)^(nvidia\.com/[\w.-]*\w)=", facts.observed("gfd-labels.txt")))
    assert label in known or f"{label}." in text, f"{LABELS[label]} names {label}"


def test_nodes_are_marked_with_a_label_that_the_charts_select(
    device_plugin: Facts, dra_driver: Facts
) -> None:
    for role, facts_of in (("dra", dra_driver), ("device_plugin", device_plugin)):
        (task,) = (task for task in tasks(role) if task["name"] == "Mark the nodes that have GPUs")
        ((label, value),) = task["kubernetes.core.k8s"]["definition"]["metadata"]["labels"].items()
        wanted = {"key": label, "operator": "In", "values": [value]}
        assert json.dumps(wanted) in json.dumps(facts_of["chart"]["values"])
    assert _plugin_values()["nodeSelector"] == {label: value}


def test_a_device_plugin_is_recognized_by_its_name(device_plugin: Facts, deepops: Facts) -> None:
    """The roles refuse a cluster in which a DaemonSet of this name runs beside theirs."""
    (pattern,) = re.findall(r"'search', '([^']+)'", task_text("dra"))
    assert f'"search", "{pattern}"' in task_text("device_plugin")
    own = deepops["roles"]["nvidia-k8s-gpu-device-plugin"]["variables"]["defaults/main.yml"]
    for name in (device_plugin["chart"]["name"], own["k8s_gpu_plugin_release_name"]):
        assert re.search(pattern, name)


@pytest.mark.parametrize("value", sorted(found(r"(?<!\w)gpuResourcesEnabled\w+")))
def test_a_value_of_the_chart_that_a_message_names_exists(dra_driver: Facts, value: str) -> None:
    assert value in dra_driver["chart"]["values"]
