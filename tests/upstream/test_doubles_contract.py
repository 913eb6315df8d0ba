"""The doubles in the installer's tests use names of the projects that they stand in for."""

import json
import re
import tarfile
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.deployment import deepops_double, test_devices_in_a_lab, trident_double
from tests.deployment.hosts import stubs
from tests.upstream import facts
from tests.upstream.ansible_names import defaults
from tests.upstream.conftest import RELEASE
from tests.upstream.repository import KUBESPRAY, git
from tests.upstream.test_trident_contract import VALUES_OF_TRIDENT

Facts = dict[str, Any]
PLAYS = "".join(
    getattr(deepops_double, name) for name in ("_PLAY", "_DEVICES", "_UPGRADE", "_FACTS", "_SCALE", "_REMOVE")
)
OF_ANSIBLE = {"groups", "inventory_hostname", "serial"}
"""Variables of Ansible itself, and the extra variable of the upgrade."""


def _tracked(repository: Path) -> list[str]:
    return [
        path for path in git(repository, "ls-files").splitlines() if path not in (".gitmodules", KUBESPRAY)
    ]


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Return the repository of the double of DeepOps."""
    (tmp_path / "work").mkdir()
    path, _ = deepops_double.repository(
        tmp_path, tmp_path / "kubeconfig", tmp_path / "work", tmp_path / "kubectl"
    )
    return path


def test_the_files_of_the_double_are_files_of_deepops(
    deepops: Facts, kubespray: Facts, repository: Path
) -> None:
    assert set(_tracked(repository)) <= set(deepops["paths"]["files"])
    assert set(_tracked(repository / KUBESPRAY)) <= set(kubespray["paths"]["files"])
    assert git(repository, "tag") == RELEASE


@pytest.mark.parametrize("name", sorted(set(re.findall(r"\{\{\{\{ (\w+)", PLAYS)) - OF_ANSIBLE - {"lookup"}))
def test_a_variable_that_the_double_reads_is_one_of_kubespray(
    deepops: Facts, kubespray: Facts, name: str
) -> None:
    assert (
        name in defaults(deepops, kubespray)
        or name in kubespray["playbooks"]["playbooks/remove_node.yml"]["names"]
    )


@pytest.mark.parametrize(
    "group", sorted(set(re.findall(r"(?m)^- hosts: (\w+)(?::etcd)?$|groups\.(\w+)", PLAYS)))
)
def test_a_group_of_the_double_is_one_of_deepops(deepops: Facts, group: tuple[str, str]) -> None:
    groups = {name.partition(":")[0] for name in deepops["inventory_groups"]} | {"muster_gpu"}
    assert "".join(group) in groups


def test_the_double_upgrades_in_batches_as_kubespray_does(kubespray: Facts) -> None:
    (serial,) = re.findall(r'serial: "(.*)"', deepops_double._UPGRADE)
    plays = kubespray["playbooks"]["playbooks/upgrade_cluster.yml"]["plays"]
    assert serial.replace("{{{{", "{{").replace("}}}}", "}}") in {play.get("serial") for play in plays}


def test_the_double_refuses_the_window_of_ansible_of_kubespray(kubespray: Facts) -> None:
    (low, high) = re.findall(r"must be between (\S+) and (\S+) exclusive", PLAYS)[0]
    ansible = kubespray["ansible"]
    assert (low, high) == (ansible["minimal_ansible_version"], ansible["maximal_ansible_version"])


@pytest.fixture
def archive(tmp_path: Path) -> dict[str, list[Facts]]:
    """Return the objects in each file of the double of Trident's archive."""
    with tarfile.open(trident_double.archive(tmp_path / "archive.tar.gz")) as tar:
        files = {name: tar.extractfile(name) for name in tar.getnames()}
        return {name: list(yaml.safe_load_all(file.read())) for name, file in files.items() if file}


def test_the_archive_of_the_double_has_files_and_objects_of_trident(
    trident: Facts, archive: dict[str, list[Facts]]
) -> None:
    ((release, _),) = trident["sources"].items()
    published = trident["releases"][release]
    assert archive.keys() <= set(published["archive"])
    for name, documents in archive.items():
        known = published["manifests"][name.removeprefix("trident-installer/deploy/")]
        objects = {(each["kind"], each["name"]) for each in known}
        assert {(each["kind"], each["metadata"]["name"]) for each in documents} <= objects
    (image,) = re.findall(r'"image": "([^"]+)"', json.dumps(list(archive.values())))
    assert f"docker.io/{image}" in published["images"]


@pytest.mark.parametrize(("resource", "short"), [("ORCHESTRATORS", "torc"), ("BACKENDS", "tbc")])
def test_a_definition_of_the_double_is_one_of_trident(trident: Facts, resource: str, short: str) -> None:
    made = trident_double.definition(getattr(trident_double, resource), short)["spec"]
    ((_, sources),) = trident["sources"].items()
    objects = [each for group in sources["objects"].values() for each in group if "definition" in each]
    (known,) = (
        each["definition"] for each in objects if each["definition"]["names"]["kind"] == made["names"]["kind"]
    )
    assert (made["group"], made["scope"]) == (known["group"], known["scope"])
    assert made["names"]["plural"] == known["names"]["plural"]
    assert short in known["names"]["shortNames"]
    assert {each["name"] for each in made["versions"]} == {each["name"] for each in known["versions"]}


def test_the_double_of_trident_sets_values_of_trident(trident: Facts) -> None:
    text = Path(trident_double.__file__).read_text()
    said = set(re.findall(r'"(?:status|phase|lastOperationStatus)": "(\w+)"', text))
    assert said
    assert said <= VALUES_OF_TRIDENT.keys()
    fields = trident["sources"]["26.06.0"]["fields"]
    names = set(re.findall(r'"(phase|lastOperationStatus|message)":', text))
    assert names <= fields["TridentBackendConfigStatus"].keys()


def test_the_chart_of_the_double_makes_the_class_of_the_chart(dra_driver: Facts) -> None:
    (known,) = dra_driver["objects"]["deviceclass-gpu.yaml"]
    (made,) = test_devices_in_a_lab.OBJECTS
    assert (made["kind"], made["metadata"]["name"]) == (known["kind"], known["name"])  # type: ignore[index]
    assert made["spec"]["selectors"] == known["spec"]["selectors"]  # type: ignore[index]
    assert yaml.safe_load(test_devices_in_a_lab.CHART)["name"] == dra_driver["chart"]["name"]
    values = re.findall(r"\.Values\.(\w+)", test_devices_in_a_lab.TEMPLATE)
    assert set(values) <= dra_driver["chart"]["values"].keys()


def test_a_gpu_of_the_double_of_nvidia_smi_is_listed_as_the_real_one(source: str, dra_driver: Facts) -> None:
    observed = facts.observed("nvidia-smi-535-on-mock.txt")
    for name, memory in re.findall(r'name="([^"]*V100[^"]*)"; memory=(\d+)', stubs.NVIDIA_SMI):
        assert name in observed
        assert f"{memory}MiB" in observed
