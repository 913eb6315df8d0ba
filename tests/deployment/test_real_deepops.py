"""The real DeepOps, where `MUSTER_DEEPOPS` names a clone with its submodules: it accepts what the role renders.

Its playbook is not run but listed: `MUSTER_DEEPOPS=~/deepops pytest -m lab tests/deployment/test_real_deepops.py`. The
environment of DeepOps is really made, so this needs an index of Python packages, and minutes.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.deployment.running import play

CLONE = os.environ.get("MUSTER_DEEPOPS", "")
RELEASE, KUBERNETES = "26.07", "1.35.4"
pytestmark = [
    pytest.mark.lab,
    pytest.mark.skipif(not CLONE, reason="MUSTER_DEEPOPS names no clone of DeepOps"),
]
PLAY = [{
    "name": "DeepOps", "hosts": "controller", "gather_facts": False,
    "tasks": [
        {"name": part, "ansible.builtin.include_role": {"name": "deepops", "tasks_from": part}}
        for part in ("preflight", "install")
    ] + [
        {"name": "list", "ansible.builtin.copy": {
            "content": "#!/bin/sh\nexec {{ deepops_directory }}-venv/bin/python -m ansible playbook "
                       "--list-tasks \"$@\" > {{ deepops_directory }}/listed\n",
            "dest": "{{ deepops_directory }}-venv/bin/ansible-playbook", "mode": "0755"}},
        {"name": "configure", "ansible.builtin.include_role": {"name": "deepops", "tasks_from": "configure"}},
    ],
}]  # fmt: skip
HOSTS = {"mgmt01": ["control_plane", "etcd"], "gpu01": ["gpu"], "gpu02": ["gpu"]}


def inventory(directory: Path, commit: str) -> Path:
    groups: dict[str, Any] = {
        name: {"hosts": {host: {} for host, roles in HOSTS.items() if name in roles}}
        for name in ("control_plane", "etcd", "gpu")
    }
    values: dict[str, Any] = {
        "deepops_repository": CLONE, "deepops_commit": commit, "deepops_release": RELEASE,
        "deepops_kubernetes": KUBERNETES, "deepops_directory": str(directory / "deepops"),
        "muster_directory": str(directory),
    }  # fmt: skip
    local = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable}
    hosts = {host: {"ansible_connection": "ssh", "ansible_host": f"10.0.0.{number}", "ansible_become": True}
             for number, host in enumerate(HOSTS, 1)}  # fmt: skip
    children = {"cluster": {"hosts": {host: {} for host in HOSTS}}, **groups}
    path = directory / "inventory.yml"
    top = {"all": {"vars": values, "hosts": {"controller": local, **hosts}, "children": children}}
    path.write_text(yaml.safe_dump(top))
    return path


def test_the_real_deepops_accepts_inventory_and_variables_and_leaves_the_gpus_to_others(
    tmp_path: Path,
) -> None:
    words = ["git", "-C", CLONE, "rev-parse", f"{RELEASE}^{{commit}}"]
    commit = subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip()
    playbook = tmp_path / "play.yml"
    playbook.write_text(yaml.safe_dump(PLAY))
    done = play(
        playbook,
        tmp_path,
        "-i",
        str(inventory(tmp_path, commit)),
        environment={"GIT_ALLOW_PROTOCOL": "file:https"},
    )
    assert done.code == 0, done.output

    deepops = tmp_path / "deepops"
    listed = subprocess.run(
        [tmp_path / "deepops-venv" / "bin" / "ansible-inventory", "--list"], cwd=deepops,
        env={**os.environ, "ANSIBLE_CONFIG": str(deepops / "ansible.cfg")}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    found = json.loads(listed.stdout)
    assert sorted(found["kube_control_plane"]["hosts"]) == ["mgmt01"]
    assert sorted(found["kube_node"]["hosts"]) == ["gpu01", "gpu02"]
    variables = found["_meta"]["hostvars"]["gpu01"]
    assert (variables["kube_version"], variables["container_manager"]) == (KUBERNETES, "containerd")
    tasks = [line.strip() for line in (deepops / "listed").read_text().splitlines() if "TAGS:" in line]
    plays = [line for line in tasks if line.startswith("play #")]
    assert len(plays) > 0
    assert len(tasks) > len(plays)
    assert not [line for line in tasks if "nvidia" in line.partition("TAGS:")[2]], "the GPUs are other stages"
