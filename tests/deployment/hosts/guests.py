"""Ubuntu machines for tests of roles: systemd-nspawn guests with their own disks over shared root file systems.

    python -m tests.deployment.hosts.guests create jammy NAME --owner PID --gpus 1db5 --inventory FILE
    python -m tests.deployment.hosts.guests destroy NAME

A guest has systemd, its own disk, and no network but the host's loopback, unless it gets `ports` of its own. It
installs packages from a folder (`repository`). It can reboot, and a test can cut its power. A guest belongs to the
process that requested it. Each process that makes guests first removes those whose owner has ended, so that even a
killed test leaves nothing.
"""

import argparse
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

import yaml

from tests.deployment.hosts.bases import Unusable, base, call, locked

PROGRAMS = ("systemd-nspawn", "mmdebstrap", "nsenter", "dpkg-deb", "gpg", "ssh-keygen", "mount")
DEBIAN_PACKAGES = ("systemd-container", "mmdebstrap", "util-linux", "dpkg", "gpg", "openssh-client", "mount")
BOOT_SECONDS = 300

MONITOR = """status=133
while [ $status = 133 ]; do systemd-nspawn "$@"; status=$?; done
exit $status"""
"""systemd-nspawn ends with 133 if its guest wants to reboot and systemd-nspawn must not create a unit."""

_HARDWARE = """[Unit]
Description=Show the hardware of this guest
DefaultDependencies=no
Before=sysinit.target
[Service]
Type=oneshot
ExecStart=/bin/mount --bind /srv/hardware/pci /sys/bus/pci/devices
ExecStart=-/bin/mount --bind /srv/hardware/dmi /sys/devices/virtual/dmi/id
[Install]
WantedBy=sysinit.target
"""
_DMIDECODE = """#!/bin/sh
# For kernels that have no table of the firmware in /sys.
[ "$*" != "-s system-product-name" ] || cat /srv/hardware/dmi/product_name
"""
_SSHD = """Port {port}
ListenAddress {address}
HostKey /etc/ssh/ssh_host_ed25519_key
UsePAM no
PidFile none
UseDNS no
Subsystem sftp internal-sftp
"""
_SSH_UNIT = """[Service]
RuntimeDirectory=sshd
ExecStart=/usr/sbin/sshd -D -f /etc/ssh/guest_config
KillMode=process
[Install]
WantedBy=multi-user.target
"""
_DOCKER = """[Service]
ExecStart=
ExecStart=/usr/bin/dockerd -H fd:// --bridge=none --iptables=false --ip-forward=false
StartLimitBurst=0
"""
"""A Docker that does without the kernel's networks."""


def missing() -> str:
    """Return the missing requirement of guests on this machine; empty if there is none."""
    if os.geteuid() != 0:
        return "guests need root"
    absent = [
        package
        for program, package in zip(PROGRAMS, DEBIAN_PACKAGES, strict=True)
        if not shutil.which(program)
    ]
    return f"guests need: apt-get install {' '.join(absent)}" if absent else ""


def folder() -> Path:
    """Return the folder for the disks of running guests."""
    path = Path("/var/tmp/muster/guests")  # noqa: S108 - a disk, not memory, and only root writes there
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    return path


