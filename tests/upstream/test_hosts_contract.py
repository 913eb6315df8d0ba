"""Names and values for hosts in other projects: etcd's paths, packages and repositories, the least memory."""

import posixpath
import re
from typing import Any

import pytest

from tests.upstream.ansible_names import defaults
from tests.upstream.names import ROLES, role_file

Facts = dict[str, Any]
SNAPSHOT = role_file("snapshot", "defaults/main.yml")
RESTORE = (ROLES / "snapshot" / "templates" / "restore.txt.j2").read_text()
TOOLKIT = role_file("container_toolkit", "defaults/main.yml")
TOOLKIT_PLACES = role_file("container_toolkit", "vars/main.yml")


def _etcd(kubespray: Facts) -> Facts:
    """Return the variables of kubespray's etcd, with the directory of the certificates filled in."""
    own = kubespray["roles"]["etcd_defaults"]["variables"]
    values = {**own["defaults/main.yml"], **own["vars/main.yml"]}
    values["etcd_cert_dir"] = values["etcd_cert_dir"].replace(
        "{{ etcd_config_dir }}", values["etcd_config_dir"]
    )
    return values


@pytest.mark.parametrize("name", ["snapshot_certificate", "snapshot_key"])
def test_a_certificate_of_the_snapshot_is_one_that_kubespray_makes(kubespray: Facts, name: str) -> None:
    values = _etcd(kubespray)
    made = [
        each.replace("{{ etcd_cert_dir }}", values["etcd_cert_dir"])
        for each in values["cert_files"]["master"]
    ]
    assert SNAPSHOT[name] in made


def test_the_authority_of_etcd_is_beside_its_certificates(kubespray: Facts) -> None:
    assert posixpath.dirname(SNAPSHOT["snapshot_ca"]) == _etcd(kubespray)["etcd_cert_dir"]


def test_the_settings_of_a_member_are_where_kubespray_writes_them(kubespray: Facts) -> None:
    assert SNAPSHOT["snapshot_member_settings"] in kubespray["roles"]["etcd"]["paths"]


def test_etcdctl_is_where_kubespray_puts_programs(deepops: Facts, kubespray: Facts) -> None:
    assert posixpath.dirname(SNAPSHOT["snapshot_etcdctl"]) in defaults(deepops, kubespray)["bin_dir"]
    assert posixpath.basename(SNAPSHOT["snapshot_etcdctl"]) in " ".join(kubespray["roles"])


def test_a_member_without_a_directory_has_that_of_kubespray(kubespray: Facts) -> None:
    (directory,) = re.findall(r'ETCD_DATA_DIR \| default\("([^"]+)"\)', RESTORE)
    assert directory == _etcd(kubespray)["etcd_data_dir"]


@pytest.mark.parametrize("unit", sorted(set(re.findall(r"systemctl (?:start|stop) (\w+)", RESTORE))))
def test_a_unit_of_the_restore_is_one_of_kubespray(kubespray: Facts, unit: str) -> None:
    assert unit in kubespray["roles"]["etcd"]["units"]


def test_the_manifests_of_the_control_plane_are_where_kubespray_writes_them(kubespray: Facts) -> None:
    named = set(re.findall(r"(/etc/kubernetes/\w+)/kube-", RESTORE))
    values = kubespray["roles"]["kubespray_defaults"]["variables"]["defaults/main/main.yml"]
    manifests = values["kube_manifest_dir"].replace("{{ kube_config_dir }}", values["kube_config_dir"])
    assert named == {manifests}


def test_no_host_with_less_memory_than_kubespray_wants_passes_the_preflight(kubespray: Facts) -> None:
    own = role_file("preflight", "defaults/main.yml")
    least = kubespray["roles"]["kubernetes/preinstall"]["variables"]["defaults/main.yml"]
    assert own["preflight_control_plane_memory_gib"] * 1024 >= least["minimal_master_memory_mb"]


def _toolkit(deepops: Facts) -> Facts:
    return dict(deepops["roles"]["nvidia_container_toolkit"]["variables"]["defaults/main.yml"])


def test_the_toolkit_comes_from_the_repository_that_deepops_takes(deepops: Facts) -> None:
    own = _toolkit(deepops)
    base = own["nvidia_container_toolkit_repo_base_url"]
    assert TOOLKIT["container_toolkit_repository"] == f"{base}/stable"
    assert own["nvidia_container_toolkit_rpm_repo_url"].startswith(
        "{{ nvidia_container_toolkit_repo_base_url }}/stable/"
    )
    key = own["nvidia_container_toolkit_repo_gpg_url"]
    assert TOOLKIT["container_toolkit_key_url"] == key.replace(
        "{{ nvidia_container_toolkit_repo_base_url }}", base
    )


def test_the_toolkit_has_the_names_that_deepops_gives_it(deepops: Facts) -> None:
    own = _toolkit(deepops)
    assert own["nvidia_container_toolkit_package"] in TOOLKIT_PLACES["__container_toolkit_packages"]
    assert TOOLKIT_PLACES["__container_toolkit_list"] == own["nvidia_container_toolkit_apt_source_path"]
    assert "/usr/bin/nvidia-container-runtime" in deepops["roles"]["nvidia_container_toolkit"]["paths"]
    assert "/usr/bin/nvidia-container-runtime" in (ROLES / "deepops/templates/gpu_vars.yml.j2").read_text()
