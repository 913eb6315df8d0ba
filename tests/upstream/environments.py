"""The Python environment of each DeepOps of the matrix, made once: `python -m tests.upstream.environments`.

It is made from its lock, which needs uv and an index of packages; the tests themselves need neither.
"""

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

from deployment.matrix import tables

ROLE = Path(__file__).parents[2] / "roles" / "deepops"


def lock(release: str) -> Path:
    """The lock of a release of DeepOps."""
    return ROLE / "files" / f"requirements-{release}.txt"


def directory(release: str) -> Path:
    """Where the environment of a release is, or would be."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    digest = hashlib.sha256(lock(release).read_bytes()).hexdigest()[:16]
    return cache / "muster" / "upstream" / f"deepops-{release}-{digest}"


def make(release: str) -> None:
    """Make the environment of a release, where it is not there."""
    target = directory(release)
    if (target / "bin" / "ansible-playbook").exists():
        return
    uv = shutil.which("uv")
    if uv is None:
        sys.exit("there is no uv on PATH: run `make environment`")
    shutil.rmtree(target, ignore_errors=True)
    subprocess.run([uv, "venv", "--quiet", "--python", sys.executable, target], check=True)
    install = [
        uv,
        "pip",
        "install",
        "--quiet",
        "--python",
        str(target / "bin" / "python"),
        "--require-hashes",
    ]
    subprocess.run([*install, "--requirement", str(lock(release))], check=True)


if __name__ == "__main__":
    if not os.environ.get("MUSTER_UPSTREAM"):
        print(
            "MUSTER_UPSTREAM names no folder with the trees of other projects: nothing is checked against them"
        )
        sys.exit(0)
    for row in tables()["deepops"]:
        make(row["release"])