@dataclass
class Guest:
    """A running machine. Its SSH server listens on `port` of loopback.

    `product` is the name in its firmware, `gpus` are the PCI device ids of its GPUs. `ports` is the number of its
    interfaces eth0, eth1, … in a network namespace of its own; this machine reaches it at `address` over eth0.
    """

    name: str
    owner: int
    monitor: int = 0
    repository: str = ""
    gpus: tuple[str, ...] = ()
    product: str = ""
    port: int = 0
    ports: int = 0
    _process: subprocess.Popen[bytes] | None = field(default=None, repr=False, compare=False)

    @property
    def disk(self) -> Path:
        """The root file system of the guest, mounted until the guest is destroyed."""
        return folder() / self.name

    @property
    def changes(self) -> Path:
        """The guest's own layer of its disk, above the shared root file system."""
        return folder() / f"{self.name}.changes"

    @property
    def key_file(self) -> Path:
        """The private key for the guest's SSH server."""
        return folder() / f"{self.name}.key"

    @property
    def known_hosts(self) -> Path:
        """The host key of the guest as a file for known_hosts."""
        return folder() / f"{self.name}.known_hosts"

    @property
    def network(self) -> str:
        """The network between this machine and eth0, without its last number, of the range of RFC 2544."""
        return f"198.18.{self.owner % 250}"

    @property
    def address(self) -> str:
        """The address of the guest's SSH server."""
        return f"{self.network}.2" if self.ports else "127.0.0.1"

    def peer(self, number: int) -> str:
        """Return the name of this machine's end of a port."""
        return f"mp{self.owner}-{number}"

    @property
    def leader(self) -> int:
        """The process id of the guest's init. It changes at each boot, and is 0 while there is none."""
        return child_of(child_of(self.monitor))

    def start(self) -> None:
        """Boot, and wait until systemd has started everything. Raises Unusable."""
        binds = [f"--bind-ro={self.repository}:/srv/packages"] if self.repository else []
        links = [f"--network-veth-extra={self.peer(number)}:eth{number}" for number in range(self.ports)]
        options = [
            "-q",
            "-D",
            str(self.disk),
            "-M",
            self.name,
            "--register=no",
            "--keep-unit",
            *links,
            *binds,
        ]
        with (folder() / f"{self.name}.log").open("a") as log:
            self._process = subprocess.Popen(
                ["sh", "-c", MONITOR, "sh", *options, "--boot"],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self.monitor = self._process.pid
        self.save()
        self.wait_until_up()
        for number in range(self.ports):
            call(["ip", "link", "set", "dev", self.peer(number), "mtu", "9000", "up"])
        if self.ports:
            call(["ip", "address", "add", f"{self.network}.1/24", "dev", self.peer(0)])

    def wait_until_up(self, after: str = "") -> None:
        """Wait until the guest has booted; with `after`, until its boot id differs from that one. Raises Unusable."""
        deadline = time.monotonic() + BOOT_SECONDS
        while not (self._up() and self.boot_id() != after):
            if not is_alive(self.monitor) or time.monotonic() > deadline:
                said = (folder() / f"{self.name}.log").read_text(errors="replace")[-800:]
                raise Unusable(f"guest {self.name} does not boot: {said}")
            time.sleep(0.2)

    def _up(self) -> bool:
        state = self.run("systemctl", "is-system-running").stdout.strip()
        return state in {"running", "degraded"}

    def boot_id(self) -> str:
        """Return the id of the present boot; empty while there is none."""
        return self.run("cat", "/proc/sys/kernel/random/boot_id").stdout.strip()

    def run(self, *arguments: str, check: bool = False) -> subprocess.CompletedProcess[str]:
        """Run a program in the guest."""
        return subprocess.run(
            ["nsenter", "-t", str(self.leader), "-a", *arguments],
            capture_output=True,
            text=True,
            check=check,
            timeout=300,
        )

    def restart(self) -> None:
        """Cut the power and boot again: data that is not on the disk is lost."""
        self.kill()
        self.start()

    def drop_connections(self) -> None:
        """Kill the SSH server with all its connections. Processes started over them continue."""
        self.run("sh", "-c", "grep -lx sshd /proc/[0-9]*/comm | cut -d/ -f3 | xargs kill -KILL", check=True)

    def kill(self) -> None:
        """Cut the power."""
        nspawn = child_of(self.monitor)
        leader = child_of(nspawn)
        for process in (self.monitor, nspawn, leader):
            if process and is_alive(process):
                os.kill(process, signal.SIGKILL)
        deadline = time.monotonic() + 120
        if self._process is not None:
            self._process.wait(120)
        while any(map(is_alive, (self.monitor, nspawn, leader))) and time.monotonic() < deadline:
            time.sleep(0.1)

    def destroy(self) -> None:
        """Stop the guest and remove its files."""
        if is_alive(self.monitor):
            self.kill()
        if self.disk.is_mount():
            call(["umount", str(self.disk)])
        for directory in (self.disk, self.changes):
            shutil.rmtree(directory, ignore_errors=True)
        for end in (".json", ".log", ".key", ".key.pub", ".known_hosts"):
            (folder() / f"{self.name}{end}").unlink(missing_ok=True)
        (folder() / f".#{self.name}.lck").unlink(missing_ok=True)

    def save(self) -> None:
        """Write the data by which another process can find or remove the guest."""
        record = {key: value for key, value in vars(self).items() if not key.startswith("_")}
        unfinished = folder() / f"{self.name}.json.new"
        unfinished.write_text(json.dumps(record))
        unfinished.rename(unfinished.with_suffix(""))

    def inventory(self) -> str:
        """Return an inventory with this guest."""
        variables = {
            "ansible_host": self.address,
            "ansible_port": self.port,
            "ansible_user": "root",
            "ansible_ssh_private_key_file": str(self.key_file),
            "ansible_ssh_common_args": f"-o UserKnownHostsFile={self.known_hosts}",
            "ansible_ssh_args": "-o ControlMaster=auto -o ControlPersist=60s -o BatchMode=yes",
            "ansible_control_path_dir": str(folder() / "connections"),
            "ansible_pipelining": True,
            "ansible_python_interpreter": "/usr/bin/python3",
        }
        return yaml.safe_dump({"all": {"hosts": {self.name: variables}}})


def child_of(pid: int) -> int:
    """Return the first child of a process; 0 if there is none."""
    try:
        found = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return int(found[0]) if found else 0


def is_alive(pid: int) -> bool:
    """Return whether a process exists and is no zombie."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


def _give_disk(guest: Guest, origin: Path) -> None:
    """Mount a disk over a root file system. `volatile` is for disks that are never mounted again."""
    upper, work = guest.changes / "upper", guest.changes / "work"
    for directory in (guest.disk, upper, work):
        directory.mkdir(parents=True)
    upper.chmod(0o755)
    layers = f"lowerdir={origin},upperdir={upper},workdir={work},volatile"
    call(["mount", "-t", "overlay", "-o", layers, f"muster-{guest.name}", str(guest.disk)])


def give_hardware(
    disk: Path,
    gpus: tuple[str, ...],
    product: str,
    addresses: tuple[str, ...] = (),
    switches: Mapping[str, str] = MappingProxyType({}),
) -> None:
    """Show these GPUs on the PCI bus, and a product name in the firmware, to the guest with this disk.

    `switches` maps the addresses of NVSwitches to their PCI device ids.
    """
    places = addresses or tuple(f"0000:{number + 6:02x}:00.0" for number in range(len(gpus)))
    devices = [(place, device, "0x030200") for place, device in zip(places, gpus, strict=True)]
    devices += [(place, device, "0x068000") for place, device in switches.items()]
    for address, device, kind in devices:
        place = disk / "srv/hardware/pci" / address
        for file, text in (("vendor", "0x10de"), ("class", kind), ("device", f"0x{device}")):
            write_file(place / file, f"{text}\n")
    write_file(disk / "srv/hardware/dmi/product_name", f"{product or 'none'}\n")
    write_file(disk / "usr/sbin/dmidecode", _DMIDECODE, 0o755)
    if "DGX" in product:
        write_file(disk / "etc/dgx-release", f'DGX_NAME="{product}"\n')
    if gpus:
        add_unit(disk, "hardware.service", _HARDWARE, "sysinit.target")


def _give_site(guest: Guest) -> None:
    """Add the repository of drivers and Docker, and a configuration of Docker that roles must preserve."""
    write_file(guest.disk / "etc/apt/sources.list", "deb [trusted=yes] file:/srv/packages/driver ./\n")
    write_file(guest.disk / "etc/systemd/system/docker.service.d/guest.conf", _DOCKER)
    write_file(guest.disk / "etc/docker/daemon.json", '{"storage-driver": "vfs", "labels": ["site=here"]}')


def _give_ssh(guest: Guest) -> None:
    listening = "0.0.0.0" if guest.ports else guest.address  # noqa: S104 - in a namespace of its own
    with socket.create_server(("127.0.0.1", 0)) as free:
        guest.port = free.getsockname()[1]
    call(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(guest.key_file)])
    write_file(
        guest.disk / "root/.ssh/authorized_keys", guest.key_file.with_suffix(".key.pub").read_text(), 0o600
    )
    write_file(guest.disk / "etc/ssh/guest_config", _SSHD.format(port=guest.port, address=listening))
    add_unit(guest.disk, "guest-ssh.service", _SSH_UNIT, "multi-user.target")
    own = (guest.disk / "etc/ssh/ssh_host_ed25519_key.pub").read_text()
    guest.known_hosts.write_text(f"[{guest.address}]:{guest.port} {own}")


def _give_network(guest: Guest) -> None:
    """Give eth0 its address by netplan. A guest has no udev, which netplan calls."""
    entry = {"dhcp4": False, "optional": True, "addresses": [f"{guest.address}/24"]}
    write_file(
        guest.disk / "etc/netplan/50-site.yaml",
        yaml.safe_dump({"network": {"ethernets": {"eth0": entry}}}),
        0o600,
    )
    write_file(guest.disk / "usr/local/sbin/udevadm", "#!/bin/sh\n", 0o755)


def add_unit(disk: Path, name: str, text: str, target: str) -> None:
    """Add a unit of systemd to a disk, and let a target start it."""
    unit = disk / "etc/systemd/system" / name
    write_file(unit, text)
    wanted = unit.parent / f"{target}.wants" / name
    wanted.parent.mkdir(exist_ok=True)
    wanted.symlink_to(f"/etc/systemd/system/{name}")


def write_file(file: Path, text: str, mode: int = 0o644) -> None:
    """Write a file, and create the folders above it."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    file.chmod(mode)


def load(name: str) -> Guest:
    """Return an existing guest, perhaps made by another process."""
    record = json.loads((folder() / f"{name}.json").read_text())
    return Guest(**(record | {"gpus": tuple(record["gpus"])}))


def sweep(owner: int | None = None) -> None:
    """Remove the guests of an owner, or those of all owners that have ended."""
    with locked(folder() / "sweep.lock"):
        for record in folder().glob("*.json"):
            with suppress(FileNotFoundError):  # another process removes it at the same time
                guest = load(record.stem)
                if guest.owner == owner or (owner is None and not is_alive(guest.owner)):
                    guest.destroy()


def create(suite: str, guest: Guest, more: tuple[str, ...] = ()) -> Guest:
    """Make the disk of a guest with an Ubuntu release and more packages, and boot it. Raises Unusable."""
    problem = missing()
    if problem:
        raise Unusable(problem)
    sweep()
    origin = base(suite, more).root
    guest.save()
    _give_disk(guest, origin)
    give_hardware(guest.disk, guest.gpus, guest.product)
    _give_site(guest)
    _give_ssh(guest)
    if guest.ports:
        _give_network(guest)
    guest.start()
    return guest


def main(arguments: list[str]) -> None:
    """Run the command line, which playbooks call to create and destroy guests."""
    parser = argparse.ArgumentParser(prog="guests")
    commands = parser.add_subparsers(dest="command", required=True)
    making = commands.add_parser("create")
    making.add_argument("suite")
    making.add_argument("name")
    making.add_argument("--owner", type=int, required=True)
    making.add_argument("--repository", default="")
    making.add_argument("--gpus", default="")
    making.add_argument("--inventory", type=Path, required=True)
    removing = commands.add_parser("destroy")
    removing.add_argument("name")
    given = parser.parse_args(arguments)
    if given.command == "create":
        gpus = tuple(given.gpus.split(",")) if given.gpus else ()
        guest = Guest(given.name, given.owner, repository=given.repository, gpus=gpus)
        create(given.suite, guest)
        given.inventory.parent.mkdir(parents=True, exist_ok=True)
        given.inventory.write_text(guest.inventory())
    elif (folder() / f"{given.name}.json").exists():
        load(given.name).destroy()


if __name__ == "__main__":
    main(sys.argv[1:])
