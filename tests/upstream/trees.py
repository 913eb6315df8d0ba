"""Files of other projects' trees, as archives of pinned commits in the folder that `MUSTER_UPSTREAM` names."""

import os
import subprocess
from pathlib import Path

import pytest


def read_file(archive: str, path: str) -> str:
    """The text of a file of an archive; skips the test where the archive is not at hand."""
    folder = os.environ.get("MUSTER_UPSTREAM", "")
    if not folder or not (Path(folder) / archive).is_file():
        pytest.skip(f"MUSTER_UPSTREAM names no folder with {archive}")
    command = ["tar", "--zstd", "-xOf", str(Path(folder) / archive), f"./{path}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout
