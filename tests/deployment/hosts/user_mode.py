"""Guests with a kernel in user mode, which has bonds and VLANs that the kernel of this machine lacks."""

import os
import shlex
import shutil
import signal
import subprocess
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tests.deployment.hosts.bases import call
from tests.deployment.hosts.guests import Guest, add_unit, folder, write_file

PROGRAM = "linux.uml"
MODULES = Path("/usr/lib/uml/modules")
_PORTS = """#!/bin/sh
modprobe --all bonding 8021q veth
ip link set vec0 down
ip link set vec0 name eth0
ip link add switch type bridge
ip link set switch mtu 9000 up
for number in $(seq 1 $1); do
    ip link add eth$number type veth peer name port$number
    ip link set port$number mtu 9000 master switch up
done
"""
_UNIT = """[Unit]
DefaultDependencies=no
After=systemd-udevd.service local-fs.target
Before=network-pre.target
Wants=network-pre.target
[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/usr/local/sbin/ports {ports}
[Install]
WantedBy=multi-user.target
"""


def missing() -> str:
    """Return the missing requirement of such guests; empty if there is none."""
    present = shutil.which(PROGRAM) and MODULES.is_dir()
    return "" if present else "a kernel with bonds and VLANs needs: apt-get install user-mode-linux"


def session(leader: int) -> list[int]:
    """Return the processes of a session that are no zombies."""
    done = subprocess.run(
        ["ps", "-o", "pid=,stat=", "-s", str(leader)], capture_output=True, text=True, check=False
    )
    rows = [line.split() for line in done.stdout.splitlines()]
    return [int(pid) for pid, state in rows if not state.startswith("Z")]


@dataclass
class UserModeGuest(Guest):
    """A guest whose eth0 leads to this machine, and whose other interfaces are ports of one switch."""

    def start(self) -> None:
        """Boot, and wait until systemd has started everything. Raises Unusable."""
        shutil.copytree(MODULES, self.disk / "usr/lib/modules", dirs_exist_ok=True)
        (self.disk / "usr/local/sbin/udevadm").unlink()  # this guest has udev
        write_file(self.disk / "usr/local/sbin/ports", _PORTS, 0o755)
        add_unit(self.disk, "ports.service", _UNIT.format(ports=self.ports - 1), "multi-user.target")
        for name in ("containerd", "docker", "systemd-networkd-wait-online"):
            (self.disk / f"etc/systemd/system/{name}.service").symlink_to("/dev/null")
        words = [
            PROGRAM, f"umid={self.name}", "mem=768M", "rootfstype=hostfs", f"rootflags={self.disk}", "rw",
            "init=/usr/lib/systemd/systemd", "con=null", "con0=null,fd:1", "ssl=null",
            f"vec0:transport=tap,ifname={self.peer(0)}",
        ]  # fmt: skip
        call(["ip", "tuntap", "add", "dev", self.peer(0), "mode", "tap"])
        call(["ip", "address", "add", f"{self.network}.1/24", "dev", self.peer(0)])
        # the driver of this kernel drops segments that are larger than the MTU, which this machine would send
        call(["ip", "link", "set", "dev", self.peer(0), "gso_max_segs", "1", "gso_max_size", "1500", "up"])
        with (folder() / f"{self.name}.log").open("a") as log:
            self._process = subprocess.Popen(
                words, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )
        self.monitor = self._process.pid
        self.save()
        self.wait_until_up()

    def run(self, *arguments: str, check: bool = False) -> subprocess.CompletedProcess[str]:
        """Run a program in the guest."""
        options = [f"UserKnownHostsFile={self.known_hosts}", "BatchMode=yes", "ConnectTimeout=10"]
        words = [word for option in options for word in ("-o", option)]
        words += ["-i", str(self.key_file), "-p", str(self.port), f"root@{self.address}"]
        return subprocess.run(
            ["ssh", *words, shlex.join(arguments)], capture_output=True, text=True, check=check, timeout=300
        )

    def kill(self) -> None:
        """Cut the power: kill the kernel, and its processes, which are of its session."""
        deadline = time.monotonic() + 120
        while members := session(self.monitor):
            for process in members:
                with suppress(ProcessLookupError):
                    os.kill(process, signal.SIGKILL)
            if self._process is not None:
                self._process.wait(120)
            assert time.monotonic() < deadline, f"{members} do not end"
            time.sleep(0.1)

    def destroy(self) -> None:
        """Stop the guest, and remove its files and its link to this machine."""
        self.kill()
        super().destroy()
        call(["ip", "link", "delete", "dev", self.peer(0)])
