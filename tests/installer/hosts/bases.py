"""Root file systems of Ubuntu releases, made once on a machine and kept in its cache; guests are copies of them.

Each is what debootstrap makes, with all updates (a package that a role's packages draw to a newer version stays there),
and with what a host has before muster comes: containerd, as DeepOps or DGX OS would bring it, and an SSH server, which
listens only where a guest says so. Beside it lie packages of the archive that roles install.
"""

import fcntl
import hashlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

ARCHIVE = os.environ.get("MUSTER_UBUNTU_ARCHIVE", "http://archive.ubuntu.com/ubuntu")
INCLUDED = ("systemd", "systemd-sysv", "dbus", "python3", "python3-apt", "sudo", "kmod", "ca-certificates")
BROUGHT = ("containerd", "openssh-server")
DOWNLOADED = ("docker.io",)
RECIPE = 3

_HURRIED = "force-unsafe-io\n"
"""dpkg need not wait for the disk: a guest that dies takes no power from this machine."""


class Unusable(Exception):
    """This machine cannot have guests; the message names what is missing."""


@dataclass(frozen=True)
class Base:
    """A root file system to copy, and packages of its archive that roles may install."""

    root: Path
    packages: Path


def cache() -> Path:
    """The folder for root file systems, which take a minute each to make."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "muster" / "guests"


def base(suite: str) -> Base:
    """Return the root file system of an Ubuntu release, made on first use. Raises Unusable."""
    recipe = repr((RECIPE, suite, INCLUDED, BROUGHT, DOWNLOADED)).encode()
    made = cache() / f"{suite}-{hashlib.sha256(recipe).hexdigest()[:12]}"
    with _locked(cache() / f"{suite}.lock"):
        if not made.exists():
            unfinished = made.with_suffix(".unfinished")
            shutil.rmtree(unfinished, ignore_errors=True)
            _make(suite, unfinished)
            unfinished.rename(made)
    return Base(made / "root", made / "packages")


def call(arguments: list[str]) -> None:
    """Run a program of this machine. Raises Unusable with what it said."""
    finished = subprocess.run(arguments, capture_output=True, text=True, check=False, timeout=900)
    if finished.returncode != 0:
        raise Unusable(f"{' '.join(arguments[:4])}: {(finished.stderr or finished.stdout).strip()[-500:]}")


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _make(suite: str, target: Path) -> None:
    root, packages = target / "root", target / "packages"
    packages.mkdir(parents=True)
    _bootstrap(suite, root)
    (root / "etc/dpkg/dpkg.cfg.d/hurried").write_text(_HURRIED)
    never = root / "usr/sbin/policy-rc.d"
    never.write_text("#!/bin/sh\nexit 101\n")
    never.chmod(0o755)
    fetch = ["env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "-qq", "-y", "--no-install-recommends"]
    for step in (
        ["apt-get", "clean"],
        ["apt-get", "update", "-qq"],
        [*fetch, "dist-upgrade"],
        [*fetch, "install", *BROUGHT],
        ["apt-get", "clean"],
        [*fetch, "install", "--download-only", *DOWNLOADED],
        ["systemctl", "disable", "--quiet", "ssh.service", "ssh.socket"],
    ):
        call(["chroot", str(root), *step])
    never.unlink()
    for package in (root / "var/cache/apt/archives").glob("*.deb"):
        package.replace(packages / package.name)
    (root / "etc/apt/sources.list").write_text("")
    shutil.rmtree(root / "var/lib/apt/lists")
    (root / "var/lib/apt/lists/partial").mkdir(parents=True)
    (root / "etc/hostname").unlink(missing_ok=True)
    (root / "etc/machine-id").write_text("")


def _bootstrap(suite: str, root: Path) -> None:
    keyring = Path("/usr/share/keyrings/ubuntu-archive-keyring.gpg")
    trust = (
        [f"--keyring={keyring}"] if keyring.exists() else ["--no-check-gpg"]
    )  # Debian 12 has no such package
    scripts = Path("/usr/share/debootstrap/scripts")
    script = scripts / (suite if (scripts / suite).exists() else "jammy")
    include = f"--include={','.join(INCLUDED)}"
    options = ["--variant=minbase", include, "--components=main,universe", *trust]
    call(["debootstrap", *options, suite, str(root), ARCHIVE, str(script)])
    sources = [
        f"deb [trusted=yes] {ARCHIVE} {pocket} main universe" for pocket in (suite, f"{suite}-updates")
    ]
    (root / "etc/apt/sources.list").write_text("\n".join(sources) + "\n")
    shutil.copy("/etc/resolv.conf", root / "etc/resolv.conf", follow_symlinks=True)
