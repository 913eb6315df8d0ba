"""A run of kubespray that stopped between kubeadm and the network plugin can be repeated."""

import sys
from pathlib import Path

import pytest
import yaml

from tests.deployment.running import play

pytestmark = pytest.mark.lab

UNREADY = (
    "container runtime network not ready: NetworkReady=false reason:NetworkPluginNotReady "
    "message:Network plugin returns error: cni plugin not initialized"
)
"""The message of a node's condition Ready, from a kubelet 1.35.3 of kubespray v2.31.0 after such a run."""


@pytest.mark.parametrize(
    ("says", "played"),
    [
        (f"echo '{UNREADY}'", "--tags download,network submodules/kubespray/cluster.yml"),
        ("echo 'kubelet is posting ready status'", ""),
        ("echo 'The connection to the server was refused' >&2; exit 1", ""),
        ("", ""),
    ],
    ids=["network-plugin-missing", "ready", "no-api-server", "bare-host"],
)
def test_the_network_plugin_comes_first_where_an_earlier_run_left_it_out(
    tmp_path: Path, says: str, played: str
) -> None:
    kubectl, record = tmp_path / "kubectl", tmp_path / "played"
    if says:
        kubectl.write_text(f"#!/bin/sh\n{says}\n")
        kubectl.chmod(0o755)
    checkout, inner = tmp_path / "deepops", tmp_path / "deepops-venv" / "bin" / "ansible-playbook"
    checkout.mkdir()
    inner.parent.mkdir(parents=True)
    inner.write_text(f'#!/bin/sh\necho "$@" >> {record}\n')
    inner.chmod(0o755)
    local = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable}
    inventory, playbook = tmp_path / "inventory.yml", tmp_path / "play.yml"
    inventory.write_text(
        yaml.safe_dump(
            {
                "all": {
                    "hosts": {"controller": local},
                    "children": {"control_plane": {"hosts": {"mgmt01": local}}},
                }
            }
        )
    )
    tasks = [{"ansible.builtin.include_role": {"name": "deepops", "tasks_from": "network"}}]
    playbook.write_text(yaml.safe_dump([{"hosts": "controller", "gather_facts": False, "tasks": tasks}]))
    words = {"deepops_kubectl": str(kubectl), "deepops_directory": str(checkout)}
    options = [word for name, value in words.items() for word in ("-e", f"{name}={value}")]
    done = play(playbook, tmp_path, "-i", str(inventory), *options)
    assert done.code == 0, done.output
    assert (record.read_text().strip() if record.exists() else "") == played
