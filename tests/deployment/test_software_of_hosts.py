"""The role preflight reads the releases on a host, and refuses or reports those with published vulnerabilities."""

import os
import sys
from pathlib import Path

import pytest
import yaml

from deployment import vulnerabilities
from tests.deployment.running import Result, play

pytestmark = pytest.mark.lab

PROGRAMS = {
    "nvidia-ctk": 'echo "NVIDIA Container Toolkit CLI version $TOOLKIT"',
    "modinfo": "echo 580.95.05",
    "containerd": 'echo "containerd github.com/containerd/containerd/v2 v2.2.3 9ae2a09"',
    "runc": "exit 127",
    "kubelet": 'echo "Kubernetes dev"',
}


def preflight(folder: Path, tag: str) -> Result:
    """Run the role for two hosts, both this machine. A later stage installs their toolkit."""
    programs = folder / "programs"
    programs.mkdir(exist_ok=True)
    for name, text in PROGRAMS.items():
        (programs / name).write_text(f"#!/bin/sh\n{text}\n")
        (programs / name).chmod(0o755)
    playbook, inventory = folder / "play.yml", folder / "inventory.yml"
    of_host = {"TOOLKIT": "{{ toolkit }}", "PATH": f"{programs}:{os.environ['PATH']}"}
    playbook.write_text(
        yaml.safe_dump(
            [{"hosts": "all", "gather_facts": False, "environment": of_host, "roles": ["preflight"]}]
        )
    )
    local = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable}
    hosts = {"dgx01": local | {"toolkit": "1.17.7"}, "dgx02": local | {"toolkit": "1.20.0"}}
    values = {
        "preflight_free_gib": 0,
        "preflight_refused": vulnerabilities.rows("refused"),
        "preflight_warned": vulnerabilities.rows("warned"),
        "preflight_installed": ["container_toolkit"],
    }
    groups: dict[str, object] = {"control_plane": {"hosts": {}}}
    inventory.write_text(yaml.safe_dump({"all": {"hosts": hosts, "vars": values, "children": groups}}))
    return play(playbook, folder, "-i", str(inventory), "--tags", tag)


def test_a_vulnerable_toolkit_is_left_to_its_stage_and_refused_afterwards(tmp_path: Path) -> None:
    before = preflight(tmp_path, "preflight")
    assert before.code == 0, before.failures
    (note, other) = (str(task["msg"]) for name, _, task in before.tasks if name.startswith("Report releases"))
    assert note == other
    assert "driver 580.95.05 has CVE-2026-24187, CVE-2026-24199: take 580.159.03 or newer" in note
    assert "containerd 2.2.3 has CVE-2026-53489" in note
    assert "`kubelet --version` has no release in its answer 'Kubernetes dev'" in note
    (failure,) = preflight(tmp_path, "verify").failures
    assert "dgx01: NVIDIA's container toolkit 1.17.7 has CVE-2025-23266" in failure
    assert "take 1.19.1 or newer" in failure
