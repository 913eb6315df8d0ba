"""Messages and settings in the sources of other projects: each exists there, and muster recognizes it.

The facts have no messages. Messages of Kubernetes come from the lab's Go module, those of ONTAP's modules from the
collection netapp.ontap, all others from checkouts.
"""

import importlib
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from deployment.failure import Failure
from tests.upstream import facts
from tests.upstream.names import ROOT, role_file

OF_CHECKOUTS = {
    "Ansible must be between {{ minimal_ansible_version }} and {{ maximal_ansible_version }} exclusive - you have": (
        "kubespray",
        "playbooks/ansible_version.yml",
    ),
    "has no assigned aggregates": ("trident", "storage_drivers/ontap/ontap_common.go"),
    "no assigned aggregates found": ("trident", "storage_drivers/ontap/ontap_nas_flexgroup.go"),
    "gpuResourcesEnabledOverride": (
        "dra_driver",
        "deployments/helm/dra-driver-nvidia-gpu/templates/validation.yaml",
    ),
}
OF_KUBEADM = "kubeadm can upgrade only %d minor version at a time"
OF_COLLECTION = "REST requires ONTAP 9."


def _is_known(message: str) -> bool:
    return bool(Failure("host", "task", "x.yml:1", message).known()[0])


@pytest.mark.parametrize(
    "message", [*OF_CHECKOUTS, OF_KUBEADM.replace("%d", "1"), f"{OF_COLLECTION}9 or later"]
)
def test_a_message_of_another_project_has_a_cause(message: str) -> None:
    assert _is_known(message)


@pytest.mark.parametrize("source", ["trees"], indirect=True, scope="session")
@pytest.mark.parametrize(
    ("message", "project", "path"), [(each, *place) for each, place in OF_CHECKOUTS.items()]
)
def test_a_message_stands_in_the_checkout(source: str, message: str, project: str, path: str) -> None:
    assert message in (facts.checkout(project) / path).read_text()


def test_the_message_of_kubeadm_stands_in_its_sources(kubernetes: Callable[[str], Path]) -> None:
    policy = kubernetes("k8s.io/kubernetes") / "cmd/kubeadm/app/phases/upgrade/policy.go"
    assert OF_KUBEADM in policy.read_text()


def test_the_message_of_the_modules_of_ontap_stands_in_their_collection() -> None:
    folder = (
        Path(importlib.import_module("ansible_collections.netapp.ontap").__path__[0]) / "plugins" / "modules"
    )
    assert any(OF_COLLECTION in path.read_text() for path in folder.glob("*.py"))


@pytest.mark.parametrize("source", ["trees"], indirect=True, scope="session")
@pytest.mark.parametrize("project", ["kubespray"])
def test_each_flag_of_dockerd_is_refused_in_its_configuration(source: str, project: str) -> None:
    """dockerd does not start if a key is both in its file and on the command line that kubespray writes."""
    root = facts.checkout(project)
    template = root / "roles/container-engine/docker/templates/docker-options.conf.j2"
    options = (root / "roles/kubespray_defaults/defaults/main/main.yml").read_text()
    (logging,) = re.findall(r'(?m)^docker_log_opts: "(.*)"$', options)
    written = set(re.findall(r"--[\w-]+", template.read_text() + logging))
    assert written <= set(role_file("docker", "vars/main.yml")["__docker_flags"].values())


@pytest.mark.parametrize("source", ["trees"], indirect=True, scope="session")
@pytest.mark.parametrize("project", ["kubespray"])
def test_the_access_to_the_cluster_is_where_kubespray_leaves_it(source: str, project: str) -> None:
    """The role sets `artifacts_dir`, and muster's inventory reads the kubeconfig there."""
    assert '"artifacts" / "admin.conf"' in (ROOT / "deployment" / "inventory.py").read_text()
    tasks = (facts.checkout(project) / "roles/kubernetes/client/tasks/main.yml").read_text()
    assert "{{ artifacts_dir }}/admin.conf" in tasks
