"""Sources of programs that the Go module proxy lacks: archives in the folder that `MUSTER_UPSTREAM` names, or git."""

import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from musterlab.errors import BinariesError

FOLDER_VARIABLE = "MUSTER_UPSTREAM"

_SECONDS = 900


@dataclass(frozen=True)
class Source:
    """One commit of a repository, and the name that its archive has before the commit."""

    name: str
    repository: str
    commit: str

    @property
    def archive(self) -> str:
        """Name of the archive of this commit."""
        return f"{self.name}-{self.commit[:7]}.tar.zst"

    def unpack(self, target: Path) -> None:
        """Put the tree into an empty directory.

        Raises:
            BinariesError: the folder of archives lacks it, or it cannot be fetched; names both ways.
        """
        folder = os.environ.get(FOLDER_VARIABLE, "")
        if folder:
            self._extract(Path(folder).absolute() / self.archive, target)
        else:
            self.fetch(target)

    def _extract(self, archive: Path, target: Path) -> None:
        if not archive.is_file():
            raise BinariesError(f"{FOLDER_VARIABLE} is {archive.parent}, where {self.archive} is not")
        why = _failure("tar", "--zstd", "-xf", str(archive), "-C", str(target))
        if why:
            raise BinariesError(f"{archive} cannot be unpacked: {why}")

    def fetch(self, target: Path) -> None:
        """Put the tree into an empty directory from its repository. Raises BinariesError."""
        inside = ("git", "-C", str(target))
        why = (
            _failure("git", "init", "--quiet", str(target))
            or _failure(*inside, "fetch", "--quiet", "--depth=1", self.repository, self.commit)
            or _failure(*inside, "checkout", "--quiet", "FETCH_HEAD")
        )
        if why:
            raise BinariesError(
                f"{self.repository} at {self.commit[:7]} cannot be fetched ({why}): set {FOLDER_VARIABLE} "
                f"to a folder that has {self.archive}"
            )


def _failure(*command: str) -> str:
    """Run a command; return nothing if it succeeds, and why not otherwise."""
    if shutil.which(command[0]) is None:
        return f"there is no {command[0]!r} on PATH"
    environment = {**os.environ, "GIT_TERMINAL_PROMPT": "0"}
    try:
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, check=False, timeout=_SECONDS
        )
    except subprocess.TimeoutExpired:
        return f"no answer in {_SECONDS} s"
    if done.returncode == 0:
        return ""
    lines = done.stderr.strip().splitlines()
    return lines[-1] if lines else f"{command[0]} ended with {done.returncode}"


MOCK = Source(
    "nvidia-mock", "https://github.com/NVIDIA/k8s-test-infra", "3b2b865d91b1844baa9feeca2820d2fab65414c7"
)
DEVICE_PLUGIN = Source(
    "k8s-device-plugin",
    "https://github.com/NVIDIA/k8s-device-plugin",
    "1b826acc6af3079d8923bac395c3124b8861a9a6",
)
DRA_DRIVER = Source(
    "dra-driver-nvidia-gpu",
    "https://github.com/kubernetes-sigs/dra-driver-nvidia-gpu",
    "95932046683719c43b6a0dd9613c2e5aad5d6703",
)
HOST_PATH = Source(
    "csi-driver-host-path",
    "https://github.com/kubernetes-csi/csi-driver-host-path",
    "1f2b2e64d01e8dd93e1f2e8fa6efcda7280208f2",
)
