"""Ubuntu machines to try roles on: systemd-nspawn guests from cached root file systems.

    python -m tests.installer.hosts.guests create jammy NAME --gpus 1db5 --inventory FILE
    python -m tests.installer.hosts.guests destroy NAME

A guest has systemd, its own disk, and no network but the host's; what is installed in it comes from a folder with
packages (`repository`). A guest belongs to the process that asked for it: whoever makes guests first removes those
whose owner is gone, so that nothing is left behind even by a killed test.
"""

import argparse
import fcntl
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import yaml

ARCHIVE = os.environ.get("MUSTER_UBUNTU_ARCHIVE", "http://archive.ubuntu.com/ubuntu")
PROGRAMS = ("systemd-nspawn", "debootstrap", "nsenter", "dpkg-deb", "gpg")
DEBIAN_PACKAGES = ("systemd-container", "debootstrap", "util-linux", "dpkg", "gpg")
INCLUDED = ("systemd", "systemd-sysv", "dbus", "python3", "python3-apt", "sudo", "kmod", "ca-certificates")
DOWNLOADED = ("docker.io",)
RECIPE = 1
BOOT_SECONDS = 90


class Unusable(Exception):
    """This machine cannot have guests; the message names what is missing."""


def missing() -> str:
    """Return what this machine lacks to have guests, or an empty string."""
    if os.geteuid() != 0:
        return "guests need root"
    absent = [
        package
        for program, package in zip(PROGRAMS, DEBIAN_PACKAGES, strict=True)
        if not shutil.which(program)
    ]
    return f"guests need: apt-get install {' '.join(absent)}" if absent else ""


