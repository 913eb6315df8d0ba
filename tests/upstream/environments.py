"""Makes the Python environment of each DeepOps in the matrix once: `python -m tests.upstream.environments`.

The lock of the release names the packages. Making an environment needs uv and a package index; the tests need neither.
"""

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

from deployment.matrix import tables
from tests.upstream import facts
from tests.upstream.names import ROLES


def lock(release: str) -> Path:
    """Return the lock file of a release of DeepOps."""
    return ROLES / "deepops" / "files" / f"requirements-{release}.txt"


def directory(release: str) -> Path:
    """Return the folder for the environment of a release, which may not exist."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    digest = hashlib.sha256(lock(release).read_bytes()).hexdigest()[:16]
    return cache / "muster" / "upstream" / f"deepops-{release}-{digest}"


def make(release: str) -> bool:
    """Make the environment of a release if it is missing. Return whether it exists."""
    target = directory(release)
    if (target / "bin" / "ansible-playbook").exists():
        return True
    uv = shutil.which("uv")
    if uv is None:
        sys.exit("there is no uv on PATH: run `make environment`")
    shutil.rmtree(target, ignore_errors=True)
    python = ["--python", sys.executable]
    install = [
        "--quiet",
        "--require-hashes",
        "--requirement",
        str(lock(release)),
        "--python",
        str(target / "bin/python"),
    ]
    commands = ([uv, "venv", "--quiet", *python, str(target)], [uv, "pip", "install", *install])
    if all(subprocess.run(command, check=False).returncode == 0 for command in commands):
        return True
    shutil.rmtree(target, ignore_errors=True)
    return False


if __name__ == "__main__":
    if facts.missing("facts", []):
        sys.exit()  # no test would use the environment
    for row in tables()["deepops"]:
        if not make(row["release"]):
            print(f"the environment of DeepOps {row['release']} cannot be made: no test uses it")
