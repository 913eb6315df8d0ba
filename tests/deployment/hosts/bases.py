"""Root file systems of Ubuntu releases, made once on a machine and kept in a cache; guests use them as lower layers.

mmdebstrap makes each with all updates, because the packages of a role may upgrade installed ones. It has the software
of a host before muster: containerd, as DeepOps or DGX OS would install it, and an SSH server that listens only if a
guest enables it. Beside each there is a folder with packages that roles install.
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
"""The packages of kubespray's role system_packages on Ubuntu. A test that runs the role reports further ones."""

DOWNLOADED = {"bionic": ("docker.io",)}
"""The downloaded packages by release; by default `docker.io`, the NFS client and kubespray's packages."""

RECIPE = 6
KEYRING = Path("/usr/share/keyrings/ubuntu-archive-keyring.gpg")


class Unusable(Exception):
    """This machine cannot run guests; the message names the missing requirement."""


@dataclass(frozen=True)
class Base:
    """A shared root file system, and packages of its archive that roles may install."""

    root: Path
    packages: Path


def cache() -> Path:
    """Return the folder for root file systems, which take half a minute each to make."""
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
    """Run a program of this machine. Raises Unusable with its message."""
    finished = subprocess.run(arguments, capture_output=True, text=True, check=False, timeout=900)
    if finished.returncode != 0:
        raise Unusable(f"{' '.join(arguments[:4])}: {(finished.stderr or finished.stdout).strip()[-500:]}")


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold a lock on the path for the length of the block."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _downloaded(suite: str) -> tuple[str, ...]:
    return DOWNLOADED.get(suite, ("docker.io", "nfs-common", *KUBESPRAY))


def archive_lines(suite: str) -> list[str]:
    """Return the lines for apt with the archive of an Ubuntu release and its updates."""
    # Debian 12 has no package with this keyring
    trust = f"signed-by={KEYRING}" if KEYRING.exists() else "trusted=yes"
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
    # the apt of Ubuntu 18.04 cannot remove packages without this file
    (root / "var/lib/dpkg/available").touch()
