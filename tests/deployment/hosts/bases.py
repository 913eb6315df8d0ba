"""Root file systems of Ubuntu releases, made once on a machine and kept in its cache; guests lay their disks over them.

Each is what mmdebstrap makes, with all updates (a package that a role's packages draw to a newer version stays there),
and with what a host has before muster comes: containerd, as DeepOps or DGX OS would bring it, and an SSH server, which
listens only where a guest says so. Beside it lie packages of the archive that roles install.
"""

import fcntl
import hashlib
import os
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

ARCHIVE = os.environ.get("MUSTER_UBUNTU_ARCHIVE", "http://archive.ubuntu.com/ubuntu")
ORDINARY = ("apt", "systemd", "systemd-sysv", "dbus", "python3", "python3-apt", "sudo", "kmod", "netbase")
BROUGHT = ("containerd", "openssh-server")
KUBESPRAY = (
    *("apparmor", "apt-transport-https", "bash-completion", "conntrack", "curl", "e2fsprogs", "ebtables"),
    *(
        "iproute2",
        "iptables",
        "ipvsadm",
        "iputils-ping",
        "libseccomp2",
        "openssl",
        "python3-apt",
        "rsync",
        "socat",
    ),
    *("software-properties-common", "tar", "unzip", "xfsprogs"),
)
"""What kubespray's role system_packages asks for on Ubuntu; where it asks for more, a test that runs it says so."""

DOWNLOADED = {"bionic": ("docker.io",)}
"""By release; `docker.io`, the NFS client and what kubespray asks for where nothing else is said."""

RECIPE = 6
KEYRING = Path("/usr/share/keyrings/ubuntu-archive-keyring.gpg")


class Unusable(Exception):
    """This machine cannot have guests; the message names what is missing."""


@dataclass(frozen=True)
class Base:
    """A root file system to share, and packages of its archive that roles may install."""

    root: Path
    packages: Path


def cache() -> Path:
    """The folder for root file systems, which take half a minute each to make."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "muster" / "guests"


def base(suite: str, more: tuple[str, ...] = ()) -> Base:
    """Return the root file system of an Ubuntu release with more packages, made on first use. Raises Unusable."""
    recipe = repr((RECIPE, suite, ORDINARY, BROUGHT, _downloaded(suite), *more)).encode()
    made = cache() / f"{suite}-{hashlib.sha256(recipe).hexdigest()[:12]}"
    with locked(cache() / f"{suite}.lock"):
        if not made.exists():
            unfinished = made.with_suffix(".unfinished")
            shutil.rmtree(unfinished, ignore_errors=True)
            _make(suite, unfinished, more)
            unfinished.rename(made)
    return Base(made / "root", made / "packages")


def call(arguments: list[str]) -> None:
    """Run a program of this machine. Raises Unusable with what it said."""
    finished = subprocess.run(arguments, capture_output=True, text=True, check=False, timeout=900)
    if finished.returncode != 0:
        raise Unusable(f"{' '.join(arguments[:4])}: {(finished.stderr or finished.stdout).strip()[-500:]}")


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Let only one process at a time go on."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _downloaded(suite: str) -> tuple[str, ...]:
    return DOWNLOADED.get(suite, ("docker.io", "nfs-common", *KUBESPRAY))


def archive_lines(suite: str) -> list[str]:
    """Return the lines by which apt knows the archive of an Ubuntu release and its updates."""
    trust = f"signed-by={KEYRING}" if KEYRING.exists() else "trusted=yes"  # Debian 12 has no such package
    return [f"deb [{trust}] {ARCHIVE} {pocket} main universe" for pocket in (suite, f"{suite}-updates")]


def _make(suite: str, target: Path, more: tuple[str, ...]) -> None:
    root, packages = target / "root", target / "packages"
    packages.mkdir(parents=True)
    hooks = (
        'chroot "$1" apt-get clean',
        f'chroot "$1" apt-get -qq -y --no-install-recommends --download-only install {" ".join(_downloaded(suite))}',
        f'mv "$1"/var/cache/apt/archives/*.deb {shlex.quote(str(packages))}',
        'chroot "$1" systemctl disable --quiet ssh.service ssh.socket',
    )
    options = ["--mode=root", "--variant=minbase", "--quiet", "--dpkgopt=force-unsafe-io"]
    options += [
        f"--include={','.join(ORDINARY + BROUGHT + more)}",
        *(f"--customize-hook={hook}" for hook in hooks),
    ]
    call(["mmdebstrap", *options, suite, str(root), *archive_lines(suite)])
    (root / "etc/apt/sources.list").write_text("")
    (root / "etc/hostname").unlink(missing_ok=True)
    (root / "etc/machine-id").write_text("")
    (root / "var/lib/dpkg/available").touch()  # the apt of Ubuntu 18.04 cannot remove packages without it
