"""`muster install` over SSH on guests, as on a real site: from bare hosts to installed ones and back, with faults."""

import json
import subprocess
from pathlib import Path

import pytest
import yaml

from tests.deployment.conftest import SiteUnderTest
from tests.deployment.hosts.conftest import Boot, Host
from tests.deployment.hosts.scenarios import TOOLKIT, key
from tests.deployment.hosts.stubs import GATE
from tests.deployment.hosts.test_uninstall import changes, state
from tests.deployment.test_run import journal, until

pytestmark = pytest.mark.installer
INSTALL = ("install", "--until", "docker")
"""The stages before a cluster exists."""


def describe(site: SiteUnderTest, *hosts: Host, **more: object) -> None:
    """Write the site file for these guests."""
    known = site.directory / "known_hosts"
    known.write_text("".join(host.guest.known_hosts.read_text() for host in hosts))
    values = {
        "schema": 1,
        "name": "here",
        "access": {"user": "root", "become": False, "known_hosts": str(known)},
        "hosts": {f"dgx{number:02}": _host(host) for number, host in enumerate(hosts, 1)},
        "versions": {"kubernetes": "1.35.4", "driver": "580", "container_toolkit": "1.19.1", "dra": "off"},
        "kubernetes": {"container_runtime": "docker"},
        "not_applicable": {"orchestrator": "there is no cluster"},
        "vars": TOOLKIT
        | key(Path(hosts[0].guest.repository))
        | {"preflight_kubernetes": "", "preflight_free_gib": 1}
        | {"teardown_hosts": True, "deepops_reset_nodes": True, "docker_uninstall_packages": True},
    }
    site.write(yaml.safe_dump(values | more))


def _host(host: Host) -> dict[str, object]:
    system = host.scenario.variables["driver_os"]
    return {
        "address": "127.0.0.1",
        "port": host.guest.port,
        "os": system,
        "model": host.scenario.variables.get("driver_model", "generic"),
        "roles": ["gpu"],
        "connection_vars": {"ansible_ssh_private_key_file": str(host.guest.key_file)},
    }


def changed(site: SiteUnderTest) -> dict[str, int]:
    """Return the number of changes of each stage in the last run."""
    entries = [json.loads(line) for line in journal(site).read_text().splitlines()]
    last = [each["run"] for each in entries][-1]
    return {each["stage"]: each["changed"] for each in entries if each["run"] == last and "changed" in each}


def planned(site: SiteUnderTest) -> dict[str, str]:
    """Return the decision of the next run on each stage."""
    plan = site.muster("plan", "--json")
    assert plan.returncode == 0, plan.stderr
    return {each["stage"]: each["decision"] for each in json.loads(plan.stdout)["stages"]}


def hold(host: Host) -> None:
    """Stop the guest's dpkg in the middle of the driver's packages."""
    (host.guest.disk / GATE.lstrip("/")).touch()


def held(host: Host) -> bool:
    return (host.guest.disk / f"{GATE.lstrip('/')}.reached").exists()


def release(host: Host) -> None:
    for file in (GATE, f"{GATE}.reached"):
        (host.guest.disk / file.lstrip("/")).unlink(missing_ok=True)


def until_held(host: Host, running: subprocess.Popen[str]) -> None:
    until(lambda: held(host), running, seconds=240)


