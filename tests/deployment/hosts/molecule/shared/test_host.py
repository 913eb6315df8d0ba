"""The state of a host after the roles, read on the host itself."""

import json
import os
from pathlib import Path
from typing import Any

import yaml

SITE: dict[str, Any] = yaml.safe_load(Path(os.environ["GUEST_VARIABLES"]).read_text())
GPUS = os.environ["GUEST_GPUS"].split(",")


def test_the_driver_is_of_the_branch_and_finds_every_gpu(host: Any) -> None:
    lines = host.check_output("nvidia-smi -L").splitlines()
    assert len(lines) == len(GPUS)
    assert host.check_output("modinfo -F version nvidia").startswith(f"{SITE['driver_branch']}.")


def test_the_modules_have_the_flavour_of_the_gpus(host: Any) -> None:
    volta = GPUS[0] == "1db5"
    assert host.check_output("modinfo -F license nvidia") == ("NVIDIA" if volta else "Dual MIT/GPL")
    assert host.package("nvidia-headless-580-server-open").is_installed == (not volta)


def test_the_four_packages_of_the_toolkit_are_of_the_version_and_are_held(host: Any) -> None:
    wanted = f"{SITE['container_toolkit_version']}-1"
    names = (
        "nvidia-container-toolkit",
        "nvidia-container-toolkit-base",
        "libnvidia-container-tools",
        "libnvidia-container1",
    )
    assert {host.package(name).version for name in names} == {wanted}
    assert "nvidia" not in host.check_output("apt-get -s upgrade -qq")


def test_the_repository_is_signed_by_a_key_of_its_own(host: Any) -> None:
    line = host.file("/etc/apt/sources.list.d/nvidia-container-toolkit.list").content_string
    assert "signed-by=/usr/share/keyrings/nvidia-container-toolkit-keyring.asc" in line
    assert "trusted" not in line


def test_no_container_gets_gpus_by_its_own_environment(host: Any) -> None:
    said = host.file("/etc/nvidia-container-runtime/config.toml").content_string.splitlines()
    assert "accept-nvidia-visible-devices-envvar-when-unprivileged = false" in said


def test_every_gpu_is_a_device_of_cdi(host: Any) -> None:
    devices = host.check_output("nvidia-ctk cdi list").splitlines()
    assert devices == [*(f"nvidia.com/gpu={index}" for index in range(len(GPUS))), "nvidia.com/gpu=all"]


def test_nvidia_is_the_default_runtime_of_docker_and_the_site_kept_its_keys(host: Any) -> None:
    said = host.check_output("docker info").splitlines()
    assert {" Default Runtime: nvidia", " Storage Driver: vfs", "  site=here"} <= set(said)
    written = json.loads(host.file("/etc/docker/daemon.json").content_string)
    assert written["runtimes"]["nvidia"]["path"] == "nvidia-container-runtime"


def test_docker_was_started_and_restarted_once(host: Any) -> None:
    starts = host.check_output("journalctl -u docker -o cat --no-pager | grep -c 'API listen on' || true")
    assert int(starts) == 2


def test_containerd_has_nvidia_as_default_where_it_was_asked_for(host: Any) -> None:
    if SITE.get("container_toolkit_runtime", "containerd") == "containerd":
        assert 'default_runtime_name = "nvidia"' in host.check_output("containerd config dump").replace(
            "'", '"'
        )
    else:
        assert not host.file("/etc/containerd/conf.d/99-nvidia.toml").exists
    assert host.service("containerd").is_running
