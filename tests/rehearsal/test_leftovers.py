"""What a teardown may leave on a host of the rehearsal (tests/rehearsal/upgrades.py)."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, cast

import pytest

from tests.rehearsal import upgrades
from tests.rehearsal.chain import StepFailed

if TYPE_CHECKING:
    from tests.rehearsal.machines import Machine


@dataclass
class Left:
    """A host with these packages and files besides those of a bare host."""

    files: set[str]
    name: str = "gpu01"
    packages: set[str] = field(default_factory=lambda: {"conntrack"})

    def left(self) -> tuple[set[str], set[str]]:
        return self.packages, self.files


SEEN = (
    "/etc/containerd/certs.d/quay.io/hosts.toml",
    "/etc/systemd/system/multi-user.target.wants/containerd.service",
    "/opt/cni/bin/bridge",
    "/usr/bin/containerd-shim-runc-v2",
    "/usr/lib/modules/6.18.44/modules.dep",
    "/var/lib/dpkg/status",
    "/var/lib/muster/snapshots/20261128-161810-upgrade-01d6.db",
)
REFUSED = (
    "/etc/kubernetes/admin.conf",
    "/etc/systemd/system/kubelet.service",
    "/etc/apt/sources.list.d/nvidia.list",
    "/usr/local/bin/kubeadm",
    "/usr/bin/nvidia-smi",
    "/var/lib/etcd/member/snap/db",
    "/var/lib/muster/other",
)


def test_files_of_packages_and_snapshots_are_permitted(capsys: pytest.CaptureFixture[str]) -> None:
    upgrades.check_leftovers([cast("Machine", Left(set(SEEN)))])
    assert capsys.readouterr().out == "gpu01: teardown leaves 1 packages: conntrack\n"


@pytest.mark.parametrize("file", REFUSED)
def test_any_other_file_is_named(file: str) -> None:
    with pytest.raises(StepFailed, match=f"teardown leaves on gpu01: {file}$"):
        upgrades.check_leftovers([cast("Machine", Left({*SEEN, file}))])
