"""Trees of other projects, as archives of pinned commits in the folder that `MUSTER_UPSTREAM` names."""

import os
import subprocess
from pathlib import Path

import pytest

DEEPOPS = {"26.07": ("deepops-26.07.tar.zst", "kubespray-v2.31.0.tar.zst")}
"""For each release of DeepOps its archive and that of the kubespray that it pins, in `submodules/kubespray`."""

TRIDENT_DEPLOY = "trident-deploy-20.01-to-26.06.tar.zst"
TRIDENT_SOURCES = {"26.06.0": "trident-26.06.0.tar.zst"}


def archive(name: str) -> Path:
    """The path of an archive; skips the test where the folder is not at hand, and fails where it lacks this one."""
    folder = os.environ.get("MUSTER_UPSTREAM", "")
    if not folder or not Path(folder).is_dir():
        pytest.skip("MUSTER_UPSTREAM names no folder with the trees of other projects")
    path = Path(folder) / name
    assert path.is_file(), f"{folder} has no {name}: what stands on it is not proven"
    return path


def read_file(name: str, path: str) -> str:
    """The text of a file of an archive."""
    command = ["tar", "--zstd", "-xOf", str(archive(name)), f"./{path}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def unpack(name: str, directory: Path) -> Path:
    """Unpack an archive. Returns its directory."""
    directory.mkdir(parents=True, exist_ok=True)
    command = ["tar", "--zstd", "-xf", str(archive(name)), "-C", str(directory)]
    subprocess.run(command, timeout=120, check=True)
    return directory
