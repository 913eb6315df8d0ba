"""The role driver on this machine: it chooses packages by the PCI bus, and reports Secure Boot.

`tests/deployment/hosts` installs packages on guests.
"""

import sys
from pathlib import Path

import pytest
import yaml

from tests.deployment.running import Result, play

pytestmark = pytest.mark.lab

SWITCH, GPU = ("0x10de", "0x068000", ""), ("0x10de", "0x030200", "")
ADAPTER, MANAGER = ("0x15b3", "0x020700", "PN V1"), ("0x15b3", "0x020700", "SMDL=SW_MNG")
UNLOADED = {
    "modinfo": 'case "$2" in version) echo 580.95.05 ;; license) echo "Dual MIT/GPL" ;; esac',
    "nvidia-smi": "echo 'could not communicate with the NVIDIA driver'; exit 9",
}
SECURE_BOOT = {
    "enabled": "Secure Boot is on, and the kernel refuses modules",
    "disabled": "If a reboot does not help, ask for Secure Boot: mokutil --sb-state",
}
CHOSEN = {
    "a DGX H100": ("ubuntu-24.04", "dgx-h100", (), {"nvidia-fabricmanager-580"}),
    "a DGX-1": ("ubuntu-22.04", "dgx-1", (), set()),
    "a PCIe server": ("ubuntu-24.04", "generic", (GPU, ADAPTER), set()),
    "an HGX H100": ("ubuntu-24.04", "generic", (GPU, SWITCH), {"nvidia-fabricmanager-580"}),
    "an HGX B200": ("ubuntu-24.04", "generic", (GPU, MANAGER), {"nvidia-fabricmanager-580", "nvlsm"}),
    "a DGX B200": ("dgx-os-7", "dgx-b200", (), {"nvidia-fabricmanager", "nvlsm"}),
}


def bus(folder: Path, devices: tuple[tuple[str, str, str], ...]) -> Path:
    for number, (vendor, kind, data) in enumerate(devices):
        device = folder / f"0000:0{number}:00.0"
        device.mkdir(parents=True)
        for name, text in (("vendor", vendor), ("class", kind), ("device", "0x2330"), ("vpd", data)):
            (device / name).write_text(f"{text}\n")
    folder.mkdir(exist_ok=True)
    return folder


def role(tasks: str) -> dict[str, object]:
    included = {"name": "driver", "tasks_from": tasks}
    return {"ansible.builtin.include_role": included, "vars": {"__driver_pci": "{{ devices }}"}}


def run(folder: Path, tasks: list[dict[str, object]], hosts: dict[str, dict[str, object]]) -> Result:
    playbook, inventory = folder / "play.yml", folder / "inventory.yml"
    play_of_all = {
        "hosts": "all",
        "gather_facts": False,
        "tasks": tasks,
        "environment": {"PATH": "{{ path }}"},
    }
    playbook.write_text(yaml.safe_dump([play_of_all]))
    local = {
        "ansible_connection": "local",
        "ansible_python_interpreter": sys.executable,
        "driver_branch": "580",
    }
    inventory.write_text(
        yaml.safe_dump({"all": {"hosts": {name: local | own for name, own in hosts.items()}}})
    )
    return play(playbook, folder, "-i", str(inventory))


def test_a_module_that_is_not_loaded_leads_to_secure_boot(tmp_path: Path) -> None:
    hosts: dict[str, dict[str, object]] = {}
    for state in SECURE_BOOT:
        programs = tmp_path / state
        programs.mkdir()
        for program, text in (UNLOADED | {"mokutil": f'echo "SecureBoot {state}"'}).items():
            (programs / program).write_text(f"#!/bin/sh\n{text}\n")
            (programs / program).chmod(0o755)
        hosts[state] = {
            "path": f"{programs}:/usr/bin:/bin",
            "devices": str(bus(tmp_path / f"bus-{state}", ())),
        }
    result = run(tmp_path, [role("verify")], hosts)
    failures = "\n".join(result.failures)
    assert len(result.failures) == len(SECURE_BOOT)
    for state, words in SECURE_BOOT.items():
        assert f"{state}: driver 580.95.05 is installed and not loaded" in failures
        assert words in failures


def test_the_pci_bus_decides_on_the_fabric_manager(tmp_path: Path) -> None:
    hosts: dict[str, dict[str, object]] = {}
    for number, (system, model, devices, _) in enumerate(CHOSEN.values()):
        hosts[f"host{number}"] = {
            "driver_os": system, "driver_model": model, "path": "/usr/bin:/bin",
            "devices": str(bus(tmp_path / f"bus{number}", devices)),
        }  # fmt: skip
    tasks: list[dict[str, object]] = [
        role("choose"),
        {"name": "Chosen", "ansible.builtin.debug": {"msg": "{{ __driver_packages | join(' ') }}"}},
    ]
    result = run(tmp_path, tasks, hosts)
    assert result.code == 0, result.failures
    chosen = {host: str(task["msg"]).split() for name, host, task in result.tasks if name == "Chosen"}
    for number, (_, _, _, expected) in enumerate(CHOSEN.values()):
        found = {
            name for name in chosen[f"host{number}"] if name.startswith(("nvidia-fabricmanager", "nvlsm"))
        }
        assert found == expected
