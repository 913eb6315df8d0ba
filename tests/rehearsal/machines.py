"""The bare hosts of the rehearsal: systemd-nspawn guests, prepared for kubeadm, kubelets and kubespray.

docs/reference/rehearsal.md lists the properties of a real host that a guest lacks. This module adds those that a guest
can have.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from musterlab.realnodes import cgroups
from musterlab.supervisor import remove_cgroups
from tests.deployment.hosts.bases import Unusable, base, call
from tests.deployment.hosts.guests import MONITOR, add_unit, child_of, give_hardware, is_alive, write_file
from tests.rehearsal import gpus, namespace

SUITE: Final = "noble"
MORE_PACKAGES: Final = (
    *("iproute2", "ipset", "iptables", "iputils-ping", "procps", "systemd-resolved", "nfs-common", "ca-certificates"),
)  # fmt: skip
"""Packages of every Ubuntu server, and those that kubespray needs besides the packages of `bases`."""

RUNTIME_DISK: Final = "/srv/containerd"
"""A file system for overlays. containerd has a folder on it: a mounted folder itself cannot be deleted."""
CPUS: Final = 32
BOOT_SECONDS: Final = 120

_ENVIRONMENT: Final = {
    "SYSTEMD_SECCOMP": "0",
    "SYSTEMD_NSPAWN_API_VFS_WRITABLE": "network",
    "SYSTEMD_NSPAWN_UNIFIED_HIERARCHY": "0",
}
_OWN_SETTINGS: Final = (
    *("vm/overcommit_memory", "vm/panic_on_oom", "kernel/panic", "kernel/panic_on_oops"),
    *("kernel/keys/root_maxkeys", "kernel/keys/root_maxbytes"),
    *("fs/inotify/max_user_instances", "fs/inotify/max_user_watches"),
)
"""Kernel settings of the machine: a guest sees and sets copies of them."""

_NETWORK: Final = """[Match]
Name=host0
[Network]
Address={address}/16
Gateway={gateway}
DNS={gateway}
LinkLocalAddressing=no
"""
_SSHD: Final = """Port 22
ListenAddress {address}
HostKey /etc/ssh/ssh_host_ed25519_key
UsePAM no
PidFile none
UseDNS no
MaxStartups 50
MaxSessions 50
Subsystem sftp internal-sftp
"""
_SSH_UNIT: Final = """[Unit]
After=network-online.target
Wants=network-online.target
[Service]
RuntimeDirectory=sshd
ExecStart=/usr/sbin/sshd -D -f /etc/ssh/guest_config
KillMode=process
Restart=on-failure
RestartSec=1
[Install]
WantedBy=multi-user.target
"""
_KERNEL: Final = """[Unit]
Description=Show this guest kernel settings and cgroups of its own
DefaultDependencies=no
Before=sysinit.target systemd-sysctl.service
[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/srv/kernel.sh
[Install]
WantedBy=sysinit.target
"""
_KERNEL_SCRIPT: Final = """#!/bin/sh
# Kernel settings that are the machine's, and cgroups that the guest may change.
mount --make-rshared /
mkdir -p /run/kernel
for name in {settings}; do
    [ -e /proc/sys/$name ] || continue
    file=/run/kernel/$(echo $name | tr / .)
    cat /proc/sys/$name > $file
    mount --bind $file /proc/sys/$name
done
for hierarchy in /sys/fs/cgroup/*; do
    mountpoint -q $hierarchy && mount -o remount,rw,bind $hierarchy
done
exit 0
"""
_PROCESSORS: Final = """#!/bin/sh
# More processors than the machine has, for a kubelet that has made its cgroups: before, it would write them there.
set -e
[ ! -e /run/kernel/online ] || exit 0
until [ -e /sys/fs/cgroup/cpu/kubepods.slice ]; do sleep 1; done
memory=$(cat /sys/devices/system/node/node0/meminfo)
mount -t tmpfs -o mode=755,size=16m tmpfs /sys/devices/system/node
number=0
while [ $number -lt {cpus} ]; do
    mkdir -p /sys/devices/system/node/node0/cpu$number/topology
    echo $number > /sys/devices/system/node/node0/cpu$number/topology/core_id
    echo 0 > /sys/devices/system/node/node0/cpu$number/topology/physical_package_id
    number=$((number + 1))
done
echo "$memory" > /sys/devices/system/node/node0/meminfo
echo 10 > /sys/devices/system/node/node0/distance
mkdir /sys/devices/system/node/node0/hugepages
echo 0-{last} > /run/kernel/online
mount --bind /run/kernel/online /sys/devices/system/cpu/online
systemctl restart kubelet
"""
_AFTER_A_BOOT: Final = """[Unit]
Description=Show the kubelet more processors after a boot too
After=kubelet.service
ConditionPathExists=/srv/processors.on
[Service]
ExecStart=/srv/processors.sh
[Install]
WantedBy=multi-user.target
"""


@dataclass
class Machine:
    """A guest with its own address. `folder` holds its disk and the state that another process needs."""

    name: str
    address: str
    folder: Path
    gpus: tuple[str, ...] = ()
    product: str = ""
    number: int = 0
    monitor: int = 0

    @property
    def disk(self) -> Path:
        """The guest's root file system, mounted until the machine is destroyed."""
        return self.folder / self.name / "disk"

    @property
    def key_file(self) -> Path:
        """The private key for this guest and all others, because `muster validate --site` knows a single key."""
        return self.folder / "key"

    @property
    def leader(self) -> int:
        """The process id of the guest's init; 0 while the guest does not run."""
        return child_of(child_of(self.monitor))

    @property
    def host_key(self) -> str:
        """The line with the guest's host key for known_hosts."""
        key = (self.disk / "etc/ssh/ssh_host_ed25519_key.pub").read_text()
        return f"{self.address} {' '.join(key.split()[:2])}\n"

    def create(self, packages: Path, volumes: Path, library: Path) -> None:
        """Give the guest a disk with a bare Ubuntu, and boot it.

        The guest sees the repositories `packages` in /srv/packages. All hosts see the folder `volumes`. `library` is
        the double of NVML.
        """
        own = self.folder / self.name
        for directory in ("disk", "upper", "work", "containerd"):
            (own / directory).mkdir(parents=True)
        (own / "upper").chmod(0o755)
        layers = f"lowerdir={base(SUITE, MORE_PACKAGES).root},upperdir={own / 'upper'},workdir={own / 'work'}"
        call(["mount", "-t", "overlay", "-o", layers, f"{namespace.NAME}-{self.name}", str(self.disk)])
        if not self.key_file.exists():
            call(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(self.key_file)])
        self._furnish(library)
        self.start(packages, volumes)

    def _furnish(self, library: Path) -> None:
        public = self.key_file.with_suffix(".pub").read_text()
        write_file(self.disk / "root/.ssh/authorized_keys", public, 0o600)
        write_file(self.disk / "etc/hostname", f"{self.name}\n")
        network = _NETWORK.format(address=self.address, gateway=namespace.CONTROLLER)
        write_file(self.disk / "etc/systemd/network/10-host0.network", network)
        write_file(self.disk / "etc/ssh/guest_config", _SSHD.format(address=self.address))
        write_file(self.disk / "etc/apt/sources.list", "deb [trusted=yes] file:/srv/packages/driver ./\n")
        script = _KERNEL_SCRIPT.format(settings=" ".join(_OWN_SETTINGS))
        write_file(self.disk / "srv/kernel.sh", script, 0o755)
        write_file(self.disk / "srv/processors.sh", _PROCESSORS.format(cpus=CPUS, last=CPUS - 1), 0o755)
        add_unit(self.disk, "kernel.service", _KERNEL, "sysinit.target")
        add_unit(self.disk, "processors.service", _AFTER_A_BOOT, "multi-user.target")
        add_unit(self.disk, "guest-ssh.service", _SSH_UNIT, "multi-user.target")
        for unit in ("systemd-networkd.service", "systemd-resolved.service"):
            wanted = self.disk / "etc/systemd/system/multi-user.target.wants" / unit
            if not wanted.is_symlink():
                wanted.symlink_to(f"/usr/lib/systemd/system/{unit}")
        resolver = self.disk / "etc/resolv.conf"
        resolver.unlink(missing_ok=True)
        resolver.symlink_to("../run/systemd/resolve/stub-resolv.conf")
        if self.gpus:
            give_hardware(self.disk, self.gpus, self.product, gpus.addresses(), gpus.SWITCHES)
            gpus.furnish(self.disk, library, self.number)
        else:
            give_hardware(self.disk, (), self.product)

    def start(self, packages: Path, volumes: Path) -> None:
        """Boot the guest, and wait until systemd has started all units. Raises Unusable."""
        own = self.folder / self.name
        options = ["-q", "-D", str(self.disk), "-M", f"rehearsal-{self.name}", "--register=no", "--keep-unit"]
        options += ["--capability=all", f"--network-bridge={namespace.BRIDGE}", "--boot"]
        options += [
            f"--bind={device}"
            for device in ("/dev/kmsg", "/dev/fuse", "/dev/net/tun")
            if Path(device).exists()
        ]
        options += [f"--bind={own / 'containerd'}:{RUNTIME_DISK}", f"--bind-ro={packages}:/srv/packages"]
        options += [f"--bind={volumes}"]
        words = namespace.inside(
            sys.executable,
            "-P",
            "-m",
            "tests.rehearsal.cgroup_exec",
            self._cgroup,
            *("sh", "-c", MONITOR, "sh"),
            *options,
        )
        with (own / "log").open("a") as log:
            process = subprocess.Popen(
                words,
                env={**os.environ, **_ENVIRONMENT, "PYTHONPATH": str(Path(__file__).parents[2])},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self.monitor = process.pid
        self.save()
        deadline = time.monotonic() + BOOT_SECONDS
        while self.run("systemctl", "is-system-running").stdout.strip() not in {"running", "degraded"}:
            if not is_alive(self.monitor) or time.monotonic() > deadline:
                said = (own / "log").read_text(errors="replace")[-800:]
                raise Unusable(f"host {self.name} does not boot: {said}")
            time.sleep(0.2)

    def run(self, *arguments: str, check: bool = False) -> subprocess.CompletedProcess[str]:
        """Run a program in the guest."""
        words = ["nsenter", "-t", str(self.leader), "-a", *arguments]
        return subprocess.run(words, capture_output=True, text=True, check=check, timeout=300)

    def show_processors(self) -> None:
        """Let its kubelet count more processors than the machine has, so that the jobs of the scenarios fit."""
        self.run("touch", "/srv/processors.on", check=True)
        self.run("/srv/processors.sh", check=True)

    def files(self) -> set[str]:
        """Return the files that the host made or changed on the disk of its bare system."""
        upper = self.folder / self.name / "upper"
        return {
            f"/{path.relative_to(upper)}"
            for path in upper.rglob("*")
            if path.is_symlink() or not path.is_dir()
        }

    def packages(self) -> set[str]:
        """Return the packages that are installed on the host."""
        entries = (self.disk / "var/lib/dpkg/status").read_text().split("\n\n")
        return {
            entry.removeprefix("Package: ").split("\n", 1)[0]
            for entry in entries
            if "\nStatus: install ok installed\n" in entry
        }

    def remember_bare(self) -> None:
        """Write down files and packages of the bare host, so that `left` can tell the others."""
        bare = {"files": sorted(self.files()), "packages": sorted(self.packages())}
        (self.folder / self.name / "bare.json").write_text(json.dumps(bare))

    def left(self) -> tuple[set[str], set[str]]:
        """Return the packages that the host did not have when it was bare, and the files that are of no package."""
        bare = json.loads((self.folder / self.name / "bare.json").read_text())
        return self.packages() - set(bare["packages"]), self.files() - set(bare["files"]) - self._owned()

    def _owned(self) -> set[str]:
        """Return the files of all packages on the host. Its folders bin, lib and sbin are links to those in usr."""
        lines = {
            line
            for path in (self.disk / "var/lib/dpkg/info").glob("*.list")
            for line in path.read_text().splitlines()
        }
        return lines | {f"/usr{line}" for line in lines if line.startswith(("/bin/", "/lib", "/sbin/"))}

    def is_up(self) -> bool:
        """Return whether the guest runs."""
        return is_alive(self.monitor) and self.leader != 0

    def kill(self) -> None:
        """Kill the guest without a shutdown."""
        # the monitor first, because it would start a guest again that ends
        processes = [pid for pid in (self.monitor, child_of(self.monitor), self.leader) if pid]
        for process in filter(is_alive, processes):
            os.kill(process, signal.SIGKILL)
        deadline = time.monotonic() + 60
        while any(map(is_alive, processes)) and time.monotonic() < deadline:
            time.sleep(0.1)

    def destroy(self) -> None:
        """Stop the guest, and remove its disk and its cgroups."""
        if self.monitor and is_alive(self.monitor):
            self.kill()
        if self.disk.is_mount():
            call(["umount", str(self.disk)])
        shutil.rmtree(self.folder / self.name, ignore_errors=True)
        remove_cgroups([mount / self._cgroup for mount in cgroups.hierarchies()], seconds=30)

    def save(self) -> None:
        """Write the state with which another process can find and remove the guest."""
        record = {**asdict(self), "folder": str(self.folder)}
        (self.folder / self.name / "machine.json").write_text(json.dumps(record))

    @property
    def _cgroup(self) -> str:
        return f"{namespace.NAME}-{self.name}"


def load(folder: Path) -> list[Machine]:
    """Return the machines that an earlier process saved."""
    records = [json.loads(path.read_text()) for path in sorted(folder.glob("*/machine.json"))]
    return [
        Machine(**{**record, "folder": Path(record["folder"]), "gpus": tuple(record["gpus"])})
        for record in records
    ]
