"""The roles of hosts on guests: check mode, refusals, and failures in the middle of a run."""

from typing import Any

import pytest

from tests.deployment.hosts.conftest import Boot
from tests.deployment.hosts.guests import write_file

pytestmark = pytest.mark.installer
ROLES = ("driver", "container_toolkit", "docker")

HOLD_THE_LOCK = """
import fcntl, time
lock = open("/var/lib/dpkg/lock-frontend", "w")
fcntl.lockf(lock, fcntl.LOCK_EX)
open("/run/lock-is-held", "w").close()
time.sleep(600)
"""


@pytest.mark.quick
def test_the_check_predicts_the_first_run_and_a_reboot_in_the_middle_is_no_matter(
    boot: Boot,
) -> None:
    bare = boot("ubuntu-24.04")
    predicted = bare.play(*ROLES, arguments=("--check",))
    assert predicted.code == 0, predicted.failures
    first = bare.play("driver")
    assert first.code == 0, first.failures
    bare.guest.restart()
    rest = bare.play(*ROLES)
    assert rest.code == 0, rest.failures
    assert first.changes + rest.changes == predicted.changes
    assert bare.play(*ROLES).changes == []

    assert bare.play("driver", part="verify", driver_gpus=2).code == 0
    bare.guest.run("touch", "/run/nvidia-stub/lost-0000:07:00.0", check=True)
    incomplete = bare.play("driver", part="verify", driver_gpus=2)
    assert "1 of 2 GPUs answer the driver: 0000:07:00.0 on the PCI bus does not" in incomplete.failures[-1]
    more = bare.play("driver", part="verify", driver_gpus=3)
    assert "1 of 3 GPUs" in more.failures[-1]


UNITS = ("containerd", "docker", "nvidia-cdi-refresh", "nvidia-persistenced")
BREAKABLE = """[Service]
Restart=no
ExecStartPre=/bin/sh -c '[ ! -e /run/broken-%N ]'
"""


def test_units_that_failed_too_often_are_started_again_by_the_next_run(boot: Boot) -> None:
    host = boot("ubuntu-24.04")
    guest = host.guest
    assert host.play(*ROLES).code == 0
    for unit in UNITS:
        write_file(guest.disk / f"etc/systemd/system/{unit}.service.d/breakable.conf", BREAKABLE)
    guest.run("systemctl", "daemon-reload", check=True)
    for unit in UNITS:
        guest.run("touch", f"/run/broken-{unit}", check=True)
        for _ in range(7):
            guest.run("systemctl", "restart", unit)
    guest.run("rm", "-f", "/run/cdi/nvidia.yaml", check=True)
    failed = guest.run("systemctl", "list-units", "--state=failed", "--plain", "--no-legend").stdout
    assert all(f"{unit}.service" in failed for unit in UNITS), failed
    named = host.play("container_toolkit", part="verify").failures[-1]
    assert "nvidia-cdi-refresh.service failed (`journalctl -u nvidia-cdi-refresh`)" in named
    still = host.play("container_toolkit")
    assert "nvidia-cdi-refresh.service failed" in still.failures[-1]

    guest.run("sh", "-c", "rm /run/broken-*", check=True)
    resumed = host.play(*ROLES)
    assert resumed.code == 0, resumed.failures
    assert set(resumed.changes) == {"Start the units that have failed"}
    assert guest.run("systemctl", "is-failed", *UNITS).returncode != 0
    assert host.play(*ROLES).changes == []


def test_the_lock_of_apt_is_waited_for_and_named(boot: Boot) -> None:
    host = boot("ubuntu-24.04")
    host.guest.run("systemd-run", "--unit=holder", "python3", "-c", HOLD_THE_LOCK, check=True)
    host.guest.run("sh", "-c", "until [ -e /run/lock-is-held ]; do sleep 0.1; done", check=True)
    held = host.play("driver", packages_lock_seconds=1)
    assert "another process holds the lock of the package manager" in held.failures[-1]
    host.guest.run("systemctl", "stop", "holder", check=True)
    resumed = host.play("driver")
    assert resumed.code == 0, resumed.failures


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"driver_os": "ubuntu-22.04"}, "the site file says ubuntu-22.04, the host runs Ubuntu 24.04"),
    ({"driver_branch": "418"}, "there is no driver 418 for ubuntu-24.04"),
    ({"driver_free_bytes": 1 << 50}, "make room, then run the same command again"),
    ({"driver_branch": "535"}, "DRA needs driver 565 or newer"),
    ({"driver_model": "dgx-1"}, "ubuntu-24.04 does not support dgx-1"),
    ({"driver_model": "dgx-1", "driver_branch": "590"}, "580 is the last branch for them"),
    ({"driver_model": "dgx-1", "driver_kernel_modules": "open"}, "need the proprietary modules"),
]


def test_unsuitable_values_are_refused_before_anything_is_changed(boot: Boot) -> None:
    host = boot("ubuntu-24.04")
    for changes, reason in REFUSED:
        result = host.play("driver", part="preflight", **changes)
        assert reason in "\n".join(result.failures)
        assert result.changes == []


def test_docker_keeps_the_given_values_and_refuses_those_that_would_stop_it(boot: Boot) -> None:
    host = boot("ubuntu-24.04")
    flags = host.play("docker", part="preflight", docker_daemon={"data-root": "/raid"})
    assert "docker_daemon has data-root: kubespray gives that" in flags.failures[-1]
    assert host.play("docker", docker_default_runtime="", docker_runtimes={}).code == 0

    config = host.guest.disk / "etc/docker/daemon.json"
    before = config.read_text()
    wrong = host.play("docker", docker_daemon={"default-shm-size": "much"})
    assert wrong.code != 0
    assert config.read_text() == before, "a configuration that dockerd refuses is never written"

    config.write_text('{"storage-driver": ')
    assert "is not JSON: repair it" in host.play("docker", part="preflight").failures[-1]

    config.write_text(
        '{"storage-driver": "vfs", "default-runtime": "nvidia", "runtimes": {"nvidia": {"path": "runc"}}}'
    )
    cut_off = host.play("docker", docker_runtimes={"nvidia": {"path": "runc"}}, docker_daemon={})
    assert cut_off.code == 0, cut_off.failures
    assert cut_off.changes == ["Read the default runtime of the running Docker", "Restart docker"]
