"""The data LIF of the double: its volumes as directories, exported under their junction paths by nfs-ganesha.

Server and clients are Debian's programs in user space: `nfs-ganesha`, the tools of `libnfs-utils`, and for
`mount_nfs.py` libnfs and libfuse. They are those of the machine, or are unpacked into a cache without installation. The
server needs root, because it opens files by handle.
"""

import contextlib
import hashlib
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from musterlab.paths import cache_directory
from tests.deployment.ontap.bodies import Record

PACKAGES = (
    "nfs-ganesha", "nfs-ganesha-vfs", "libntirpc4.3", "liburcu8", "libnfsidmap1", "libwbclient0",
    "libnfs13", "libnfs-utils", "libfuse3-3",
)  # fmt: skip
_LIBNFS, _LIBFUSE = "libnfs.so.13", "libfuse3.so.3"
LARGEST_FILE_BYTES = 2000
"""Maximum size of a file: libnfs 4.0 writes at most this much in one request over NFS 4, and its tools write a file in
one request.
"""

_SECONDS = 60
_SERVER = "storage"
_CONFIGURATION = """NFS_CORE_PARAM {{
  Protocols = 4;
  Enable_NLM = false;
  Enable_RQUOTA = false;
  Plugins_Dir = "{plugins}";
}}
NFSV4 {{
  Graceless = true;
  Only_Numeric_Owners = true;
  UseGetpwnam = true;
  DomainName = localdomain;
  RecoveryBackend = fs;
  RecoveryRoot = "{state}";
}}
"""
_EXPORT = """EXPORT {{
  Export_Id = {number};
  Path = "{path}";
  Pseudo = "{junction}";
  Access_Type = NONE;
  Squash = No_Root_Squash;
  SecType = sys;
  Protocols = 4;
  FSAL {{ Name = VFS; }}
  CLIENT {{ Clients = {clients}; Protocols = 4; Access_Type = RW; }}
}}
"""


@dataclass(frozen=True)
class Programs:
    """The paths of server, tools and libraries."""

    root: Path

    def command(self, name: str) -> str:
        return str(self.root / "usr" / "bin" / name)

    @property
    def environment(self) -> dict[str, str]:
        library = self.root / "usr" / "lib"
        return {**os.environ, "LD_LIBRARY_PATH": f"{library / 'ganesha'}:{library / 'x86_64-linux-gnu'}"}

    def library(self, name: str) -> Path:
        """Return the path of a shared library, which may not exist."""
        folders = [self.root / below / "x86_64-linux-gnu" for below in ("usr/lib", "lib")]
        return next((folder / name for folder in folders if (folder / name).exists()), folders[0] / name)

    @property
    def client_environment(self) -> dict[str, str]:
        """Return the variables by which `mount_nfs.py` finds its libraries."""
        libraries = {"LIBNFS_LIBRARY_PATH": _LIBNFS, "FUSE_LIBRARY_PATH": _LIBFUSE}
        return {variable: str(self.library(name)) for variable, name in libraries.items()}

    def complete(self) -> bool:
        """Return whether all programs and libraries exist."""
        commands = (self.command(name) for name in ("ganesha.nfsd", "nfs-cp"))
        return all(Path(path).exists() for path in (*commands, *self.client_environment.values()))

    @property
    def plugins(self) -> Path:
        return self.root / "usr" / "lib" / "x86_64-linux-gnu" / "ganesha"


def programs() -> Programs:
    """Return server and tools. Skips the test if they can neither be found nor fetched."""
    if os.geteuid() != 0:
        pytest.skip("an NFS server and network namespaces need root")
    if (installed := Programs(Path("/"))).complete():
        return installed
    target = cache_directory() / f"nfs-{hashlib.sha256(repr(PACKAGES).encode()).hexdigest()[:16]}"
    if not target.is_dir():
        if not shutil.which("apt-get"):
            pytest.skip(f"there is neither nfs-ganesha nor apt-get; Debian's packages: {', '.join(PACKAGES)}")
        _fetch(target)
    return Programs(target)


