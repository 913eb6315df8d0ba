"""The Ansible that manages a guest: that of this environment, or an older release for a host with an old Python.

ansible-core 2.17 and newer need Python 3.7 on a host, and Ubuntu 18.04 has 3.6. So ansible-core 2.16, installed once
into the cache, manages these guests.
"""

import fcntl
import os
import shutil
import subprocess
import sys
from pathlib import Path

from tests.deployment.hosts.bases import Unusable

PINS = {
    "2.16": (
        "ansible-core==2.16.19",
        "ansible==9.13.0",
        "molecule==25.4.0",
        "pytest-testinfra==10.2.2",
        "pyyaml==6.0.2",
    )
}

TOO_NEW = (3, 13)
COMPLETE = ".complete"


def programs(release: str) -> Path:
    """Return the folder with the programs of an Ansible release; for an empty release, that of this environment."""
    if not release:
        return Path(sys.executable).parent
    pins = PINS[release]
    root = (
        Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        / "muster"
        / f"ansible-{pins[0].partition('==')[2]}"
    )
    root.parent.mkdir(parents=True, exist_ok=True)
    with root.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (root / COMPLETE).exists():
            _make(root, pins)
    return root / "bin"


def _make(root: Path, pins: tuple[str, ...]) -> None:
    shutil.rmtree(root, ignore_errors=True)  # left by an interrupted run
    for words in (
        [_python(pins[0]), "-m", "venv", str(root)],
        [str(root / "bin/python"), "-m", "pip", "install", "--quiet", *pins],
    ):
        finished = subprocess.run(words, capture_output=True, text=True, check=False, timeout=600)
        if finished.returncode != 0:
            raise Unusable(f"{pins[0]} cannot be installed: {finished.stderr.strip()[-300:]}")
    (root / COMPLETE).touch()


def _python(pin: str) -> str:
    """Return a Python that this Ansible supports."""
    names = [sys.executable] if sys.version_info < TOO_NEW else ["python3.12", "python3.11"]
    paths = [path for name in names if (path := shutil.which(name))]
    if not paths:
        raise Unusable(
            f"{pin} cannot be installed: it runs on Python 3.10 to 3.12, and there is none of them"
        )
    return paths[0]
