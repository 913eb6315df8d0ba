"""An OpenSSH server on loopback as a jump host. Its log has the ports to which it forwarded connections."""

import getpass
import re
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

_START_SECONDS = 20
_CONFIG = """Port {port}
ListenAddress 127.0.0.1
HostKey {directory}/host_key
AuthorizedKeysFile {directory}/id_ed25519.pub
PidFile none
UsePAM no
UseDNS no
StrictModes no
LogLevel DEBUG1
"""


class Sshd:
    """A running server. `known_host` is its line for known_hosts."""

    def __init__(self, directory: Path, port: int) -> None:
        self._directory = directory
        self.port = port
        self.user = getpass.getuser()
        self.key_file = directory / "id_ed25519"
        self.known_host = self._line(directory / "host_key.pub")

    @property
    def forwarded(self) -> set[int]:
        """The ports to which clients asked it to forward."""
        log = (self._directory / "log").read_text()
        return {int(port) for port in re.findall(r"direct_tcpip: .*target \S+ port (\d+)", log)}

    def another_key(self, directory: Path) -> str:
        """Return the line for known_hosts with a key that the server does not have."""
        generate(directory / "another")
        return self._line(directory / "another.pub")

    def _line(self, key: Path) -> str:
        kind, text, *_ = key.read_text().split()
        return f"[127.0.0.1]:{self.port} {kind} {text}\n"


def generate(path: Path) -> None:
    """Generate a key pair."""
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", path], check=True)


@contextmanager
def sshd(directory: Path, path: str = "") -> Iterator[Sshd]:
    """Run a server for the length of a test, with this PATH for commands. Skips the test without OpenSSH's server."""
    program = shutil.which("sshd", path="/usr/sbin:/usr/local/sbin")
    if program is None:
        pytest.skip("there is no sshd: install openssh-server")
    for name in ("host_key", "id_ed25519"):
        generate(directory / name)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    # with this SHLVL bash does not read ~/.bashrc, which may put other programs first on PATH
    programs = f"SetEnv PATH={path} SHLVL=1\n" if path else ""
    (directory / "config").write_text(_CONFIG.format(port=port, directory=directory) + programs)
    Path("/run/sshd").mkdir(exist_ok=True)
    command = [program, "-D", "-f", str(directory / "config"), "-E", str(directory / "log")]
    running = subprocess.Popen(command)
    try:
        deadline = time.monotonic() + _START_SECONDS
        while "Server listening" not in (
            (directory / "log").read_text() if (directory / "log").exists() else ""
        ):
            assert running.poll() is None, (directory / "log").read_text()
            assert time.monotonic() < deadline, "sshd does not listen"
            time.sleep(0.02)
        yield Sshd(directory, port)
    finally:
        running.terminate()
        running.wait()
