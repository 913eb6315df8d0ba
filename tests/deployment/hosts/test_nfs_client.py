"""The role installs the NFS client from the archive of the host's system, and removes it
unless the host had it before.
"""

import pytest

from tests.deployment.hosts.conftest import Boot
from tests.deployment.hosts.test_uninstall import state

pytestmark = pytest.mark.installer


def test_a_host_can_mount_nfs_and_gives_it_back(boot: Boot) -> None:
    host = boot("ubuntu-24.04")
    before = state(host.guest)
    refused = host.play("nfs_client", part="verify")
    assert "has no /sbin/mount.nfs that works" in refused.failures[0]
    installed = host.play("nfs_client")
    assert installed.code == 0, installed.failures
    assert host.guest.run("/sbin/mount.nfs", "-V", check=True).stdout.startswith(
        "mount.nfs: (linux nfs-utils"
    )
    assert host.play("nfs_client").changes == []
    removed = host.play("nfs_client", part="uninstall")
    assert removed.code == 0, removed.failures
    after = state(host.guest)
    for kind in ("packages", "kept by hand", "running"):
        assert after[kind] == before[kind]
