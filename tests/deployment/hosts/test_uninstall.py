"""The removal of roles removes all that they brought to a host, and nothing else."""

import json

import pytest

from tests.deployment.hosts.conftest import Boot, Host
from tests.deployment.hosts.guests import Guest

pytestmark = pytest.mark.installer
ROLES = ("driver", "container_toolkit", "docker")

# Without files that dpkg and depmod write. Also without groups of packages, which Debian keeps for files that
# may belong to them.
FILES = """find /etc /usr /opt /srv /root /boot /lib/modules /var/lib -xdev -type f \
  -not -path '/var/lib/dpkg/*' -not -path '/var/lib/apt/*' -not -path '/var/lib/systemd/*' \
  -not -path '/var/lib/docker/*' -not -path '/var/lib/containerd/*' -not -path '*/modules.*' \
  -not -name 'ld.so.cache' -not -path '/etc/group*' -not -path '/etc/gshadow*' \
  -print0 2>/dev/null | sort -z | xargs -0 md5sum"""


def state(guest: Guest) -> dict[str, list[str]]:
    """Return the parts of the host's state that the roles can change."""
    commands = {
        "packages": "dpkg --get-selections",
        "kept by hand": "apt-mark showmanual",
        "files": FILES,
        "units": "systemctl list-unit-files --no-legend --no-pager",
        "running": "systemctl list-units --no-legend --no-pager --plain --state=running --type=service,socket",
    }
    return {
        name: guest.run("sh", "-c", command, check=True).stdout.splitlines()
        for name, command in commands.items()
    }


def changes(before: dict[str, list[str]], after: dict[str, list[str]]) -> dict[str, set[str]]:
    """Return the lines of two states that are only in one of them."""
    differ = {name: set(before[name]) ^ set(after[name]) for name in before}
    return {name: lines for name, lines in differ.items() if lines}


def uninstall(host: Host) -> None:
    removed = host.play(*reversed(ROLES), part="uninstall", docker_uninstall_packages=True)
    assert removed.code == 0, removed.failures


def test_after_uninstall_the_host_is_as_before_and_can_be_installed_again(boot: Boot) -> None:
    host = boot("dgx-os-4")
    before = state(host.guest)
    installed = host.play(*ROLES)
    assert installed.code == 0, installed.failures
    assert state(host.guest) != before
    uninstall(host)
    assert changes(before, state(host.guest)) == {}
    assert (host.guest.disk / "var/lib/docker/vfs").exists() or (
        host.guest.disk / "var/lib/docker/image"
    ).exists()
    assert host.play(*reversed(ROLES), part="uninstall").changes == []
    again = host.play(*ROLES)
    assert again.code == 0, again.failures
    assert again.changes == installed.changes


def test_former_software_and_later_changes_of_others_remain_on_a_host(boot: Boot) -> None:
    host = boot("dgx-os-6")
    files = host.guest.disk / "etc/docker/daemon.json", host.guest.disk / "etc/containerd/config.toml"
    daemon, containerd = files
    original = '{ "default-runtime": "crun",\n  "runtimes": {"crun": {"path": "crun"}} }\n'
    daemon.write_text(original)
    containerd.parent.mkdir(exist_ok=True)
    containerd.write_text('# ours\nversion = 2\nimports = ["/etc/containerd/more/*.toml"]\n')
    host.guest.run("apt-get", "install", "-qq", "-y", "nvidia-modprobe", "libnvidia-nscq-580", check=True)
    first = host.play(*ROLES)
    assert first.code == 0, first.failures

    merged = json.loads(daemon.read_text())
    merged["runtimes"]["kata"] = {"path": "kata"}
    daemon.write_text(json.dumps(merged))
    removed = host.play(*reversed(ROLES), part="uninstall")
    assert removed.code == 0, removed.failures
    left = json.loads(daemon.read_text())
    assert left == {
        "default-runtime": "crun",
        "runtimes": {"crun": {"path": "crun"}, "kata": {"path": "kata"}},
    }
    assert containerd.read_text().startswith("# ours\n")
    packages = host.guest.run("dpkg", "--get-selections").stdout.split()
    assert {"nvidia-modprobe", "libnvidia-nscq-580", "docker.io"} <= set(packages)
    assert not {"nvidia-driver-580-server", "nvidia-utils-580-server"} & set(packages)

    daemon.write_text(original)
    assert host.play("docker").code == 0
    assert host.play("docker", part="uninstall").code == 0
    assert daemon.read_text() == original