def cache() -> Path:
    """The folder for root file systems, which take a minute each to make."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "muster" / "guests"


def folder() -> Path:
    """The folder for the disks of running guests."""
    path = Path("/var/tmp/muster-guests")  # noqa: S108 - a disk, not memory, and only root writes there
    path.mkdir(mode=0o700, exist_ok=True)
    return path


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


@dataclass(frozen=True)
class Base:
    """A root file system to copy, and packages of its archive that roles may install."""

    root: Path
    packages: Path


def base(suite: str) -> Base:
    """Return the root file system of an Ubuntu release, made on first use."""
    recipe = hashlib.sha256(repr((RECIPE, suite, INCLUDED, DOWNLOADED)).encode()).hexdigest()[:12]
    made = cache() / f"{suite}-{recipe}"
    with _locked(cache() / f"{suite}.lock"):
        if not made.exists():
            unfinished = made.with_suffix(".unfinished")
            shutil.rmtree(unfinished, ignore_errors=True)
            _bootstrap(suite, unfinished)
            unfinished.rename(made)
    return Base(made / "root", made / "packages")


def _bootstrap(suite: str, target: Path) -> None:
    root, packages = target / "root", target / "packages"
    packages.mkdir(parents=True)
    keyring = Path("/usr/share/keyrings/ubuntu-archive-keyring.gpg")
    trust = (
        [f"--keyring={keyring}"] if keyring.exists() else ["--no-check-gpg"]
    )  # Debian 12 has no such package
    scripts = Path("/usr/share/debootstrap/scripts")
    script = scripts / (suite if (scripts / suite).exists() else "jammy")
    include = f"--include={','.join(INCLUDED)}"
    options = ["--variant=minbase", include, "--components=main,universe", *trust]
    _call(["debootstrap", *options, suite, str(root), ARCHIVE, str(script)])
    sources = [
        f"deb [trusted=yes] {ARCHIVE} {pocket} main universe" for pocket in (suite, f"{suite}-updates")
    ]
    (root / "etc/apt/sources.list").write_text("\n".join(sources) + "\n")
    shutil.copy("/etc/resolv.conf", root / "etc/resolv.conf", follow_symlinks=True)
    _call(["chroot", str(root), "apt-get", "update", "-qq"])
    fetch = ["apt-get", "install", "-qq", "-y", "--no-install-recommends", "--download-only", *DOWNLOADED]
    _call(["chroot", str(root), *fetch])
    for package in (root / "var/cache/apt/archives").glob("*.deb"):
        package.replace(packages / package.name)
    (root / "etc/apt/sources.list").write_text("")
    shutil.rmtree(root / "var/lib/apt/lists")
    (root / "var/lib/apt/lists/partial").mkdir(parents=True)
    (root / "etc/hostname").unlink(missing_ok=True)
    (root / "etc/machine-id").write_text("")


def _call(arguments: list[str]) -> None:
    finished = subprocess.run(arguments, capture_output=True, text=True, check=False, timeout=900)
    if finished.returncode != 0:
        raise Unusable(f"{' '.join(arguments[:3])}: {(finished.stderr or finished.stdout).strip()[-500:]}")


@dataclass
class Guest:
    """A running machine. `leader` is the process that the connection enters; a restart gives it another."""

    name: str
    owner: int
    monitor: int = 0
    leader: int = 0
    repository: str = ""
    gpus: tuple[str, ...] = ()
    _process: subprocess.Popen[bytes] | None = field(default=None, repr=False, compare=False)

    @property
    def disk(self) -> Path:
        """Its root file system."""
        return folder() / self.name

    def start(self) -> None:
        """Boot, and wait until systemd has started everything."""
        binds = [f"--bind-ro={self.repository}:/srv/packages"] if self.repository else []
        with (folder() / f"{self.name}.log").open("a") as log:
            process = subprocess.Popen(
                [
                    "systemd-nspawn",
                    "-q",
                    "-D",
                    str(self.disk),
                    "-M",
                    self.name,
                    "--register=no",
                    "--keep-unit",
                    *binds,
                    "--boot",
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self._process, self.monitor = process, process.pid
        self.leader = 0
        self._save()
        deadline = time.monotonic() + BOOT_SECONDS
        while not self._running():
            if process.poll() is not None or time.monotonic() > deadline:
                said = (folder() / f"{self.name}.log").read_text(errors="replace")[-800:]
                raise Unusable(f"guest {self.name} does not boot: {said}")
            time.sleep(0.2)
        self._save()
        if self.gpus:
            self._show_gpus()

    def _running(self) -> bool:
        children = Path(f"/proc/{self.monitor}/task/{self.monitor}/children")
        found = children.read_text().split() if children.exists() else []
        if not found:
            return False
        self.leader = int(found[0])
        return self.run("systemctl", "is-system-running").stdout.strip() in {"running", "degraded"}

    def _show_gpus(self) -> None:
        """Let the guest see these GPUs on its PCI bus."""
        for number, device in enumerate(self.gpus):
            place = self.disk / "srv/pci" / f"0000:{number + 6:02x}:00.0"
            place.mkdir(parents=True, exist_ok=True)
            for file, text in (("vendor", "0x10de"), ("class", "0x030200"), ("device", f"0x{device}")):
                (place / file).write_text(f"{text}\n")
        self.run("mount", "--bind", "/srv/pci", "/sys/bus/pci/devices", check=True)

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
        """Pull the plug and boot again: what was not on the disk is gone."""
        self._kill()
        self.start()

    def _kill(self) -> None:
        for process in (self.leader, self.monitor):
            try:
                os.kill(process, signal.SIGKILL)
            except ProcessLookupError:
                continue
        deadline = time.monotonic() + 30
        if self._process is not None:
            self._process.wait(30)
        while _alive(self.monitor) and time.monotonic() < deadline:
            time.sleep(0.1)

    def destroy(self) -> None:
        """Stop the guest and remove its disk."""
        if _alive(self.monitor):
            self._kill()
        shutil.rmtree(self.disk, ignore_errors=True)
        for file in (f"{self.name}.json", f"{self.name}.log", f".#{self.name}.lck"):
            (folder() / file).unlink(missing_ok=True)

    def _save(self) -> None:
        record = {key: value for key, value in vars(self).items() if not key.startswith("_")}
        (folder() / f"{self.name}.json").write_text(json.dumps(record))

    def inventory(self) -> str:
        """An inventory with this guest, as Ansible reaches it: without a network, without ssh."""
        variables = {"ansible_connection": "community.docker.nsenter", "ansible_nsenter_pid": self.leader}
        variables["ansible_python_interpreter"] = "/usr/bin/python3"
        return yaml.safe_dump({"all": {"hosts": {self.name: variables}}})


def _alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


def load(name: str) -> Guest:
    """Return a guest that was made before, perhaps by another process."""
    record = json.loads((folder() / f"{name}.json").read_text())
    return Guest(**(record | {"gpus": tuple(record["gpus"])}))


def sweep(owner: int | None = None) -> None:
    """Remove the guests of an owner, or all whose owner is gone."""
    for record in folder().glob("*.json"):
        guest = load(record.stem)
        if guest.owner == owner or (owner is None and not _alive(guest.owner)):
            guest.destroy()


def create(
    suite: str, name: str, *, owner: int, repository: Path | None = None, gpus: tuple[str, ...] = ()
) -> Guest:
    """Make a guest of an Ubuntu release and boot it. Raises Unusable."""
    lacking = missing()
    if lacking:
        raise Unusable(lacking)
    sweep()
    guest = Guest(name, owner, repository=str(repository or ""), gpus=gpus)
    _call(["cp", "-a", "--reflink=auto", str(base(suite).root), str(guest.disk)])
    guest.start()
    return guest


def main(arguments: list[str]) -> None:
    """The command line, for playbooks that make and remove guests."""
    parser = argparse.ArgumentParser(prog="guests")
    commands = parser.add_subparsers(dest="command", required=True)
    making = commands.add_parser("create")
    making.add_argument("suite")
    making.add_argument("name")
    making.add_argument("--owner", type=int, required=True)
    making.add_argument("--repository", type=Path)
    making.add_argument("--gpus", default="")
    making.add_argument("--inventory", type=Path, required=True)
    removing = commands.add_parser("destroy")
    removing.add_argument("name")
    given = parser.parse_args(arguments)
    if given.command == "create":
        gpus = tuple(given.gpus.split(",")) if given.gpus else ()
        guest = create(given.suite, given.name, owner=given.owner, repository=given.repository, gpus=gpus)
        given.inventory.parent.mkdir(parents=True, exist_ok=True)
        given.inventory.write_text(guest.inventory())
    elif (folder() / f"{given.name}.json").exists():
        load(given.name).destroy()


if __name__ == "__main__":
    main(sys.argv[1:])