def _fetch(target: Path) -> None:
    with tempfile.TemporaryDirectory(dir=target.parent) as folder:
        whole = Path(folder) / "root"
        done = subprocess.run(
            ["apt-get", "download", *PACKAGES],
            cwd=folder,
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )
        if done.returncode != 0:
            pytest.skip(f"Debian's NFS server and tools cannot be fetched: {done.stderr.strip()}")
        for package in Path(folder).glob("*.deb"):
            subprocess.run(["dpkg", "-x", str(package), str(whole)], check=True, timeout=_SECONDS)
        whole.rename(target)


@dataclass
class Network:
    """A network of the storage system, with its data LIF, and of nodes."""

    programs: Programs
    prefix: str
    lif: str
    nodes: dict[str, str]

    def inside(self, name: str, *command: str, **options: Any) -> "subprocess.CompletedProcess[bytes]":
        """Run a command on the storage system or on a node."""
        return subprocess.run(
            ["ip", "netns", "exec", f"{self.prefix}{name}", *command],
            env=self.programs.environment,
            capture_output=True,
            timeout=_SECONDS,
            check=False,
            **options,
        )

    def write(self, node: str, path: str, content: bytes, folder: Path) -> str:
        """Write a file over NFS on a node; return the error, or an empty string."""
        assert len(content) <= LARGEST_FILE_BYTES
        source = folder / "content"
        source.write_bytes(content)
        command = (self.programs.command("nfs-cp"), str(source), f"nfs://{self.lif}{path}?version=4")
        done = self.inside(node, *command)
        return "" if done.returncode == 0 and b"copied" in done.stdout else done.stderr.decode()

    def read(self, node: str, path: str) -> tuple[bytes, str]:
        """Read a file over NFS on a node; return its content and the error."""
        done = self.inside(node, self.programs.command("nfs-cat"), f"nfs://{self.lif}{path}?version=4")
        return done.stdout, done.stderr.decode()


@contextmanager
def joined(lif: str, namespace: str, bridge: str) -> Iterator[Network]:
    """Make the storage system's namespace, connected to a bridge in another namespace that `ip netns` need not know."""
    network = Network(programs(), f"mt{os.getpid()}-", lif, {})
    server = f"{network.prefix}{_SERVER}"
    try:
        _ip("netns", "add", server)
        link = ("ip", "link", "add", "storage", "type", "veth", "peer", "name", "eth0", "netns")
        for command in (
            (*link, f"/run/netns/{server}"),
            ("ip", "link", "set", "storage", "master", bridge, "up"),
        ):
            subprocess.run(["nsenter", f"--net={namespace}", *command], check=True, timeout=_SECONDS)
        _ip("-n", server, "addr", "add", f"{lif}/16", "dev", "eth0")
        for name in ("lo", "eth0"):
            _ip("-n", server, "link", "set", name, "up")
        yield network
    finally:
        subprocess.run(["ip", "netns", "del", server], check=False, capture_output=True)


@contextmanager
def network(lif: str, nodes: dict[str, str]) -> Iterator[Network]:
    """Make the namespaces: a bridge at the storage system, and a link to it from each node."""
    network = Network(programs(), f"mt{os.getpid()}-", lif, nodes)
    server = f"{network.prefix}{_SERVER}"
    try:
        _ip("netns", "add", server)
        _ip("-n", server, "link", "add", "br0", "type", "bridge")
        _ip("-n", server, "addr", "add", f"{lif}/24", "dev", "br0")
        for link in ("lo", "br0"):
            _ip("-n", server, "link", "set", link, "up")
        for number, (node, address) in enumerate(nodes.items()):
            name = f"{network.prefix}{node}"
            _ip("netns", "add", name)
            _ip(
                "-n",
                server,
                "link",
                "add",
                f"n{number}",
                "type",
                "veth",
                "peer",
                "name",
                "eth0",
                "netns",
                name,
            )
            _ip("-n", server, "link", "set", f"n{number}", "master", "br0", "up")
            _ip("-n", name, "addr", "add", f"{address}/24", "dev", "eth0")
            _ip("-n", name, "link", "set", "eth0", "up")
        yield network
    finally:
        for name in (_SERVER, *nodes):
            subprocess.run(
                ["ip", "netns", "del", f"{network.prefix}{name}"], check=False, capture_output=True
            )


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, timeout=_SECONDS)