def test_two_hosts_go_from_bare_to_installed_and_back(site: SiteUnderTest, boot: Boot) -> None:
    hosts = boot("dgx-os-6"), boot("ubuntu-24.04")
    describe(site, *hosts)
    before = [state(host.guest) for host in hosts]
    to_do = planned(site)
    installed = site.muster(*INSTALL, seconds=900)
    assert installed.returncode == 0, installed.stderr
    assert set(changed(site)) == {"preflight", "driver", "container_toolkit", "docker"}
    assert min(changed(site)[stage] for stage in ("driver", "container_toolkit", "docker")) >= len(hosts)
    for host in hosts:
        runtime = host.guest.run("docker", "info", "--format", "{{.DefaultRuntime}}", check=True)
        assert runtime.stdout.strip() == "nvidia"
    whole = journal(site).read_bytes()
    journal(site).write_bytes(whole[: len(whole) // 2])
    again = site.muster(*INSTALL, seconds=900)
    assert again.returncode == 0, again.stderr
    assert sum(changed(site).values()) == 0, changed(site)
    assert planned(site) != to_do
    forced = site.muster(*INSTALL, "--from", "driver", seconds=900)
    assert forced.returncode == 0, forced.stderr
    assert changed(site) == {"driver": 0, "container_toolkit": 0, "docker": 0}

    removed = site.muster("teardown", "--yes", seconds=900)
    assert removed.returncode == 0, removed.stderr
    for host, was in zip(hosts, before, strict=True):
        assert changes(was, state(host.guest)) == {}, host.scenario.suite
    assert planned(site) == to_do


def test_a_host_that_loses_power_in_a_stage_is_named_and_the_same_command_continues(
    site: SiteUnderTest, boot: Boot
) -> None:
    host = boot("ubuntu-24.04")
    describe(site, host)
    hold(host)
    running = site.start("install", "--until", "driver")
    until_held(host, running)
    second = site.muster("install", "--until", "driver")
    assert second.returncode == 1
    assert f"`muster install` (process {running.pid}" in second.stderr
    host.guest.kill()
    said = running.communicate(timeout=240)[0]
    assert running.returncode == 1
    assert "host    dgx01 (unreachable)" in said, said
    assert "check power and network of the host, then resume" in said
    assert (
        "stage driver failed on dgx01; after you have removed the cause, continue with: muster resume -i"
        in said
    )

    down = site.muster("install", "--until", "driver")
    assert down.returncode == 1
    assert f"dgx01: 127.0.0.1 port {host.guest.port} does not answer" in down.stderr
    release(host)
    host.guest.start()
    resumed = site.muster("install", "--until", "driver", seconds=600)
    assert resumed.returncode == 0, resumed.stderr
    assert host.guest.run("dpkg", "--audit").stdout == ""


def test_a_host_that_loses_power_in_a_stage_costs_the_other_nothing(site: SiteUnderTest, boot: Boot) -> None:
    hosts = boot("dgx-os-6"), boot("ubuntu-24.04")
    describe(site, *hosts)
    hold(hosts[1])
    running = site.start("install", "--until", "container_toolkit")
    until_held(hosts[1], running)
    hosts[1].guest.kill()
    said = running.communicate(timeout=400)[0]
    assert running.returncode == 1
    assert "host    dgx02 (unreachable)" in said, said
    assert "container_toolkit: Install the container toolkit, without dgx02 (not reached)" in said, said
    assert (
        "dgx02 not reached, and left out; the rest is done. After you have removed the cause, continue with: muster "
        in said
    )
    assert hosts[0].guest.run("nvidia-ctk", "--version").returncode == 0
    release(hosts[1])
    hosts[1].guest.start()
    resumed = site.muster("resume", seconds=600)
    assert resumed.returncode == 0, resumed.stderr
    assert hosts[1].guest.run("nvidia-ctk", "--version").returncode == 0


def test_a_connection_that_drops_in_a_stage_costs_nothing(site: SiteUnderTest, boot: Boot) -> None:
    host = boot("ubuntu-24.04")
    describe(site, host)
    hold(host)
    running = site.start("install", "--until", "driver")
    until_held(host, running)
    host.guest.drop_connections()
    said = running.communicate(timeout=240)[0]
    assert "host    dgx01 (unreachable)" in said, said
    release(host)
    host.guest.run("systemctl", "restart", "guest-ssh", check=True)
    resumed = site.muster("install", "--until", "driver", seconds=600)
    assert resumed.returncode == 0, resumed.stderr


def test_a_full_disk_of_a_host_is_named_and_the_same_command_continues(
    site: SiteUnderTest, boot: Boot
) -> None:
    host = boot("ubuntu-24.04")
    describe(site, host)
    small = "/usr/lib/nvidia-580"
    host.guest.run("mkdir", "-p", small, check=True)
    host.guest.run("mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", small, check=True)
    failed = site.muster("install", "--until", "driver", seconds=600)
    assert failed.returncode == 1
    assert "dgx01: the disk is full: make room" in failed.stderr, failed.stderr
    host.guest.run("umount", small, check=True)
    resumed = site.muster("install", "--until", "driver", seconds=600)
    assert resumed.returncode == 0, resumed.stderr


def test_a_host_is_rebooted_where_the_site_allows_it_and_the_run_continues(
    site: SiteUnderTest, boot: Boot
) -> None:
    host = boot("ubuntu-24.04")
    loaded = Path("run/nvidia-stub/loaded")
    host.guest.run("mkdir", "-p", f"/{loaded.parent}", check=True)
    host.guest.run("sh", "-c", f"echo 570.195.03 > /{loaded}", check=True)
    describe(site, host)
    first = host.guest.boot_id()
    waiting = site.muster(*INSTALL, seconds=600)
    assert waiting.returncode == 1
    assert "driver 580.95.05 is installed and not loaded" in waiting.stderr
    assert host.guest.boot_id() == first

    describe(site, host, driver={"reboot": True})
    rebooted = site.muster(*INSTALL, seconds=600)
    assert rebooted.returncode == 0, rebooted.stderr
    assert host.guest.boot_id() != first
    assert set(changed(site)) == {"preflight", "driver", "container_toolkit", "docker"}
    assert changed(site)["driver"] == 1
