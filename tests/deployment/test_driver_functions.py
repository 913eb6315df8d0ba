"""A driver that answers may still be unable to compute. The role driver proves fabric and CUDA, and names each unproved
part.

The programs of the hosts print in NVIDIA's format: `Fabric Manager version is : …`, the columns of nvidia-smi.
"""

import json
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import pytest
import yaml

from tests.deployment.running import ROOT, Result, play
from tests.gpumemory.conftest import compiler

DRIVER: Final = "580.95.05"
GPUS: Final = ("0000:1b:00.0", "0000:43:00.0")
SWITCHES: Final = ("0000:07:00.0", "0000:08:00.0")
ACTIVE: Final = "LoadState=loaded\nActiveState=active\nResult=success\n"
FAILED: Final = "LoadState=loaded\nActiveState=failed\nResult=exit-code\n"
ABSENT: Final = "LoadState=not-found\nActiveState=inactive\nResult=success\n"
VERSION: Final = "Fabric Manager version is : {}\n"
PROGRAMS: Final = {
    "modinfo": '[ "$2" = version ] && cat $CASE/driver || echo "Dual MIT/GPL"',
    "nvidia-smi": (
        'case "$*" in *driver_version,memory*) cat $CASE/gpus ;; *fabric.state*) cat $CASE/fabric ;; '
        "*compute-apps*) cat $CASE/busy ;; *) exit 2 ;; esac"
    ),
    "systemctl": "cat $CASE/manager",
    "nv-fabricmanager": "cat $CASE/version",
    "journalctl": "cat $CASE/log",
}


@dataclass(frozen=True)
class Host:
    """A host with two GPUs, healthy except for the given fields, and the sentences that the role must print."""

    says: tuple[str, ...]
    switches: tuple[str, ...] = SWITCHES
    manager: str = ACTIVE
    version: str = VERSION.format(DRIVER)
    fabric: tuple[str, ...] = ("Completed, Success",) * 2
    busy: tuple[str, ...] = ()
    cuda: Mapping[str, str] = field(
        default_factory=lambda: {"CUDA_DOUBLE_GPUS": " ".join(f"{gpu}=0" for gpu in GPUS)}
    )
    is_red: bool = True
    answering: int = 2
    number: int = 2
    """GPUs in the site file; 0 for an unknown model."""


