"""`make rehearsal` names in one line everything that the machine lacks, and starts nothing."""

import os
import subprocess
import sys
from pathlib import Path


def test_one_line_names_everything_that_is_missing(tmp_path: Path) -> None:
    empty = {"PATH": str(tmp_path), "MUSTER_UPSTREAM": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-m", "tests.rehearsal"], env=os.environ | empty, capture_output=True, text=True, check=False
    )  # fmt: skip
    assert done.returncode == 1
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert line.startswith("rehearsal: not run; this machine lacks: ")
    for missing in ("iproute2", str(tmp_path / "deepops-26.07"), "python -m tests.upstream.environments"):
        assert missing in line
    assert "systemd-container" in line or "root" in line


def test_the_folder_of_checkouts_must_be_named(tmp_path: Path) -> None:
    environment = {key: value for key, value in os.environ.items() if key != "MUSTER_UPSTREAM"}
    environment["XDG_CACHE_HOME"] = str(tmp_path)
    done = subprocess.run(
        [sys.executable, "-m", "tests.rehearsal"], env=environment, capture_output=True, text=True, check=False
    )  # fmt: skip
    assert done.returncode == 1
    assert (
        "MUSTER_UPSTREAM=DIR, a folder with plain checkouts of DeepOps and kubespray: deepops-26.07"
        in done.stderr
    )