class Exports:
    """The data of volumes below a folder, and the server that exports volumes with a junction."""

    def __init__(self, network: Network, folder: Path) -> None:
        self._network = network
        self._folder = folder
        self._configuration = folder / "ganesha.conf"
        self._log = folder / "ganesha.log"
        self._numbers: dict[str, int] = {}
        self._process: subprocess.Popen[bytes] | None = None
        (folder / "state").mkdir()
        self.export([], [])

    def create(self, volume: str, source: Path | None) -> None:
        """Make the directory of a volume, empty or as a copy."""
        if source:
            shutil.copytree(source, self.content(volume))
        else:
            self.content(volume).mkdir(parents=True)

    def content(self, volume: str, snapshot: str = "") -> Path:
        """Return the directory of a volume, or of a snapshot of it."""
        return self._folder / volume / (f"snapshot-{snapshot}" if snapshot else "content")

    def keep(self, volume: str, snapshot: str) -> None:
        """Copy the present content of a volume into a snapshot."""
        shutil.copytree(self.content(volume), self.content(volume, snapshot))

    def forget(self, volume: str, snapshot: str = "") -> None:
        """Delete a volume with its snapshots, or one snapshot."""
        shutil.rmtree(self.content(volume, snapshot) if snapshot else self._folder / volume)

    def export(self, volumes: list[Record], policies: list[Record]) -> None:
        """Export exactly the volumes with a junction, to the clients in their export policies."""
        clients = {
            (policy["svm"]["name"], policy["name"]): [
                client["match"] for rule in policy["rules"] for client in rule["clients"]
            ]
            for policy in policies
        }
        text = _CONFIGURATION.format(plugins=self._network.programs.plugins, state=self._folder / "state")
        for volume in volumes:
            allowed = clients.get((volume["svm"]["name"], volume["nas"]["export_policy"]["name"]), [])
            if volume["nas"].get("path") and allowed:
                text += _EXPORT.format(
                    number=self._numbers.setdefault(volume["uuid"], len(self._numbers) + 1),
                    path=self.content(volume["uuid"]),
                    junction=volume["nas"]["path"],
                    clients=", ".join(allowed),
                )
        if self._configuration.exists() and text == self._configuration.read_text():
            return
        self._configuration.write_text(text)
        if self._process is not None:
            before = self._reread()
            self._process.send_signal(signal.SIGHUP)
            self._wait(lambda: self._reread() > before)

    def start(self) -> None:
        """Start the server, and wait until it listens."""
        arguments = [
            "-F",
            "-f",
            str(self._configuration),
            "-L",
            str(self._log),
            "-p",
            str(self._folder / "pid"),
        ]
        self._process = subprocess.Popen(
            [
                *("ip", "netns", "exec", f"{self._network.prefix}{_SERVER}"),
                *(self._network.programs.command("ganesha.nfsd"), *arguments),
            ],
            env=self._network.programs.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        self._wait(lambda: b":2049" in self._network.inside(_SERVER, "ss", "-lnt").stdout)

    def stop(self) -> None:
        """Stop the server."""
        if self._process is not None:
            self._process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(timeout=_SECONDS)
            self._process.kill()
            self._process.wait(timeout=_SECONDS)

    def _reread(self) -> int:
        return self._log.read_text().count("Reread exports complete")

    def _wait(self, condition: Any) -> None:
        deadline = time.monotonic() + _SECONDS
        while not condition():
            assert time.monotonic() < deadline, self._log.read_text()[-2000:]
            time.sleep(0.05)