GREEN: Final = {
    "healthy": Host(
        (
            f"fabric manager {DRIVER} is active, every GPU is joined",
            "CUDA: a context was created on 2 of 2 GPUs",
        ),
        is_red=False,
    ),
    "without-switches": Host(
        ("CUDA: a context was created on 2 of 2 GPUs",), switches=(), manager=ABSENT, is_red=False
    ),
    "a100": Host(
        (
            "fabric: not proved: the driver does not say whether",
            "has joined 00000000:1B:00.0, 00000000:43:00.0",
        ),
        fabric=("[N/A], [N/A]",) * 2,
        is_red=False,
    ),
    "busy": Host(
        ("CUDA: not proved: programs use 0000:1b:00.0, 0000:43:00.0",),
        busy=("00000000:1B:00.0",),
        cuda={"CUDA_DOUBLE_GPUS": f"{GPUS[0]}=719 {GPUS[1]}=2"},
        is_red=False,
    ),
    "no-known-model": Host(("CUDA: a context was created on 2 of 2 GPUs",), number=0, is_red=False),
    "without-libcuda": Host(("CUDA: not proved: libcuda.so.1: cannot open",), cuda={}, is_red=False),
}
RED: Final = {
    "dead-manager": Host(
        (
            "nvidia-fabricmanager is failed, so CUDA fails with error 802. It said last: NV_WARN_NOTHING_TO_DO. Look",
            "Look at `journalctl -u nvidia-fabricmanager`",
        ),
        manager=FAILED,
    ),
    "no-manager": Host(
        (
            "GPUs are joined by 2 NVSwitches (0000:07:00.0, 0000:08:00.0), and there is no fabric manager",
            "driver.extra_packages, such as nvidia-fabricmanager-580",
        ),
        manager=ABSENT,
        version="",
    ),
    "other-version": Host(
        (f"fabric manager 580.126.09 does not work with driver {DRIVER}. Install both of one version",),
        manager=FAILED,
        version=VERSION.format("580.126.09"),
    ),
    "in-progress": Host(
        ("the fabric manager has not joined 00000000:43:00.0, In Progress, Success",),
        fabric=("Completed, Success", "In Progress, Success"),
    ),
    "error-of-fabric": Host(
        ("has not joined 00000000:43:00.0, Completed, Unknown Error",),
        fabric=("Completed, Success", "Completed, Unknown Error"),
    ),
    "cuda-802": Host(
        ("CUDA fails with CUDA_ERROR_SYSTEM_NOT_READY (802): the fabric manager has not joined the GPUs",),
        cuda={"CUDA_DOUBLE_INIT": "802"},
    ),
    "one-gpu-lost": Host(
        ("1 of 2 GPUs answer the driver: 0000:43:00.0 on the PCI bus does not",), answering=1
    ),
    "one-gpu-lost-of-no-known-model": Host(
        ("1 of 2 GPUs answer the driver: 0000:43:00.0 on the PCI bus does not",), answering=1, number=0
    ),
    "one-gpu-broken": Host(
        ("CUDA fails on 0000:43:00.0 with error 719 (719): look at `dmesg | grep -i nvrm`",),
        cuda={"CUDA_DOUBLE_GPUS": f"{GPUS[0]}=0 {GPUS[1]}=719"},
    ),
}
HOSTS: Final = GREEN | RED


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> Result:
    """Return the result of one verification of all hosts."""
    root = tmp_path_factory.mktemp("hosts")
    library = root / "library"
    library.mkdir()
    source = Path(__file__).with_name("libcuda_contexts.c")
    build = ["-shared", "-fPIC", "-Wall", "-Wextra", "-Werror", "-o", str(library / "libcuda.so.1")]
    subprocess.run([compiler("cc"), *build, str(source)], check=True)
    for name, text in PROGRAMS.items():
        program = root / "bin" / name
        program.parent.mkdir(exist_ok=True)
        program.write_text(f"#!/bin/sh\n{text}\n")
        program.chmod(0o755)
    inventory = {
        name: {
            "place": str(_furnished(root / name, host)),
            "number": host.number,
            "cuda": {**host.cuda, **({"LD_LIBRARY_PATH": str(library)} if host.cuda else {})},
        }
        for name, host in HOSTS.items()
    }
    (root / "hosts.yml").write_text(yaml.safe_dump({"all": {"hosts": inventory}}))
    role = {
        "name": "Verify",
        "ansible.builtin.include_role": {"name": "driver", "tasks_from": "verify"},
        "vars": {"driver_branch": "580", "driver_gpus": "{{ number }}", "__driver_pci": "{{ place }}/pci"},
    }
    environment = (
        "{{ cuda | combine({'CASE': place, 'PATH': '" + f"{root / 'bin'}:" + "' ~ lookup('env', 'PATH')}) }}"
    )
    playbook = root / "play.yml"
    playbook.write_text(
        yaml.safe_dump([{"hosts": "all", "gather_facts": False, "environment": environment, "tasks": [role]}])
    )
    words = (
        "-i",
        str(root / "hosts.yml"),
        "-c",
        "local",
        "-f",
        "4",
        "-e",
        f"ansible_python_interpreter={sys.executable}",
    )
    return play(playbook, root, *words)


def _furnished(place: Path, host: Host) -> Path:
    """Write the files of a host."""
    for address, kind, device in (
        *((gpu, "0x030200", "0x2330") for gpu in GPUS),
        *((switch, "0x068000", "0x22a3") for switch in host.switches),
    ):
        folder = place / "pci" / address
        folder.mkdir(parents=True)
        for name, text in (("vendor", "0x10de"), ("class", kind), ("device", device)):
            (folder / name).write_text(f"{text}\n")
    written = [f"0000{gpu.upper()}" for gpu in GPUS]
    gpus = [
        f"{index}, NVIDIA H100 80GB HBM3, {DRIVER}, 81559 MiB, {bus}" for index, bus in enumerate(written)
    ]
    files = {
        "driver": f"{DRIVER}\n",
        "gpus": "".join(f"{line}\n" for line in gpus[: host.answering]),
        "fabric": "".join(f"{bus}, {state}\n" for bus, state in zip(written, host.fabric, strict=True)),
        "busy": "".join(f"{bus}\n" for bus in host.busy),
        "manager": host.manager,
        "version": host.version,
        "log": "fabric manager starts\nNV_WARN_NOTHING_TO_DO.\n"
        "nvidia-fabricmanager.service: Failed with result 'exit-code'.\n",
    }
    for name, text in files.items():
        (place / name).write_text(text)
    return place


@pytest.mark.lab
@pytest.mark.rare
@pytest.mark.parametrize("name", HOSTS)
def test_a_host_that_cannot_compute_is_red_and_says_the_fix(name: str, result: Result) -> None:
    host = HOSTS[name]
    said = json.dumps([task for _, of, task in result.tasks if of == name], ensure_ascii=False)
    for sentence in host.says:
        assert sentence in said, said[-3000:]
    assert bool(result.stats[name]["failures"]) == host.is_red, said[-3000:]


def test_every_model_with_nvswitches_has_the_fabric_manager_of_its_system() -> None:
    table = yaml.safe_load((ROOT / "roles/driver/vars/main.yml").read_text())
    for row in table["__driver_table"].values():
        assert any("fabricmanager" in package for package in row["nvswitch"]), row
